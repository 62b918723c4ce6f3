"""A sketch's counts against the reference, number by number, and its laws of addition."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import precsim as ps
from precsim.number.reference import encode, round_magnitude
from precsim.sketches import Outcomes, Window
from precsim.sketches.edges import BIN_COUNT, EDGES, bin_map
from precsim.testing.boundaries import boundary_values

TARGETS = [fmt for fmt in ps.NAMED_FORMATS.values() if fmt.bits <= 32]
MODES = [mode for mode in ps.Mode if mode is not ps.Mode.STOCHASTIC]


@pytest.fixture(params=["native", "array"], autouse=True)
def engine(request):
    if request.param not in ps.available_engines():
        pytest.skip("the native engine was not built here: no C++ compiler was found")
    with ps.use_engine(request.param):
        yield


def outcome(value: float, fmt: ps.Format, mode: ps.Mode, exponent: int) -> str:
    """What becomes of one number, by the reference."""
    if not math.isfinite(value):
        return "nonfinite"
    if value == 0:
        return "zero"
    if value < 0 and not fmt.signed:
        return "overflowed"
    magnitude = abs(Fraction(value)) * Fraction(2) ** exponent
    code = round_magnitude(magnitude, value < 0, fmt, ps.Rounding(mode), None)
    if code is None:
        return "flushed" if fmt.zero else "normal"
    if code > fmt.max_magnitude_code:
        return "overflowed"
    return "normal" if code >= fmt.least_normal_code else "subnormal"


def brute_force(x: np.ndarray, fmt: ps.Format, mode: ps.Mode, exponent: int) -> Outcomes:
    counts = dict.fromkeys(("zero", "flushed", "subnormal", "normal", "overflowed", "nonfinite"), 0)
    for value in x.tolist():
        counts[outcome(value, fmt, mode, exponent)] += 1
    return Outcomes(**counts)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("fmt", TARGETS, ids=str)
def test_outcomes_of_every_named_format_and_mode_are_those_of_the_reference(fmt, mode):
    rng = np.random.default_rng(3)
    for source in ("fp32", "fp64"):
        x = boundary_values(fmt, source=source)
        x = rng.permutation(x)[:400]
        s = ps.sketch(x)
        for exponent in (0, 7, -5):
            with np.errstate(all="ignore"):
                moved = np.ldexp(x, -exponent)  # puts the boundaries back under this scale
            assert s.outcomes(fmt, 2.0**exponent, mode) == brute_force(x, fmt, mode, exponent)
            assert ps.sketch(moved).outcomes(fmt, 2.0**exponent, mode) == brute_force(
                moved, fmt, mode, exponent
            )


def test_every_scale_at_once():
    x = np.float32(np.random.default_rng(4).lognormal(-10, 8, 300))
    s = ps.sketch(x)
    for exponent in range(-160, 161, 9):
        assert s.outcomes(ps.E4M3, 2.0**exponent) == brute_force(x, ps.E4M3, ps.Mode.NEAREST_EVEN, exponent)
    assert s.outcomes(ps.E4M3, 2.0**1000).overflowed == 300
    assert s.outcomes(ps.E4M3, 2.0**-1000).flushed == 300


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
def test_codes_are_counted_as_the_values_they_stand_for(name):
    dtype = np.dtype(np.float16 if name == "float16" else getattr(ml_dtypes, name))
    codes = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    x = np.concatenate([codes, codes[:300]]).view(dtype)
    with np.errstate(invalid="ignore"):
        assert ps.sketch(x) == ps.sketch(x.astype(np.float64))
    if name != "float8_e4m3fnuz":
        tensor = torch.from_numpy(np.concatenate([codes, codes[:300]])).view(getattr(torch, name))
        assert ps.sketch(tensor) == ps.sketch(x)


def test_float32_and_float64_of_the_same_numbers_are_counted_alike():
    x = boundary_values(ps.BF16, source="fp32")
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
    assert ps.sketch(x) == ps.sketch(wide)
    assert ps.sketch(x.astype(x.dtype.newbyteorder(">"))) == ps.sketch(x)


def test_integers_are_numbers():
    x = np.array([0, 1, -3, 70000, 1 << 62])
    assert ps.sketch(x).outcomes(ps.FP16) == Outcomes(1, 0, 0, 2, 2, 0)


def test_the_facts():
    s = ps.sketch(np.float32([0, -0.0, 1.5, -(2.0**-149), 3e38, np.inf, np.inf, -np.inf, np.nan]))
    assert (s.n, s.nonzero, s.zeros) == (9, 3, 2)
    assert (s.positive_infinities, s.negative_infinities, s.nans, s.nonfinite) == (2, 1, 1, 4)
    assert (s.amax, s.amin) == (float(np.float32(3e38)), 2.0**-149)
    assert s.binades() == {-149: 1, 0: 1, 127: 1}
    empty = ps.sketch(np.float32([]))
    assert (empty.n, empty.amax, empty.amin) == (0, 0.0, math.inf)
    assert empty == ps.sketch(np.zeros((3, 0)))


def test_float64_keeps_its_own_range():
    s = ps.sketch(np.array([1e300, -5e-324, 2.0**-1022]))
    assert s.binades() == {-1074: 1, -1022: 1, 996: 1}
    assert s.outcomes(ps.FP32) == Outcomes(0, 2, 0, 0, 1, 0)
    assert s.outcomes(ps.FP32, 2.0**1000) == Outcomes(0, 0, 0, 2, 1, 0)


floats = st.lists(st.floats(width=32), max_size=30).map(lambda values: np.array(values, np.float32))


@given(floats, floats, floats)
@settings(max_examples=60, deadline=None)
def test_addition_is_concatenation_in_any_order(a, b, c):
    whole = ps.sketch(np.concatenate([a, b, c]))
    assert (ps.sketch(a) + ps.sketch(b)) + ps.sketch(c) == whole
    assert ps.sketch(c) + (ps.sketch(a) + ps.sketch(b)) == whole
    assert hash(ps.sketch(b) + ps.sketch(a)) == hash(ps.sketch(np.concatenate([a, b])))


def test_chunks_and_engines_do_not_show():
    x = np.float32(np.random.default_rng(8).normal(size=(700, 301)))
    want = ps.sketch(x)
    assert ps.sketch(x.T) == want
    assert ps.sketch(x[::-1, ::-1]) == want
    assert sum((ps.sketch(row) for row in x), ps.sketch(x[:0])) == want
    for name in ps.available_engines():
        with ps.use_engine(name):
            assert ps.sketch(x) == want


def test_flush_results_moves_the_subnormals():
    s = ps.sketch(np.float32([1e-5, 1.0]))
    assert s.outcomes(ps.FP16).subnormal == 1
    assert s.outcomes(ps.FP16, rounding=ps.Rounding(flush_results=True)).flushed == 1


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((ps.FP16, 3.0), "power-of-two scales"),
        ((ps.FP16, -2.0), "power-of-two scales"),
        ((ps.FP16, math.nan), "power-of-two scales"),
        ((ps.FP16, 1.0, "stochastic"), "stochastic"),
        ((ps.FP16, 1.0, ps.Rounding(flush_inputs=True)), "flushing of inputs"),
        ((ps.Format(4, 3, infinities=False, nan=ps.NanEncoding.TOP_CODE, bias=9), 1.0), None),
        ((ps.Format(4, 5, infinities=True, nan=ps.NanEncoding.TOP_CODE), 1.0), "does not resolve"),
    ],
    ids=str,
)
def test_what_a_table_can_not_tell_it_refuses(arguments, what):
    s = ps.sketch(np.float32([1.0, 2.0**-20]))
    if what is None:  # E4M3's thresholds with another bias are resolved
        assert s.outcomes(*arguments).n == 2
        return
    with pytest.raises(ps.InputError, match=what) as caught:
        s.outcomes(*arguments)
    assert "precsim.outcomes" in str(caught.value)


def test_bins_tell_the_sides_of_every_edge_apart():
    bins = bin_map()
    for i, edge in enumerate(EDGES):
        for value, want in ((edge, 2 * i), (edge + Fraction(1, 1 << 52), 2 * i + 1)):
            if value >= 2:
                continue
            fraction = int((value - 1) * (1 << 52))
            top, rest = fraction >> 45, fraction & ((1 << 45) - 1)
            ones = 45 - ((~rest) & ((1 << 45) - 1)).bit_length()
            nothing_below = rest == ((1 << 45) - 1) ^ ((1 << (45 - ones)) - 1)
            got = bins.fine[ones, int(nothing_below)] if top == 127 else bins.coarse[top, int(rest == 0)]
            assert got == want
    assert bins.count == BIN_COUNT


# ---- the direct count -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", TARGETS, ids=str)
def test_the_direct_count_agrees_with_the_table(fmt):
    for source in ("fp32", "fp64"):
        x = boundary_values(fmt, source=source)
        x = x[~np.isnan(x)]
        for mode in ("nearest-even", "up", "toward-zero"):
            assert ps.outcomes(x, fmt, 2.0**3, mode) == ps.sketch(x).outcomes(fmt, 2.0**3, mode)


def test_the_direct_count_takes_any_scale_and_stochastic_rounding():
    x = np.full(4096, 1.5 * 2.0**-25)
    result = ps.outcomes(x, ps.FP16, rounding="stochastic", seed=1)
    codes = ps.encode(x, ps.FP16, "stochastic", seed=1)
    assert result.flushed == np.count_nonzero(codes == 0)
    assert 0 < result.flushed < 4096
    scaled = ps.outcomes(np.float32([1.0, 160.0]), ps.E4M3, scale=3.0)
    assert (scaled.normal, scaled.overflowed) == (1, 1)
    custom = ps.Format(4, 5, infinities=True, nan=ps.NanEncoding.TOP_CODE)
    assert ps.outcomes(torch.tensor([1.0, 1e9, 0.0]), custom) == Outcomes(1, 0, 0, 1, 1, 0)


def test_the_direct_count_judges_flushed_inputs():
    x = np.float16([3e-5, 1.0])
    assert ps.outcomes(x, ps.BF16, rounding=ps.Rounding(flush_inputs=True)).flushed == 1


def test_the_most_negative_fixed_point_number_overflows():
    x = np.array([-127.0, -127.4, -127.5, -128.0, 127.5])
    encoded = [encode(float(value), ps.INT8) for value in x]
    assert encoded == [129, 129, 129, 129, 127]
    assert ps.outcomes(x, ps.INT8) == Outcomes(0, 0, 0, 2, 3, 0)


# ---- windows --------------------------------------------------------------------------------------------------------


def brute_window(x: np.ndarray, fmt: ps.Format, max_flushed: Fraction, headroom: int) -> Window:
    s = ps.sketch(x)
    with np.errstate(over="ignore"):
        most = ps.sketch(np.array([s.amax * headroom]))
    exponents = range(-300, 301)
    low = next((k for k in exponents if s.outcomes(fmt, 2.0**k).flushed <= max_flushed * s.nonzero), None)
    high = next((k for k in reversed(exponents) if not most.outcomes(fmt, 2.0**k).overflowed), None)
    return Window(low, high)


@pytest.mark.parametrize("headroom", [1, 2])
@pytest.mark.parametrize(
    "fmt", [ps.FP16, ps.BF16, ps.E4M3, ps.E5M2, ps.E2M1, ps.format("binary8p1")], ids=str
)
def test_a_window_ends_where_the_counts_say(fmt, headroom):
    rng = np.random.default_rng(11)
    for spread in (0.1, 2.0, 9.0):
        x = np.float32(rng.lognormal(-8, spread, 2000)) * rng.choice(np.float32([-1, 1]), 2000)
        got = ps.sketch(x).window(fmt, 1e-3, headroom=headroom)
        assert got == brute_window(x, fmt, Fraction(1, 1000), headroom)


def test_window_edges_are_exact():
    # 65519.996 is the greatest float32 that FP16 holds; twice it overflows, and so does 65520 (a tie to infinity).
    assert ps.sketch(np.float32([65519.996])).window(ps.FP16, headroom=1).high == 0
    assert ps.sketch(np.float32([65520.0])).window(ps.FP16, headroom=1).high == -1
    assert ps.sketch(np.float32([464.0])).window(ps.E4M3, headroom=1).high == 0
    assert ps.sketch(np.float32([464.00003])).window(ps.E4M3, headroom=1).high == -1
    # 2^-25 is a tie that goes to zero; one part in a thousand may be lost, not one part more.
    x = np.concatenate([np.ones(999), [2.0**-25]])
    assert ps.sketch(x).window(ps.FP16, 1e-3, headroom=1).low == -24
    assert ps.sketch(x).window(ps.FP16, 0.0, headroom=1).low == 1
    assert ps.sketch(x[1:]).window(ps.FP16, 1e-3, headroom=1).low == 1


def test_windows_that_are_open_at_one_end():
    x = ps.sketch(np.float32([1.0, 3.0]))
    assert x.window(ps.FP16, 1.0, headroom=1) == Window(None, 14)
    assert str(x.window(ps.FP16, 1.0, headroom=1)) == "2^14 or less"
    assert str(x.window(ps.E8M0, headroom=1)) == "2^126 or less"  # which has no zero to flush to
    assert str(Window(3, None)) == "2^3 or more"


def test_unsigned_formats_have_no_window_for_negative_numbers():
    window = ps.sketch(np.float32([1.0, -1.0])).window(ps.E8M0)
    assert not window
    assert str(window) == "no window (negative numbers)"
    assert ps.sketch(np.float32([1.0, -1.0])).window(ps.FP16)


def test_windows_without_two_ends():
    assert str(ps.sketch(np.zeros(3)).window(ps.FP16)) == "any scale"
    bad = ps.sketch(np.float32([1.0, np.inf])).window(ps.FP16)
    assert not bad
    assert str(bad) == "no window (not finite)"
    wide = ps.sketch(np.float32([2.0**-40, 2.0**40])).window(ps.FP16, 0.0)
    assert not wide
    assert str(wide) == "no window"
    with pytest.raises(ps.InputError, match="max_flushed must be 0 … 1"):
        ps.sketch([1.0]).window(ps.FP16, 2.0)


@pytest.mark.parametrize("exponent", [-160, -3, 0, 5, 30])
def test_a_scaled_sketch_is_the_sketch_of_scaled_numbers(exponent):
    x = np.random.default_rng(1).lognormal(0, 3, 5000) * np.array([1, -1] * 2500)
    assert ps.sketch(x).scaled(exponent) == ps.sketch(np.ldexp(x, exponent))


def test_binades_can_be_taken_off_from_below():
    x = np.float32([2.0**-30, -1.5 * 2.0**-20, 1.0, 3.0, 0.0, np.inf])
    s = ps.sketch(x)
    kept = s.without_binades_below(-20)
    want = ps.sketch(x[1:])
    assert (kept.least_exponent, kept.counts.tobytes()) == (want.least_exponent, want.counts.tobytes())
    assert kept.amin == 2.0**-20 <= want.amin  # a bound: which number is the least is not known
    assert (kept.nonzero, kept.zeros, kept.nonfinite, kept.amax) == (3, 1, 1, 3.0)
    assert kept.error(ps.FP16) == ps.sketch(x[1:]).error(ps.FP16)
    assert s.without_binades_below(-30) is s
    assert s.without_binades_below(9).nonzero == 0
    assert s.without_binades_below(9).error(ps.FP16).n == 1
