"""The specification of rounding: integers and fractions, no floating-point arithmetic, one number at a time.

Every array engine is compared with this module bit for bit. To be read beside IEEE 754-2019, 4.3 and 7.4.
"""

from __future__ import annotations

import math
from fractions import Fraction

from precsim.errors import InputError
from precsim.number.format import Format
from precsim.number.rounding import Mode, Rounding
from precsim.number.specials import (
    compose,
    infinity_result,
    nan_result,
    negative_result,
    overflow_result,
    underflow_result,
    zero_result,
)

__all__ = ["Real", "encode", "floor_log2", "round_magnitude"]

Real = int | float | Fraction


def encode(
    value: Real,
    fmt: Format,
    rounding: Rounding | None = None,
    *,
    random: int | None = None,
    source: Format | None = None,
) -> int:
    """Round one real number to a code of a format.

    Parameters
    ----------
    value : int, float or Fraction
        The exact value to round; a float may be ±inf, NaN or −0.0.
    fmt : Format
        Target.
    rounding : Rounding, optional
        The rule. By default nearest-even, overflow to infinity.
    random : int, optional
        The random bits R of stochastic rounding, 0 … 2^random_bits − 1.
    source : Format, optional
        The format that the value comes from; needed by ``flush_inputs`` alone.

    Returns
    -------
    int
        The code, 0 … 2^bits − 1.

    Raises
    ------
    InputError
        If a NaN meets a format without NaN, or the random bits are missing or out of range.
    """
    rounding = Rounding() if rounding is None else rounding
    negative = math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0
    if isinstance(value, float) and math.isnan(value):
        code = nan_result(negative, fmt, rounding)
        if code is None:
            raise InputError(f"format {fmt.name} has no NaN: clean the input or choose a missing_nan rule")
        return code
    if isinstance(value, float) and math.isinf(value):
        return infinity_result(negative, fmt, rounding)
    magnitude = abs(Fraction(value))
    if rounding.flush_inputs and source is not None and magnitude < Fraction(source.smallest_normal):
        magnitude = Fraction(0)
    if magnitude == 0:
        return zero_result(negative, fmt, rounding)
    if negative and not fmt.signed:
        return negative_result(_finite(magnitude, False, fmt, rounding, random), fmt, rounding)
    return _finite(magnitude, negative, fmt, rounding, random)


def _finite(magnitude: Fraction, negative: bool, fmt: Format, rounding: Rounding, random: int | None) -> int:
    code = round_magnitude(magnitude, negative, fmt, rounding, random)
    if code is None or (rounding.flush_results and code < fmt.least_normal_code):
        return underflow_result(negative, fmt, rounding)
    if code > fmt.max_magnitude_code:
        return overflow_result(negative, fmt, rounding)
    return compose(code, negative, fmt)


def round_magnitude(
    magnitude: Fraction, negative: bool, fmt: Format, rounding: Rounding, random: int | None
) -> int | None:
    """Round a positive magnitude on the format's grid, continued upward without end.

    Returns
    -------
    int or None
        The magnitude's code, which exceeds ``fmt.max_magnitude_code`` on overflow; None for zero.
    """
    m, emin = fmt.significand_bits, fmt.least_exponent
    exponent = floor_log2(magnitude)
    if exponent >= emin:
        steps = magnitude / _power_of_two(exponent - m)
        binade_code = (
            exponent - emin
        ) << m  # of the binade's least value, less the hidden bit that steps has
        step_code = 1
    elif fmt.subnormals:
        steps = magnitude / _power_of_two(emin - m)
        binade_code = 0
        step_code = 1
    else:
        steps = magnitude / _power_of_two(emin)  # nothing lies between zero and the least normal value
        binade_code = 0
        step_code = 1 << m
    if not fmt.zero:
        binade_code -= 1 << m  # exponent field 0 is the least normal binade
    lower = math.floor(steps)
    lower_code = binade_code + lower * step_code
    upper_code = lower_code + step_code
    fraction = steps - lower
    goes_up = fraction > 0 and _rounds_up(fraction, lower_code % 2 == 1, negative, rounding, random)
    code = upper_code if goes_up else lower_code
    is_zero = lower == 0 and not goes_up
    return None if is_zero else code


def _rounds_up(fraction: Fraction, odd: bool, negative: bool, rounding: Rounding, random: int | None) -> bool:
    """Whether the magnitude goes to its upper neighbour, `fraction` of a step above an `odd` or even lower one."""
    half = Fraction(1, 2)
    match rounding.mode:
        case Mode.NEAREST_EVEN:
            return fraction > half or (fraction == half and odd)
        case Mode.NEAREST_AWAY:
            return fraction >= half
        case Mode.NEAREST_ZERO:
            return fraction > half
        case Mode.TOWARD_ZERO:
            return False
        case Mode.UP:
            return not negative
        case Mode.DOWN:
            return negative
        case Mode.AWAY:
            return True
        case Mode.TO_ODD:
            return not odd
        case Mode.STOCHASTIC:
            return math.floor(fraction * _random_range(rounding)) + _checked(
                random, rounding
            ) >= _random_range(rounding)


def _random_range(rounding: Rounding) -> int:
    assert rounding.random_bits is not None
    return 1 << rounding.random_bits


def _checked(random: int | None, rounding: Rounding) -> int:
    if random is None or not 0 <= random < _random_range(rounding):
        raise InputError(
            f"stochastic rounding with {rounding.random_bits} random bits needs random in 0 … "
            f"{_random_range(rounding) - 1}, got {random}"
        )
    return random


def floor_log2(magnitude: Fraction) -> int:
    """⌊log2(magnitude)⌋ of a positive fraction, exactly."""
    estimate = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return estimate if magnitude >= _power_of_two(estimate) else estimate - 1


def _power_of_two(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)
