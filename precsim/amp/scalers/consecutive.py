"""Scalers that count good steps in a row and fall at every overflow: torch, FSDP, Apex, TensorFlow, Keras, jmp."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from precsim.amp.scalers.float32 import to_float32
from precsim.amp.scalers.machine import DynamicScaler, State
from precsim.amp.scalers.settings import require

__all__ = ["Apex", "Jmp", "Keras", "ShardedTorch", "TensorFlow", "Torch", "TrackerState"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackerState(State):
    """State of a scaler that counts good steps.

    Attributes
    ----------
    growth_tracker : int
        Good steps since the last overflow or growth.
    """

    growth_tracker: int = 0


class _Consecutive(DynamicScaler[TrackerState]):
    """Falls at every overflow, grows after `growth_interval` good steps in a row."""

    growth_interval: int

    def _initial(self) -> TrackerState:
        return TrackerState(scale=self._first())

    def _next(self, state: TrackerState, found_inf: bool, amax: float | None) -> TrackerState:
        if found_inf:
            return TrackerState(scale=self._backoff(state.scale))
        good = state.growth_tracker + 1
        scale = self._growth(state.scale) if self._is_due(good) else state.scale
        return TrackerState(scale=scale, growth_tracker=self._remainder(good))

    def _is_due(self, good: int) -> bool:
        return good == self.growth_interval

    def _remainder(self, good: int) -> int:
        return 0 if self._is_due(good) else good

    @abstractmethod
    def _backoff(self, scale: float) -> float:
        """The scale after an overflow."""

    def _grows(self) -> bool:
        return self.growth_interval >= 1 or self._is_due(1)

    def _hazards(self, state: TrackerState) -> Iterator[str]:
        if not self._grows():
            yield f"growth_interval {self.growth_interval} is never reached: the scale does not grow, at any step"
        elif state.growth_tracker >= self.growth_interval and not self._is_due(state.growth_tracker + 1):
            yield (
                f"growth_tracker {state.growth_tracker} has passed growth_interval {self.growth_interval}, to which "
                f"it is compared by equality: {self._overdue(state)}"
            )
        yield from super()._hazards(state)

    def _overdue(self, state: TrackerState) -> str:
        return "the scale does not grow until an overflow resets the tracker"


@dataclass(frozen=True)
class Torch(_Consecutive):
    """`torch.amp.GradScaler`, on the CPU and on CUDA: the kernel `_amp_update_scale_`.

    The scale is float32; it is multiplied with the float64 factor and rounded. A growth that would not be finite is not
    made, and the tracker starts anew all the same.

    Source: PyTorch, `torch/amp/grad_scaler.py`, `aten/src/ATen/native/cpu/AmpGradScalerKernels.cpp` and
    `cuda/AmpKernels.cu`.

    Parameters
    ----------
    init : float
    growth_factor : float
        Above 1.
    backoff_factor : float
        Below 1; torch takes 0 and negative numbers too.
    growth_interval : int
        The tracker is compared with it by equality; 0 and less are taken, and are never reached.
    finite_check : bool
        False for CUDA before pytorch PR #98876 (2023): the scale grows to infinity.

    Raises
    ------
    InputError
        For settings that torch refuses, and for a scale that float32 lacks.

    Examples
    --------
    >>> scaler = Torch(growth_interval=2)
    >>> [state.scale for state in scaler.states([False, False, True])]
    [65536.0, 131072.0, 65536.0]
    """

    name: ClassVar[str] = "torch"
    other_names: ClassVar[tuple[str, ...]] = ("gradscaler",)
    originals: ClassVar[Mapping[str, str]] = {"init_scale": "init"}

    init: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    finite_check: bool = True

    def _check(self) -> None:
        super()._check()
        require(self.growth_factor > 1, f"growth_factor must be above 1, got {self.growth_factor:g}")
        require(self.backoff_factor < 1, f"backoff_factor must be below 1, got {self.backoff_factor:g}")

    def _growth(self, scale: float) -> float:
        grown = to_float32(scale * self.growth_factor)
        return scale if self.finite_check and not math.isfinite(grown) else grown

    def _backoff(self, scale: float) -> float:
        return to_float32(scale * self.backoff_factor)


@dataclass(frozen=True)
class ShardedTorch(_Consecutive):
    """FSDP1's `ShardedGradScaler` with its scale on the CPU; on CUDA it steps like `Torch`.

    The factor is rounded to float32 before the product is, and growth is not kept from infinity.

    Source: PyTorch, `torch/distributed/fsdp/sharded_grad_scaler.py`, `_amp_update_scale_cpu_`.

    Parameters
    ----------
    init, growth_factor, backoff_factor : float
        As for `Torch`.
    growth_interval : int
        As for `Torch`.

    Raises
    ------
    InputError
        As for `Torch`.
    """

    name: ClassVar[str] = "sharded-torch"
    other_names: ClassVar[tuple[str, ...]] = ("fsdp", "shardedgradscaler")
    originals: ClassVar[Mapping[str, str]] = {"init_scale": "init"}

    init: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000

    def _check(self) -> None:
        super()._check()
        require(self.growth_factor > 1, f"growth_factor must be above 1, got {self.growth_factor:g}")
        require(self.backoff_factor < 1, f"backoff_factor must be below 1, got {self.backoff_factor:g}")
        self._fits("growth_factor", "backoff_factor")

    def _growth(self, scale: float) -> float:
        return to_float32(scale * to_float32(self.growth_factor))

    def _backoff(self, scale: float) -> float:
        return to_float32(scale * to_float32(self.backoff_factor))


@dataclass(frozen=True)
class Apex(_Consecutive):
    """NVIDIA Apex `amp`'s `LossScaler`, gone from its main branch since.

    The scale is a Python float; the factor is 2, whatever `scale_factor` says, which the original does not read.

    Source: NVIDIA/apex, `apex/amp/scaler.py` (`update_scale`).

    Parameters
    ----------
    init : float
        The lesser of it and `max_scale` is taken.
    growth_interval : int
        `scale_window`.
    min_scale : float or None
        0 is none, as in the original.
    max_scale : float

    Raises
    ------
    InputError
        For scales and intervals below what has a meaning.
    """

    name: ClassVar[str] = "apex"
    originals: ClassVar[Mapping[str, str]] = {
        "init_scale": "init",
        "scale_window": "growth_interval",
        "min_loss_scale": "min_scale",
        "max_loss_scale": "max_scale",
    }
    single: ClassVar[bool] = False

    init: float = 2.0**16
    growth_interval: int = 2000
    min_scale: float | None = None
    max_scale: float = 2.0**24

    def _check(self) -> None:
        super()._check()
        require(self.growth_interval >= 1, f"growth_interval must be at least 1, got {self.growth_interval}")
        require(self.max_scale > 0, f"max_scale must be above 0, got {self.max_scale:g}")
        require(
            not self.min_scale or 0 < self.min_scale <= self.max_scale,
            f"min_scale must be above 0 and at most max_scale, got {self.min_scale}",
        )

    def _first(self) -> float:
        return min(self.max_scale, self.init)

    def _growth(self, scale: float) -> float:
        return min(self.max_scale, scale * 2)

    def _backoff(self, scale: float) -> float:
        return max(self.min_scale, scale / 2) if self.min_scale else scale / 2


@dataclass(frozen=True)
class TensorFlow(_Consecutive):
    """`DynamicLossScale` of TensorFlow 1 and 2 and `tf.keras.mixed_precision.LossScaleOptimizer` of TensorFlow 2.

    The scale is float32, never falls below 1, and a growth that would not be finite is not made.

    Source: tensorflow/tensorflow, `tensorflow/python/training/experimental/loss_scale.py`,
    `tensorflow/python/keras/mixed_precision/loss_scale_optimizer.py`.

    Parameters
    ----------
    init : float
    factor : float
        `multiplier`, of growth and of backoff.
    growth_interval : int
        `increment_period`; reached or passed.

    Raises
    ------
    InputError
        For scales and factors that can't work.
    """

    name: ClassVar[str] = "tensorflow"
    other_names: ClassVar[tuple[str, ...]] = ("tf", "tf-keras")
    originals: ClassVar[Mapping[str, str]] = {
        "initial_loss_scale": "init",
        "initial_scale": "init",
        "multiplier": "factor",
        "increment_period": "growth_interval",
        "dynamic_growth_steps": "growth_interval",
    }
    checks_first: ClassVar[bool] = False

    init: float = 2.0**15
    factor: float = 2.0
    growth_interval: int = 2000

    def _check(self) -> None:
        super()._check()
        require(self.factor > 1, f"factor must be above 1, got {self.factor:g}")
        self._fits("factor")

    def _is_due(self, good: int) -> bool:
        return good >= self.growth_interval

    def _growth(self, scale: float) -> float:
        grown = to_float32(scale * to_float32(self.factor))
        return grown if math.isfinite(grown) else scale

    def _backoff(self, scale: float) -> float:
        return max(to_float32(scale / to_float32(self.factor)), 1.0)


@dataclass(frozen=True)
class Keras(_Consecutive):
    """Keras 3's `keras.optimizers.LossScaleOptimizer`.

    The scale is float32 and has neither floor nor cap; gradients are divided by it.

    Source: keras-team/keras, `keras/src/optimizers/loss_scale_optimizer.py`.

    Parameters
    ----------
    init : float
        `initial_scale`.
    growth_interval : int
        `dynamic_growth_steps`.

    Raises
    ------
    InputError
        For a scale that float32 lacks.
    """

    name: ClassVar[str] = "keras"
    originals: ClassVar[Mapping[str, str]] = {
        "initial_scale": "init",
        "dynamic_growth_steps": "growth_interval",
    }
    divides: ClassVar[bool] = True

    init: float = 2.0**15
    growth_interval: int = 2000

    def _growth(self, scale: float) -> float:
        return to_float32(scale * 2)

    def _backoff(self, scale: float) -> float:
        return to_float32(scale / 2)


@dataclass(frozen=True)
class Jmp(_Consecutive):
    """`DynamicLossScale` of jmp (JAX mixed precision).

    The scale is float32; a growth that would not be finite is not made. The counter is taken modulo `period`.

    Source: google-deepmind/jmp, `jmp/_src/loss_scale.py`. `tree_unflatten` there drops `min_loss_scale`, so that under
    `jax.jit` it is 1 again, whatever it was set to.

    Parameters
    ----------
    init : float
        `loss_scale`.
    factor : int
    growth_interval : int
        `period`.
    min_scale : float

    Raises
    ------
    InputError
        For settings that can't work.
    """

    name: ClassVar[str] = "jmp"
    originals: ClassVar[Mapping[str, str]] = {
        "loss_scale": "init",
        "period": "growth_interval",
        "min_loss_scale": "min_scale",
    }
    checks_first: ClassVar[bool] = False

    init: float = 2.0**15
    factor: int = 2
    growth_interval: int = 2000
    min_scale: float = 1.0

    def _check(self) -> None:
        super()._check()
        require(self.factor > 1, f"factor must be above 1, got {self.factor}")
        require(self.growth_interval >= 1, f"growth_interval must be at least 1, got {self.growth_interval}")
        require(self.min_scale >= 0, f"min_scale must not be negative, got {self.min_scale:g}")
        self._fits("factor", "min_scale")

    def _remainder(self, good: int) -> int:
        return good % self.growth_interval

    def _growth(self, scale: float) -> float:
        grown = to_float32(scale * to_float32(self.factor))
        return grown if math.isfinite(grown) else scale

    def _backoff(self, scale: float) -> float:
        return max(to_float32(self.min_scale), to_float32(scale / to_float32(self.factor)))

    def _overdue(self, state: TrackerState) -> str:
        after = (state.growth_tracker + 1) % self.growth_interval
        return f"it restarts at {after}, and the scale does not grow for {self.growth_interval - after} good steps"

    def _hazards(self, state: TrackerState) -> Iterator[str]:
        if self.min_scale != 1:
            yield (
                f"min_scale {self.min_scale:g} is 1 again after the first step under jax.jit: "
                "flattening the state as a pytree drops it"
            )
        yield from super()._hazards(state)
