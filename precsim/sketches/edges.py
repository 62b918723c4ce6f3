"""The significands at which a count must be able to tell one side from the other, and the bins between them.

Where a cast changes its outcome (flushed, subnormal, normal, overflowed) depends on a threshold. A power-of-two scale
moves a number and its binade, never its significand, so a table by binade has to resolve only the thresholds'
significands: few, for all named formats, modes and scales together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fractions import Fraction
from functools import cache

import numpy as np

from precsim.kernels import BinMap
from precsim.number import NAMED_FORMATS, Mode
from precsim.number.reference import floor_log2
from precsim.sketches.thresholds import thresholds

__all__ = ["BIN_COUNT", "EDGES", "bin_map", "edge_bin", "split"]

_COARSE_BITS = 7
_FINE_BITS = 45
"""Fraction bits of float64 below the coarse ones."""


def split(value: Fraction) -> tuple[int, Fraction]:
    """Exponent, and significand in [1, 2), of a positive number."""
    exponent = floor_log2(value)
    return exponent, value / Fraction(2) ** exponent


def _ones_lead(count: int) -> Fraction:
    """2 − 2^-count: so many ones after the point, then zeros."""
    return 2 - Fraction(1, 1 << count)


def _named_edges() -> tuple[Fraction, ...]:
    """Significands of the thresholds of all named formats that a cast can have as its target, in every mode."""
    edges = {Fraction(1)}
    for fmt in NAMED_FORMATS.values():
        if fmt.bits > 32:
            continue
        for mode in Mode:
            if mode is Mode.STOCHASTIC:
                continue
            for negative in (False, True):
                limits = thresholds(fmt, mode, negative).present()
                edges |= {split(limit.value)[1] for limit in limits if limit.value}
    return tuple(sorted(edges))


EDGES = _named_edges()
"""In ascending order, the first one 1. Bin 2i holds significands equal to edge i, bin 2i + 1 those between it and the
next one (or 2)."""

BIN_COUNT = 2 * len(EDGES)


def edge_bin(significand: Fraction) -> int | None:
    """Bin of the significands equal to this one; None where it is not an edge."""
    at = bisect_left(EDGES, significand)
    return 2 * at if at < len(EDGES) and EDGES[at] == significand else None


@cache
def bin_map() -> BinMap:
    """The bins as engines look them up."""
    step = Fraction(1, 1 << _COARSE_BITS)
    last = (1 << _COARSE_BITS) - 1  # cut further, by the fine bins
    coarse = [_bins_of_interval(1 + top * step, 1 + (top + 1) * step) for top in range(last)]
    fine = [
        _bins_of_interval(_ones_lead(_COARSE_BITS + ones), _ones_lead(_COARSE_BITS + ones + 1))
        for ones in range(_FINE_BITS + 1)
    ]
    coarse.append(fine[0])
    return BinMap(BIN_COUNT, _table(coarse), _table(fine))


def _table(bins: list[tuple[int, int]]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """By whether nothing lies below: column 0 inside the interval, column 1 at its lower end."""
    array = np.array([(inside, at) for at, inside in bins], np.uint8)
    array.flags.writeable = False
    return array


def _bins_of_interval(low: Fraction, high: Fraction) -> tuple[int, int]:
    """Bins of significands at `low` and strictly between `low` and `high`; no edge may lie in between."""
    above_low, at_high = bisect_right(EDGES, low), bisect_left(EDGES, high)
    if above_low != at_high:
        raise AssertionError(f"an edge lies inside ({low}, {high}): no bin tells its sides apart")
    inside = 2 * above_low - 1
    at_low = edge_bin(low)
    return (inside if at_low is None else at_low), inside
