"""A scaler that sets the scale from the distribution of the greatest gradient: OpenSeq2Seq's LogMax."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from precsim.amp.scalers import hazards
from precsim.amp.scalers.float32 import to_float32
from precsim.amp.scalers.machine import Scaler, State
from precsim.amp.scalers.settings import require
from precsim.errors import InputError

__all__ = ["LogNormal", "LogNormalState"]

_LOG_2 = to_float32(math.log(2.0))

_RECOVERY_LIMIT = 100_000
"""Good steps after a non-finite one that are looked at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogNormalState(State):
    """State of `LogNormal`: running sums, each float32.

    Attributes
    ----------
    mean : float
        Of log2(amax), with decay `beta1`, biased.
    slow_mean, square : float
        Of log2(amax) and of its square, with decay `beta2`, biased.
    decay1, decay2 : float
        The powers of the decays so far, which undo the bias.
    """

    mean: float = 0.0
    slow_mean: float = 0.0
    square: float = 0.0
    decay1: float = 1.0
    decay2: float = 1.0


@dataclass(frozen=True)
class LogNormal(Scaler[LogNormalState]):
    """OpenSeq2Seq's `LogMaxScaler`: log2 of the greatest gradient is taken to be normal.

    The scale is 2^(16 − (μ + deviations·σ)), so that a share of about 0.1 % of the steps is meant to overflow. Each
    operation is rounded to float32 as in the original; its logarithm and power are TensorFlow's, here they are the C
    library's in float64, rounded, so that last bits may differ.

    Source: NVIDIA/OpenSeq2Seq, `open_seq2seq/optimizers/automatic_loss_scaler.py`.

    Parameters
    ----------
    min_scale, max_scale : float
        `scale_min`, `scale_max`; the latter is 2^14 in some copies of the file.
    log_max : float
        2 to the power of it is what a non-finite step counts as. The cutoff of 16 is fixed in the original.
    beta1, beta2 : float
        Decays of the mean and of the variance.
    deviations : float
        `overflow_std_dev`.
    nonfinite_is_log_max : bool
        The original lets a non-finite step count as log2(amax) = 2^log_max, 65536. True: as log_max, 16, the logarithm
        of FP16's range, which was meant.

    Raises
    ------
    InputError
        For decays outside 0 … 1 and scales that can't work, and by `update` without an amax where the step was finite.

    Examples
    --------
    >>> scaler = LogNormal()
    >>> scaler.update(scaler.initial(), False, amax=2.0**-4).scale
    1048578.75
    """

    name: ClassVar[str] = "lognormal"
    other_names: ClassVar[tuple[str, ...]] = ("logmax",)
    originals: ClassVar[Mapping[str, str]] = {
        "scale_min": "min_scale",
        "scale_max": "max_scale",
        "overflow_std_dev": "deviations",
    }

    min_scale: float = 1.0
    max_scale: float = 2.0**24
    log_max: float = 16.0
    beta1: float = 0.99
    beta2: float = 0.999
    deviations: float = 3.09
    nonfinite_is_log_max: bool = False

    def _check(self) -> None:
        require(
            0 < self.min_scale <= self.max_scale < 2.0**128,
            f"min_scale must be above 0 and at most max_scale, got {self.min_scale:g} and {self.max_scale:g}",
        )
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{name} must be at least 0 and below 1, got {value:g}")

    def _initial(self) -> LogNormalState:
        return LogNormalState(scale=1.0)

    def _next(self, state: LogNormalState, found_inf: bool, amax: float | None) -> LogNormalState:
        logarithm = self._logarithm(found_inf, amax)
        beta1, rest1 = to_float32(self.beta1), to_float32(1 - self.beta1)
        beta2, rest2 = to_float32(self.beta2), to_float32(1 - self.beta2)
        mean = _blend(beta1, state.mean, rest1, logarithm)
        slow_mean = _blend(beta2, state.slow_mean, rest2, logarithm)
        square = _blend(beta2, state.square, rest2, to_float32(logarithm * logarithm))
        decay1 = to_float32(state.decay1 * beta1)
        decay2 = to_float32(state.decay2 * beta2)
        return LogNormalState(
            scale=self._scale(
                mean=_quotient(mean, to_float32(1 - decay1)),
                slow_mean=_quotient(slow_mean, to_float32(1 - decay2)),
                square=_quotient(square, to_float32(1 - decay2)),
            ),
            mean=mean,
            slow_mean=slow_mean,
            square=square,
            decay1=decay1,
            decay2=decay2,
        )

    def _logarithm(self, found_inf: bool, amax: float | None) -> float:
        if found_inf or (amax is not None and not math.isfinite(amax)):
            return to_float32(self.log_max if self.nonfinite_is_log_max else _power_of_two(self.log_max))
        if amax is None:
            raise InputError(
                "LogNormal needs amax at each finite step: the greatest magnitude of unscaled gradients"
            )
        magnitude = to_float32(amax)
        return to_float32(to_float32(math.log(magnitude)) / _LOG_2) if magnitude > 0 else -math.inf

    def _scale(self, mean: float, slow_mean: float, square: float) -> float:
        variance = to_float32(square - to_float32(slow_mean * slow_mean))
        if math.isnan(variance) or math.isnan(mean):
            return math.nan
        deviation = to_float32(math.sqrt(max(variance, 0.0)))
        cutoff = to_float32(to_float32(deviation * to_float32(self.deviations)) + mean)
        proposed = _power_of_two(to_float32(16 - cutoff))
        return max(min(proposed, to_float32(self.max_scale)), to_float32(self.min_scale))

    def _hazards(self, state: LogNormalState) -> Iterator[str]:
        yield "the scale is no power of two at nearly every step, so scaling and unscaling round every gradient"
        yield "a step whose gradients are all zero makes the scale NaN at that step, for good: log2(0) enters its mean"
        steps = self._steps_at_minimum()
        if steps:
            lasting = f"at least {steps}" if steps == _RECOVERY_LIMIT else str(steps)
            yield (
                f"a non-finite step counts as log2(amax) = {_power_of_two(self.log_max):g}, not {self.log_max:g}: one "
                f"at step 1000, after gradients of at most 1, holds the scale at {hazards.shown(self.min_scale)} for "
                f"{lasting} steps"
            )

    def _steps_at_minimum(self) -> int:
        """Steps at the minimum after one non-finite step among steps with an amax of 1."""
        if self.nonfinite_is_log_max:
            return 0
        state = self.initial()
        for _ in range(999):
            state = self.update(state, False, 1.0)
        state = self.update(state, True)
        steps = 0
        while state.scale == to_float32(self.min_scale) and steps < _RECOVERY_LIMIT:
            state = self.update(state, False, 1.0)
            steps += 1
        return steps


def _blend(decay: float, old: float, rest: float, new: float) -> float:
    """decay·old + rest·new, each operation in float32."""
    return to_float32(to_float32(decay * old) + to_float32(rest * new))


def _quotient(above: float, below: float) -> float:
    if below == 0:
        return math.nan if above == 0 else math.copysign(math.inf, above)
    return to_float32(above / below)


def _power_of_two(exponent: float) -> float:
    """2^exponent in float32."""
    if math.isnan(exponent):
        return math.nan
    return to_float32(2.0 ** max(min(exponent, 1000.0), -1000.0))
