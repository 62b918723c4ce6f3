"""Rounding on the bits of a float, in integer operations alone.

The functions here are written once for anything that behaves as an array of signed integers: NumPy arrays, torch
tensors of any device, and z3 bit-vectors, on which `precsim.testing.prove` proves them for every input there is. A
*lane* is the integer type that holds a source's bits: 32 bits for float32, 64 for float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from precsim.number.plan import CastPlan, Pair
from precsim.number.rounding import Mode

__all__ = ["FLOAT32_LANE", "FLOAT64_LANE", "Lane", "Ops", "cast_bits", "lane_for", "magnitude_code"]


@dataclass(frozen=True)
class Lane:
    """Layout of the source's bits.

    Attributes
    ----------
    bits : int
        Width of the lane.
    fraction_bits, bias : int
        Of the float that it holds.
    """

    bits: int
    fraction_bits: int
    bias: int

    @property
    def magnitude_mask(self) -> int:
        """All bits but the sign."""
        return (1 << (self.bits - 1)) - 1

    @property
    def infinity(self) -> int:
        """Bits of +infinity."""
        return (2 * self.bias + 1) << self.fraction_bits


FLOAT32_LANE = Lane(32, 23, 127)
FLOAT64_LANE = Lane(64, 52, 1023)


class Ops(Protocol):
    """The few operations that arrays of integers do not share as operators."""

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """`yes` where the condition holds, else `no`; each an array or a plain integer."""

    def maximum(self, x: Any, least: int) -> Any:
        """The greater of x and a plain integer."""

    def minimum(self, x: Any, greatest: int) -> Any:
        """The lesser of x and a plain integer."""

    def as_integer(self, condition: Any) -> Any:
        """1 where the condition holds, else 0, in the lane's type."""

    def power_of_two(self, exponent: Any) -> Any:
        """1 << exponent, in the lane's type."""


def lane_for(plan: CastPlan, source_is_wide: bool) -> Lane:
    """The lane that a cast is computed in.

    float32 sources stay in 32 bits if float32's own subnormals lie below the target's normal range, so that they need
    no normalisation, at least one bit is dropped, and there are no random bits, which may be 32.
    """
    fits = (
        plan.least_exponent >= -126 and plan.significand_bits < 23 and plan.bits < 32 and not plan.random_bits
    )
    return FLOAT32_LANE if fits and not source_is_wide else FLOAT64_LANE


def cast_bits(ops: Ops, bits: Any, plan: CastPlan, lane: Lane, random: Any = None) -> Any:
    """The codes of floats, by the steps of `CastPlan`.

    Parameters
    ----------
    ops : Ops
    bits : integers of the lane
        The floats' bits.
    plan : CastPlan
    lane : Lane
    random : integers of the lane, optional
        R of stochastic rounding.
    """
    magnitude = bits & lane.magnitude_mask
    negative = bits & 0 if plan.ignore_sign else (bits >> (lane.bits - 1)) & 1
    code = magnitude_code(ops, magnitude, negative, plan, lane, random)
    specials = _specials(code, magnitude, plan, lane)
    if all(_signed_alike(codes, plan) for _, codes in specials):
        for condition, codes in specials:
            code = ops.where(condition, codes[0], code)
        return _with_sign(code, negative, plan)
    result = _with_sign(code, negative, plan)
    for condition, (of_positive, of_negative) in specials:
        replacement = negative * (of_negative - of_positive) + of_positive
        result = ops.where(condition, of_positive if of_positive == of_negative else replacement, result)
    if plan.negative_code is not None:
        result = ops.where(
            (negative > 0) & (magnitude > 0) & (magnitude <= lane.infinity), plan.negative_code, result
        )
    return result


def _specials(code: Any, magnitude: Any, plan: CastPlan, lane: Lane) -> list[tuple[Any, Pair]]:
    """Conditions that have codes of their own, a later one before an earlier one."""
    specials = [(code > plan.max_code, plan.overflow)]
    if plan.flush_below > 1 or plan.underflow != (0, plan.negative_add) or plan.code_offset:
        specials.append((code < plan.flush_below, plan.underflow))
    if plan.zero != plan.underflow:
        specials.append((magnitude == 0, plan.zero))
    least_field = plan.least_exponent + lane.bias
    infinity_overflows = (2 * lane.bias + 2 - least_field) << plan.significand_bits > plan.max_code
    if plan.infinity != plan.overflow or not infinity_overflows:
        specials.append((magnitude == lane.infinity, plan.infinity))
    specials.append((magnitude > lane.infinity, plan.nan))
    return specials


def _signed_alike(codes: Pair, plan: CastPlan) -> bool:
    """Whether the codes differ by the sign alone, so that the sign can be put on last."""
    plain = not plan.negative_xor and not plan.code_offset and plan.negative_code is None
    return plain and codes[1] == codes[0] + plan.negative_add


def _with_sign(code: Any, negative: Any, plan: CastPlan) -> Any:
    """A new array: the magnitude codes with their signs on."""
    code = code - plan.code_offset if plan.code_offset or not plan.negative_add else code
    if plan.negative_xor:
        code = code ^ (-negative & plan.negative_xor)
    if not plan.negative_add:
        return code
    return code + (negative << (plan.negative_add.bit_length() - 1))


def magnitude_code(
    ops: Ops, magnitude: Any, negative: Any, plan: CastPlan, lane: Lane, random: Any = None
) -> Any:
    """Step 2 of `CastPlan`: the code of the rounded magnitude, on a grid continued upward without end.

    What comes of infinities and NaNs has no meaning.

    Parameters
    ----------
    ops : Ops
    magnitude : integers of the lane
        Bits of |x|.
    negative : integers of the lane
        1 for negative x, else 0. Looked at by the modes up and down alone.
    plan : CastPlan
    lane : Lane
    random : integers of the lane, optional
        R of stochastic rounding.
    """
    m, fraction_bits = plan.significand_bits, lane.fraction_bits
    least_field = plan.least_exponent + lane.bias
    field = ops.maximum(magnitude >> fraction_bits, 1)
    # A subnormal's field counts as 1 and it has no hidden bit: both come out of this one subtraction.
    significand = magnitude - ((field - 1) << fraction_bits)
    below = ops.maximum(least_field - field, 0)
    distance = below + (fraction_bits - m)
    if plan.low_shift:
        low_shift = ops.as_integer(below > 0) * plan.low_shift
        distance = distance + low_shift
    # With fraction_bits + 2 bits dropped, all that is left of a significand is less than a half.
    dropped = ops.minimum(distance, fraction_bits + 2)
    lower = significand >> dropped
    remainder = significand - (lower << dropped)
    if plan.low_shift:
        lower = lower << low_shift
    lower = lower + (ops.maximum(field - least_field, 0) << m)
    if plan.mode is Mode.STOCHASTIC:
        up = _carries(
            ops, remainder, ops.minimum(distance, fraction_bits + 2 + plan.random_bits), plan, random
        )
    else:
        up = _rounds_up(ops, remainder, dropped, lower, negative, plan)
    return lower + (up << low_shift if plan.low_shift else up)


def _rounds_up(ops: Ops, remainder: Any, dropped: Any, lower: Any, negative: Any, plan: CastPlan) -> Any:
    """1 where the magnitude goes to its upper neighbour, else 0."""
    match plan.mode:
        case Mode.NEAREST_EVEN:
            # At least 1 iff 2·remainder + odd > 2^dropped: above the half, or at it and odd.
            odd = _parity(lower, plan)
            return ((remainder << 1) + odd + (ops.power_of_two(dropped) - 1)) >> (dropped + 1)
        case Mode.NEAREST_AWAY:
            return (remainder << 1) >> dropped
        case Mode.NEAREST_ZERO:
            return ((remainder << 1) + (ops.power_of_two(dropped) - 1)) >> (dropped + 1)
        case Mode.UP:
            return ops.as_integer(remainder > 0) & (1 - negative)
        case Mode.DOWN:
            return ops.as_integer(remainder > 0) & negative
        case Mode.AWAY:
            return ops.as_integer(remainder > 0)
        case Mode.TO_ODD:
            return ops.as_integer(remainder > 0) & (1 - _parity(lower, plan))
        case _:  # toward zero; stochastic rounding has its own function
            return remainder & 0


def _parity(code: Any, plan: CastPlan) -> Any:
    return (code + 1 if plan.parity_flip else code) & 1


def _carries(ops: Ops, remainder: Any, distance: Any, plan: CastPlan, random: Any) -> Any:
    """1 where ⌊f·2^r⌋ + R ≥ 2^r, f being remainder / 2^distance.

    With fewer than r bits dropped f·2^r is an integer and only R's top `distance` bits can decide, since
    remainder·2^(r−distance) + R ≥ 2^r iff remainder + ⌊R / 2^(r−distance)⌋ ≥ 2^distance. With more, the remainder's own
    low bits are cut off instead. A distance capped at r + fraction_bits + 2 leaves ⌊f·2^r⌋ = 0, as any greater one.
    """
    surplus = ops.maximum(distance - plan.random_bits, 0)
    missing = ops.maximum(plan.random_bits - distance, 0)
    total = (remainder >> surplus) + (random >> missing)
    return total >> (distance - surplus)
