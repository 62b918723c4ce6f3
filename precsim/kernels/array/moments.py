"""Sums of rounding distances by binade, on NumPy arrays and torch tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from precsim.kernels.array.bits import FLOAT64_LANE
from precsim.kernels.array.count import code_counts, normalised
from precsim.kernels.array.load import load_bits
from precsim.kernels.array.spaces import space_of, to_numpy, value_table
from precsim.kernels.engine import LIMB_BITS, PRECISIONS, CountTable, GroupMap, MomentTable, Source
from precsim.number.catalogue import NAMED_FORMATS

__all__ = ["sum_source"]

Array = np.ndarray[Any, Any]
_LEAST_EXPONENT = -1074
_BLOCK = 1 << 16
_HALF_BITS, _WEIGHT_BITS = 24, 8
"""Values are summed in halves, with weights in parts: 2^16 products of such parts fit into float64 exactly."""


class _Sums:
    """Integers by index, in Python's own: of any size."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.totals: Array = np.zeros(size, object)

    def add(self, index: Array, values: Array, weights: Array | None) -> None:
        """Add at most 2^16 values of at most 48 bits at indices, each as often as its weight says."""
        for half_shift in (0, _HALF_BITS):
            half = (values >> half_shift) & ((1 << _HALF_BITS) - 1)
            for weight_shift, weight in _parts(weights):
                sums = np.bincount(index, weights=half * weight, minlength=self.size)
                used = np.flatnonzero(sums)
                self.totals[used] += sums[used].astype(np.int64).astype(object) << (half_shift + weight_shift)

    def limbs(self) -> Array:
        """Both limbs of each total."""
        low = [int(total) & ((1 << LIMB_BITS) - 1) for total in self.totals]
        high = [int(total) >> LIMB_BITS for total in self.totals]
        return np.array([low, high], np.int64).T


def _parts(weights: Array | None) -> Iterator[tuple[int, Any]]:
    """Weights in parts of few bits, each with its place; without weights one part, 1."""
    if weights is None:
        yield 0, 1
        return
    for shift in range(0, int(weights.max(initial=0)).bit_length(), _WEIGHT_BITS):
        yield shift, (weights >> shift) & ((1 << _WEIGHT_BITS) - 1)


def sum_source(source: Source, groups: GroupMap, counts: CountTable) -> MomentTable:
    """The sums that go with a count."""
    rows = counts.counts.shape[1]
    distances = [[_Sums(2 * rows) for _ in range(2)] for _ in PRECISIONS]
    sums = [_Sums(2 * rows * groups.count) for _ in range(3)]
    rounded = 0
    for bits, weights in _weighted_bits(source):
        magnitude = bits & FLOAT64_LANE.magnitude_mask
        finite = (magnitude > 0) & (magnitude < FLOAT64_LANE.infinity)
        negative, magnitude = (bits < 0)[finite].astype(np.int64), magnitude[finite]
        weight = None if weights is None else weights[finite]
        row, fraction = normalised(magnitude)
        row = row - (counts.least_exponent - _LEAST_EXPONENT)
        significand = fraction | (1 << 52)
        below = (significand & ((1 << 29) - 1)) != 0
        rounded += int(below.sum() if weight is None else weight[below].sum())
        m = (significand >> 29) | below.astype(np.int64)
        group = groups.of[(m >> 12) & 2047].astype(np.int64)
        signed_row = negative * rows + row
        place = signed_row * groups.count + group
        for power, total in enumerate(sums):
            total.add(place, m**power, weight)
        for of_precision, precision in zip(distances, PRECISIONS, strict=True):
            spacing = 1 << (23 - precision)
            rest = m & (spacing - 1)
            distance = np.minimum(rest, spacing - rest)
            for power, total in enumerate(of_precision, start=1):
                total.add(signed_row, distance**power, weight)
    return MomentTable(
        np.stack(
            [np.stack([total.limbs() for total in of_precision], 1) for of_precision in distances], 1
        ).reshape(2, rows, len(PRECISIONS), 2, 2),
        np.stack([total.limbs().reshape(2, rows, groups.count, 2) for total in sums], 3),
        rounded,
    )


def _weighted_bits(source: Source) -> Iterator[tuple[Array, Array | None]]:
    """Bits of float64, block by block; of narrow formats each value once, with how often it occurs."""
    fmt = source.format
    in_full = fmt is None or fmt in (NAMED_FORMATS["fp32"], NAMED_FORMATS["fp64"])
    if not in_full:
        assert fmt is not None
        counts = code_counts(source)
        used = np.flatnonzero(counts)
        yield value_table(fmt, "float64")[used].view(np.int64), counts[used]
        return
    space = space_of(source.data, FLOAT64_LANE)
    for start in range(0, len(source.data), _BLOCK):
        part = Source(source.data[start : start + _BLOCK], fmt)
        yield to_numpy(load_bits(space, part, FLOAT64_LANE, 0.0, 1.0)), None
