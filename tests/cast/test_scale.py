"""`scale=` multiplies exactly by powers of two, and with the one stated rounding otherwise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import precsim as ps
from precsim.number.reference import encode as reference_encode
from precsim.testing.boundaries import boundary_values

pytestmark = pytest.mark.usefixtures("engine")

EXPONENTS = [-800, -300, -140, -24, -1, 0, 1, 8, 16, 24, 100, 127, 140, 300, 800]


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("source", ["fp32", "fp64"])
@pytest.mark.parametrize("fmt", [ps.FP16, ps.BF16, ps.E4M3, ps.E8M0], ids=str)
def test_power_of_two_scales_are_exact(fmt, source, exponent):
    x = boundary_values(fmt, source=source)
    with np.errstate(all="ignore"):
        moved = np.ldexp(x.astype(np.float64), -exponent).astype(x.dtype)
    few = max(1, len(x) // 400)
    x = np.unique(np.concatenate([moved[::few], x[:: 4 * few]]))
    x = x[~np.isnan(x)]
    got = ps.encode(x, fmt, scale=2.0**exponent)
    for value, code in zip(x.tolist(), got.tolist(), strict=True):
        exact = Fraction(value) * Fraction(2) ** exponent if value and math.isfinite(value) else value
        want = reference_encode(exact, fmt)
        assert code == want, f"{value.hex()}·2^{exponent} to {fmt}: {code:#x}, reference {want:#x}"


@pytest.mark.parametrize("scale", [3.0, 0.1, 448.0 / 0.7, 1e-3])
def test_other_scales_round_the_product_once_in_the_source_s_type(scale):
    x32 = boundary_values(ps.E4M3, source="fp32")[::11]
    with np.errstate(all="ignore"):
        product32 = x32 * np.float32(scale)
        x64 = x32.astype(np.float64)
        product64 = x64 * scale
    np.testing.assert_array_equal(ps.encode(x32, ps.FP16, scale=scale), ps.encode(product32, ps.FP16))
    np.testing.assert_array_equal(ps.encode(x64, ps.FP16, scale=scale), ps.encode(product64, ps.FP16))


@pytest.mark.parametrize("scale", [2.0**16, 2.0**-3, 3.0, 2.0**130, 2.0**-140])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_quantize_gives_the_value_that_the_scaled_code_stands_for(dtype, scale):
    x = np.array([0.1, -1e-3, 1.0, 3.0, 0.0, 5e-5], dtype)
    codes = ps.encode(x, ps.BF16, scale=scale)
    with np.errstate(all="ignore"):
        divisor = scale if math.frexp(scale)[0] == 0.5 or dtype == np.float64 else float(np.float32(scale))
        want = (ps.decode(codes, ps.BF16).astype(np.float64) / divisor).astype(dtype)
    got = ps.quantize(x, ps.BF16, scale=scale)
    assert got.dtype == np.dtype(dtype)
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 2.0**801, "big", [1.0, 2.0]])
def test_a_scale_is_one_positive_number(scale):
    with pytest.raises(ps.InputError, match=r"^scale must [^\n]+$"):
        ps.encode(1.0, ps.FP16, scale=scale)


def test_a_scale_beyond_float32_is_refused_for_float32():
    with pytest.raises(ps.InputError, match="is not a float32 number"):
        ps.encode(np.float32(1.0), ps.FP16, scale=3e60)
    assert ps.encode(np.float64(1e-60), ps.FP16, scale=3e60) == 0x4200
