"""Casts that went wrong in public, each with its right value. The reports are in tests/data/public-reports.json."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import precsim as ps
from precsim.number.reference import encode as reference_encode

pytestmark = pytest.mark.usefixtures("engine")

REPORTS = {
    report["id"]: report
    for report in json.loads(
        Path(__file__).parents[1].joinpath("data/public-reports.json").read_text(encoding="utf-8")
    )
}


def f32(*bits):
    """float32 numbers from their bits."""
    return np.array(bits, np.uint32).view(np.float32)


def encoded(x, fmt, *rule, **options):
    """Codes by the engine, which the reference must give too."""
    codes = ps.encode(x, fmt, *rule, **options)
    if not options:
        rounding = ps.Rounding(*rule)
        for value, code in zip(np.atleast_1d(x).tolist(), np.atleast_1d(codes).tolist(), strict=True):
            assert reference_encode(value, fmt, rounding) == code
    return codes.tolist()


def values(x, fmt, *rule):
    return ps.decode(np.array(encoded(x, fmt, *rule), np.uint16 if fmt.bits > 8 else np.uint8), fmt).tolist()


def test_every_report_has_a_test_that_names_its_source():
    documented = {}
    for name, function in globals().items():
        if name.startswith("test_d"):
            documented.setdefault(name[5:8].upper(), function.__doc__)
    assert documented.keys() == REPORTS.keys()
    for report_id, text in documented.items():
        assert re.findall(r"#\d+", REPORTS[report_id]["source"]) == re.findall(r"#\d+", text), report_id


def test_d01_fp16_from_float64_rounds_once():
    """tinygrad#18071, julia PR#57809, halide PR#8906."""
    x = np.array([1.5 + 2**-11 + 2**-30, 1.5 + 2**-11, 2**-25 + 2**-60, 65520 - 2**-20])
    assert encoded(x, ps.FP16) == [0x3E01, 0x3E00, 0x0001, 0x7BFF]
    assert ps.encode(x, ps.FP16, profile="numpy").tolist() == [0x3E01, 0x3E00, 0x0001, 0x7BFF]
    assert ps.encode(x, ps.FP16, profile="torch").tolist() == [0x3E00, 0x3E00, 0x0000, 0x7C00]


def test_d02_bf16_from_float64_rounds_once():
    """julia PR#57809 review, halide PR#8906 (JuliaLang/julia)."""
    x = np.array([1 + 2**-8 + 2**-40, -(1 + 3 * 2**-8 - 2**-40)])
    assert encoded(x, ps.BF16) == [0x3F81, 0xBF81]
    assert ps.encode(x, ps.BF16, profile="torch").tolist() == [0x3F80, 0xBF82]


def test_d04_a_carry_into_the_exponent():
    """h5py#819."""
    assert encoded(np.array([2 - 2**-30, 0.5 - 2**-40]), ps.FP16) == [0x4000, 0x3800]
    assert encoded(f32(0x3FFFFFFF), ps.FP16) == [0x4000]


def test_d06_ties_go_to_even_and_are_called_ties():
    """numpy#22704, pytorch#17584, ml_dtypes#221, ucker/why-low-precision-training-fails#1."""
    assert values([2049, 2051], ps.FP16) == [2048, 2052]
    x = [4.25, 4.75, 9.5, 17.0, 19.0, 21.0, 23.0]
    assert encoded(x, ps.E4M3) == [0x48, 0x4A, 0x52, 0x58, 0x5A, 0x5A, 0x5C]
    assert values(x, ps.E4M3) == [4, 5, 10, 16, 20, 20, 24]
    for value, fmt in [(2049, ps.FP16), (2051, ps.FP16), *((number, ps.E4M3) for number in x)]:
        account = ps.explain(value, fmt)
        assert account.is_tie
        assert "a tie: it goes to the neighbour whose code is even" in str(account)
    assert "tie" not in str(ps.explain(4.3, ps.E4M3))


def test_d07_guard_and_sticky_bits():
    """onnx PR#5456, bitstring#342."""
    x = [231.0, 232.0, 233.0, 239.0]
    assert encoded(x, ps.E4M3) == [0x76, 0x76, 0x77, 0x77]
    assert values(x, ps.E4M3) == [224, 224, 240, 240]
    assert values(x, ps.E4M3, "toward-zero") == [224] * 4


def test_d08_bf16_neither_cut_off_nor_half_up():
    """stillwater universal#1133, hw-native-sys/pypto-lib PR#844, 1bit-MONSTER#640."""
    x = f32(0x3F80C000, 0x3F808000, 0x3F818000)
    assert encoded(x, ps.BF16) == [0x3F81, 0x3F80, 0x3F82]
    assert encoded(x, ps.BF16, "toward-zero") == [0x3F80, 0x3F80, 0x3F81]
    assert encoded(x, ps.BF16, "nearest-away") == [0x3F81, 0x3F81, 0x3F82]


def test_d08_all_65536_low_halves():
    """stillwater universal#1133."""
    low = np.arange(65536, dtype=np.uint32)
    for high in (0x3F80, 0x3F81):
        is_up = (low > 0x8000) | ((low == 0x8000) & (high % 2 == 1))
        got = ps.encode(((np.uint32(high) << 16) + low).view(np.float32), ps.BF16)
        assert np.array_equal(got, high + is_up)


def test_d09_the_greatest_float32_overflows_bf16():
    """gorse#1240."""
    x = f32(0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF)
    assert encoded(x, ps.BF16) == [0x7F7F, 0x7F80, 0x7F80]
    assert encoded(x, ps.BF16, "nearest-even", "saturate") == [0x7F7F] * 3


def test_d10_nan_stays_nan():
    """dotnet/runtime PR#130583, tile-ai/tilelang#2481, gorse#1240."""
    x = f32(0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001)
    assert encoded(x, ps.BF16) == [0x7FC0, 0x7FC0, 0xFFC0, 0xFFC0]
    assert ps.encode(x, ps.BF16, ps.Rounding(nan="canonical")).tolist() == [0x7FC0] * 4
    for fmt in (ps.FP16, ps.E5M2, ps.E4M3, ps.E4M3FNUZ):
        assert np.isnan(ps.decode(ps.encode(x, fmt), fmt)).all()


def test_d13_subnormals_gradual_or_flushed():
    """pytorch#150007, julia#40151, tensorflow#36514, tt-metal PR#50082."""
    flush = ps.Rounding(flush_results=True)
    assert encoded(np.float32([3e-5]), ps.FP16) == [0x01F7]
    assert ps.encode(np.float32([3e-5, -3e-5]), ps.FP16, flush).tolist() == [0x0000, 0x8000]
    small = np.float32([2.0**-127, 2.0**-133, 2.0**-134])
    assert encoded(small, ps.BF16) == [0x0040, 0x0001, 0x0000]
    assert ps.encode(small, ps.BF16, flush).tolist() == [0, 0, 0]
    assert ps.encode(-small, ps.BF16, flush).tolist() == [0x8000] * 3
    assert ps.encode(small, ps.BF16, ps.Rounding(flush_inputs=True)).tolist() == [0, 0, 0]


def test_d15_fnuz_formats_have_no_negative_zero():
    """onnxruntime PR#18473, onnx PR#5764, triton#10745."""
    x = np.float32([-(2.0**-20), -(2.0**-11), -1.5 * 2.0**-11, -0.0])
    assert encoded(x, ps.E4M3FNUZ) == [0x00, 0x00, 0x81, 0x00]
    assert math.isnan(ps.decode(np.uint8(0x80), ps.E4M3FNUZ))


def test_d16_saturation_is_a_stated_choice():
    """ml_dtypes#260, ml_dtypes#400, pytorch/ao#1912, pytorch PR#178817."""
    x = np.float32([448, 464, np.nextafter(np.float32(464), np.float32(np.inf)), 1000, -1000])
    plain, saturated = [0x7E, 0x7E, 0x7F, 0x7F, 0xFF], [0x7E, 0x7E, 0x7E, 0x7E, 0xFE]
    assert encoded(x, ps.E4M3) == plain
    assert encoded(x, ps.E4M3, "nearest-even", "saturate") == saturated
    for profile in ("ml_dtypes", "torch<2.12", "ocp-nonsaturate"):
        assert ps.encode(x, ps.E4M3, profile=profile).tolist() == plain
    for profile in ("torch>=2.12", "ocp-saturate", "ptx-satfinite", "onnx-cast-19", "fp8-paper"):
        assert ps.encode(x, ps.E4M3, profile=profile).tolist() == saturated
    assert ps.encode(np.float32(61440), ps.E5M2, profile="torch") == 0x7C
    assert ps.encode(np.float32(248), ps.E4M3FNUZ, profile="torch") == 0x80


def test_d18_the_scale_format():
    """onnx PR#7784, graphcore gfloat#62, llvm PR#214919, onnxruntime PR#28435."""
    assert [encoded([1.25], ps.E8M0, mode) for mode in ("up", "down", "nearest-even")] == [
        [0x80],
        [0x7F],
        [0x7F],
    ]
    assert encoded([1.5], ps.E8M0, "nearest-away") == [0x80]
    assert encoded([2.0**-130], ps.E8M0) == [0x00]
    assert encoded([1.5 * 2.0**127], ps.E8M0, "nearest-away") == [0xFF]
    assert encoded([1.5 * 2.0**127], ps.E8M0, "nearest-away", "saturate") == [0xFE]
    assert math.isnan(ps.decode(np.uint8(0xFF), ps.E8M0))
    assert ps.decode(np.uint8(0x00), ps.E8M0) == 2.0**-127
    assert encoded([0.0, -1.0], ps.E8M0) == [0xFF, 0xFF]
    assert ps.encode([0.0, -1.0, 2.0**-130, 1.5 * 2.0**127], ps.E8M0, profile="torch").tolist() == [
        0,
        0x7F,
        0,
        0xFF,
    ]
    assert ps.encode([0.0, -1.0], ps.E8M0, profile="ml_dtypes").tolist() == [0xFF, 0xFF]


def test_d19_integers_round_like_any_number():
    """pytorch#70179, tinygrad#17087, pytorch#6292."""
    assert encoded(np.array([2101, 2103, 65519, 65520]), ps.FP16) == [0x681A, 0x681C, 0x7BFF, 0x7C00]
    assert values(np.array([2101, 2103, 65519, 65520]), ps.FP16) == [2100, 2104, 65504, math.inf]
    assert encoded(np.float32([65519.996, 65520]), ps.FP16) == [0x7BFF, 0x7C00]


def test_d21_stochastic_rounding_counted_over_all_noise():
    """oneDNN PR#2903, ROCm/llvm-project PR#3275, graphcore gfloat PR#36."""
    noise = np.arange(65536, dtype=np.uint16)

    def codes(bits):
        x = np.full(65536, bits, np.uint32).view(np.float32)
        return ps.encode(x, ps.BF16, "stochastic", random_bits=noise)

    assert int((codes(0x3F801000) == 0x3F81).sum()) == 4096
    assert int((codes(0x3FFFF000) == 0x4000).sum()) == 61440
    for exact in (0x3F800000, 0x7F800000, 0xFF800000, 0x00000000, 0x7FC00000):
        assert np.all(codes(exact) == exact >> 16)


def test_d40_which_eps_survives():
    """optax#1754, #1789, pylate#239, glide-finetune#5, openvino PR#8676."""
    x = np.array([1e-8, 3e-8, 6e-8, 1e-7, 1e-12])
    assert encoded(x, ps.FP16) == [0, 1, 1, 2, 0]
    assert encoded([2.0**-25, math.nextafter(2.0**-25, 1)], ps.FP16) == [0, 1]
    assert values([1e-8], ps.BF16) == [float.fromhex("0x1.58p-27")]  # 1.001e-8


def test_d47_activations_beyond_fp16():
    """transformers#5651, #9295, coreai-torch PR#54."""
    assert encoded([66246.0, 65519.9], ps.FP16) == [0x7C00, 0x7BFF]
    assert encoded([66246.0], ps.BF16) == [0x4781]
    assert values([66246.0], ps.BF16) == [66048]
