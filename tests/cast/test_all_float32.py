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
    pytest.mark.parametrize("fmt", [ps.FP16, ps.BF16, ps.E4M3, ps.E5M2], ids=str),
    pytest.mark.parametrize("sign", [0, 1], ids=["positive", "negative"]),
]

CHUNK = 1 << 24
TORCH = {
    ps.FP16: torch.float16,
    ps.BF16: torch.bfloat16,
    ps.E4M3: torch.float8_e4m3fn,
    ps.E5M2: torch.float8_e5m2,
}
ARRAY = {ps.FP16: np.float16, ps.BF16: ml_dtypes.bfloat16, ps.E4M3: ml_dtypes.float8_e4m3fn}
ARRAY |= {ps.E5M2: ml_dtypes.float8_e5m2}

table = cache(ReferenceTable)


def every_float32(sign, fmt, rule):
    """Each chunk of the numbers of a sign, with the reference's codes."""
    for first in range(sign << 31, (sign + 1) << 31, CHUNK):
        x = np.arange(first, first + CHUNK, dtype=np.uint64).astype(np.uint32).view(np.float32)
        yield x, table(fmt, rule).codes_of_range(first, CHUNK)


def test_engine(sign, fmt, engine):
    got = np.empty(CHUNK, np.uint8 if fmt.bits == 8 else np.uint16)
    for x, want in every_float32(sign, fmt, ps.Rounding()):
        assert_same_codes(x, ps.encode(x, fmt, out=got), want, fmt)


def test_torch(sign, fmt):
    for x, want in every_float32(sign, fmt, find_profile("torch").rounding(fmt)):
        got = torch.from_numpy(x).to(TORCH[fmt])
        codes = got.view(torch.uint8 if fmt.bits == 8 else torch.int16).numpy().view(want.dtype)
        assert_same_codes(x, codes, want, fmt, nan_by_class=True)


def test_numpy_and_ml_dtypes(sign, fmt):
    rule = find_profile("numpy" if fmt == ps.FP16 else "ml_dtypes").rounding(fmt)
    for x, want in every_float32(sign, fmt, rule):
        with np.errstate(all="ignore"):
            got = x.astype(ARRAY[fmt]).view(want.dtype)
        assert_same_codes(x, got, want, fmt, nan_by_class=True)
