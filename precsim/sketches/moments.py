"""`Moments`: sums of significands and of their rounding distances by binade, added exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from precsim.kernels import LIMB_BITS, PRECISIONS, MomentTable
from precsim.sketches.groups import GROUP_EDGES

__all__ = ["Moments", "added_moments"]

Limbs = np.ndarray[Any, np.dtype[np.int64]]
_MASK = (1 << LIMB_BITS) - 1


@dataclass(frozen=True, eq=False)
class Moments:
    """See `precsim.kernels.MomentTable`, whose fields these are; rows are those of the sketch's counts.

    Attributes
    ----------
    distances : int64 array, shape (2, rows, 12, 2, 2)
    sums : int64 array, shape (2, rows, G, 3, 2)
        Groups by `precsim.sketches.groups`.
    rounded : int
    """

    distances: Limbs
    sums: Limbs
    rounded: int = 0

    def __post_init__(self) -> None:
        self.distances.flags.writeable = False
        self.sums.flags.writeable = False

    @classmethod
    def of_table(cls, table: MomentTable) -> Moments:
        """Of what an engine summed."""
        return cls(np.asarray(table.distances, np.int64), np.asarray(table.sums, np.int64), table.rounded)

    @classmethod
    def empty(cls) -> Moments:
        """Of no numbers."""
        groups = len(GROUP_EDGES)
        return cls(
            np.zeros((2, 0, len(PRECISIONS), 2, 2), np.int64), np.zeros((2, 0, groups, 3, 2), np.int64)
        )

    def same_as(self, other: Moments) -> bool:
        """Whether all sums are equal."""
        return (
            self.rounded == other.rounded
            and np.array_equal(self.distances, other.distances)
            and np.array_equal(self.sums, other.sums)
        )

    def tobytes(self) -> bytes:
        """The sums' bytes."""
        return self.distances.tobytes() + self.sums.tobytes()

    # ---- as integers -------------------------------------------------------------------------------------------

    @cached_property
    def distance_integers(self) -> list[list[list[tuple[int, int]]]]:
        """Sums of distances and of their squares, by sign, row and precision."""
        return [[[(a, s) for a, s in row] for row in rows] for rows in _integers(self.distances)]

    @cached_property
    def group_integers(self) -> list[list[list[tuple[int, int, int]]]]:
        """Number, sum and sum of squares of the significands, by sign, row and group."""
        return [[[(n, m, q) for n, m, q in row] for row in rows] for rows in _integers(self.sums)]

    @cached_property
    def row_integers(self) -> list[list[tuple[int, int, int]]]:
        """Number, sum and sum of squares of the significands, by sign and row."""
        return [[_total(groups) for groups in rows] for rows in self.group_integers]


def _total(groups: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    return sum(g[0] for g in groups), sum(g[1] for g in groups), sum(g[2] for g in groups)


def _integers(limbs: Limbs) -> Any:
    """Nested lists of Python's integers."""
    exact = limbs[..., 0].astype(object) + (limbs[..., 1].astype(object) << LIMB_BITS)
    return exact.tolist()


def added_moments(a: Moments, b: Moments, a_start: int, b_start: int, rows: int) -> Moments:
    """Both on common rows."""
    return Moments(
        _added(a.distances, b.distances, a_start, b_start, rows),
        _added(a.sums, b.sums, a_start, b_start, rows),
        a.rounded + b.rounded,
    )


def _added(a: Limbs, b: Limbs, a_start: int, b_start: int, rows: int) -> Limbs:
    total = np.zeros((a.shape[0], rows, *a.shape[2:]), np.int64)
    for part, start in ((a, a_start), (b, b_start)):
        total[:, start : start + part.shape[1]] += part
    # Two limbs of 60 bits make one of at most 61: its upper bit goes to the next, so that equal sums have equal limbs.
    total[..., 1] += total[..., 0] >> LIMB_BITS
    total[..., 0] &= _MASK
    return total
