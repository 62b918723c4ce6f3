"""Groups of significands near the formats' greatest values: what overflowed is left out of an error by whole groups."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import cache

import numpy as np

from precsim.kernels import GroupMap
from precsim.number import NAMED_FORMATS, Format
from precsim.sketches.edges import split

__all__ = ["GROUP_EDGES", "group_map", "resolves"]

_FRACTION_BITS = 11


def _top_spacing(fmt: Format) -> Fraction:
    """Distance of a format's greatest value to the one before it, and to the first one beyond."""
    return Fraction(2) ** (max(fmt.greatest_exponent, fmt.least_exponent) - fmt.significand_bits)


def _edges_of(fmt: Format) -> set[Fraction]:
    """From the greatest value to the end of its binade in half spacings: no distance changes its form between."""
    exponent, significand = split(Fraction(fmt.max))
    half = _top_spacing(fmt) / 2 / Fraction(2) ** exponent
    return {significand + half * i for i in range(int((2 - significand) / half))}


def _named_edges() -> tuple[Fraction, ...]:
    edges = {Fraction(1)}
    for fmt in NAMED_FORMATS.values():
        if fmt.bits <= 32:
            edges |= _edges_of(fmt)
    # float32's own greatest value needs 23 bits; numbers of 24 that lie above it are none.
    return tuple(sorted(edge for edge in edges if (edge * (1 << _FRACTION_BITS)).denominator == 1))


GROUP_EDGES = _named_edges()
"""Group i holds the significands from edge i up to the next one (or 2)."""


@cache
def group_map() -> GroupMap:
    """The groups as engines look them up."""
    steps = range(1 << _FRACTION_BITS)
    of = np.array([bisect_right(GROUP_EDGES, 1 + Fraction(t, len(steps))) - 1 for t in steps], np.uint8)
    of.flags.writeable = False
    return GroupMap(len(GROUP_EDGES), of)


def resolves(fmt: Format) -> bool:
    """Whether what overflows in a format can be left out of an error."""
    edges = _edges_of(fmt)
    return edges <= set(GROUP_EDGES) or min(edges) >= 2 - Fraction(1, 1 << 23)
