"""Scalers that wait for several overflows: Megatron-LM, DeepSpeed, TensorFlow's exponential update, Paddle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from precsim.amp.scalers.float32 import to_float32
from precsim.amp.scalers.machine import DynamicScaler, State
from precsim.amp.scalers.settings import require

__all__ = [
    "DeepSpeed",
    "DeepSpeedState",
    "ExponentialUpdate",
    "GoodAndBadState",
    "Megatron",
    "MegatronState",
    "Paddle",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class MegatronState(State):
    """State of `Megatron`.

    Attributes
    ----------
    growth_tracker : int
        Good steps since the last overflow or growth.
    hysteresis_tracker : int
        Overflows left before the scale falls; 0 and less: it falls at each.
    """

    growth_tracker: int = 0
    hysteresis_tracker: int = 1


@dataclass(frozen=True)
class Megatron(DynamicScaler[MegatronState]):
    """Megatron-LM's `DynamicGradScaler`.

    Scale, factors and floor are float32. Growth alone refills the hysteresis: overflows far apart count together, and
    once it is used up every overflow lowers the scale, although the original's text speaks of consecutive ones.

    Source: NVIDIA/Megatron-LM, `megatron/core/optimizer/grad_scaler.py`.

    Parameters
    ----------
    init : float
        `initial_scale`.
    growth_factor, backoff_factor : float
    growth_interval : int
    hysteresis : int
        The scale falls at the overflow of this number.
    min_scale : float
        At most `init`.

    Raises
    ------
    InputError
        Where the original's assertions fail.
    """

    name: ClassVar[str] = "megatron"
    originals: ClassVar[Mapping[str, str]] = {
        "initial_scale": "init",
        "initial_loss_scale": "init",
        "min_loss_scale": "min_scale",
        "loss_scale_window": "growth_interval",
    }

    init: float = 2.0**32
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 1000
    hysteresis: int = 2
    min_scale: float = 1.0

    def _check(self) -> None:
        super()._check()
        require(
            0 < self.min_scale <= self.init,
            f"min_scale must be above 0 and at most init, got {self.min_scale:g} with init {self.init:g}",
        )
        require(self.growth_factor > 1, f"growth_factor must be above 1, got {self.growth_factor:g}")
        require(0 < self.backoff_factor < 1, f"backoff_factor must be in 0 … 1, got {self.backoff_factor:g}")
        require(self.growth_interval >= 1, f"growth_interval must be at least 1, got {self.growth_interval}")
        require(self.hysteresis >= 1, f"hysteresis must be at least 1, got {self.hysteresis}")
        self._fits("growth_factor", "backoff_factor", "min_scale")

    def _initial(self) -> MegatronState:
        return MegatronState(scale=self._first(), hysteresis_tracker=self.hysteresis)

    def _next(self, state: MegatronState, found_inf: bool, amax: float | None) -> MegatronState:
        if found_inf:
            left = state.hysteresis_tracker - 1
            scale = self._backoff(state.scale) if left <= 0 else state.scale
            return MegatronState(scale=scale, hysteresis_tracker=left)
        good = state.growth_tracker + 1
        if good == self.growth_interval:
            return MegatronState(scale=self._growth(state.scale), hysteresis_tracker=self.hysteresis)
        return replace(state, growth_tracker=good)

    def _growth(self, scale: float) -> float:
        return to_float32(scale * to_float32(self.growth_factor))

    def _backoff(self, scale: float) -> float:
        return max(to_float32(scale * to_float32(self.backoff_factor)), to_float32(self.min_scale))

    def _hazards(self, state: MegatronState) -> Iterator[str]:
        if state.growth_tracker >= self.growth_interval:
            yield (
                f"growth_tracker {state.growth_tracker} has passed growth_interval {self.growth_interval}, to which it "
                "is compared by equality: the scale does not grow until an overflow resets the tracker"
            )
        yield from super()._hazards(state)


_AT_MINIMUM = "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."


@dataclass(frozen=True, kw_only=True, slots=True)
class DeepSpeedState(State):
    """State of `DeepSpeed`.

    Attributes
    ----------
    iteration : int
        Steps so far.
    last_overflow : int
        The iteration of the last overflow, −1 for none.
    hysteresis : int
        At 1 the next overflow lowers the scale.
    """

    iteration: int = 0
    last_overflow: int = -1
    hysteresis: int = 1


@dataclass(frozen=True)
class DeepSpeed(DynamicScaler[DeepSpeedState]):
    """DeepSpeed's `DynamicLossScaler`.

    The scale is a Python float. The first growth takes one good step more than the window, at the start and after each
    overflow; later ones a window each.

    Source: deepspeedai/DeepSpeed, `deepspeed/runtime/fp16/loss_scaler.py`; defaults of its configuration file.

    Parameters
    ----------
    init : float
        2 to the power of `initial_scale_power`.
    factor : float
        Of growth and of backoff; 2 in current releases.
    growth_interval : int
        `loss_scale_window`.
    hysteresis : int
        `delayed_shift`: the scale falls at the overflow of this number.
    consecutive_hysteresis : bool
        Whether each good step refills the hysteresis (else growth alone).
    min_scale : float
        `min_loss_scale`.
    raise_at_min : bool
        `raise_error_at_min_scale`: an overflow at the minimum ends the run (`State.raised`).
    early_growth : bool
        True for releases that grow at (iteration − last overflow) % window == 0: one step earlier.

    Raises
    ------
    InputError
        For numbers that are not positive, which the original refuses too.
    """

    name: ClassVar[str] = "deepspeed"
    originals: ClassVar[Mapping[str, str]] = {
        "init_scale": "init",
        "scale_factor": "factor",
        "scale_window": "growth_interval",
        "loss_scale_window": "growth_interval",
        "delayed_shift": "hysteresis",
        "min_loss_scale": "min_scale",
        "raise_error_at_min_scale": "raise_at_min",
    }
    single: ClassVar[bool] = False

    init: float = 2.0**16
    factor: float = 2.0
    growth_interval: int = 1000
    hysteresis: int = 2
    consecutive_hysteresis: bool = False
    min_scale: float = 1.0
    raise_at_min: bool = True
    early_growth: bool = False

    def _check(self) -> None:
        super()._check()
        require(self.factor > 1, f"factor must be above 1, got {self.factor:g}")
        require(self.growth_interval >= 1, f"growth_interval must be at least 1, got {self.growth_interval}")
        require(self.hysteresis >= 1, f"hysteresis must be at least 1, got {self.hysteresis}")
        require(self.min_scale > 0, f"min_scale must be above 0, got {self.min_scale:g}")

    def _initial(self) -> DeepSpeedState:
        return DeepSpeedState(scale=self._first(), hysteresis=self.hysteresis)

    def _next(self, state: DeepSpeedState, found_inf: bool, amax: float | None) -> DeepSpeedState:
        return self._after_overflow(state) if found_inf else self._after_good(state)

    def _after_overflow(self, state: DeepSpeedState) -> DeepSpeedState:
        scale, left = state.scale, state.hysteresis
        if self.hysteresis == 1 or left == 1:
            if scale == self.min_scale and self.raise_at_min:
                return replace(state, raised=_AT_MINIMUM)
            scale = max(scale / self.factor, self.min_scale)
        else:
            left -= 1
        return DeepSpeedState(
            scale=scale, iteration=state.iteration + 1, last_overflow=state.iteration, hysteresis=left
        )

    def _after_good(self, state: DeepSpeedState) -> DeepSpeedState:
        stable = state.iteration - state.last_overflow - (0 if self.early_growth else 1)
        grows = stable > 0 and stable % self.growth_interval == 0
        refilled = grows or self.consecutive_hysteresis
        return DeepSpeedState(
            scale=self._growth(state.scale) if grows else state.scale,
            iteration=state.iteration + 1,
            last_overflow=state.last_overflow,
            hysteresis=self.hysteresis if refilled else state.hysteresis,
        )

    def _growth(self, scale: float) -> float:
        return scale * self.factor


@dataclass(frozen=True, kw_only=True, slots=True)
class GoodAndBadState(State):
    """State of a scaler that counts good and bad steps.

    Attributes
    ----------
    good_steps, bad_steps : int
    """

    good_steps: int = 0
    bad_steps: int = 0


@dataclass(frozen=True)
class ExponentialUpdate(DynamicScaler[GoodAndBadState]):
    """`ExponentialUpdateLossScaleManager` of TensorFlow 1's contrib.

    Good steps have to follow one another, bad ones add up over good ones. Scale and ratios are float32. A growth that
    would not be finite is not made; the scale stops at 1 (its text says that a decrease to less is not made, its code
    takes the greater of the two).

    Source: tensorflow/tensorflow 1.x, `tensorflow/contrib/mixed_precision/python/loss_scale_manager.py`.

    Parameters
    ----------
    init : float
        `init_loss_scale`; the original has no default.
    growth_interval : int
        `incr_every_n_steps`; the original has no default.
    hysteresis : int
        `decr_every_n_nan_or_inf`.
    growth_factor, backoff_factor : float
        `incr_ratio`, `decr_ratio`.

    Raises
    ------
    InputError
        For scales and factors that can't work.
    """

    name: ClassVar[str] = "exponential-update"
    other_names: ClassVar[tuple[str, ...]] = ("tf-contrib",)
    originals: ClassVar[Mapping[str, str]] = {
        "init_loss_scale": "init",
        "incr_every_n_steps": "growth_interval",
        "decr_every_n_nan_or_inf": "hysteresis",
        "incr_ratio": "growth_factor",
        "decr_ratio": "backoff_factor",
    }

    init: float
    growth_interval: int
    hysteresis: int = 2
    growth_factor: float = 2.0
    backoff_factor: float = 0.8

    def _check(self) -> None:
        super()._check()
        require(self.growth_factor > 1, f"growth_factor must be above 1, got {self.growth_factor:g}")
        require(0 < self.backoff_factor < 1, f"backoff_factor must be in 0 … 1, got {self.backoff_factor:g}")
        self._fits("growth_factor", "backoff_factor")

    def _initial(self) -> GoodAndBadState:
        return GoodAndBadState(scale=self._first())

    def _next(self, state: GoodAndBadState, found_inf: bool, amax: float | None) -> GoodAndBadState:
        if found_inf:
            if state.bad_steps + 1 >= self.hysteresis:
                lowered = to_float32(state.scale * to_float32(self.backoff_factor))
                return GoodAndBadState(scale=max(1.0, lowered))
            return GoodAndBadState(scale=state.scale, bad_steps=state.bad_steps + 1)
        if state.good_steps + 1 >= self.growth_interval:
            return GoodAndBadState(scale=self._growth(state.scale))
        return replace(state, good_steps=state.good_steps + 1)

    def _growth(self, scale: float) -> float:
        grown = to_float32(scale * to_float32(self.growth_factor))
        return grown if math.isfinite(grown) else scale


@dataclass(frozen=True)
class Paddle(DynamicScaler[GoodAndBadState]):
    """`paddle.amp.GradScaler`.

    A good step clears the bad ones: `hysteresis` overflows have to follow one another, although the documentation
    speaks of accumulated ones. In dygraph the scale has no floor and no check on growth; the kernel of the static graph
    stops at 1 and makes no growth that would not be finite.

    Source: PaddlePaddle/Paddle, `python/paddle/amp/grad_scaler.py` (`AmpScaler._update`),
    `paddle/phi/kernels/impl/amp_kernel_impl.h` (`Update`).

    Parameters
    ----------
    init : float
        `init_loss_scaling`; 2^15 before 2.5.
    growth_factor, backoff_factor : float
        `incr_ratio`, `decr_ratio`.
    growth_interval : int
        `incr_every_n_steps`; 1000 before 2.5.
    hysteresis : int
        `decr_every_n_nan_or_inf`; 2 before 2.5.
    static_graph : bool
        Whether the kernel `update_loss_scaling` steps (else dygraph).

    Raises
    ------
    InputError
        For scales and factors that Paddle refuses.
    """

    name: ClassVar[str] = "paddle"
    originals: ClassVar[Mapping[str, str]] = {
        "init_loss_scaling": "init",
        "incr_ratio": "growth_factor",
        "decr_ratio": "backoff_factor",
        "incr_every_n_steps": "growth_interval",
        "decr_every_n_nan_or_inf": "hysteresis",
    }
    checks_first: ClassVar[bool] = False

    init: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    hysteresis: int = 1
    static_graph: bool = False

    def _check(self) -> None:
        super()._check()
        require(self.growth_factor > 1, f"growth_factor must be above 1, got {self.growth_factor:g}")
        require(0 < self.backoff_factor < 1, f"backoff_factor must be in 0 … 1, got {self.backoff_factor:g}")
        require(self.growth_interval >= 1, f"growth_interval must be at least 1, got {self.growth_interval}")
        require(self.hysteresis >= 1, f"hysteresis must be at least 1, got {self.hysteresis}")
        self._fits("growth_factor", "backoff_factor")

    def _initial(self) -> GoodAndBadState:
        return GoodAndBadState(scale=self._first())

    def _next(self, state: GoodAndBadState, found_inf: bool, amax: float | None) -> GoodAndBadState:
        if found_inf:
            bad = state.bad_steps + 1
            if bad == self.hysteresis:
                return GoodAndBadState(scale=self._backoff(state.scale))
            return GoodAndBadState(scale=state.scale, bad_steps=bad)
        good = state.good_steps + 1
        if good == self.growth_interval:
            return GoodAndBadState(scale=self._growth(state.scale))
        return GoodAndBadState(scale=state.scale, good_steps=good)

    def _growth(self, scale: float) -> float:
        grown = to_float32(scale * to_float32(self.growth_factor))
        return scale if self.static_graph and not math.isfinite(grown) else grown

    def _backoff(self, scale: float) -> float:
        lowered = to_float32(scale * to_float32(self.backoff_factor))
        return max(lowered, 1.0) if self.static_graph else lowered

    def _hazards(self, state: GoodAndBadState) -> Iterator[str]:
        for name, count, limit in (
            ("good_steps", state.good_steps, self.growth_interval),
            ("bad_steps", state.bad_steps, self.hysteresis),
        ):
            if count >= limit:
                setting = "growth_interval" if name == "good_steps" else "hysteresis"
                yield (
                    f"{name} {count} has passed {setting} {limit}, to which it is compared by equality: "
                    f"the scale does not {'grow' if name == 'good_steps' else 'fall'} until a "
                    f"{'bad' if name == 'good_steps' else 'good'} step clears it"
                )
        yield from super()._hazards(state)
