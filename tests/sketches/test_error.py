"""Errors read off a sketch against sums over the casts themselves, as exact fractions."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import precsim as ps
from precsim.number import NAMED_FORMATS
from precsim.runs import open_run

EXAMPLES = Path(__file__).parents[2] / "examples" / "gradients"
SCALES = range(-20, 21)
FORMATS = [ps.FP16, ps.BF16, ps.E4M3, ps.E5M2, ps.E3M2]


def exact_sum(x: np.ndarray) -> Fraction:
    """Sum of float64 numbers, without rounding."""
    mantissas, exponents = np.frexp(x[x != 0])
    integers = np.ldexp(mantissas, 53).astype(np.int64)
    total = Fraction(0)
    for exponent in np.unique(exponents):
        part = integers[exponents == exponent]
        whole = (int((part >> 26).sum()) << 26) + int((part & ((1 << 26) - 1)).sum())
        total += whole * Fraction(2) ** (int(exponent) - 53)
    return total


def direct(x: np.ndarray, fmt: ps.Format, k: int) -> tuple[int, int, Fraction, Fraction, Fraction]:
    """Numbers kept, overflowed, sums of squared errors, of absolute ones, of squares, from casts one by one."""
    x = x[np.isfinite(x)].astype(np.float64)
    edge = float(fmt.max) + 2.0 ** (fmt.greatest_exponent - fmt.significand_bits - 1)
    scaled = np.abs(np.ldexp(x, k))
    kept = (scaled < edge) | ((scaled == edge) & (fmt.max_magnitude_code % 2 == 0))
    values = ps.quantize(x, fmt, overflow="saturate", scale=2.0**k) * 2.0**k
    distance = np.ldexp(values[kept], -k) - x[kept]
    signal = x[kept]
    return (
        int(kept.sum()),
        int((~kept).sum()),
        exact_sum(distance * distance),
        exact_sum(np.abs(distance)),
        exact_sum(signal * signal),
    )


def adversarial() -> np.ndarray:
    """Ties, powers of two, neighbours of both, all binades from the least subnormal on, both signs."""
    exponents = np.arange(-149, 128)
    significands = {1, 2 - 2**-23, 1 + 2**-23, 1.5, 1.25, 1.75}
    for bits in (1, 2, 3, 4, 7, 8, 10, 11, 12):
        half = 2.0 ** -(bits + 1)
        significands |= {
            1 + half,
            1 + 3 * half,
            2 - half,
            1 + half + 2**-23,
            1 + half - 2**-23,
            2 - half - 2**-23,
        }
    with np.errstate(all="ignore"):
        x = np.ldexp(np.array(sorted(significands))[:, None], exponents).astype(np.float32).ravel()
    return np.concatenate([x, -x[::3], np.float32([0, -0.0])])


def of_error(error: ps.sketches.CastError) -> tuple:
    return error.n, error.overflowed, error.squared, error.absolute, error.signal


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_errors_of_adversarial_numbers(fmt):
    x = adversarial()
    for part in (x, x[np.abs(x) < 100], x[:1000], x[np.abs(x) == 2.0**-10]):
        s = ps.sketch(part)
        for k in SCALES:
            assert of_error(s.error(fmt, 2.0**k)) == direct(part, fmt, k), f"scale 2^{k}"


@pytest.mark.parametrize("run", ["cnn", "gpt", "minilm"])
def test_errors_of_recorded_gradients(run):
    entries = [entry for entry in open_run(EXAMPLES / run) if entry.name.startswith("grad/")]
    x = np.concatenate([entry.array().ravel() for entry in entries[::7]])
    s = ps.sketch(x)
    for fmt in FORMATS:
        for k in SCALES:
            assert of_error(s.error(fmt, 2.0**k)) == direct(x, fmt, k), f"{fmt} at 2^{k}"


@pytest.mark.parametrize("name", sorted(n for n, f in NAMED_FORMATS.items() if f.bits <= 16))
def test_errors_of_every_narrow_format(name):
    """Numbers around each format's own range; unsigned ones with negative numbers, which overflow."""
    fmt = NAMED_FORMATS[name]
    rng = np.random.default_rng(5)
    near = np.array([v for v in fmt.values() if math.isfinite(v)])
    near = near[np.abs(near) >= 2.0**-120]
    picked = rng.choice(near, 400) * rng.choice([1, 1.5, 0.5, 1.03, 1.0625, 0.97, 2], 400)
    with np.errstate(all="ignore"):
        x = np.float32(np.concatenate([picked, -picked[:50]]))
    x = x[np.isfinite(x)]
    for k in (-9, -3, 0, 1, 4):
        for overflow in ("exclude", "saturate"):
            assert of_error(ps.sketch(x).error(fmt, 2.0**k, overflow=overflow)) == expected(
                x, fmt, k, overflow
            ), f"{name} at 2^{k}, {overflow}"


@cache
def finite_values(fmt: ps.Format) -> list[Fraction]:
    return sorted({Fraction(v) for v in fmt.values() if math.isfinite(v)})


def nearest(values: list[Fraction], exact: Fraction) -> Fraction:
    at = bisect_left(values, exact)
    return min(values[max(at - 1, 0) : at + 1], key=lambda value: abs(value - exact))


def expected(x: np.ndarray, fmt: ps.Format, k: int, overflow: str) -> tuple:
    """By search among the format's values, in fractions."""
    values = finite_values(fmt)
    greatest, least = values[-1], values[0]
    spacing = Fraction(2) ** (max(fmt.greatest_exponent, fmt.least_exponent) - fmt.significand_bits)
    inclusive = fmt.max_magnitude_code % 2 == 1
    kept = over = 0
    squared = absolute = signal = Fraction(0)
    for number in x.tolist():
        exact = Fraction(number) * Fraction(2) ** k
        edge = greatest + spacing / 2
        beyond = abs(exact) > edge or (abs(exact) == edge and inclusive) or (exact < 0 and not fmt.signed)
        over += beyond
        if beyond and overflow == "exclude":
            continue
        lowest = least if not fmt.signed else -greatest
        target = (greatest if exact > 0 else lowest) if beyond else nearest(values, exact)
        error = abs(target - exact) / Fraction(2) ** k
        kept, squared, absolute = kept + 1, squared + error * error, absolute + error
        signal += Fraction(number) ** 2
    return kept, over, squared, absolute, signal


@pytest.mark.parametrize("fmt", [ps.FP16, ps.BF16, ps.E4M3, ps.E5M2, ps.E2M1], ids=str)
def test_expected_errors_of_stochastic_rounding(fmt):
    """The two neighbours, each with its probability."""
    x = adversarial()[::23]
    x = x[np.isfinite(x)]
    s = ps.sketch(x)
    values = sorted({Fraction(v) for v in fmt.values() if math.isfinite(v) and v >= 0})
    for k in (-7, 0, 9):
        squared = absolute = Fraction(0)
        over = 0
        for number in x.tolist():
            exact = abs(Fraction(number)) * Fraction(2) ** k
            if exact > values[-1]:
                over += 1
                continue
            below = values[bisect_right(values, exact) - 1]
            if below == exact:
                continue
            spacing = values[bisect_right(values, exact)] - below
            up = (exact - below) / spacing
            squared += up * (spacing - (exact - below)) ** 2 + (1 - up) * (exact - below) ** 2
            absolute += 2 * up * (1 - up) * spacing
        error = s.error(fmt, 2.0**k, "stochastic")
        unit = Fraction(2) ** k
        assert (error.overflowed, error.squared, error.absolute) == (over, squared / unit**2, absolute / unit)


def test_mean_of_many_stochastic_casts_is_near_the_expectation():
    """Random bits enumerated: 2^8 of them, all equally often, give the expectation exactly for numbers of few bits."""
    x = np.float32([1 + 3 / 256, 1.5 + 7 / 1024, 0.001953125 * 1.25])
    bits = np.arange(256, dtype=np.uint32)
    total = sum(
        (Fraction(float(v)) - Fraction(number)) ** 2
        for number in x.tolist()
        for v in ps.quantize(
            np.full(256, number, np.float32),
            ps.E4M3,
            ps.Rounding("stochastic", random_bits=8),
            random_bits=bits,
        )
    )
    assert ps.sketch(x).error(ps.E4M3, 1, "stochastic").squared == total / 256


def test_merged_in_any_order_and_chunking_the_bytes_are_the_same():
    x = np.concatenate([adversarial(), np.random.default_rng(3).normal(size=40_000).astype(np.float32)])
    whole = ps.sketch(x)
    rng = np.random.default_rng(4)
    for _ in range(100):
        cuts = np.sort(rng.integers(0, len(x), rng.integers(1, 12)))
        parts = [ps.sketch(part) for part in np.split(rng.permutation(x), cuts)]
        total = parts[0]
        for part in parts[1:]:
            total = part + total if rng.random() < 0.5 else total + part
        assert total.tobytes() == whole.tobytes()
        assert total == whole


def test_limbs_carry():
    """Sums beyond 60 bits: 2^20 times the greatest significand, and doubled until they need the second limb."""
    s = ps.sketch(np.full(1 << 14, 2 - 2.0**-23, np.float32))
    for _ in range(14):
        s = s + s
    m = (1 << 24) - 1
    assert s.moments.row_integers[0] == [(1 << 28, m << 28, m * m << 28)]
    assert s.moments.sums[..., 0].max() < 1 << 60


def test_float64_is_rounded_to_odd_to_24_bits():
    x = np.array([1 + 2.0**-30, 1.0, 1 + 2.0**-11 + 2.0**-40])
    s = ps.sketch(x)
    assert s.moments.rounded == 2
    odd = np.float32([1 + 2.0**-23, 1.0, 1 + 2.0**-11 + 2.0**-23])
    assert of_error(s.error(ps.FP16)) == of_error(ps.sketch(odd).error(ps.FP16))
    with pytest.raises(ps.InputError, match="at most 10 fraction bits"):
        s.error(ps.FP32)


def test_float32_loses_nothing_in_float32_but_in_its_subnormal_range():
    s = ps.sketch(np.float32([1.2345, 3e38]))
    assert s.error(ps.FP32).squared == 0
    assert s.error(ps.FP32).sqnr_db == math.inf
    assert s.error(ps.FP32, 2.0).overflowed == 1
    with pytest.raises(ps.InputError, match="keep 1[0-9] of them"):
        s.error(ps.FP32, 2.0**-136)


def test_what_a_sketch_cannot_tell():
    counts = ps.sketch(np.float32([1.0]), errors=False)
    assert counts.moments is None
    with pytest.raises(ps.InputError, match="errors=True"):
        counts.error(ps.FP16)
    s = ps.sketch(np.float32([1.0]))
    with pytest.raises(ps.InputError, match="nearest and of stochastic"):
        s.error(ps.FP16, 1, "toward-zero")
    with pytest.raises(ps.InputError, match="'exclude' or 'saturate'"):
        s.error(ps.FP16, overflow="wrap")
    with pytest.raises(ps.InputError, match="does not resolve the greatest values"):
        s.error(ps.Format(3, 9))
    assert (s + counts).moments is None
    assert (s + ps.Sketch()).moments is not None


def test_no_numbers():
    error = ps.sketch(np.float32([])).error(ps.FP16)
    assert (error.n, error.mse, error.mae) == (0, 0.0, 0.0)
    assert math.isnan(error.sqnr_db)
    assert ps.Sketch().error(ps.FP16).n == 0


def test_a_curve_is_the_outcomes_at_each_scale():
    s = ps.sketch(adversarial())
    curve = s.curve(ps.FP16, -5, 6)
    assert curve.exponents == tuple(range(-5, 7))
    assert curve.outcomes == tuple(s.outcomes(ps.FP16, 2.0**k) for k in range(-5, 7))
    assert curve.counts("flushed").tolist() == [s.outcomes(ps.FP16, 2.0**k).flushed for k in range(-5, 7)]
    assert curve.shares("flushed")[5] == s.outcomes(ps.FP16).share("flushed")
    with pytest.raises(ps.InputError, match="low ≤ high"):
        s.curve(ps.FP16, 3, 2)
