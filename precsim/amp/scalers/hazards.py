"""Settings that fail silently: each in one line, with the step at which it happens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from precsim.amp.scalers.float32 import reciprocal32
from precsim.analyze.scale import is_power_of_two

if TYPE_CHECKING:
    from precsim.amp.scalers.machine import DynamicScaler, State

    S = TypeVar("S", bound=State)

__all__ = ["fall", "odd_settings", "rise", "shown", "start", "stuck", "unusable"]

_MOST_OVERFLOWS = 20_000
"""Overflows in a row that are looked at."""

_PATIENCE = 1_000
"""Overflows in a row without any effect after which a scale has found its floor."""

_MOST_GROWTHS = 100_000


def shown(scale: float) -> str:
    """A scale for people."""
    if math.isfinite(scale) and scale and is_power_of_two(abs(scale)):
        return f"{'-' if scale < 0 else ''}2^{math.frexp(scale)[1] - 1}"
    return f"{scale:.6g}"


def odd_settings(settings: Mapping[str, float]) -> Iterator[str]:
    """Scales and factors that are no powers of two."""
    odd = {name: value for name, value in settings.items() if value and not is_power_of_two(abs(value))}
    if odd:
        named = ", ".join(f"{name} {value!r}" for name, value in odd.items())
        yield (
            f"{named}: no power of two, so scaling and unscaling round every gradient, up to 2^-24 of it each, "
            "and 1/scale itself is rounded"
        )


def _destroyed(scaler: DynamicScaler[S]) -> str:
    unseen = " and the step is not skipped, as overflow is looked for before" if scaler.checks_first else ""
    return f"unscaled gradients are infinite or NaN{unseen}"


def start(scaler: DynamicScaler[S], scale: float) -> Iterator[str]:
    """A first scale whose reciprocal float32 lacks."""
    if not scaler.divides:
        yield from unusable(scale, _destroyed(scaler))


def unusable(scale: float, consequence: str = "unscaled gradients are infinite or NaN") -> Iterator[str]:
    """A scale whose reciprocal is infinite or subnormal in float32, from the first step on."""
    inverse = abs(reciprocal32(scale))
    if math.isinf(inverse):
        yield f"at the first step 1/scale, of {shown(scale)}, is infinite in float32: {consequence}"
    elif inverse < 2.0**-126:
        yield (
            f"at the first step 1/scale, of {shown(scale)}, is subnormal in float32: gradients lose bits, and become 0 "
            "on hardware that flushes subnormal numbers"
        )


def stuck(scaler: DynamicScaler[S], scale: float) -> Iterator[str]:
    """A growth factor that rounding takes back."""
    if scaler._growth(scale) == scale and scale < getattr(scaler, "max_scale", math.inf):
        yield (
            f"growth leaves the scale at {shown(scale)}, at every step: it is the greatest that float32 lets it be, or "
            "the factor is lost in rounding"
        )


def fall(scaler: DynamicScaler[S], state: S) -> Iterator[str]:
    """A scale without a floor: how many overflows in a row it survives."""
    broken = scaler.divides or math.isinf(reciprocal32(state.scale))
    idle, patience = 0, _PATIENCE + getattr(scaler, "hysteresis", 1)
    for count in range(1, _MOST_OVERFLOWS + 1):
        before, state = state, scaler.update(state, True)
        if state.raised is not None or not math.isfinite(state.scale):
            return
        idle = 0 if state.scale != before.scale else idle + 1
        if state.scale > before.scale > 0:
            yield (
                f"the floor is above the scale: overflow number {count} raises it from {shown(before.scale)} "
                f"to {shown(state.scale)}"
            )
            return
        if not broken and state.scale and math.isinf(reciprocal32(state.scale)):
            broken = True
            yield (
                f"after {_overflows(count)} the scale is {shown(state.scale)}, whose reciprocal is infinite in "
                f"float32: {_destroyed(scaler)}"
            )
        if state.scale == 0:
            yield f"no floor: after {_overflows(count)} the scale is 0, for good: gradients are 0 and unscale to NaN"
            return
        if idle >= patience:
            return


def _overflows(count: int) -> str:
    return "one overflow" if count == 1 else f"{count} overflows in a row"


def rise(scaler: DynamicScaler[S], scale: float) -> Iterator[str]:
    """A float32 scale that grows to infinity."""
    for growths in range(1, _MOST_GROWTHS if scaler.single else 0):
        grown = scaler._growth(scale)
        if grown == scale:
            return
        if math.isinf(grown):
            yield (
                f"no cap: after {scaler._good_steps(growths)} good steps in a row the scale is infinite, for good: "
                "backoff leaves it infinite and every later step is skipped"
            )
            return
        scale = grown
