"""All 2^32 float32 numbers to the four formats that training uses: minutes, so deselected by default."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest
import torch
from same_codes import assert_same_codes

import precsim as ps
from precsim.number.profiles import find_profile
from precsim.testing.table import ReferenceTable

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.parametrize("sign", [0, 1], ids=["positive", "negative"]),
]

CHUNK = 1 << 24
TORCH = {
    ps.FP16: torch.float16,
    ps.BF16: torch.bfloat16,
    ps.E4M3: torch.float8_e4m3fn,
    ps.E5M2: torch.float8_e5m2,
}
ML_DTYPES = {ps.BF16: ml_dtypes.bfloat16, ps.E4M3: ml_dtypes.float8_e4m3fn, ps.E5M2: ml_dtypes.float8_e5m2}

table = cache(ReferenceTable)


def every_float32(sign, fmt, rule):
    """Each chunk of the numbers of a sign, with the reference's codes."""
    for first in range(sign << 31, (sign + 1) << 31, CHUNK):
        x = np.arange(first, first + CHUNK, dtype=np.uint64).astype(np.uint32).view(np.float32)
        yield x, table(fmt, rule).codes_of_range(first, CHUNK)


@pytest.mark.parametrize("fmt", TORCH, ids=str)
def test_engine(sign, fmt, engine):
    got = np.empty(CHUNK, np.uint8 if fmt.bits == 8 else np.uint16)
    for x, want in every_float32(sign, fmt, ps.Rounding()):
        assert_same_codes(x, ps.encode(x, fmt, out=got), want, fmt)


@pytest.mark.parametrize("fmt", TORCH, ids=str)
def test_torch(sign, fmt):
    for x, want in every_float32(sign, fmt, find_profile("torch").rounding(fmt)):
        got = torch.from_numpy(x).to(TORCH[fmt])
        codes = got.view(torch.uint8 if fmt.bits == 8 else torch.int16).numpy().view(want.dtype)
        assert_same_codes(x, codes, want, fmt, nan_by_class=True)


@pytest.mark.parametrize("fmt", ML_DTYPES, ids=str)
def test_ml_dtypes(sign, fmt):
    for x, want in every_float32(sign, fmt, find_profile("ml_dtypes").rounding(fmt)):
        with np.errstate(invalid="ignore"):
            got = x.astype(ML_DTYPES[fmt]).view(want.dtype)
        assert_same_codes(x, got, want, fmt, nan_by_class=True)


def test_numpy(sign):
    """Slow, so of numbers whose neighbours all have one code, every 32nd."""
    for x, want in every_float32(sign, ps.FP16, find_profile("numpy").rounding(ps.FP16)):
        stride = 32 if want[0] == want[-1] else 1
        with np.errstate(all="ignore"):
            got = x[::stride].astype(np.float16).view(np.uint16)
        assert_same_codes(x[::stride], got, want[::stride], ps.FP16, nan_by_class=True)
