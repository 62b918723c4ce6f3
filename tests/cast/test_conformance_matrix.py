"""Format × mode × overflow × source × engine against the reference: every code, every 16-bit input, boundaries."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from same_codes import assert_same_codes

import precsim as ps
from precsim.number.reference import encode as reference_encode
from precsim.testing import boundary_values
from precsim.testing.table import ReferenceTable

FORMATS = [fmt for fmt in ps.NAMED_FORMATS.values() if fmt.bits <= 16]
SMALL = [fmt for fmt in FORMATS if fmt.bits <= 8]
MODES = [mode for mode in ps.Mode if mode is not ps.Mode.STOCHASTIC]
RULES = [ps.Rounding(mode, overflow, missing_nan="largest") for mode in MODES for overflow in ps.Overflow]
POLICIES = [
    ps.Rounding(
        mode,
        flush_results=True,
        flush_inputs=flush_inputs,
        nan=nan,
        missing_nan=missing,
        out_of_domain=domain,
    )
    for mode, flush_inputs, nan, missing, domain in [
        ("nearest-even", False, "canonical", "negated-zero", "magnitude"),
        ("down", True, "keep-sign", "negated-zero", "clamp"),
        ("away", True, "canonical", "largest", "magnitude"),
    ]
]

table = cache(ReferenceTable)


@cache
def values_of_codes(fmt):
    values = np.array([fmt.decode(code) for code in fmt.codes()])
    values.flags.writeable = False
    return values


@cache
def direct(fmt, rule, source, stride=1):
    """Boundary inputs and the reference's codes of each of them."""
    x = boundary_values(fmt, source)[::stride]
    codes = [reference_encode(value, fmt, rule, source=ps.NAMED_FORMATS[source]) for value in x.tolist()]
    return x, np.array(codes, np.uint8 if fmt.bits <= 8 else np.uint16)


def same_numbers(got, want):
    """Equal values, zeros of equal sign, NaN for NaN."""
    number = ~np.isnan(want)
    same_sign = np.array_equal(np.signbit(got[number]), np.signbit(want[number]))
    return same_sign and np.array_equal(got, want, equal_nan=True)


# ---- every code ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_decode_every_code(fmt, engine):
    codes = np.arange(1 << fmt.bits, dtype=np.uint8 if fmt.bits <= 8 else np.uint16)
    values = ps.decode(codes, fmt)
    assert same_numbers(values.astype(np.float64), values_of_codes(fmt))


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_finite_code_comes_back_under_every_rule(dtype, fmt, engine):
    values = values_of_codes(fmt)
    codes = np.flatnonzero(np.isfinite(values))
    if fmt.twos_complement:
        codes = codes[codes != fmt.sign_bit]  # the most negative code, which no cast gives
    values = values[codes].astype(dtype)
    for rule in RULES:
        assert_same_codes(values, ps.encode(values, fmt, rule), codes.astype(f"u{1 + (fmt.bits > 8)}"), fmt)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_specials_under_every_rule(fmt, engine):
    x = np.array([np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 1e300, -1e300, 5e-324, -5e-324])
    for rule in (*RULES, *POLICIES):
        want = np.array([reference_encode(value, fmt, rule, source=ps.FP64) for value in x.tolist()])
        got = ps.encode(x, fmt, rule)
        assert_same_codes(x, got, want.astype(got.dtype), fmt)


# ---- every 16-bit input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [np.float16, ml_dtypes.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_every_16_bit_number_to_every_smaller_format_under_every_rule(fmt, source, engine):
    x = np.arange(1 << 16, dtype=np.uint16).view(source)
    wide = x.astype(np.float32)
    for rule in RULES:
        assert_same_codes(x, ps.encode(x, fmt, rule), table(fmt, rule).codes(wide), fmt)


@pytest.mark.parametrize(
    ("source", "fmt"), [(np.float16, ps.BF16), (ml_dtypes.bfloat16, ps.FP16)], ids=["to-bf16", "to-fp16"]
)
def test_every_16_bit_number_to_the_other_16_bit_format(source, fmt, engine):
    x = np.arange(1 << 16, dtype=np.uint16).view(source)
    assert_same_codes(x, ps.encode(x, fmt), table(fmt, ps.Rounding()).codes(x.astype(np.float32)), fmt)


# ---- boundaries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_float32_boundaries_under_every_rule(fmt, engine):
    x = boundary_values(fmt, "fp32")
    for rule in (*RULES, *POLICIES):
        assert_same_codes(x, ps.encode(x, fmt, rule), table(fmt, rule).codes(x), fmt)


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_float64_boundaries_in_every_mode(fmt, engine):
    for mode in MODES:
        rule = ps.Rounding(mode, missing_nan="largest")
        x, want = direct(fmt, rule, "fp64", stride=1 if mode is ps.Mode.NEAREST_EVEN else 5)
        assert_same_codes(x, ps.encode(x, fmt, rule), want, fmt)


@pytest.mark.parametrize("fmt", [ps.FP16, ps.BF16], ids=str)
def test_boundaries_of_16_bit_formats(fmt, engine):
    x = boundary_values(fmt, "fp32")
    assert_same_codes(x, ps.encode(x, fmt), table(fmt, ps.Rounding()).codes(x), fmt)
    for mode in MODES:
        for source in ("fp32", "fp64"):
            some, want = direct(fmt, ps.Rounding(mode), source, stride=211)
            assert_same_codes(some, ps.encode(some, fmt, mode), want, fmt)


@pytest.mark.exhaustive
@pytest.mark.parametrize("source", ["fp32", "fp64"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("fmt", [ps.FP16, ps.BF16], ids=str)
def test_all_boundaries_of_16_bit_formats_in_every_mode(fmt, mode, source, engine):
    x, want = direct(fmt, ps.Rounding(mode), source)
    assert_same_codes(x, ps.encode(x, fmt, mode), want, fmt)


# ---- the table itself ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("fmt", [ps.E4M3, ps.E8M0, ps.E2M1, ps.INT8], ids=str)
def test_the_table_is_the_reference(fmt, mode):
    rule = ps.Rounding(mode, missing_nan="largest")
    x, want = direct(fmt, rule, "fp32")
    assert_same_codes(x, table(fmt, rule).codes(x), want, fmt)


def test_the_table_of_a_range():
    reference = table(ps.E5M2, ps.Rounding())
    for first in (0, 0x3F7FFF00, 0x477FF000, 0x7F7FFFF0, 0x80000000, 0xFFFFF000):
        x = np.arange(first, first + 4096, dtype=np.uint64).astype(np.uint32).view(np.float32)
        assert np.array_equal(reference.codes_of_range(first, 4096), reference.codes(x))
    with pytest.raises(ps.InputError, match="one sign"):
        reference.codes_of_range(0x7FFFFFFF, 2)


@pytest.mark.parametrize(("fmt", "rule"), [(ps.FP32, ps.Rounding()), (ps.E4M3, ps.Rounding("stochastic"))])
def test_the_table_is_for_small_formats_without_chance(fmt, rule):
    with pytest.raises(ps.InputError, match="a table needs"):
        ReferenceTable(fmt, rule)
