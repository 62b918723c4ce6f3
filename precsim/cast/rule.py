"""`CastRule`: what the arguments of `encode` and `quantize` mean together."""

from __future__ import annotations

import dataclasses
import math
import operator
from dataclasses import dataclass
from typing import Any, SupportsFloat

from precsim.errors import InputError
from precsim.kernels import Randomness
from precsim.number import CastPlan, Format, Mode, Overflow, Rounding, find_format, plan_cast
from precsim.number.profiles import find_profile

__all__ = ["MAX_SCALE_EXPONENT", "CastRule", "randomness", "resolve_rule"]

MAX_SCALE_EXPONENT = 800
"""Scales are 2^-800 … 2^800: every scaled format's values then stay within float64's range."""
_UNSIGNED_BITS = {"uint8": 8, "uint16": 16, "uint32": 32}


@dataclass(frozen=True)
class CastRule:
    """A cast, completely described.

    Attributes
    ----------
    format : Format
        Target.
    rounding : Rounding
        The rule.
    scale : float
        Multiplies before the cast: exactly if it is a power of two, else with one rounding to nearest even in the
        type that the source is computed in (float32 up to 32-bit floats, float64 for float64 and integers).
    through : Format, optional
        Format that float64 and integer sources are rounded to first, as some libraries do.
    """

    format: Format
    rounding: Rounding
    scale: float = 1.0
    through: Format | None = None

    @property
    def scale_exponent(self) -> int:
        """k where the scale is 2^k, else 0."""
        fraction, exponent = math.frexp(self.scale)
        return exponent - 1 if fraction == 0.5 else 0

    @property
    def multiplier(self) -> float:
        """The scale where it is not a power of two, else 1."""
        return 1.0 if math.frexp(self.scale)[0] == 0.5 else self.scale

    @property
    def plan(self) -> CastPlan:
        """The integers that an engine needs."""
        return plan_cast(self.format, self.rounding, self.scale_exponent)


def resolve_rule(
    fmt: object,
    rounding: Rounding | Mode | str = "nearest-even",
    overflow: Overflow | str | None = None,
    *,
    profile: str | None = None,
    random_bits: object = None,
    scale: SupportsFloat | None = None,
) -> CastRule:
    """Make one rule of the arguments.

    Raises
    ------
    InputError
        If one of them is unknown or they contradict each other.
    """
    target = find_format(fmt)
    bit_count = _count_of_random_bits(random_bits, stated=isinstance(rounding, Rounding))
    through = None
    if profile is not None:
        if isinstance(rounding, Rounding):
            raise InputError("profile= and a Rounding both state the whole rule: give one of them")
        named = find_profile(profile)
        rule, through = named.rounding(target, Mode.of(rounding)), named.through(target)
    elif isinstance(rounding, Rounding):
        rule = rounding
    else:
        rule = Rounding(Mode.of(rounding))
    if overflow is not None:
        rule = dataclasses.replace(rule, overflow=Overflow.of(overflow))
    if bit_count is not None:
        if rule.mode is not Mode.STOCHASTIC:
            raise InputError(f"random_bits needs rounding 'stochastic', got {rule.mode.value!r}")
        rule = dataclasses.replace(rule, random_bits=bit_count)
    return CastRule(target, rule, _checked_scale(scale), through)


def _count_of_random_bits(random_bits: object, *, stated: bool) -> int | None:
    """How many bits each element takes: the number given, or by the dtype of given bits if no rule states it."""
    if random_bits is None:
        return None
    if getattr(random_bits, "shape", ()):
        width = _UNSIGNED_BITS.get(str(getattr(random_bits, "dtype", "")).removeprefix("torch."))
        return None if stated else width
    try:
        return operator.index(random_bits)  # type: ignore[arg-type]  # that is what is being found out
    except TypeError as error:
        raise InputError(
            f"random_bits must be a number of bits or an integer array, got {type(random_bits).__name__}"
        ) from error


def _checked_scale(scale: SupportsFloat | None) -> float:
    if scale is None:
        return 1.0
    try:
        number = float(scale)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"scale must be one positive number, got {scale!r}") from error
    if not (math.isfinite(number) and number > 0.0):
        raise InputError(f"scale must be positive and finite, got {number!r}")
    if not 2.0**-MAX_SCALE_EXPONENT <= number <= 2.0**MAX_SCALE_EXPONENT:
        raise InputError(f"scale must lie within 2^±{MAX_SCALE_EXPONENT}, got {number!r}")
    return number


def randomness(rule: CastRule, seed: object, given: Any) -> Randomness | None:
    """The source of random bits for a stochastic rule, None for any other.

    Parameters
    ----------
    rule : CastRule
    seed : int or None
    given : uint32 array, flat, or None
        The bits themselves.

    Raises
    ------
    InputError
        If a stochastic rule has neither seed nor bits, or the seed is not in 0 … 2^64 − 1.
    """
    if rule.rounding.mode is not Mode.STOCHASTIC:
        return None
    if given is not None:
        return Randomness(given=given)
    if seed is None:
        raise InputError("stochastic rounding needs seed= (or the bits themselves in random_bits=)")
    try:
        number = operator.index(seed)  # type: ignore[arg-type]  # that is what is being found out
    except TypeError as error:
        raise InputError(f"seed must be an integer, got {seed!r}") from error
    if not 0 <= number < 1 << 64:
        raise InputError(f"seed must lie in 0 … 2^64 − 1, got {number}")
    return Randomness(seed=number)
