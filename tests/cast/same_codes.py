"""Comparison of codes, bit for bit, that names the first difference."""

from __future__ import annotations

import numpy as np

import precsim as ps


def assert_same_codes(x, got, want, fmt, *, nan_by_class=False):
    """Codes equal; with ``nan_by_class`` any NaN equals any other."""
    assert got.shape == want.shape == x.shape
    differs = got != want
    if nan_by_class and differs.any():
        differs &= ~(np.isnan(ps.decode(got, fmt)) & np.isnan(ps.decode(want, fmt)))
    wrong = np.flatnonzero(differs)
    if len(wrong):
        i = wrong[0]
        bits = x.view(f"u{x.dtype.itemsize}")[i]
        raise AssertionError(
            f"{len(wrong)} of {len(x)} codes of {fmt} differ, first {x.dtype} {x[i]!r} ({bits:#x}): "
            f"got {got[i]:#x}, want {want[i]:#x}"
        )
