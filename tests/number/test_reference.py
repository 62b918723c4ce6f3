"""The reference against formulations that share nothing with it: a search among the values, gfloat, counting."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from functools import cache
from itertools import pairwise

import gfloat
import gfloat.formats
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import precsim as ps
from precsim.number.reference import encode, floor_log2
from precsim.testing import boundary_values

SMALL = [fmt for fmt in ps.NAMED_FORMATS.values() if fmt.bits <= 8]
MODES = [mode for mode in ps.Mode if mode is not ps.Mode.STOCHASTIC]
TINY = Fraction(1, 1 << 200)


@cache
def ladder(fmt):
    """Zero and the positive values with their codes, and the value that would come next."""
    positive = {Fraction(v): c for c in fmt.codes() if math.isfinite(v := fmt.decode(c)) and v > 0}
    if fmt.twos_complement or fmt.signed:
        positive = {v: c for v, c in positive.items() if c < fmt.sign_bit}
    values = sorted(positive)
    binade = max(power for k in range(-200, 200) if (power := Fraction(2) ** k) <= values[-1])
    beyond = values[-1] + (values[0] if fmt.twos_complement else binade / 2**fmt.significand_bits)
    codes = [positive[v] for v in values]
    return [Fraction(0), *values, beyond], [None, *codes, codes[-1] + 1]


def by_search(x, fmt, mode):
    """The signed value that a nonzero x of a signed format is rounded to; None on overflow."""
    values, codes = ladder(fmt)
    magnitude, sign = abs(x), -1 if x < 0 else 1
    if magnitude >= values[-1]:
        inward = mode in (ps.Mode.TOWARD_ZERO, ps.Mode.TO_ODD, ps.Mode.DOWN if sign > 0 else ps.Mode.UP)
        return sign * values[-2] if inward else None
    i = bisect_right(values, magnitude) - 1
    low, high = values[i], values[i + 1]
    if magnitude == low:
        return sign * low
    middle, low_is_odd = (low + high) / 2, bool(codes[i] and codes[i] % 2)
    nearest = high if magnitude > middle else low
    chosen = {
        ps.Mode.NEAREST_EVEN: (high if low_is_odd else low) if magnitude == middle else nearest,
        ps.Mode.NEAREST_AWAY: high if magnitude == middle else nearest,
        ps.Mode.NEAREST_ZERO: nearest,
        ps.Mode.TOWARD_ZERO: low,
        ps.Mode.AWAY: high,
        ps.Mode.UP: high if sign > 0 else low,
        ps.Mode.DOWN: low if sign > 0 else high,
        ps.Mode.TO_ODD: low if low_is_odd else high,
    }[mode]
    if chosen == values[-1]:
        return sign * low if mode is ps.Mode.TO_ODD else None
    return sign * chosen


def interesting(fmt):
    """Every value and middle, a hair beside each, and far beyond."""
    values, _ = ladder(fmt)
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    points = [*values, *middles, values[-1] * 3, values[-1] ** 2 + 1]
    positive = {x for point in points for x in (point - TINY, point, point + TINY) if x > 0}
    return sorted(positive | {-x for x in positive})


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("fmt", [fmt for fmt in SMALL if fmt.signed], ids=str)
def test_a_search_among_the_values_finds_the_same(fmt, mode):
    rule = ps.Rounding(mode)
    for x in interesting(fmt):
        want = by_search(x, fmt, mode)
        got = fmt.decode(encode(x, fmt, rule))
        if want is not None:
            assert Fraction(got) == want, x
        elif fmt.infinities:
            assert got == math.copysign(math.inf, x), x
        elif fmt.nan is not ps.NanEncoding.NONE:
            assert math.isnan(got), x
        else:
            assert got == math.copysign(fmt.max, x), x


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_e8m0_goes_to_a_neighbouring_power_of_two(mode):
    """Parity is that of the code, the exponent field: 2^0 has code 127 and is odd."""
    for exponent in (-127, -3, -2, 0, 5, 126):
        low, high = Fraction(2) ** exponent, Fraction(2) ** (exponent + 1)
        for x in (
            low,
            low + TINY,
            (low + high) / 2 - TINY,
            (low + high) / 2,
            (low + high) / 2 + TINY,
            high - TINY,
        ):
            middle, low_is_odd = (low + high) / 2, (exponent + 127) % 2 == 1
            up = {
                ps.Mode.NEAREST_EVEN: x > middle or (x == middle and low_is_odd),
                ps.Mode.NEAREST_AWAY: x >= middle,
                ps.Mode.NEAREST_ZERO: x > middle,
                ps.Mode.TO_ODD: x > low and not low_is_odd,
            }.get(mode, x > low and mode in (ps.Mode.UP, ps.Mode.AWAY))
            assert encode(x, ps.E8M0, ps.Rounding(mode)) == exponent + 127 + up


# ---- gfloat --------------------------------------------------------------------------------------------------------

GFLOAT_MODES = {
    ps.Mode.NEAREST_EVEN: gfloat.RoundMode.TiesToEven,
    ps.Mode.NEAREST_AWAY: gfloat.RoundMode.TiesToAway,
    ps.Mode.TOWARD_ZERO: gfloat.RoundMode.TowardZero,
    ps.Mode.UP: gfloat.RoundMode.TowardPositive,
    ps.Mode.DOWN: gfloat.RoundMode.TowardNegative,
}
GFLOAT = {
    ps.E4M3: gfloat.formats.format_info_ocp_e4m3,
    ps.E5M2: gfloat.formats.format_info_ocp_e5m2,
    ps.E3M2: gfloat.formats.format_info_ocp_e3m2,
    ps.E2M1: gfloat.formats.format_info_ocp_e2m1,
    **{ps.format(f"binary8p{p}"): gfloat.formats.format_info_p3109(8, p) for p in range(1, 8)},
}


@pytest.mark.parametrize("mode", GFLOAT_MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("fmt", GFLOAT, ids=str)
def test_gfloat_rounds_the_same(fmt, mode):
    """Saturating, so that what it makes of overflow in directed modes doesn't matter."""
    rule = ps.Rounding(mode, "saturate")
    # Ties away are floor(x + 0.5) there, and 0.49999999999999994 + 0.5 is 1: one number is rounded up, not down.
    wrong = math.nextafter(fmt.smallest_subnormal / 2, 0) if mode is ps.Mode.NEAREST_AWAY else None
    for x in boundary_values(fmt, "fp64")[::2].tolist():
        if math.isnan(x):
            continue
        want = float(gfloat.round_float(GFLOAT[fmt], x, GFLOAT_MODES[mode], sat=True))
        got = fmt.decode(encode(x, fmt, rule))
        same = (got, math.copysign(1, got)) == (want, math.copysign(1, want))
        assert same is (abs(x) != wrong), x.hex()


# ---- the rest of the rule ------------------------------------------------------------------------------------------


def test_results_are_flushed_by_what_they_are_after_rounding():
    flush = ps.Rounding(flush_results=True)
    least = Fraction(ps.FP16.smallest_normal)
    step = Fraction(ps.FP16.smallest_subnormal)
    assert encode(least - step, ps.FP16, flush) == 0
    assert encode(-(least - step), ps.FP16, flush) == 0x8000
    assert encode(least - step / 2, ps.FP16, flush) == 0x0400  # tiny before rounding, not after
    assert encode(least - step / 2 - TINY, ps.FP16, flush) == 0
    assert encode(step / 4, ps.FP16, ps.Rounding("up", flush_results=True)) == 0


def test_inputs_are_flushed_by_what_they_are_in_their_own_format():
    flush = ps.Rounding(flush_inputs=True)
    assert encode(2.0**-20, ps.BF16, flush, source=ps.FP16) == 0
    assert encode(-(2.0**-20), ps.BF16, flush, source=ps.FP16) == 0x8000
    assert encode(2.0**-20, ps.BF16, flush, source=ps.FP32) == 0x3580
    assert encode(2.0**-20, ps.BF16, flush) == 0x3580
    assert encode(2.0**-14, ps.BF16, flush, source=ps.FP16) == 0x3880


@pytest.mark.parametrize("fmt", [ps.E2M1, ps.E3M2, ps.E2M3, ps.INT8], ids=str)
def test_nan_where_there_is_none(fmt):
    with pytest.raises(
        ps.InputError, match=f"format {fmt} has no NaN: clean the input or choose a missing_nan rule"
    ):
        encode(math.nan, fmt)
    assert fmt.decode(encode(math.nan, fmt, ps.Rounding(missing_nan="largest"))) == fmt.max
    zero = fmt.decode(encode(math.nan, fmt, ps.Rounding(missing_nan="negated-zero")))
    assert zero == 0
    assert math.copysign(1, zero) == (-1 if fmt.signed_zero else 1)


def test_nan_keeps_its_sign_or_not():
    for fmt, positive, negative in [
        (ps.FP16, 0x7E00, 0xFE00),
        (ps.E4M3, 0x7F, 0xFF),
        (ps.E4M3FNUZ, 0x80, 0x80),
    ]:
        assert encode(math.nan, fmt) == positive
        assert encode(-math.nan, fmt) == negative
        assert encode(-math.nan, fmt, ps.Rounding(nan="canonical")) == positive


def test_numbers_beyond_float64():
    huge = Fraction(10) ** 400
    assert encode(huge, ps.FP16) == 0x7C00
    assert encode(-huge, ps.E4M3, ps.Rounding(overflow="saturate")) == 0xFE
    assert encode(1 / huge, ps.FP16, ps.Rounding("up")) == 1
    assert encode(10**400, ps.E5M2) == 0x7C


# ---- stochastic ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("random_bits", [1, 3, 8])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("fmt", "low"),
    [(ps.E4M3, 1.0), (ps.E4M3, 1.875), (ps.E5M2, 0.0), (ps.E5M2, 2.0**-15), (ps.E2M1, 3.0)],
    ids=str,
)
def test_the_law_over_all_random_numbers(fmt, low, sign, random_bits):
    """⌊f·2^r⌋ of the 2^r random numbers round up, f of the way between neighbours."""
    values = fmt.values()
    lower, upper = Fraction(low), Fraction(values[values.index(low) + 1])
    rule = ps.Rounding("stochastic", random_bits=random_bits)
    count = 1 << random_bits
    for share in (Fraction(0), TINY, Fraction(1, 7), Fraction(1, 2), Fraction(5, 8), 1 - TINY):
        x = sign * (lower + share * (upper - lower))
        results = [abs(Fraction(fmt.decode(encode(x, fmt, rule, random=r)))) for r in range(count)]
        assert set(results) <= {lower, upper}
        assert results.count(upper) == math.floor(share * count)
        assert results == sorted(results)  # greater random numbers round up


def test_random_numbers_must_fit():
    rule = ps.Rounding("stochastic", random_bits=4)
    for random in (None, -1, 16):
        with pytest.raises(ps.InputError, match=r"with 4 random bits needs random in 0 … 15, got"):
            encode(1.1, ps.FP16, rule, random=random)
    assert encode(1.0, ps.FP16, rule) == 0x3C00  # exact: nothing to decide


# ---- laws ----------------------------------------------------------------------------------------------------------

REALS = st.fractions() | st.floats(allow_nan=False, allow_infinity=False).map(Fraction)
SIGNED = st.sampled_from([fmt for fmt in ps.NAMED_FORMATS.values() if fmt.signed and fmt.bits <= 32])
MIRROR = {ps.Mode.UP: ps.Mode.DOWN, ps.Mode.DOWN: ps.Mode.UP}


@settings(max_examples=300, deadline=None)
@given(REALS, REALS, SIGNED, st.sampled_from(MODES))
def test_rounding_is_monotonic(x, y, fmt, mode):
    rule = ps.Rounding(mode, "saturate")
    x, y = min(x, y), max(x, y)
    assert fmt.decode(encode(x, fmt, rule)) <= fmt.decode(encode(y, fmt, rule))


@settings(max_examples=300, deadline=None)
@given(REALS, SIGNED, st.sampled_from(MODES))
def test_rounding_is_odd(x, fmt, mode):
    there = fmt.decode(encode(x, fmt, ps.Rounding(mode, "saturate")))
    back = fmt.decode(encode(-x, fmt, ps.Rounding(MIRROR.get(mode, mode), "saturate")))
    assert there == -back


@settings(max_examples=300, deadline=None)
@given(REALS, SIGNED, st.sampled_from(MODES))
def test_rounding_a_result_again_changes_nothing(x, fmt, mode):
    rule = ps.Rounding(mode, "saturate")
    code = encode(x, fmt, rule)
    assert encode(fmt.decode(code), fmt, rule) == code


@settings(max_examples=300, deadline=None)
@given(st.fractions(min_value=0).map(lambda x: x + TINY))
def test_floor_log2(x):
    exponent = floor_log2(x)
    assert Fraction(2) ** exponent <= x < Fraction(2) ** (exponent + 1)
