"""The native engine where its own shortcuts could go wrong: scaled ranges, integers, noise, the count's histogram."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import precsim as ps
from precsim.kernels import BinMap, GroupMap, Randomness, Source
from precsim.kernels.array import ArrayEngine
from precsim.number import plan_cast
from precsim.number.reference import encode as reference_encode
from precsim.sketches.edges import bin_map
from precsim.sketches.groups import group_map
from precsim.testing.boundaries import boundary_values

native_engine = pytest.importorskip(
    "precsim.kernels.native_engine", reason="the native engine was not built here", exc_type=ImportError
)

FORMATS = [
    ps.FP16,
    ps.BF16,
    ps.E4M3,
    ps.E5M2,
    ps.E2M1,
    ps.E8M0,
    ps.E4M3FNUZ,
    ps.TF32,
    ps.Format(8, 11, name="e8m11"),
]
RULES = [("nearest-even", "infinity"), ("up", "nan"), ("to-odd", "saturate"), ("away", "saturate-finite")]
SCALES = [-800, -160, -64, -17, -1, 1, 17, 64, 160, 800]


def native(threads: int = 1):
    return native_engine.NativeEngine(threads)


def encoded(engine, source: Source, plan, **more) -> np.ndarray:
    out = np.empty(len(source.data), f"u{plan.storage_bits // 8}")
    engine.encode(source, plan, out, **more)
    return out


def assert_same(got: np.ndarray, want: np.ndarray, x: np.ndarray, what: object) -> None:
    (wrong,) = np.nonzero(got != want)
    if wrong.size:
        i = wrong[0]
        raise AssertionError(f"{what}: {wrong.size} differ, first {x[i]!r} → {got[i]:#x}, not {want[i]:#x}")


def scaled(value: float, exponent: int) -> float | Fraction:
    """value·2^exponent exactly, specials as they are."""
    return Fraction(value) * Fraction(2) ** exponent if np.isfinite(value) and value != 0 else value


@pytest.mark.parametrize("source", ["fp32", "fp64"])
@pytest.mark.parametrize("exponent", SCALES)
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_scales_move_the_range_anywhere(fmt, exponent, source):
    x = boundary_values(fmt, source)
    with np.errstate(over="ignore", under="ignore"):
        moved = np.ldexp(x[np.isfinite(x)].astype(np.float64), -exponent).astype(x.dtype)
    special = x.dtype.type([np.inf, -np.inf, np.nan, 0.0, -0.0, 5e-45, 3e38])
    x = np.concatenate([moved[:: len(moved) // 100 + 1], special])
    for mode, overflow in RULES:
        rule = ps.Rounding(mode, overflow, missing_nan="largest")
        plan = plan_cast(fmt, rule, exponent)
        got = encoded(native(), Source(x, ps.NAMED_FORMATS[source]), plan)
        want = [reference_encode(scaled(value, exponent), fmt, rule) for value in x.tolist()]
        assert_same(got, np.array(want, got.dtype), x, f"{source}·2^{exponent} to {fmt} by {rule}")


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("fmt", [ps.FP16, ps.BF16, ps.TF32, ps.FP32, ps.INT8], ids=str)
def test_integers_are_rounded_once(fmt, dtype):
    ties = {(1 << k) + ((1 << k) >> cut) for k in range(64) for cut in (8, 9, 11, 12, 24, 25, 64)}
    near = {sign * (tie + d) for tie in ties for d in (-1, 0, 1) for sign in (1, -1)}
    limits = np.iinfo(dtype)
    numbers = sorted(n for n in near | {int(limits.min), int(limits.max)} if limits.min <= n <= limits.max)
    for mode in ps.Mode:
        if mode is ps.Mode.STOCHASTIC:
            continue
        rule = ps.Rounding(mode, missing_nan="largest")
        got = encoded(native(), Source(np.array(numbers, dtype), None), plan_cast(fmt, rule))
        want = np.array([reference_encode(n, fmt, rule) for n in numbers], got.dtype)
        assert_same(got, want, np.array(numbers, dtype), f"{np.dtype(dtype)} to {fmt} {mode}")


def hostile_float32(n: int) -> np.ndarray:
    """All exponents, special numbers and long runs of ones, over several blocks and a ragged end."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 1 << 32, n, dtype=np.uint32)
    length = rng.integers(0, 24, n).astype(np.uint32)
    leading_ones = np.uint32(0x7FFFFF) & ~(np.uint32(0x7FFFFF) >> length)
    bits = np.where(rng.random(n) < 0.5, bits | leading_ones, bits)
    bits = np.where(rng.random(n) < 0.2, bits & (np.uint32(0xFF800000) | leading_ones), bits)
    special = np.array([0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF], np.uint32)
    at = rng.random(n) < 0.1
    bits[at] = rng.choice(np.concatenate([special, special | np.uint32(1 << 31)]), at.sum())
    return bits.view(np.float32)


@pytest.mark.parametrize("first", [0, 1, 2, 3, (1 << 34) - 2])
@pytest.mark.parametrize("random_bits", [1, 13, 32])
@pytest.mark.parametrize("fmt", [ps.FP16, ps.BF16, ps.E5M2, ps.E8M0, ps.TF32], ids=str)
def test_stochastic_rounding_agrees_with_the_array_engine(fmt, random_bits, first):
    x = hostile_float32(5000)
    plan = plan_cast(fmt, ps.Rounding("stochastic", random_bits=random_bits))
    random = Randomness(seed=0xFEDCBA9876543210, first=first)
    got, want = (
        encoded(engine, Source(x, ps.FP32), plan, random=random) for engine in (native(), ArrayEngine())
    )
    assert_same(got, want, x, f"{fmt} with {random_bits} random bits from {first}")


@pytest.mark.parametrize("multiplier", [1.0, 3.7, 1e-30])
def test_quantize_flushes_multiplies_and_divides_as_the_array_engine_does(multiplier):
    x = hostile_float32(5000)
    for fmt in (ps.FP16, ps.BF16, ps.E4M3, ps.TF32, ps.FP32):
        plan = plan_cast(fmt, ps.Rounding(flush_inputs=True))
        results = []
        for engine in (native(), ArrayEngine()):
            out = x.copy()
            more = {"flush_inputs_below": 2.0**-126, "multiplier": multiplier, "divisor": 3.7}
            engine.quantize(Source(out, ps.FP32), plan, fmt, out, **more)
            results.append(out.view(np.uint32))
        assert_same(*results, x, f"{fmt} times {multiplier}")


def tables_agree(source: Source, threads: int = 1) -> bool:
    one, other = native(threads).count(source, bin_map()), ArrayEngine().count(source, bin_map())
    names = ("least_exponent", "zeros", "positive_infinities", "negative_infinities", "nans", "amax", "amin")
    return np.array_equal(one.counts, other.counts) and all(
        getattr(one, n) == getattr(other, n) for n in names
    )


@pytest.mark.parametrize("n", [0, 1, 7, 8192, 8193, 50_001])
def test_counts_agree_with_the_array_engine(n):
    x = hostile_float32(n)
    assert tables_agree(Source(x, ps.FP32))
    assert tables_agree(Source(np.abs(x)[x > 1e30], ps.FP32))
    wide = np.random.default_rng(6).integers(0, 1 << 64, n, dtype=np.uint64)
    assert tables_agree(Source(wide.view(np.float64), ps.FP64))
    assert tables_agree(Source(wide >> (wide & np.uint64(63)), None))
    for fmt in (ps.FP16, ps.BF16):
        assert tables_agree(Source(wide.astype(np.uint16), fmt))
    assert tables_agree(Source(wide.astype(np.uint8), ps.E4M3))


def moments_agree(source: Source, threads: int = 1) -> bool:
    (one, sums), (other, other_sums) = (
        engine.moments(source, bin_map(), group_map()) for engine in (native(threads), ArrayEngine())
    )
    return (
        np.array_equal(one.counts, other.counts)
        and (one.zeros, one.nans, one.amax, one.amin) == (other.zeros, other.nans, other.amax, other.amin)
        and np.array_equal(sums.distances, other_sums.distances)
        and np.array_equal(sums.sums, other_sums.sums)
        and sums.rounded == other_sums.rounded
    )


@pytest.mark.parametrize("n", [0, 1, 7, 30_000, 30_001])
def test_moments_agree_with_the_array_engine(n):
    x = hostile_float32(n)
    assert moments_agree(Source(x, ps.FP32))
    assert moments_agree(Source((x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32), ps.FP32))
    wide = np.random.default_rng(6).integers(0, 1 << 64, n, dtype=np.uint64)
    assert moments_agree(Source(wide.view(np.float64), ps.FP64))
    assert moments_agree(Source(wide >> (wide & np.uint64(63)), None))
    for fmt in (ps.FP16, ps.BF16):
        assert moments_agree(Source(wide.astype(np.uint16), fmt))
    assert moments_agree(Source(wide.astype(np.uint8), ps.E4M3))


def test_moments_of_many_threads_and_of_many_equal_numbers():
    assert moments_agree(Source(hostile_float32((3 << 19) + 5), ps.FP32), threads=3)
    n = (1 << 24) + 5  # more than one table takes
    x = np.full(n, 2 - 2.0**-23, np.float32)
    counts, sums = native(1).moments(Source(x, ps.FP32), bin_map(), group_map())
    m = (1 << 24) - 1
    total = [int(low) + (int(high) << 60) for low, high in sums.sums[0, 0, -1]]
    assert total == [n, n * m, n * m * m]
    assert counts.counts.sum() == n


def test_groups_that_are_no_table_are_refused():
    for wrong in (
        GroupMap(65, group_map().of),
        GroupMap(3, group_map().of),
        GroupMap(3, np.zeros(5, np.uint8)),
    ):
        with pytest.raises(ValueError, match="group"):
            native().moments(Source(np.ones(3, np.float32), ps.FP32), bin_map(), wrong)


def test_every_upper_half_of_float32_is_counted_as_by_the_array_engine():
    """All signs, exponents and top 7 fraction bits; low bits that are none, few, all but one, or all."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.uint32([0, 1, 0x7FFF, 0x8000, 0xFFF0, 0xFFF8, 0xFFFC, 0xFFFE, 0xFFFF])
    assert tables_agree(Source((upper[:, None] | low).ravel().view(np.float32), ps.FP32))


def test_bins_that_the_native_count_cannot_tell_apart_are_refused():
    usual = bin_map()
    coarse = np.array(usual.coarse)
    coarse[3:, :] += 2  # an edge at 1 + 3/128, inside a group
    with pytest.raises(ValueError, match="use the array engine"):
        native().count(Source(np.ones(3, np.float32), ps.FP32), BinMap(usual.count + 2, coarse, usual.fine))


def test_many_threads_count_as_one():
    assert tables_agree(Source(hostile_float32((3 << 19) + 5), ps.FP32), threads=3)


@pytest.mark.parametrize("wanted", ["0", "-1", "many", ""])
def test_a_thread_count_that_is_none(monkeypatch, wanted):
    monkeypatch.setenv("PRECSIM_NUM_THREADS", wanted)
    with pytest.raises(ps.InputError, match="PRECSIM_NUM_THREADS must be a positive integer"):
        native_engine.default_threads()


def test_the_thread_count_is_read_at_each_call(monkeypatch):
    monkeypatch.setenv("PRECSIM_NUM_THREADS", "3")
    assert native_engine.default_threads() == 3


def test_arrays_that_do_not_fit_are_refused():
    source = Source(np.zeros(8, np.float32), ps.FP32)
    plan = plan_cast(ps.FP16, ps.Rounding())
    for out in (np.empty(7, np.uint16), np.empty(8, np.uint8)):
        with pytest.raises(ValueError, match="output does not fit the plan"):
            native().encode(source, plan, out)
