"""Casts of long float32 arrays to small formats by a table.

Where every switching point of a cast has at most seven fraction bits, the code depends on float32's top 16 bits and on
whether any lower bit is set, and on nothing else. That is 2^17 cases, which the engine's own, proved functions cast
once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from precsim.kernels.array.bits import FLOAT32_LANE, cast_bits, lane_for
from precsim.kernels.array.spaces import NumpySpace
from precsim.number.plan import CastPlan

__all__ = ["MIN_ELEMENTS", "codes_by_table", "has_table"]

MIN_ELEMENTS = 1 << 18
"""Below this making the table would take longer than the cast."""


def has_table(plan: CastPlan) -> bool:
    """Whether a cast's switching points are of seven fraction bits at most.

    Those in the normal range have one more than the format stores. Below it they are multiples of half the spacing, and
    in float32's own subnormal range seven fraction bits are multiples of 2^-133.
    """
    in_lane = lane_for(plan, source_is_wide=False) is FLOAT32_LANE and not plan.random_bits
    return (
        in_lane
        and plan.storage_bits == 8
        and plan.significand_bits <= 6
        and plan.quantum_exponent - 1 >= -133
    )


@lru_cache(maxsize=16)
def _table(plan: CastPlan) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Codes by the top 16 bits, doubled by whether a lower bit is set."""
    index = np.arange(1 << 17, dtype=np.uint32)
    bits = ((index >> 1) << 16) | (index & 1)
    codes = cast_bits(NumpySpace(FLOAT32_LANE), bits.view(np.int32), plan, FLOAT32_LANE)
    table: np.ndarray[Any, np.dtype[np.uint8]] = codes.astype(np.uint8)
    return table


def codes_by_table(bits: Any, plan: CastPlan, out: Any) -> None:
    """Cast a block of float32 bits (int32) into codes (uint8)."""
    unsigned = bits.view(np.uint32)
    index = unsigned >> 16
    index <<= 1
    index |= (unsigned & 0xFFFF) != 0
    np.take(
        _table(plan), index, out=out, mode="wrap"
    )  # no index is out of range; "raise" would buffer the result
