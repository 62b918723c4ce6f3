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
    flushed : ndarray of float64 or None
        Mean share flushed of the steps that were taken; NaN where none was.
    """

    scalers: tuple[Scaler[Any], ...]
    steps: int
    skipped: NDArray[np.int64]
    final: NDArray[np.float64]
    least: NDArray[np.float64]
    greatest: NDArray[np.float64]
    at_floor: NDArray[np.int64]
    raised_at: NDArray[np.int64]
    flushed: NDArray[np.float64] | None = None

    def pareto(self) -> list[int]:
        """Scalers that no other one beats: none that skips as few steps flushes less. By steps skipped, ascending.

        Those that end the run are out. Of several that are alike in both the first one stands.

        Raises
        ------
        InputError
            If the sweep was made without the shares flushed.
        """
        if self.flushed is None:
            raise InputError("the sweep knows no shares flushed: give sweep a table of them")
        best, least = list[int](), np.inf
        order = np.lexsort((np.arange(len(self.skipped)), self.flushed, self.skipped))
        for i in order[(self.raised_at < 0)[order] & ~np.isnan(self.flushed[order])].tolist():
            if self.flushed[i] < least:
                best.append(i)
                least = self.flushed[i]
        return best


def sweep(
    scalers: Sequence[Scaler[Any]],
    limits: ArrayLike,
    nonfinite: ArrayLike | None = None,
    *,
    flushed: ArrayLike | None = None,
    first_exponent: int = 0,
) -> Sweep:
    """Step many scalers over one run, closed over overflow: step t overflows where the scale exceeds its limit.

    Parameters
    ----------
    scalers : sequence of Scaler
        Of systems that count steps: torch, FSDP, Apex, Megatron-LM, DeepSpeed, TensorFlow, Keras, Paddle, jmp.
    limits : array_like of float64, shape (steps,)
        The greatest scale at which nothing overflows at each step.
    nonfinite : array_like of bool, shape (steps,), optional
        Steps that overflow at any scale.
    flushed : array_like of float64, shape (steps, exponents), optional
        Share flushed at each step at the scales 2^first_exponent, 2^(first_exponent + 1), …; for other scales the power
        of two below is read, which is a bound from above, and beyond the table its first or last column.
    first_exponent : int

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
    costs = None
    if flushed is not None:
        table = np.asarray(flushed, dtype=np.float64)
        if table.ndim != 2 or len(table) != len(limit) or not table.shape[1]:
            raise InputError(f"flushed must have a row for each of {len(limit)} steps, got {table.shape}")
        costs = _Costs(table, first_exponent)
    return _run(tuple(scalers), np.where(bad, -np.inf, limit), bad, costs)


class _Minima:
    """The first step from a given one on at which a limit lies below a scale, by doubling: minima of 2^k steps."""

    def __init__(self, limit: NDArray[np.float64]) -> None:
        self._levels = [np.append(limit, np.inf)]

    def good_steps(
        self, scale: NDArray[np.float64], start: NDArray[np.int64], most: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Number of steps without overflow from each start on, counted up to each one's most."""
        last = len(self._levels[0]) - 1
        place, end = start.copy(), start + most
        for k in range(int(most.max(initial=0)).bit_length() - 1, -1, -1):
            level = self._level(k)
            # What lies beyond the end is never reached: its minimum is that of the steps before it.
            free = (place + (1 << k) <= end) & ~(scale > level[np.minimum(place, last)])
            place += free.astype(np.int64) << k
        return place - start

    def _level(self, k: int) -> NDArray[np.float64]:
        while len(self._levels) <= k:
            below, step = self._levels[-1], 1 << (len(self._levels) - 1)
            shifted = np.concatenate([below[step:], np.full(min(step, len(below)), np.inf)])
            self._levels.append(np.minimum(below, shifted))
        return self._levels[k]


def _run(
    scalers: tuple[Scaler[Any], ...], limit: NDArray[np.float64], bad: NDArray[np.bool_], costs: _Costs | None
) -> Sweep:
    """Each scaler from event to event: between overflows and growths nothing but its count of good steps moves."""
    lanes = [_lane(scaler) for scaler in scalers]

    def column(name: str, dtype: type) -> NDArray[Any]:
        return np.array([getattr(lane, name) for lane in lanes], dtype)

    growth, backoff, divisor = (column(name, float) for name in ("growth", "backoff", "divisor"))
    floor, cap = column("floor", float), column("cap", float)
    interval, restart, hysteresis = (column(name, np.int64) for name in ("interval", "restart", "hysteresis"))
    single, kept, raises = (column(name, bool) for name in ("single", "kept", "raises"))
    on_good, on_fall = column("refill_on_good", bool), column("refill_on_fall", bool)

    def rounded(values: NDArray[np.float64], which: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.where(single[which], values.astype(np.float32).astype(np.float64), values)

    scale = column("init", float)
    least, greatest = scale.copy(), scale.copy()
    tracker, left = restart.copy(), hysteresis.copy()
    skipped, at_floor = np.zeros(len(lanes), np.int64), np.zeros(len(lanes), np.int64)
    raised_at = np.full(len(lanes), -1, np.int64)
    flushed = np.zeros(len(lanes))
    step, steps = np.zeros(len(lanes), np.int64), len(limit)
    minima, always = _Minima(limit), _Minima(np.where(bad, -np.inf, np.inf))
    active = np.arange(len(lanes) if steps else 0)

    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        while len(active):
            # Good steps, up to the one that makes the scale grow.
            now, start = scale[active], step[active]
            until_due = interval[active] - tracker[active]
            most = np.minimum(np.where(until_due > 0, until_due, steps), steps - start)
            good = minima.good_steps(now, start, most)
            if np.isnan(now).any():  # no limit is below it
                good = np.where(np.isnan(now), always.good_steps(np.zeros_like(now), start, most), good)
            step[active] += good
            tracker[active] += good
            at_floor[active] += np.where(now <= floor[active], good, 0)
            if costs is not None:
                flushed[active] += costs.between(now, start, start + good)
            refilled = active[on_good[active] & (good > 0)]
            left[refilled] = hysteresis[refilled]
            due = active[good == until_due]
            if len(due):
                grown = np.minimum(rounded(scale[due] * growth[due], due), cap[due])
                scale[due] = np.where(kept[due] & ~np.isfinite(grown), scale[due], grown)
                tracker[due] = 0
                left[due] = hysteresis[due]
                greatest[due] = np.maximum(greatest[due], scale[due])
            # The others overflow now, unless the run is over.
            found = active[(good != until_due) & (step[active] < steps)]
            if len(found):
                at_floor[found] += scale[found] <= floor[found]
                skipped[found] += 1
                left[found] -= 1
                tracker[found] = restart[found]
                falls = found[left[found] <= 0]
                ends = falls[raises[falls] & (scale[falls] == floor[falls])]
                raised_at[ends] = step[ends]
                lowered = rounded(scale[falls] * backoff[falls] / divisor[falls], falls)
                scale[falls] = np.maximum(lowered, floor[falls])
                refilled = falls[on_fall[falls]]
                left[refilled] = hysteresis[refilled]
                least[falls] = np.minimum(least[falls], scale[falls])
                greatest[falls] = np.maximum(greatest[falls], scale[falls])
                step[found] += 1
                step[ends] = steps
            active = active[step[active] < steps]
    taken = np.where(raised_at < 0, steps, raised_at + 1) - skipped
    share = np.divide(flushed, taken, out=np.full(len(lanes), np.nan), where=taken > 0)
    return Sweep(
        scalers,
        steps,
        skipped,
        scale,
        least,
        greatest,
        at_floor,
        raised_at,
        None if costs is None else share,
    )


class _Costs:
    """Sums over steps of a number that each step has at each power-of-two scale."""

    def __init__(self, table: NDArray[np.float64], first_exponent: int) -> None:
        self._sums = np.concatenate([np.zeros((1, table.shape[1])), np.cumsum(table, axis=0)])
        self._first = first_exponent

    def between(
        self, scale: NDArray[np.float64], start: NDArray[np.int64], end: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        exponent = np.frexp(np.where(np.isfinite(scale) & (scale > 0), scale, 1.0))[1] - 1
        column = np.clip(exponent - self._first, 0, self._sums.shape[1] - 1)
        return np.asarray(self._sums[end, column] - self._sums[start, column])
