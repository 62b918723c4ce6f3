"""The inputs by construction are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest

import precsim as ps
from precsim.testing import boundary_values
from precsim.testing.boundaries import float_patterns

SOURCES = {"fp32": np.float32, "fp64": np.float64}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("fmt", [fmt for fmt in ps.NAMED_FORMATS.values() if fmt.bits <= 8], ids=str)
def test_values_middles_and_what_is_beside_them(fmt, source):
    dtype = SOURCES[source]
    x = boundary_values(fmt, source)
    assert x.dtype == dtype
    values = np.array(fmt.values())
    spacing_above = 2.0 ** (fmt.greatest_exponent - fmt.significand_bits)
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2, [fmt.max + spacing_above / 2]])
    with np.errstate(over="ignore", under="ignore"):
        points = np.concatenate([points, -points]).astype(dtype)
        for wanted in (points, np.nextafter(points, dtype(np.inf)), np.nextafter(points, dtype(-np.inf))):
            assert np.isin(wanted, x).all()


@pytest.mark.parametrize(("source", "fraction_bits", "bias"), [("fp32", 23, 127), ("fp64", 52, 1023)])
def test_the_source_s_own_extremes(source, fraction_bits, bias):
    dtype = SOURCES[source]
    x = float_patterns(source)
    bits = {int(b) for b in x.view(f"u{x.itemsize}")}
    one, sign, infinity = bias << fraction_bits, 1 << (8 * x.itemsize - 1), (2 * bias + 1) << fraction_bits
    for pattern in (
        0,
        1,
        (1 << fraction_bits) - 1,
        1 << fraction_bits,
        one,
        one + 1,
        one - 1,
        infinity - 1,
        infinity,
    ):
        assert {pattern, pattern | sign} <= bits
    quiet = infinity | 1 << (fraction_bits - 1)
    assert {infinity + 1, quiet, quiet | sign, quiet + (1 << (fraction_bits - 1)) - 1} <= bits
    assert np.isnan(x).sum() > 2 * fraction_bits
    assert np.finfo(dtype).smallest_subnormal in x


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("fmt", [ps.E4M3, ps.FP16, ps.FP32], ids=str)
def test_each_bit_pattern_once_and_nan_last(fmt, source):
    x = boundary_values(fmt, source)
    bits = x.view(f"u{x.itemsize}")
    assert len(np.unique(bits)) == len(bits)
    numbers = x[: len(x) - np.isnan(x).sum()]
    assert np.all(numbers[1:] >= numbers[:-1])
    assert {0.0, np.inf, -np.inf} <= set(numbers.tolist())
    assert not x.flags.writeable


def test_other_sources_are_unknown():
    with pytest.raises(ps.InputError, match="source must be 'fp32' or 'fp64', got 'fp16'"):
        boundary_values(ps.E4M3, "fp16")
