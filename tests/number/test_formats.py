"""Named formats against NumPy, ml_dtypes and gfloat; what makes formats equal; what is refused."""

from __future__ import annotations

import dataclasses
import math

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
import torch

import precsim as ps
from precsim.number.reference import encode

SMALL = [fmt for fmt in ps.NAMED_FORMATS.values() if fmt.bits <= 16]
ARRAY_TYPES = {
    **{ps.format(name): np.dtype(name) for name in ("float16", "float32", "float64")},
    **{
        ps.format(name): np.dtype(getattr(ml_dtypes, name))
        for name in dir(ml_dtypes)
        if "float" in name and name != "finfo"
    },
}
GFLOAT = {
    ps.E4M3: gfloat.formats.format_info_ocp_e4m3,
    ps.E5M2: gfloat.formats.format_info_ocp_e5m2,
    ps.E3M2: gfloat.formats.format_info_ocp_e3m2,
    ps.E2M3: gfloat.formats.format_info_ocp_e2m3,
    ps.E2M1: gfloat.formats.format_info_ocp_e2m1,
    ps.E8M0: gfloat.formats.format_info_ocp_e8m0,
    ps.MXINT8: gfloat.formats.format_info_ocp_int8,
    ps.FP16: gfloat.formats.format_info_binary16,
    ps.BF16: gfloat.formats.format_info_bfloat16,
    **{ps.format(f"binary8p{p}"): gfloat.formats.format_info_p3109(8, p) for p in range(1, 8)},
}


def same(one, other):
    """The same number, zeros of the same sign; or both NaN."""
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other and math.copysign(1, one) == math.copysign(1, other)


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_every_code_decodes_and_encodes_back(fmt):
    for code in fmt.codes():
        value = fmt.decode(code)
        if math.isnan(value):
            assert same(fmt.decode(encode(value, fmt)), value)
        elif fmt.twos_complement and code == fmt.sign_bit:
            assert encode(value, fmt) == code + 1  # the symmetric range ends at −127
        else:
            assert encode(value, fmt) == code, hex(code)


@pytest.mark.parametrize("fmt", [fmt for fmt in ARRAY_TYPES if fmt.bits <= 16], ids=str)
def test_every_code_decodes_as_the_array_library_has_it(fmt):
    dtype = ARRAY_TYPES[fmt]
    codes = np.arange(1 << fmt.bits, dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = codes.view(dtype).astype(np.float64)
    for code, value in enumerate(values.tolist()):
        assert same(fmt.decode(code), value), hex(code)


@pytest.mark.parametrize("fmt", GFLOAT, ids=str)
def test_every_code_decodes_as_gfloat_has_it(fmt):
    info = GFLOAT[fmt]
    for code in fmt.codes():
        assert same(fmt.decode(code), float(gfloat.decode_float(info, code).fval)), hex(code)


@pytest.mark.parametrize("fmt", ARRAY_TYPES, ids=str)
def test_properties_have_their_usual_meaning(fmt):
    info = ml_dtypes.finfo(ARRAY_TYPES[fmt])
    assert fmt.bits == info.bits
    assert fmt.max == float(info.max)
    assert fmt.smallest_normal == float(info.smallest_normal)
    assert fmt.smallest_subnormal == float(info.smallest_subnormal)
    assert fmt.eps == float(info.eps)
    assert fmt.significand_bits == info.nmant
    assert fmt.exponent_bits == info.nexp
    assert fmt.min == float(info.min)


@pytest.mark.parametrize(
    ("fmt", "greatest", "normal", "least"),
    [
        # OFP8 1.0, table 1; MX 1.0, tables 3 to 5 and 7
        (ps.E4M3, 448, 2**-6, 2**-9),
        (ps.E5M2, 57344, 2**-14, 2**-16),
        (ps.E3M2, 28, 0.25, 0.0625),
        (ps.E2M3, 7.5, 1, 0.125),
        (ps.E2M1, 6, 1, 0.5),
        (ps.E8M0, 2.0**127, 2.0**-127, 2.0**-127),
        # IEEE 754-2019, table 3.5
        (ps.FP16, 65504, 2**-14, 2**-24),
        (ps.FP32, (2 - 2**-23) * 2.0**127, 2.0**-126, 2.0**-149),
        # FNUZ, arXiv:2206.02915
        (ps.E4M3FNUZ, 240, 2**-7, 2**-10),
        (ps.E5M2FNUZ, 57344, 2**-15, 2**-17),
        (ps.E4M3B11FNUZ, 30, 2**-10, 2**-13),
        (ps.TF32, (2 - 2**-10) * 2.0**127, 2.0**-126, 2.0**-136),
        (ps.INT8, 127, 64, 1),
        (ps.MXINT8, 127 / 64, 1, 1 / 64),
    ],
    ids=str,
)
def test_ranges_as_the_documents_have_them(fmt, greatest, normal, least):
    assert (fmt.max, fmt.smallest_normal, fmt.smallest_subnormal) == (greatest, normal, least)


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_values_are_the_finite_ones_in_order(fmt):
    values = fmt.values()
    assert values == sorted(set(values))
    assert values[-1] == fmt.max
    assert {value for value in map(fmt.decode, fmt.codes()) if math.isfinite(value)} == set(values)
    assert all(math.copysign(1, value) > 0 for value in values if value == 0)


def test_values_of_wide_formats_are_too_many():
    with pytest.raises(ps.InputError, match=r"format fp32: values\(\) lists at most 2\^16 values"):
        ps.FP32.values()
    assert ps.FP32.codes() == range(1 << 32)


def test_codes_have_a_width():
    for code in (-1, 256):
        with pytest.raises(ps.InputError, match="has more than 8 bits"):
            ps.E4M3.decode(code)


# ---- equality and names --------------------------------------------------------------------------------------------


def test_formats_are_equal_by_meaning():
    mine = ps.Format(4, 3, infinities=False, nan=ps.NanEncoding.TOP_CODE, name="mine", source="me")
    assert mine == ps.E4M3
    assert hash(mine) == hash(ps.E4M3)
    assert str(mine) == "mine"
    assert ps.E4M3 != ps.E4M3FNUZ
    assert ps.Format(8, 7).name == "e8m7"
    assert len(set(ps.NAMED_FORMATS.values())) == len(ps.NAMED_FORMATS)
    assert all(fmt.source for fmt in ps.NAMED_FORMATS.values())


def test_formats_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ps.E4M3.bias = 8


@pytest.mark.parametrize(
    ("key", "fmt"),
    [
        ("e4m3", ps.E4M3),
        (" Float8_E4M3FN ", ps.E4M3),
        ("float8-e5m2", ps.E5M2),
        ("BF16", ps.BF16),
        ("half", ps.FP16),
        ("tensorfloat-32", ps.TF32),
        ("binary8p3", ps.NAMED_FORMATS["binary8p3"]),
        (np.float16, ps.FP16),
        (np.dtype("f4"), ps.FP32),
        (np.dtype(">f2"), ps.FP16),
        (ml_dtypes.bfloat16, ps.BF16),
        (np.dtype(ml_dtypes.float8_e3m4), ps.E3M4),
        (ml_dtypes.float8_e4m3, ps.E4M3IEEE),
        (torch.float8_e4m3fn, ps.E4M3),
        (torch.bfloat16, ps.BF16),
        (torch.float64, ps.FP64),
        (ps.E2M1, ps.E2M1),
    ],
    ids=str,
)
def test_look_up(key, fmt):
    assert ps.format(key) == fmt


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("e4m4", "unknown format 'e4m4': did you mean e4m3"),
        ("flaot16", "did you mean float16"),
        ("#", "unknown format '#': known: fp64, fp32"),
        (torch.complex64, "unknown format 'complex64'"),
        (3, "unknown format '3'"),
    ],
    ids=str,
)
def test_unknown_names_give_the_nearest(key, message):
    with pytest.raises(ps.InputError, match=message) as caught:
        ps.format(key)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ((0, 3), "exponent_bits must be 1 to 11, got 0"),
        ((12, 3), "exponent_bits must be 1 to 11, got 12"),
        ((4, -1), "significand_bits must be 0 to 52, got -1"),
        ((4, 53), "significand_bits must be 0 to 52, got 53"),
        ((4, 0), "can't hold both infinity and NaN"),
        ((4, 3, None, False, True, True, ps.NanEncoding.NEGATIVE_ZERO), "an unsigned format has no −0 code"),
        (
            (4, 3, None, True, True, True, ps.NanEncoding.NEGATIVE_ZERO, True),
            "signed_zero needs a code for −0",
        ),
        ((4, 3, None, True, True, True, ps.NanEncoding.IEEE, False, False), "without zero has no subnormals"),
        (
            (4, 3, None, True, True, True, ps.NanEncoding.IEEE, None, True, True),
            "two's complement codes need",
        ),
        ((1, 0, None, False, False, True, ps.NanEncoding.TOP_CODE), "no finite value is left"),
        ((8, 7, 1100), "its values must be float64 values"),
        ((11, 0, -5, True, True, False, ps.NanEncoding.NONE), "its values must be float64 values"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contradictions_are_refused(parameters, message):
    with pytest.raises(ps.InputError, match=message) as caught:
        ps.Format(*parameters)
    assert "\n" not in str(caught.value)
