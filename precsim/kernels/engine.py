"""What every array engine offers: the same parameters, the same bits.

An engine works on flat, contiguous arrays and knows no policies: those are in the `CastPlan`. Layout, dtypes and the
choice of an engine are the business of `precsim.cast`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from precsim.number.format import Format
from precsim.number.plan import CastPlan

__all__ = [
    "LIMB_BITS",
    "PRECISIONS",
    "BinMap",
    "CountTable",
    "Engine",
    "GroupMap",
    "MomentTable",
    "Randomness",
    "Source",
]


@dataclass(frozen=True)
class Source:
    """Numbers to be cast.

    Attributes
    ----------
    data : array, shape (n,), contiguous, native byte order
        float32 or float64 where `format` is fp32 or fp64; uint8 or uint16 *codes* for any other format (fp16 and bf16
        included); int64 or uint64 values where `format` is None. A NumPy array, for the array engine also a torch
        tensor (torch has few unsigned types: codes travel as uint8 or int16, uint64 values don't).
    format : Format or None
        The format of `data`; None for integers.
    """

    data: Any
    format: Format | None


@dataclass(frozen=True)
class Randomness:
    """The random bits of stochastic rounding.

    Element i of the whole array takes word i mod 4 of Philox4x32-10 with counter (⌊i/4⌋ mod 2^32, ⌊i/4⌋ div 2^32, 0, 0)
    and key (seed mod 2^32, seed div 2^32); R is its top `random_bits` bits. So the result does not depend on chunks,
    threads or engine (Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3).

    Attributes
    ----------
    seed : int
        0 … 2^64 − 1.
    first : int
        Index of the source's first element in the whole array.
    given : uint32 array of shape (n,), optional
        R itself, instead of the generator.
    """

    seed: int = 0
    first: int = 0
    given: Any = None


@dataclass(frozen=True)
class BinMap:
    """Where a significand falls within its binade.

    Attributes
    ----------
    count : int
        Number of bins B.
    coarse : uint8 array, shape (128, 2)
        Bin by the top 7 fraction bits and whether nothing lies below them (index 1: nothing does).
    fine : uint8 array, shape (46, 2)
        For significands whose top 7 fraction bits are all ones: bin by the number of ones that lead the remaining
        fraction bits (0 … 45), and whether no other bit is set below them (index 1: none is).
    """

    count: int
    coarse: Any
    fine: Any


@dataclass(frozen=True)
class CountTable:
    """How many elements lie where.

    Attributes
    ----------
    least_exponent : int
        Exponent of row 0.
    counts : int64 array, shape (2, rows, B)
        By sign (0 positive), binade and bin; finite nonzero elements only. Subnormals are counted in their own
        binade, normalised.
    zeros, positive_infinities, negative_infinities, nans : int
        The rest.
    amax, amin : float
        Greatest and least nonzero finite magnitude; 0.0 and inf where there is none.
    """

    least_exponent: int
    counts: Any
    zeros: int
    positive_infinities: int
    negative_infinities: int
    nans: int
    amax: float
    amin: float


LIMB_BITS = 60
PRECISIONS = range(-1, 11)
"""Fraction bits to which significands are rounded in the sums of distances; −1 stands for multiples of 2."""


@dataclass(frozen=True)
class GroupMap:
    """A partition of the significands in [1, 2), by their first 11 fraction bits.

    Attributes
    ----------
    count : int
        Number of groups G, at most 64.
    of : uint8 array, shape (2048,)
        The group of each value of those bits.
    """

    count: int
    of: Any


@dataclass(frozen=True)
class MomentTable:
    """Sums over the numbers of each binade, x = M·2^(e−23) with the integer M in [2^23, 2^24).

    Integers, each in two limbs along the last axis: limb 0 (60 bits) + 2^60 · limb 1. Significands of more than 24 bits
    (float64, wide integers) are rounded to odd to 24 first. Rows are those of the `CountTable` made with it.

    Attributes
    ----------
    distances : int64 array, shape (2, rows, 12, 2, 2)
        By sign and precision p = −1 … 10: sum of M's distances to the nearest multiple of 2^(23−p) (index 0), and
        of their squares (index 1).
    sums : int64 array, shape (2, rows, G, 3, 2)
        By sign and group: how many, the sum of M, the sum of M².
    rounded : int
        How many significands had more than 24 bits.
    """

    distances: Any
    sums: Any
    rounded: int


class Engine(Protocol):
    """One implementation of the specification in `precsim.number` for arrays."""

    name: str

    def encode(
        self,
        source: Source,
        plan: CastPlan,
        out: Any,
        *,
        flush_inputs_below: float = 0.0,
        multiplier: float = 1.0,
        random: Randomness | None = None,
    ) -> None:
        """Cast ``source`` to codes.

        Each element is first decoded exactly to float32 (float64 for fp64 and integer sources; 64-bit integers are
        rounded to odd to float64's 53 bits, which no later rounding to 24 bits can tell from the integer itself),
        set to zero if its magnitude is below ``flush_inputs_below``, then multiplied by ``multiplier`` in that
        type with one rounding to nearest even, then cast by ``plan``.

        Parameters
        ----------
        source : Source
        plan : CastPlan
        out : unsigned array of plan.storage_bits, shape (n,)
            Receives the codes.
        flush_inputs_below : float
            Least magnitude that is not taken as zero; 0.0 flushes nothing.
        multiplier : float
            Scale that is not a power of two; powers of two are in the plan, exactly.
        random : Randomness, optional
            For stochastic plans.
        """
        ...

    def quantize(
        self,
        source: Source,
        plan: CastPlan,
        fmt: Format,
        out: Any,
        *,
        flush_inputs_below: float = 0.0,
        multiplier: float = 1.0,
        divisor: float = 1.0,
        random: Randomness | None = None,
    ) -> None:
        """`encode`, then `decode`, then a division by ``divisor``, without the codes in between.

        Parameters
        ----------
        out : float32 or float64 array, shape (n,)
            float64 for fp64 and integer sources, else float32. Receives the values; the division is done in this type,
            rounded once to nearest even. May be the source's own data.
        """
        ...

    def decode(self, codes: Any, fmt: Format, out: Any) -> None:
        """Values of ``codes`` (unsigned, shape (n,)) into ``out`` (float32 or float64, shape (n,)), exactly.

        NaN codes give quiet NaNs of their sign. ``out`` must be float64 where ``fmt`` has values that float32 lacks.
        """
        ...

    def count(self, source: Source, bins: BinMap) -> CountTable:
        """Count the elements by sign, binade and bin."""
        ...

    def moments(self, source: Source, bins: BinMap, groups: GroupMap) -> tuple[CountTable, MomentTable]:
        """`count`, and the sums that errors are made of, in one pass."""
        ...
