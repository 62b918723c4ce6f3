"""Casts against NVIDIA's own conversions, which run on the host: float and double, saturating and not, every mode."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from same_codes import assert_same_codes

import precsim as ps
from precsim.testing import boundary_values

SMALL = [ps.E4M3, ps.E5M2, ps.E2M3, ps.E3M2, ps.E2M1, ps.E8M0]
"""In the order of the enum in nvidia_host.cpp."""
MODES = ["nearest-even", "toward-zero", "up", "down"]
"""In the order of cudaRoundMode."""


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The conversions, compiled."""
    compiler = shlex.split(os.environ.get("CXX") or shutil.which("g++") or "")
    if not compiler or not shutil.which(compiler[0]) or Path(compiler[0]).name == "false":
        pytest.skip("no C++ compiler")
    spec = find_spec("nvidia")
    folders = (
        [Path(place, "cu13/include") for place in (spec.submodule_search_locations or [])] if spec else []
    )
    include = next((folder for folder in folders if (folder / "cuda_fp4.hpp").exists()), None)
    if include is None or not (include / "cccl").exists() or not (include / "crt").exists():
        pytest.skip(
            "NVIDIA's headers are missing: pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
        )
    library = tmp_path_factory.mktemp("nvidia") / "nvidia_host.so"
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared"]
    search = ["-isystem", str(include), "-isystem", str(include / "cccl")]
    source = str(Path(__file__).with_name("nvidia_host.cpp"))
    done = subprocess.run(
        [*compiler, *flags, *search, source, "-o", str(library)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def call(function, x, dtype, *options):
    out = np.empty(len(x), dtype)
    pointers = (ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data))
    function(*pointers, ctypes.c_size_t(len(x)), *options)
    return out


def inputs(fmt, source):
    rng = np.random.default_rng(21)
    unsigned, floating = (np.uint32, np.float32) if source == "fp32" else (np.uint64, np.float64)
    random = rng.integers(0, np.iinfo(unsigned).max, 100_000, dtype=unsigned, endpoint=True).view(floating)
    near = rng.lognormal(0, 4, 100_000).astype(floating)
    return np.concatenate([boundary_values(fmt, source), random, near, -near])


def small_codes(host, x, fmt, *, saturate, mode):
    function = host.small_from_float if x.dtype == np.float32 else host.small_from_double
    return call(function, x, np.uint8, SMALL.index(fmt), saturate, MODES.index(mode))


@pytest.mark.parametrize("source", ["fp32", "fp64"])
@pytest.mark.parametrize("fmt", [ps.E4M3, ps.E5M2], ids=str)
@pytest.mark.parametrize("profile", ["ptx-satfinite", "ocp-nonsaturate"])
def test_fp8(profile, fmt, source, host, engine):
    """NaN by class: the sign is kept by some of the functions, the payload by others."""
    x = inputs(fmt, source)
    want = small_codes(host, x, fmt, saturate=profile == "ptx-satfinite", mode="nearest-even")
    assert_same_codes(x, ps.encode(x, fmt, profile=profile), want, fmt, nan_by_class=True)


@pytest.mark.parametrize("source", ["fp32", "fp64"])
@pytest.mark.parametrize("fmt", [ps.E2M3, ps.E3M2, ps.E2M1], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_fp6_and_fp4(mode, fmt, source, host, engine):
    """NaN included: it is the greatest positive value."""
    x = inputs(fmt, source)
    want = small_codes(host, x, fmt, saturate=True, mode=mode)
    assert_same_codes(x, ps.encode(x, fmt, mode, profile="ptx-satfinite"), want, fmt)


@pytest.mark.parametrize("source", ["fp32", "fp64"])
@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize(
    ("mode", "rounding"),
    [("up", "up"), ("toward-zero", "toward-zero"), ("down", "toward-zero"), ("nearest-even", "nearest-away")],
    ids=lambda mode: mode,
)
def test_e8m0(mode, rounding, saturate, source, host, engine):
    """The sign is dropped first, so down is toward zero; nearest goes up at a tie."""
    x = inputs(ps.E8M0, source)
    want = small_codes(host, x, ps.E8M0, saturate=saturate, mode=mode)
    rule = ps.Rounding(rounding, "saturate" if saturate else "infinity", out_of_domain="magnitude")
    assert_same_codes(x, ps.encode(x, ps.E8M0, rule), want, ps.E8M0)
    if saturate and mode == "up":
        assert_same_codes(x, ps.encode(x, ps.E8M0, profile="ptx-satfinite"), want, ps.E8M0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fmt", [ps.FP16, ps.BF16], ids=str)
def test_fp16_and_bf16_from_float(fmt, mode, host):
    x = inputs(fmt, "fp32")
    function = host.half_from_float if fmt == ps.FP16 else host.bfloat16_from_float
    want = call(function, x, np.uint16, MODES.index(mode))
    assert_same_codes(x, ps.encode(x, fmt, mode), want, fmt, nan_by_class=True)


@pytest.mark.parametrize("fmt", [ps.FP16, ps.BF16], ids=str)
def test_fp16_and_bf16_from_double(fmt, host):
    x = inputs(fmt, "fp64")
    want = call(host.half_from_double if fmt == ps.FP16 else host.bfloat16_from_double, x, np.uint16)
    assert_same_codes(x, ps.encode(x, fmt), want, fmt, nan_by_class=True)
