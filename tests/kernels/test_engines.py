"""Every engine against the reference, bit for bit: every code of every format, and every boundary by construction."""

from __future__ import annotations

import itertools
import subprocess
import sys
from functools import cache, lru_cache

import numpy as np
import pytest
import torch

import precsim as ps
from precsim.kernels import Randomness, Source, engine
from precsim.kernels.array import ArrayEngine
from precsim.kernels.array.small_target import MIN_ELEMENTS, has_table
from precsim.number import plan_cast
from precsim.number.reference import encode as reference_encode
from precsim.testing.boundaries import boundary_values

FP32, FP64 = ps.FP32, ps.FP64
TARGETS = [fmt for fmt in ps.NAMED_FORMATS.values() if fmt.bits <= 32]
SMALL = [fmt for fmt in TARGETS if fmt.bits <= 16]
CUSTOM = [
    ps.Format(3, 5, subnormals=False, name="no-subnormals"),
    ps.Format(4, 4, signed=False, name="unsigned"),
    ps.Format(4, 0, nan=ps.NanEncoding.TOP_CODE, name="no-significand"),
    ps.Format(5, 3, bias=3, nan=ps.NanEncoding.NEGATIVE_ZERO, subnormals=False, name="fnuz-no-subnormals"),
    ps.Format(3, 3, nan=ps.NanEncoding.TOP_CODE, zero=False, subnormals=False, name="no-zero"),
    ps.Format(8, 15, name="e8m15"),
]
RULES = [ps.Rounding(mode, missing_nan="largest") for mode in ps.Mode] + [
    ps.Rounding(mode, overflow, missing_nan="largest", nan="canonical")
    for mode in ("nearest-even", "up", "to-odd")
    for overflow in ("saturate", "saturate-finite", "nan")
]
FLUSHING = [
    ps.Rounding("nearest-even", missing_nan="largest", flush_results=True),
    ps.Rounding("away", missing_nan="negated-zero", flush_inputs=True),
    ps.Rounding(
        "down",
        "saturate",
        missing_nan="largest",
        out_of_domain="magnitude",
        flush_results=True,
        flush_inputs=True,
    ),
    ps.Rounding("up", missing_nan="largest", out_of_domain="clamp"),
]


@pytest.fixture(params=["native", "array"])
def any_engine(request):
    if request.param not in ps.available_engines():
        pytest.skip("the native engine was not built here: no C++ compiler was found")
    with ps.use_engine(request.param) as chosen:
        yield chosen


@cache
def expected(
    fmt: ps.Format, rule: ps.Rounding, source: ps.Format
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, random bits and the reference's codes."""
    x = boundary_values(fmt, source.name)
    rng = np.random.default_rng(2)
    if len(x) > 900:
        x = rng.permutation(x)[:900]
    random = rng.integers(0, 1 << 32, len(x), dtype=np.uint64).astype(np.uint32)
    bits = random.tolist() if rule.mode is ps.Mode.STOCHASTIC else itertools.repeat(None)
    codes = [
        reference_encode(value, fmt, rule, random=r, source=source)
        for value, r in zip(x.tolist(), bits, strict=False)
    ]
    return x, random, np.array(codes, np.uint64)


@pytest.mark.parametrize("fmt", [*TARGETS, *CUSTOM], ids=str)
def test_boundaries_of_every_format_in_every_mode_and_overflow_rule(any_engine, fmt):
    for rule, source in itertools.product([*RULES, *FLUSHING], (FP32, FP64)):
        x, random, want = expected(fmt, rule, source)
        got = encoded(any_engine, Source(x, source), fmt, rule, random)
        assert_same_codes(got, want, x, f"{source} to {fmt} by {rule}")


def encoded(
    chosen, source: Source, fmt: ps.Format, rule: ps.Rounding, random: np.ndarray | None = None
) -> np.ndarray:
    plan = plan_cast(fmt, rule)
    out = np.empty(len(source.data), f"u{plan.storage_bits // 8}")
    noise = Randomness(given=random) if rule.mode is ps.Mode.STOCHASTIC else None
    below = source.format.smallest_normal if rule.flush_inputs else 0.0
    chosen.encode(source, plan, out, flush_inputs_below=below, random=noise)
    return out


def assert_same_codes(got: np.ndarray, want: np.ndarray, x: np.ndarray, what: str) -> None:
    """No differing code; else the first one in hexadecimal with its input."""
    (wrong,) = np.nonzero(got.astype(np.uint64) != want)
    if wrong.size:
        i = wrong[0]
        raise AssertionError(
            f"{what}: {wrong.size} of {len(x)} differ, first {float(x[i]).hex()} → {int(got[i]):#x}, "
            f"reference {int(want[i]):#x}"
        )


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_every_code_survives_the_round_trip(any_engine, fmt):
    codes = np.arange(1 << fmt.bits, dtype=np.uint8 if fmt.bits <= 8 else np.uint16)
    values = np.empty(len(codes), np.float32)
    any_engine.decode(codes, fmt, values)
    want = np.array([fmt.decode(code) for code in codes.tolist()])
    number = ~np.isnan(want)
    assert values[number].tobytes() == want[number].astype(np.float32).tobytes()
    assert np.isnan(values[~number]).all()
    produced = np.array([reference_encode(value, fmt) for value in want[number].tolist()])
    for mode in ps.Mode:
        rule = ps.Rounding(mode, missing_nan="largest")
        got = encoded(
            any_engine,
            Source(values[number], FP32),
            fmt,
            rule,
            np.full(number.sum(), (1 << 32) - 1, np.uint32),
        )
        assert np.array_equal(got, produced)  # a value of the format never moves
    if not fmt.twos_complement:  # whose most negative code is never produced
        assert np.array_equal(produced, codes[number])


@pytest.mark.parametrize("fmt", [fmt for fmt in SMALL if fmt.bits <= 8], ids=str)
def test_all_finite_fp16_and_bf16_values_to_every_smaller_format(any_engine, fmt):
    for source in (ps.FP16, ps.BF16):
        codes, values = finite_codes(source)
        for mode in ("nearest-even", "up", "to-odd"):
            rule = ps.Rounding(mode, missing_nan="largest")
            got = encoded(any_engine, Source(codes, source), fmt, rule)
            if fmt.twos_complement or not fmt.signed or mode != "nearest-even":
                with ps.use_engine("array") as array:
                    want = encoded(array, Source(values, FP64), fmt, rule)
            else:
                want = nearest_by_search(values, fmt)
            assert_same_codes(got, want, values, f"{source} to {fmt} {mode}")


@lru_cache(maxsize=4)
def finite_codes(source: ps.Format) -> tuple[np.ndarray, np.ndarray]:
    codes = np.arange(1 << 16, dtype=np.uint16)
    values = np.array([source.decode(code) for code in codes.tolist()])
    finite = np.isfinite(values)
    return codes[finite], values[finite]


def nearest_by_search(values: np.ndarray, fmt: ps.Format) -> np.ndarray:
    """Nearest-even by looking the magnitude up among the half-way points: an independent formulation."""
    grid = np.array([fmt.decode(code) for code in range(fmt.max_magnitude_code + 1)])
    step = 2.0 ** (fmt.greatest_exponent - fmt.significand_bits)
    half_way = np.append((grid[1:] + grid[:-1]) / 2, grid[-1] + step / 2)
    magnitude = np.abs(values)
    below, above = np.searchsorted(half_way, magnitude, "left"), np.searchsorted(half_way, magnitude, "right")
    codes = np.where((below != above) & (below % 2 == 0), below, above)
    rule = ps.Rounding(missing_nan="largest")
    overflow = [reference_encode(s * 2.0**200, fmt, rule) for s in (1, -1)]
    negative = np.signbit(values)
    zero = np.where(negative, reference_encode(-0.0, fmt, rule), 0)
    result = np.where(codes == 0, zero, codes | (negative * fmt.sign_bit))
    return np.where(codes > fmt.max_magnitude_code, np.where(negative, overflow[1], overflow[0]), result)


@pytest.mark.parametrize("source", [fmt for fmt in SMALL if fmt.bits <= 8], ids=str)
def test_every_code_of_an_8_bit_source(any_engine, source):
    codes = (np.arange(256) % (1 << source.bits)).astype(np.uint8)
    values = np.array([source.decode(code) for code in codes.tolist()])
    for fmt in (ps.FP16, ps.E4M3, ps.E2M1, ps.FP32):
        rule = ps.Rounding(missing_nan="largest")
        want = np.array([reference_encode(value, fmt, rule) for value in values.tolist()])
        assert_same_codes(
            encoded(any_engine, Source(codes, source), fmt, rule), want, values, f"{source} to {fmt}"
        )


@pytest.mark.parametrize("fmt", [fmt for fmt in SMALL if fmt.bits <= 8], ids=str)
def test_long_arrays_are_cast_by_the_table_as_short_ones_are_without(fmt):
    x = boundary_values(fmt, "fp32")
    random = np.random.default_rng(7).integers(0, 1 << 32, MIN_ELEMENTS, dtype=np.uint64).astype(np.uint32)
    long = np.concatenate([x, random.view(np.float32)])
    array = ArrayEngine()
    for mode, exponent in itertools.product(("nearest-even", "down", "to-odd"), (0, 118, -40)):
        rule = ps.Rounding(mode, missing_nan="largest")
        plan = plan_cast(fmt, rule, exponent)
        if not has_table(plan):
            continue
        got = np.empty(len(long), np.uint8)
        array.encode(Source(long, FP32), plan, got)
        step = MIN_ELEMENTS // 3
        for start in range(0, len(long), step):
            part = long[start : start + step]
            want = np.empty(len(part), np.uint8)
            array.encode(Source(part, FP32), plan, want)
            assert_same_codes(got[start : start + step], want, part, f"{fmt} {mode} 2^{exponent}")


def test_a_table_is_used_where_it_can_be():
    usable = {fmt.name for fmt in TARGETS if has_table(plan_cast(fmt, ps.Rounding(missing_nan="largest")))}
    assert usable >= {"e4m3", "e5m2", "e2m1", "binary8p7", "int8"}
    assert not usable & {"fp16", "bf16", "tf32", "e8m0"}
    assert not has_table(
        plan_cast(ps.E5M2, ps.Rounding(), 120)
    )  # its spacing would lie among float32's subnormals


def test_torch_tensors_and_numpy_arrays_give_the_same_bits():
    array = ArrayEngine()
    for fmt, mode in itertools.product(
        (ps.FP16, ps.E4M3, ps.E8M0, ps.E4M3FNUZ, ps.TF32), ("nearest-even", "down", "to-odd")
    ):
        rule = ps.Rounding(mode, missing_nan="largest")
        plan = plan_cast(fmt, rule)
        for source in (FP32, FP64):
            x = expected(fmt, rule, source)[0]
            want = encoded(array, Source(x, source), fmt, rule)
            signed = {8: torch.uint8, 16: torch.int16, 32: torch.int32}[plan.storage_bits]
            out = torch.empty(len(x), dtype=signed)
            array.encode(Source(torch.from_numpy(x.copy()), source), plan, out)
            assert np.array_equal(out.numpy().view(want.dtype), want)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_show(threads):
    if "native" not in ps.available_engines():
        pytest.skip("the native engine was not built here: no C++ compiler was found")
    from precsim.kernels.native_engine import NativeEngine

    x = np.random.default_rng(1).normal(size=(1 << 21) + 77).astype(np.float32)
    plan = plan_cast(ps.FP16, ps.Rounding("stochastic", random_bits=9))
    outs = []
    for count in (1, threads):
        out = np.empty(len(x), np.uint16)
        NativeEngine(count).encode(Source(x, FP32), plan, out, random=Randomness(seed=4, first=3))
        outs.append(out)
    assert np.array_equal(*outs)
    from precsim.sketches.edges import bin_map

    one, many = (NativeEngine(count).count(Source(x, FP32), bin_map()) for count in (1, threads))
    assert np.array_equal(one.counts, many.counts)
    assert (one.least_exponent, one.amax, one.amin) == (many.least_exponent, many.amax, many.amin)


PROBE = """
import numpy as np, torch, precsim as ps
torch.set_flush_denormal(True)
x = np.uint32([1 << 9, 0x80000001, 1 << 22, 0x0020AAC8, 0]).view(np.float32)  # by bits: NumPy would flush them
assert (torch.from_numpy(x) * 1.0 == 0).all()  # the process does flush
for name in ps.available_engines():
    with ps.use_engine(name):
        print(ps.encode(x, ps.BF16).tolist(), ps.encode(x, ps.FP16, scale=2.0**120).tolist(), ps.sketch(x).binades(),
              ps.quantize(x, ps.BF16).view(np.uint32).tolist())
"""


def test_results_do_not_depend_on_flush_to_zero():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = set(done.stdout.splitlines())
    assert len(lines) == 1
    x = np.uint32([1 << 9, 0x80000001, 1 << 22, 0x0020AAC8, 0]).view(np.float32)
    bf16 = [reference_encode(value, ps.BF16) for value in x.tolist()]
    assert lines.pop().startswith(str(bf16))


def test_an_unknown_engine():
    with pytest.raises(ps.InputError, match="choose 'native' or 'array'"), ps.use_engine("cuda"):
        pass
    assert engine().name == ps.available_engines()[0]
