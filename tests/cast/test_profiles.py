"""Profiles against the things themselves, and against the tables of their documents."""

from __future__ import annotations

import math
import warnings
from functools import cache

import ml_dtypes
import numpy as np
import pytest
import torch
from same_codes import assert_same_codes

import precsim as ps
from precsim.number import profiles
from precsim.number.profiles import find_profile
from precsim.testing import boundary_values

TORCH_TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
TORCH_TYPES += [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
ML_TYPES = [getattr(ml_dtypes, name) for name in dir(ml_dtypes) if "float" in name and name != "finfo"]
SOURCES = ["fp32", "fp64", "int64", "fp16", "bf16"]


@cache
def inputs(fmt, source):
    """All numbers of a 16-bit source; for others the boundary cases of the target and random ones."""
    rng = np.random.default_rng(20)
    if source in ("fp16", "bf16"):
        return np.arange(1 << 16, dtype=np.uint16).view(
            np.float16 if source == "fp16" else ml_dtypes.bfloat16
        )
    if source == "int64":
        near = boundary_values(fmt, "fp64")
        near = near[np.abs(near) < 2.0**62].astype(np.int64)
        powers = 1 << np.arange(63)
        numbers = [near, near + 1, near - 1, powers - 1, powers + 1, -powers, powers + powers // 256 + 1]
        return np.unique(np.concatenate([*numbers, rng.integers(-(2**63), 2**63 - 1, 10_000)]))
    unsigned, floating = (np.uint32, np.float32) if source == "fp32" else (np.uint64, np.float64)
    random = rng.integers(0, 1 << (8 * np.dtype(unsigned).itemsize), 100_000, dtype=unsigned).view(floating)
    return np.concatenate([boundary_values(fmt, source), random])


def as_tensor(x):
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(x.copy())


def codes_of(tensor):
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.dtype.itemsize]
    codes = tensor.view(integer).numpy()
    return codes.view(f"u{codes.dtype.itemsize}")


def torch_departs(x, fmt):
    """The caveat of profile torch: where its E8M0 is one binade too high."""
    if fmt != ps.E8M0:
        return np.zeros(x.shape, bool)
    with np.errstate(over="ignore", invalid="ignore"):
        magnitude = np.abs(x.astype(np.float32))
    return (magnitude > 2.0**-127) & (magnitude < 1.5 * 2.0**-127)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dtype", TORCH_TYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_torch(dtype, source, engine):
    fmt = ps.format(dtype)
    x = inputs(fmt, source)
    want = codes_of(as_tensor(x).to(dtype))
    got = ps.encode(x, fmt, profile="torch")
    departs = torch_departs(x, fmt)
    assert np.all(want[departs] == 1)
    assert np.all(got[departs] == 0)
    assert_same_codes(x[~departs], got[~departs], want[~departs], fmt, nan_by_class=True)


def test_torch_departs_nowhere_else_among_small_numbers():
    x = np.arange(0x0020_0000, 0x0080_0200, 7, dtype=np.uint32).view(np.float32)
    want = codes_of(as_tensor(x).to(torch.float8_e8m0fnu))
    got = ps.encode(x, ps.E8M0, profile="torch")
    assert np.array_equal(got != want, torch_departs(x, ps.E8M0))
    assert torch_departs(x, ps.E8M0).any()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dtype", ML_TYPES, ids=lambda dtype: dtype.__name__)
def test_ml_dtypes(dtype, source, engine):
    fmt = ps.format(dtype)
    x = inputs(fmt, source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        want = x.astype(dtype).view(f"u{np.dtype(dtype).itemsize}")
    # A NaN that is cast to its own type keeps its payload; any other gets the canonical one.
    assert_same_codes(x, ps.encode(x, fmt, profile="ml_dtypes"), want, fmt, nan_by_class=x.dtype == dtype)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_numpy(dtype, source, engine):
    fmt = ps.format(dtype)
    x = inputs(fmt, source)
    with np.errstate(all="ignore"):
        want = x.astype(dtype).view(f"u{np.dtype(dtype).itemsize}")
    assert_same_codes(x, ps.encode(x, fmt, profile="numpy"), want, fmt, nan_by_class=True)


def test_numpy_has_no_8_bit_floats():
    with pytest.raises(ps.InputError, match="profile numpy has no cast to e4m3; it casts to fp32, fp16"):
        ps.encode(1.0, ps.E4M3, profile="numpy")


# ---- by version ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "version", "named"),
    [
        ("torch", "2.4.1", "torch<2.12"),
        ("torch", "2.11.0+cu128", "torch<2.12"),
        ("torch", "2.12.0", "torch>=2.12"),
        ("torch", "2.13.0+cpu", "torch>=2.12"),
        ("torch", "3.0.0a0", "torch>=2.12"),
        ("ml_dtypes", "0.5.4", "ml_dtypes<0.7"),
        ("ml_dtypes", "0.6.0", "ml_dtypes<0.7"),
        ("ml_dtypes", "0.7.0", "ml_dtypes>=0.7"),
        ("ml_dtypes", "0.10.1", "ml_dtypes>=0.7"),
    ],
)
def test_the_installed_version_decides(package, version, named, monkeypatch):
    monkeypatch.setattr(profiles, "version", lambda name: {package: version}[name])
    assert_same_profile(find_profile(package), find_profile(named))


@pytest.mark.parametrize(("package", "named"), [("torch", "torch>=2.12"), ("ml_dtypes", "ml_dtypes>=0.7")])
def test_the_newest_rule_where_it_is_not_installed(package, named, monkeypatch):
    def absent(name):
        raise profiles.PackageNotFoundError(name)

    monkeypatch.setattr(profiles, "version", absent)
    assert_same_profile(find_profile(package), find_profile(named))


def assert_same_profile(one, other):
    assert dict(one.rules()) == dict(other.rules())
    assert one.passes_float32() == other.passes_float32()


def test_torch_before_2_12_overflows_e4m3_to_nan(engine):
    x = np.float32([448, 464, 464.00003, 1000, -1000, np.inf])
    assert ps.encode(x, ps.E4M3, profile="torch<2.12").tolist() == [0x7E, 0x7E, 0x7F, 0x7F, 0xFF, 0x7F]
    assert ps.encode(x, ps.E4M3, profile="torch>=2.12").tolist() == [0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7E]


def test_ml_dtypes_before_0_7_rounds_float64_and_integers_twice(engine):
    """Codes that 0.5.4 and 0.6.0 gave."""
    wide = np.array([1 + 2**-8 + 2**-40, -(1 + 3 * 2**-8 - 2**-40)])
    assert ps.encode(wide, ps.BF16, profile="ml_dtypes<0.7").tolist() == [0x3F80, 0xBF82]
    assert ps.encode(wide, ps.BF16, profile="ml_dtypes>=0.7").tolist() == [0x3F81, 0xBF81]
    integers = np.array([25165823, 2**62 + 2**54 + 1])
    assert ps.encode(integers, ps.E8M0, profile="ml_dtypes<0.7").tolist() == [152, 189]
    assert ps.encode(integers, ps.E8M0, profile="ml_dtypes>=0.7").tolist() == [151, 189]
    assert ps.encode(integers, ps.BF16, profile="ml_dtypes<0.7").tolist() == [19392, 24192]
    assert ps.encode(integers, ps.BF16, profile="ml_dtypes>=0.7").tolist() == [19392, 24193]
    with pytest.raises(ps.InputError, match="has no cast to e5m3fnu"):
        ps.encode(1.0, "float8_e5m3fnu", profile="ml_dtypes<0.7")


# ---- documents -----------------------------------------------------------------------------------------------------

BEYOND = [math.inf, -math.inf, 1e6, -1e6]


@pytest.mark.parametrize(
    ("profile", "fmt", "codes"),
    [
        # OFP8 1.0, table 2, rows infinity and overflow
        ("ocp-saturate", ps.E4M3, [0x7E, 0xFE, 0x7E, 0xFE]),
        ("ocp-saturate", ps.E5M2, [0x7B, 0xFB, 0x7B, 0xFB]),
        ("ocp-nonsaturate", ps.E4M3, [0x7F, 0xFF, 0x7F, 0xFF]),
        ("ocp-nonsaturate", ps.E5M2, [0x7C, 0xFC, 0x7C, 0xFC]),
        # MX 1.0, 5.3: the element formats saturate
        ("ocp-saturate", ps.E2M1, [0x7, 0xF, 0x7, 0xF]),
        ("ocp-saturate", ps.E2M3, [0x1F, 0x3F, 0x1F, 0x3F]),
        ("ocp-saturate", ps.E3M2, [0x1F, 0x3F, 0x1F, 0x3F]),
        ("ocp-saturate", ps.MXINT8, [0x7F, 0x81, 0x7F, 0x81]),
        # FP8 paper: finite values saturate, the rest stays visible
        ("fp8-paper", ps.E4M3, [0x7F, 0xFF, 0x7E, 0xFE]),
        ("fp8-paper", ps.E5M2, [0x7C, 0xFC, 0x7B, 0xFB]),
        # ONNX Cast, the two tables of opset 19
        ("onnx-cast-19", ps.E4M3, [0x7E, 0xFE, 0x7E, 0xFE]),
        ("onnx-cast-19", ps.E4M3FNUZ, [0x80, 0x80, 0x7F, 0xFF]),
        ("onnx-cast-19", ps.E5M2, [0x7B, 0xFB, 0x7B, 0xFB]),
        ("onnx-cast-19", ps.E5M2FNUZ, [0x80, 0x80, 0x7F, 0xFF]),
        ("onnx-cast-19", ps.FP16, [0x7C00, 0xFC00, 0x7C00, 0xFC00]),
        ("onnx-cast-19-nonsaturate", ps.E4M3, [0x7F, 0xFF, 0x7F, 0xFF]),
        ("onnx-cast-19-nonsaturate", ps.E4M3FNUZ, [0x80, 0x80, 0x80, 0x80]),
        ("onnx-cast-19-nonsaturate", ps.E5M2, [0x7C, 0xFC, 0x7C, 0xFC]),
        ("onnx-cast-19-nonsaturate", ps.E5M2FNUZ, [0x80, 0x80, 0x80, 0x80]),
        # and the first one of opset 24
        ("onnx-cast-24", ps.E4M3, [0x7E, 0xFE, 0x7E, 0xFE]),
        ("onnx-cast-24", ps.E4M3FNUZ, [0x7F, 0xFF, 0x7F, 0xFF]),
        ("onnx-cast-24", ps.E5M2, [0x7B, 0xFB, 0x7B, 0xFB]),
        ("onnx-cast-24", ps.E5M2FNUZ, [0x7F, 0xFF, 0x7F, 0xFF]),
        ("onnx-cast-24-nonsaturate", ps.E4M3, [0x7F, 0xFF, 0x7F, 0xFF]),
        ("onnx-cast-24-nonsaturate", ps.E5M2FNUZ, [0x80, 0x80, 0x80, 0x80]),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "name", ""),
)
def test_beyond_the_range_as_the_document_says(profile, fmt, codes, engine):
    assert ps.encode(BEYOND, fmt, profile=profile).tolist() == codes


@pytest.mark.parametrize(
    "profile", ["ocp-saturate", "ocp-nonsaturate", "fp8-paper", "onnx-cast-19", "onnx-cast-24"]
)
@pytest.mark.parametrize("fmt", [ps.E4M3, ps.E5M2], ids=str)
def test_nan_stays_nan(fmt, profile, engine):
    assert np.isnan(ps.decode(ps.encode([math.nan, -math.nan], fmt, profile=profile), fmt)).all()


def test_onnx_e8m0_as_the_document_says(engine):
    """Column "saturate + up" of the table in Cast's opset 24."""
    x = [0.0, math.nan, math.inf, 1.5 * 2.0**127, 2.0**-140, 1.25, 1.0]
    assert ps.encode(x, ps.E8M0, profile="onnx-cast-24").tolist() == [0, 0xFF, 0xFE, 0xFE, 0, 0x80, 0x7F]
    with pytest.raises(ps.InputError, match="onnx-cast-24-nonsaturate has no cast to e8m0"):
        ps.encode(1.0, ps.E8M0, profile="onnx-cast-24-nonsaturate")


def onnx_cast(x, fmt, opset, saturate):
    onnx = pytest.importorskip("onnx", reason="its reference implementation needs onnx")
    from onnx import TensorProto as Proto
    from onnx.reference import ReferenceEvaluator

    names = {"e4m3": "FLOAT8E4M3FN", "e5m2": "FLOAT8E5M2", "e8m0": "FLOAT8E8M0", "fp16": "FLOAT16"}
    names |= {"bf16": "BFLOAT16", "e4m3fnuz": "FLOAT8E4M3FNUZ", "e5m2fnuz": "FLOAT8E5M2FNUZ"}
    target = getattr(Proto, names[fmt.name])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Cast", ["x"], ["y"], to=target, saturate=saturate)],
        "cast",
        [onnx.helper.make_tensor_value_info("x", Proto.FLOAT, [None])],
        [onnx.helper.make_tensor_value_info("y", target, [None])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        (y,) = ReferenceEvaluator(model).run(None, {"x": x})
    return y.view(f"u{y.dtype.itemsize}")


@pytest.mark.parametrize("profile", [name for name in ps.PROFILES if name.startswith("onnx")])
@pytest.mark.parametrize("fmt", [ps.E4M3, ps.E5M2, ps.E4M3FNUZ, ps.E5M2FNUZ, ps.FP16, ps.BF16], ids=str)
def test_onnx_reference_implementation(fmt, profile):
    x = inputs(fmt, "fp32")
    opset, saturate = int(profile.split("-")[2]), not profile.endswith("nonsaturate")
    want = onnx_cast(x, fmt, opset, saturate)
    got = ps.encode(x, fmt, profile=profile)
    departs = np.zeros(x.shape, bool)
    if profile == "onnx-cast-19" and fmt.name.endswith("fnuz"):
        # The implementation follows the table of opset 24 here, that of opset 19 says NaN.
        departs = np.isinf(x)
        assert np.array_equal(want[departs], ps.encode(x[departs], fmt, profile="onnx-cast-24"))
    assert_same_codes(x[~departs], got[~departs], want[~departs], fmt, nan_by_class=True)


def test_onnx_reference_implementation_of_e8m0():
    x = inputs(ps.E8M0, "fp32")
    x = x[~np.signbit(x)]
    want = onnx_cast(x, ps.E8M0, 24, True)
    got = ps.encode(x, ps.E8M0, profile="onnx-cast-24")
    # The document's table says the greatest value for infinity; the least for what is below it.
    infinite, below = np.isinf(x), (x > 0) & (x <= 2.0**-127)
    assert np.all(want[infinite] == 0xFF)
    assert np.all(want[below] == 1)
    same = ~infinite & ~below
    assert_same_codes(x[same], got[same], want[same], ps.E8M0, nan_by_class=True)


# ---- the look-up ---------------------------------------------------------------------------------------------------


def test_profiles_are_found_by_name():
    for name, profile in ps.PROFILES.items():
        assert find_profile(name) is find_profile(name.upper()) is find_profile(profile) is profile
        assert profile.source
        assert profile.formats
    with pytest.raises(ps.InputError, match=r"unknown profile 'ocp-saturated': did you mean ocp-saturate"):
        find_profile("ocp-saturated")
    with pytest.raises(ps.InputError, match=r"unknown profile 'xyz': known: torch, "):
        find_profile("xyz")


def test_another_mode_keeps_the_rest_of_the_rule():
    assert find_profile("ptx-satfinite").rounding(ps.E4M3, ps.Mode.UP).overflow is ps.Overflow.SATURATE
    assert find_profile("torch").rounding(ps.E8M0).mode is ps.Mode.NEAREST_AWAY


def test_a_format_is_recognised_by_its_meaning():
    mine = ps.Format(4, 3, infinities=False, nan=ps.NanEncoding.TOP_CODE, name="mine")
    assert find_profile("torch").rounding(mine) == find_profile("torch").rounding(ps.E4M3)
