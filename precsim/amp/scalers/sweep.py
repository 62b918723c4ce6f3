"""Many scalers over one run at once: what overflow at each step follows from is the scale, one limit a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from precsim.amp.scalers.consecutive import Apex, Jmp, Keras, ShardedTorch, TensorFlow, Torch
from precsim.amp.scalers.float32 import to_float32
from precsim.amp.scalers.hysteresis import DeepSpeed, Megatron, Paddle
from precsim.amp.scalers.machine import Scaler
from precsim.errors import InputError

__all__ = ["Sweep", "sweep"]

_NEVER = 2**62
"""An interval that no run reaches."""


@dataclass(frozen=True)
class _Lane:
    """One scaler in numbers: what is common to all scalers that count steps.

    Attributes
    ----------
    init, growth, backoff, divisor : float
        The scale grows to scale·growth and falls to scale·backoff/divisor, of which one is 1.
    interval : int
        Good steps in a row until growth.
    restart : int
        The count of good steps after an overflow, and at the start.
    hysteresis : int
        The scale falls at the overflow of this number …
    refill_on_good, refill_on_fall : bool
        … since the last growth, good step or fall.
    floor, cap : float
    single : bool
        Whether results are rounded to float32.
    kept : bool
        Whether a growth that is not finite is not made.
    raises : bool
        Whether a fall at the floor ends the run.
    """

    init: float
    growth: float
    backoff: float
    interval: int
    divisor: float = 1.0
    restart: int = 0
    hysteresis: int = 1
    refill_on_good: bool = False
    refill_on_fall: bool = False
    floor: float = -np.inf
    cap: float = np.inf
    single: bool = True
    kept: bool = False
    raises: bool = False


def _lane(scaler: Scaler[Any]) -> _Lane:
    first = scaler.initial().scale
    match scaler:
        case Torch():
            interval = scaler.growth_interval if scaler.growth_interval > 0 else _NEVER
            kept = scaler.finite_check
            return _Lane(first, scaler.growth_factor, scaler.backoff_factor, interval, kept=kept)
        case ShardedTorch():
            interval = scaler.growth_interval if scaler.growth_interval > 0 else _NEVER
            return _Lane(first, to_float32(scaler.growth_factor), to_float32(scaler.backoff_factor), interval)
        case Apex():
            floor = scaler.min_scale or -np.inf
            return _Lane(
                first, 2.0, 0.5, scaler.growth_interval, floor=floor, cap=scaler.max_scale, single=False
            )
        case TensorFlow():
            factor = to_float32(scaler.factor)
            interval = max(scaler.growth_interval, 1)
            return _Lane(first, factor, 1.0, interval, divisor=factor, floor=1.0, kept=True)
        case Keras():
            interval = scaler.growth_interval if scaler.growth_interval > 0 else _NEVER
            return _Lane(first, 2.0, 0.5, interval)
        case Jmp():
            factor, floor = to_float32(scaler.factor), to_float32(scaler.min_scale)
            return _Lane(first, factor, 1.0, scaler.growth_interval, divisor=factor, floor=floor, kept=True)
        case Paddle():
            return _Lane(
                first,
                to_float32(scaler.growth_factor),
                to_float32(scaler.backoff_factor),
                scaler.growth_interval,
                hysteresis=scaler.hysteresis,
                refill_on_good=True,
                refill_on_fall=True,
                floor=1.0 if scaler.static_graph else -np.inf,
                kept=scaler.static_graph,
            )
        case Megatron():
            return _Lane(
                first,
                to_float32(scaler.growth_factor),
                to_float32(scaler.backoff_factor),
                scaler.growth_interval,
                hysteresis=scaler.hysteresis,
                floor=to_float32(scaler.min_scale),
            )
        case DeepSpeed():
            return _Lane(
                first,
                scaler.factor,
                1.0,
                scaler.growth_interval,
                divisor=scaler.factor,
                restart=0 if scaler.early_growth else -1,
                hysteresis=scaler.hysteresis,
                refill_on_good=scaler.consecutive_hysteresis,
                floor=scaler.min_scale,
                single=False,
                raises=scaler.raise_at_min,
            )
    raise InputError(
        f"{type(scaler).__name__} can't be swept: step it with update, or sweep Torch, ShardedTorch, Apex, Megatron, "
        "DeepSpeed, TensorFlow, Keras, Paddle or Jmp"
    )


@dataclass(frozen=True, eq=False)
class Sweep:
    """What became of each scaler over the run: arrays of one entry a scaler.

    Attributes
    ----------
    scalers : tuple of Scaler
    steps : int
        Steps of the run.
    skipped : ndarray of int64
        Steps that overflowed.
    final, least, greatest : ndarray of float64
        The scale after the last step; the least and the greatest from the first scale to that one.
    at_floor : ndarray of int64
        Steps made at the floor.
    raised_at : ndarray of int64
        The step, counted from 0, at which the original would have ended the run, −1 for none. The other numbers are of
        the steps until then, it included.
    """

    scalers: tuple[Scaler[Any], ...]
    steps: int
    skipped: NDArray[np.int64]
    final: NDArray[np.float64]
    least: NDArray[np.float64]
    greatest: NDArray[np.float64]
    at_floor: NDArray[np.int64]
    raised_at: NDArray[np.int64]


def sweep(scalers: Sequence[Scaler[Any]], limits: ArrayLike, nonfinite: ArrayLike | None = None) -> Sweep:
    """Step many scalers over one run, closed over overflow: step t overflows where the scale exceeds its limit.

    Parameters
    ----------
    scalers : sequence of Scaler
        Of systems that count steps: torch, FSDP, Apex, Megatron-LM, DeepSpeed, TensorFlow, Keras, Paddle, jmp.
    limits : array_like of float64, shape (steps,)
        The greatest scale at which nothing overflows at each step.
    nonfinite : array_like of bool, shape (steps,), optional
        Steps that overflow at any scale.

    Returns
    -------
    Sweep
        Bit for bit what stepping each scaler by itself gives.

    Raises
    ------
    InputError
        For a scaler of another kind, and limits or flags that are no such arrays.
    """
    limit = np.asarray(limits, dtype=np.float64)
    if limit.ndim != 1 or np.isnan(limit).any():
        raise InputError(f"limits must be one number a step without NaN, got an array of shape {limit.shape}")
    bad = np.zeros(limit.shape, bool) if nonfinite is None else np.asarray(nonfinite, dtype=bool)
    if bad.shape != limit.shape:
        raise InputError(f"nonfinite must have one flag a step: {limit.shape}, got {bad.shape}")
    return _run(tuple(scalers), np.where(bad, -np.inf, limit), bad)


def _run(scalers: tuple[Scaler[Any], ...], limit: NDArray[np.float64], bad: NDArray[np.bool_]) -> Sweep:
    lanes = [_lane(scaler) for scaler in scalers]

    def column(name: str, dtype: type) -> NDArray[Any]:
        return np.array([getattr(lane, name) for lane in lanes], dtype)

    growth, backoff, divisor = (column(name, float) for name in ("growth", "backoff", "divisor"))
    floor, cap = column("floor", float), column("cap", float)
    interval, restart, hysteresis = (column(name, np.int64) for name in ("interval", "restart", "hysteresis"))
    single, kept, raises = (column(name, bool) for name in ("single", "kept", "raises"))
    on_good, on_fall = column("refill_on_good", bool), column("refill_on_fall", bool)
    refills_on_good = bool(on_good.any())

    def rounded(values: NDArray[np.float64], which: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.where(single[which], values.astype(np.float32).astype(np.float64), values)

    scale = column("init", float)
    least, greatest = scale.copy(), scale.copy()
    tracker, left = restart.copy(), hysteresis.copy()
    skipped, at_floor = np.zeros(len(lanes), np.int64), np.zeros(len(lanes), np.int64)
    raised_at = np.full(len(lanes), -1, np.int64)
    alive = np.ones(len(lanes), bool)

    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for step, (most, always) in enumerate(zip(limit.tolist(), bad.tolist(), strict=True)):
            found = alive if always else (scale > most) & alive
            at_floor += (scale <= floor) & alive
            tracker += 1
            due = tracker == interval
            if found.any():
                which = np.flatnonzero(found)
                skipped[which] += 1
                left[which] -= 1
                tracker[which] = restart[which]
                due[which] = False
                falls = which[left[which] <= 0]
                ends = falls[raises[falls] & (scale[falls] == floor[falls])]
                raised_at[ends] = step
                alive = alive.copy()
                alive[ends] = False
                lowered = rounded(scale[falls] * backoff[falls] / divisor[falls], falls)
                scale[falls] = np.maximum(lowered, floor[falls])
                refilled = falls[on_fall[falls]]
                left[refilled] = hysteresis[refilled]
                least[falls] = np.minimum(least[falls], scale[falls])
                greatest[falls] = np.maximum(greatest[falls], scale[falls])
            if refills_on_good:
                np.copyto(left, hysteresis, where=on_good & ~found)
            due &= alive
            if due.any():
                which = np.flatnonzero(due)
                grown = np.minimum(rounded(scale[which] * growth[which], which), cap[which])
                scale[which] = np.where(kept[which] & ~np.isfinite(grown), scale[which], grown)
                tracker[which] = 0
                left[which] = hysteresis[which]
                greatest[which] = np.maximum(greatest[which], scale[which])
    return Sweep(scalers, len(limit), skipped, scale, least, greatest, at_floor, raised_at)
