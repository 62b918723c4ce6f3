"""Counting by sign, binade and bin on NumPy arrays and torch tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from precsim.kernels.array.bits import FLOAT32_LANE, FLOAT64_LANE
from precsim.kernels.array.load import load_bits
from precsim.kernels.array.spaces import Space, space_of, to_numpy, value_table
from precsim.kernels.engine import BinMap, CountTable, Source
from precsim.number.catalogue import NAMED_FORMATS

__all__ = ["code_counts", "count_source", "normalised"]

Array = np.ndarray[Any, Any]
_LEAST_EXPONENT, _GREATEST_EXPONENT = -1074, 1023
_BELOW_TOP = 52 - 7
"""float64 fraction bits below the seven that choose a coarse bin."""
_BLOCK = 1 << 16


class _Tally:
    """Counts of float64 numbers, over the whole range of float64."""

    def __init__(self, bins: BinMap) -> None:
        self.bins = bins
        rows = _GREATEST_EXPONENT - _LEAST_EXPONENT + 1
        self.counts = np.zeros((2, rows, bins.count), np.int64)
        self.zeros = self.nans = 0
        self.infinities = [0, 0]
        self.amax, self.amin = 0, FLOAT64_LANE.infinity

    def add(self, bits: Array, weights: Array | None = None) -> None:
        """Count float64 bits (int64), each as often as its weight says."""
        weights = np.ones(bits.shape, np.int64) if weights is None else weights
        negative = (bits < 0).astype(np.int64)
        magnitude = bits & FLOAT64_LANE.magnitude_mask
        infinite = magnitude == FLOAT64_LANE.infinity
        self.nans += int(weights[magnitude > FLOAT64_LANE.infinity].sum())
        self.zeros += int(weights[magnitude == 0].sum())
        for sign in (0, 1):
            self.infinities[sign] += int(weights[infinite & (negative == sign)].sum())
        finite = (magnitude > 0) & (magnitude < FLOAT64_LANE.infinity) & (weights > 0)
        if not finite.any():
            return
        magnitude, negative, weights = magnitude[finite], negative[finite], weights[finite]
        self.amax, self.amin = max(self.amax, int(magnitude.max())), min(self.amin, int(magnitude.min()))
        row, fraction = normalised(magnitude)
        index = (negative * self.counts.shape[1] + row) * self.bins.count + self._bin(fraction)
        np.add.at(self.counts.reshape(-1), index, weights)

    def _bin(self, fraction: Array) -> Array:
        """Bin of each 52-bit fraction."""
        top = fraction >> _BELOW_TOP
        rest = fraction & ((1 << _BELOW_TOP) - 1)
        coarse: Array = self.bins.coarse[top, (rest == 0).astype(np.int64)]
        zeros = rest ^ ((1 << _BELOW_TOP) - 1)
        length = _bit_length(zeros)
        nothing_below = zeros == (np.int64(1) << length) - 1
        fine = self.bins.fine[_BELOW_TOP - length, nothing_below.astype(np.int64)]
        return np.where(top == 127, fine, coarse).astype(np.int64)

    def table(self) -> CountTable:
        """The counts, rows trimmed to those that hold any."""
        used = np.flatnonzero(self.counts.any(axis=(0, 2)))
        first, last = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
        return CountTable(
            least_exponent=_LEAST_EXPONENT + first if used.size else 0,
            counts=self.counts[:, first:last].copy(),
            zeros=self.zeros,
            positive_infinities=self.infinities[0],
            negative_infinities=self.infinities[1],
            nans=self.nans,
            amax=_float(self.amax),
            amin=_float(self.amin),
        )


def _float(bits: int) -> float:
    return float(np.int64(bits).view(np.float64))


def normalised(magnitude: Array) -> tuple[Array, Array]:
    """Row and 52-bit fraction of nonzero magnitudes; a subnormal's leading one is found, and shifted away."""
    field = magnitude >> 52
    fraction = magnitude & ((1 << 52) - 1)
    subnormal = field == 0
    if not subnormal.any():
        return field - 1 + 52, fraction
    length = _bit_length(fraction)
    shifted = (fraction << np.where(subnormal, 53 - length, 0)) & ((1 << 52) - 1)
    return np.where(subnormal, length - 1, field - 1 + 52), np.where(subnormal, shifted, fraction)


def _bit_length(x: Array) -> Array:
    """Bits of each integer of at most 53 bits: its exponent as a float64, which holds it exactly."""
    field = x.astype(np.float64).view(np.int64) >> 52
    return np.where(x > 0, field - (FLOAT64_LANE.bias - 1), 0)


def count_source(source: Source, bins: BinMap) -> CountTable:
    """See `precsim.kernels.engine.Engine.count`."""
    tally = _Tally(bins)
    if source.format == NAMED_FORMATS["fp32"]:
        _count_float32(source.data, tally)
    elif source.format is None or source.format == NAMED_FORMATS["fp64"]:
        space = space_of(source.data, FLOAT64_LANE)
        for block in _blocks(len(source.data)):
            part = Source(source.data[block], source.format)
            tally.add(to_numpy(load_bits(space, part, FLOAT64_LANE, 0.0, 1.0)))
    else:
        _count_codes(source, tally)
    return tally.table()


def _blocks(length: int) -> Iterator[slice]:
    for start in range(0, length, _BLOCK):
        yield slice(start, start + _BLOCK)


def _histogram(space: Space, index: Any, size: int) -> Any:
    if isinstance(index, np.ndarray):
        return np.bincount(index, minlength=size)
    return space.torch.bincount(index, minlength=size)  # type: ignore[union-attr]  # a tensor's space is torch's


def code_counts(source: Source) -> Array:
    """How often each code of a narrow format occurs."""
    fmt = source.format
    assert fmt is not None
    space = space_of(source.data, FLOAT64_LANE)
    size = 1 << fmt.bits
    total = np.zeros(size, np.int64)
    for block in _blocks(len(source.data)):
        codes = space.convert(source.data[block], "int64") & (size - 1)
        total += to_numpy(_histogram(space, codes, size))
    return total


def _count_codes(source: Source, tally: _Tally) -> None:
    """A narrow format has few values: each once, with its count."""
    fmt = source.format
    assert fmt is not None
    total = code_counts(source)
    used = np.flatnonzero(total)
    tally.add(value_table(fmt, "float64")[used].view(np.int64), total[used])


def _count_float32(data: Any, tally: _Tally) -> None:
    """Histogram of the top 16 bits, doubled by whether the lower ones are zero; the few numbers that need more apart.

    Those are the subnormals, which are not normalised, and significands whose top seven fraction bits are all ones.
    """
    space = space_of(data, FLOAT32_LANE)
    total = np.zeros(1 << 17, np.int64)
    amax, amin = 0, FLOAT32_LANE.infinity
    for block in _blocks(len(data)):
        bits = space.view(data[block], "int32")
        magnitude = bits & FLOAT32_LANE.magnitude_mask
        finite = magnitude < FLOAT32_LANE.infinity
        fine = ((bits & 0x7F0000) == 0x7F0000) | ((magnitude < (1 << 23)) & (magnitude > 0))
        fine &= finite
        nothing_below = space.as_integer((bits & 0xFFFF) == 0)
        index = (((bits >> 15) & 0x1FFFE) | nothing_below)[~fine]
        total += to_numpy(_histogram(space, index, 1 << 17))
        rare = load_bits(space, Source(data[block][fine], NAMED_FORMATS["fp32"]), FLOAT64_LANE, 0.0, 1.0)
        tally.add(to_numpy(rare))
        nonzero = magnitude[finite & (magnitude > 0)]
        if len(nonzero):
            amax, amin = max(amax, int(nonzero.max())), min(amin, int(nonzero.min()))
    _add_histogram(total, tally)
    tally.amax, tally.amin = _widened(amax), _widened(amin)


def _widened(bits: int) -> int:
    """Bits of a float32 magnitude as those of a float64, by value (infinity too)."""
    if bits >= FLOAT32_LANE.infinity:
        return FLOAT64_LANE.infinity
    value = float(np.float64(bits) * 2.0**-149) if bits < 1 << 23 else float(np.uint32(bits).view(np.float32))
    return int(np.float64(value).view(np.int64))


def _add_histogram(total: Array, tally: _Tally) -> None:
    """Add numbers that stand in the middle of their coarse bin, or at its lower end where nothing is below."""
    used = np.flatnonzero(total)
    sign, field, top, nothing_below = used >> 16, (used >> 8) & 0xFF, (used >> 1) & 0x7F, used & 1
    weights = total[used]
    special = field == 255
    infinite = special & (top == 0) & (nothing_below == 1)
    tally.nans += int(weights[special & ~infinite].sum())
    for s in (0, 1):
        tally.infinities[s] += int(weights[infinite & (sign == s)].sum())
    tally.zeros += int(weights[field == 0].sum())
    normal = ~special & (field > 0)
    row = field[normal] - FLOAT32_LANE.bias - _LEAST_EXPONENT
    bin_ = tally.bins.coarse[top[normal], nothing_below[normal]]
    np.add.at(tally.counts, (sign[normal], row, bin_), weights[normal])
