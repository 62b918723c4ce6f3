"""The right answer as a formula of the SMT solver z3, three times, none sharing a line with the array engine.

* `by_theory`: the floating-point theory of SMT-LIB, whose five rounding modes are those of IEEE 754. The other modes
  are put together from these: away from zero, to odd, and ties toward zero.
* `by_switching_points`: for formats of at most 8 bits, the number of switching points, computed by the reference in
  fractions, that the magnitude has reached.
* `by_counting`: stochastic rounding, as the whole number of steps in the magnitude plus its share of noise.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from precsim.kernels.array.bits import FLOAT32_LANE, FLOAT64_LANE, Lane
from precsim.number import Format, Mode, Overflow, Rounding
from precsim.number.reference import encode, round_magnitude
from precsim.number.specials import compose

__all__ = ["THEORY_FORMATS", "by_counting", "by_switching_points", "by_theory", "float_sort", "is_right"]

THEORY_FORMATS = ("fp32", "tf32", "fp16", "bf16", "e5m2")
"""Formats with IEEE 754's encoding, which the theory's are."""


def is_right(z3: Any, bits: Any, code: Any, fmt: Format, rounding: Rounding, lane: Lane, random: Any) -> Any:
    """Whether a code is what the number with these bits becomes; NaNs bit for bit as well.

    Parameters
    ----------
    z3 : module
    bits, code, random : bit-vectors
        The source's bits, the result's, and R of stochastic rounding in 64 bits.
    fmt : Format
        Of the result.
    rounding : Rounding
    lane : Lane
        Layout of the source's bits.
    """
    if rounding.mode is Mode.STOCHASTIC:
        numbers = by_counting(z3, bits, fmt, rounding, lane, random)
    elif fmt.name in THEORY_FORMATS:
        numbers = by_theory(z3, bits, fmt, rounding, lane)
    else:
        numbers = by_switching_points(z3, bits, fmt, rounding, lane)
    magnitude, negative = bits & lane.magnitude_mask, bits < 0

    def of_both_signs(value: float) -> Any:
        codes = [encode(math.copysign(value, sign), fmt, rounding, random=0) for sign in (1.0, -1.0)]
        positive_code, negative_code = (z3.BitVecVal(c, fmt.bits) for c in codes)
        return z3.If(negative, negative_code, positive_code)

    want = z3.If(magnitude == 0, of_both_signs(0.0), numbers)
    want = z3.If(magnitude == lane.infinity, of_both_signs(math.inf), want)
    return code == z3.If(magnitude > lane.infinity, of_both_signs(math.nan), want)


def float_sort(z3: Any, lane: Lane, more_bits: int = 0) -> Any:
    """The theory's type of a lane's floats, or one with a longer significand."""
    return z3.FPSort(lane.bits - lane.fraction_bits - 1, lane.fraction_bits + 1 + more_bits)


def by_theory(z3: Any, bits: Any, fmt: Format, rounding: Rounding, lane: Lane) -> Any:
    """The code of a finite number by floating-point theory."""
    x = z3.fpBVToFP(bits, float_sort(z3, lane))
    want = _rounded(z3, x, z3.FPSort(fmt.exponent_bits, fmt.precision), rounding.mode, lane)
    code = z3.fpToIEEEBV(want)
    if rounding.overflow is Overflow.INFINITY:
        return code
    if rounding.overflow is Overflow.NAN:
        beyond = [encode(math.copysign(math.nan, sign), fmt, rounding) for sign in (1.0, -1.0)]
    else:
        beyond = [compose(fmt.max_magnitude_code, negative, fmt) for negative in (False, True)]
    positive_code, negative_code = (z3.BitVecVal(c, fmt.bits) for c in beyond)
    return z3.If(z3.fpIsInf(want), z3.If(z3.fpIsNegative(x), negative_code, positive_code), code)


def _rounded(z3: Any, x: Any, target: Any, mode: Mode, lane: Lane) -> Any:
    def rounded(direction: Any, number: Any = x) -> Any:
        return z3.fpToFP(direction, number, target)

    ieee = {
        Mode.NEAREST_EVEN: z3.RNE,
        Mode.NEAREST_AWAY: z3.RNA,
        Mode.TOWARD_ZERO: z3.RTZ,
        Mode.UP: z3.RTP,
        Mode.DOWN: z3.RTN,
    }
    if mode in ieee:
        return rounded(ieee[mode]())
    if mode is Mode.NEAREST_ZERO:
        # With one more bit half-way points are numbers: x is beyond one iff the number before x has reached it.
        finer = float_sort(z3, lane, more_bits=1)
        before = z3.fpToIEEEBV(z3.fpToFP(z3.RNE(), x, finer)) - 1
        return rounded(z3.RNA(), z3.fpBVToFP(before, finer))
    away = z3.If(z3.fpIsNegative(x), rounded(z3.RTN()), rounded(z3.RTP()))
    if mode is Mode.AWAY:
        return away
    toward_zero = rounded(z3.RTZ())
    odd = z3.Extract(0, 0, z3.fpToIEEEBV(toward_zero)) == 1
    exact = z3.fpEQ(z3.fpToFP(z3.RNE(), toward_zero, float_sort(z3, lane)), x)
    # Beyond the greatest value, whose code is odd, rounding toward zero stays there.
    return z3.If(z3.Or(exact, odd), toward_zero, away)


def by_switching_points(z3: Any, bits: Any, fmt: Format, rounding: Rounding, lane: Lane) -> Any:
    """The code of a finite nonzero number: that of the last switching point which its magnitude has reached."""
    magnitude = bits & lane.magnitude_mask

    def of_sign(negative: bool) -> Any:
        reached = z3.BitVecVal(_code_at(1, negative, fmt, rounding, lane), fmt.bits)
        for point in switching_points(fmt, rounding.mode, negative, lane):
            code = z3.BitVecVal(_code_at(point, negative, fmt, rounding, lane), fmt.bits)
            reached = z3.If(magnitude >= point, code, reached)
        return reached

    return z3.If(bits < 0, of_sign(True), of_sign(False))


def _value(bits: int, lane: Lane) -> float:
    number = np.uint32(bits).view(np.float32) if lane is FLOAT32_LANE else np.uint64(bits).view(np.float64)
    return float(number)


def _code_at(magnitude: int, negative: bool, fmt: Format, rounding: Rounding, lane: Lane) -> int:
    return encode(math.copysign(_value(magnitude, lane), -1.0 if negative else 1.0), fmt, rounding)


@lru_cache(maxsize=256)
def switching_points(fmt: Format, mode: Mode, negative: bool, lane: Lane) -> list[int]:
    """Bits of the source magnitudes, ascending, from which on the rounded magnitude is another one.

    Found by bisection of the reference, which is monotonic, between the bits of 0 and infinity.
    """

    def rank(bits: int) -> int:
        """0 for zero, then the magnitude codes, the overflown one last."""
        if bits == 0:
            return 0
        code = round_magnitude(Fraction(_value(bits, lane)), negative, fmt, Rounding(mode), None)
        return 0 if code is None else min(code, fmt.max_magnitude_code + 1)

    points = []
    low, greatest = 0, lane.infinity - 1
    while rank(low) != rank(greatest):
        inside, beyond = low, greatest
        while beyond - inside > 1:
            middle = (inside + beyond) // 2
            inside, beyond = (middle, beyond) if rank(middle) == rank(low) else (inside, middle)
        points.append(beyond)
        low = beyond
    return points


def by_counting(z3: Any, bits: Any, fmt: Format, rounding: Rounding, lane: Lane, random: Any) -> Any:
    """The code of a finite nonzero number under stochastic rounding, for formats with subnormals or one value a binade.

    With q = |x| / spacing, ⌊q·2^r⌋ + R has q's whole number of steps above its lower r bits, one more where the noise
    carries: all of the rule in one addition, on as many bits as it takes.
    """
    r = rounding.random_bits
    assert r is not None
    m, least_field = fmt.significand_bits, fmt.least_exponent + FLOAT64_LANE.bias
    as_float64 = z3.fpToFP(z3.RNE(), z3.fpBVToFP(bits, float_sort(z3, lane)), z3.Float64())
    magnitude = z3.fpToIEEEBV(z3.fpAbs(as_float64))
    field = z3.LShR(magnitude, 52)
    # float64's own subnormals, taken for twice as much at most, are far below any spacing's 2^r-th part.
    significand = z3.BitVecVal(1 << 52, 64) | (magnitude & ((1 << 52) - 1))
    scale_field = z3.If(z3.UGE(field, least_field), field, z3.BitVecVal(least_field, 64))
    distance = scale_field - field + (52 - m)

    def wide(x: Any) -> Any:
        return z3.ZeroExt(64, x)

    quotient = z3.LShR(wide(significand) << r, wide(distance))
    steps = z3.Extract(63, 0, z3.LShR(quotient + wide(random), r))
    code = ((scale_field - least_field) << m) + steps - (0 if fmt.zero else 1 << m)

    def of_sign(negative: bool) -> Any:
        def fixed(value: float) -> Any:
            signed = math.copysign(value, -1.0 if negative else 1.0)
            return z3.BitVecVal(encode(signed, fmt, rounding, random=0), fmt.bits)

        if negative and not fmt.signed:
            return fixed(1.0)
        number = z3.Extract(fmt.bits - 1, 0, code)
        if negative:
            number = -number if fmt.twos_complement else number | fmt.sign_bit
        underflown = fixed(0.0) if fmt.zero else z3.BitVecVal(0, fmt.bits)
        overflown = fixed(2.0**1000)
        return z3.If(steps == 0, underflown, z3.If(code > fmt.max_magnitude_code, overflown, number))

    return z3.If(bits < 0, of_sign(True), of_sign(False))
