"""From a source's memory to the bits of float32 or float64, exactly and in any flush-to-zero state of the processor."""

from __future__ import annotations

import struct
from typing import Any, Protocol

from precsim.kernels.array.bits import FLOAT32_LANE, FLOAT64_LANE, Lane
from precsim.kernels.array.spaces import Space
from precsim.kernels.engine import Source
from precsim.number.catalogue import NAMED_FORMATS

__all__ = ["Reader", "integers_to_odd", "is_wide", "load_bits", "widen"]

_FP32, _FP64 = NAMED_FORMATS["fp32"], NAMED_FORMATS["fp64"]
_MASK53 = (1 << 53) - 1


class Reader(Protocol):
    """The part of a `Space` that changes representations; `precsim.testing.symbols` has it for z3."""

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """See `Ops`."""

    def maximum(self, x: Any, least: int) -> Any:
        """See `Ops`."""

    def convert(self, x: Any, dtype: str) -> Any:
        """The numbers in another dtype."""

    def view(self, x: Any, dtype: str) -> Any:
        """The same bits as another dtype."""

    def multiply(self, x: Any, factor: float) -> Any:
        """x·factor in x's type."""


def is_wide(source: Source) -> bool:
    """Whether the source is computed in float64."""
    return source.format is None or source.format == _FP64


def load_bits(space: Space, source: Source, lane: Lane, flush_below: float, multiplier: float) -> Any:
    """The bits of a block's numbers in the lane, small ones flushed, then multiplied.

    Returns
    -------
    integers of the lane
        May be the source's own memory.
    """
    own_lane = FLOAT64_LANE if is_wide(source) else FLOAT32_LANE
    if source.format is None:
        bits = integers_to_odd(space, source.data)
    elif source.format in (_FP32, _FP64):
        bits = space.view(source.data, "int64" if own_lane is FLOAT64_LANE else "int32")
    else:
        bits = space.view(space.take(space.table(source.format, "float32"), source.data), "int32")
    if flush_below > 0.0:
        too_small = (bits & own_lane.magnitude_mask) < _bits_of(flush_below, own_lane)
        bits = space.where(too_small, bits & ~own_lane.magnitude_mask, bits + 0)
    if multiplier != 1.0:
        name = f"float{own_lane.bits}"
        bits = space.view(space.multiply(space.view(bits, name), multiplier), f"int{own_lane.bits}")
    return bits if lane is own_lane else widen(space, bits)


def _bits_of(value: float, lane: Lane) -> int:
    single = lane is FLOAT32_LANE
    packed = struct.pack("<f" if single else "<d", value)
    return int.from_bytes(packed, "little")


def integers_to_odd(space: Reader, integers: Any) -> Any:
    """64-bit integers as float64 bits, those of more than 53 bits rounded to odd.

    Of the magnitude just so many low bits are cut off that 53 are left, and the last of these is set where a lost bit
    was. The magnitude's length is read off its bits from the eleventh on, which a float64 holds exactly.
    """
    values = space.view(integers, "int64")
    sign = values & (0 if str(integers.dtype) == "uint64" else ~FLOAT64_LANE.magnitude_mask)
    all_ones = sign >> 63
    magnitude = (values ^ all_ones) - all_ones
    field = space.view(space.convert((magnitude >> 11) & _MASK53, "float64"), "int64") >> 52
    cut = space.maximum(field - (FLOAT64_LANE.bias + 52 - 11), 0)
    kept = (magnitude >> cut) & _MASK53
    lost = (kept << cut) != magnitude
    rounded = space.convert(kept | space.convert(lost, "int64"), "float64")
    return (space.view(rounded, "int64") + (cut << 52)) | sign


def widen(space: Reader, bits: Any) -> Any:
    """float32 bits as float64 bits.

    A subnormal is its integer times 2^-149, a product that is a normal float64 number; so no flush-to-zero state
    touches it.
    """
    wide = space.convert(bits, "int64")
    magnitude = wide & FLOAT32_LANE.magnitude_mask
    rebias = (FLOAT64_LANE.bias - FLOAT32_LANE.bias) << 52
    result = (magnitude << 29) + rebias
    result = space.where(magnitude >= FLOAT32_LANE.infinity, result + rebias, result)
    small = space.view(space.multiply(space.convert(magnitude, "float64"), 2.0**-149), "int64")
    result = space.where(magnitude < (1 << 23), small, result)
    return result | (wide & ~FLOAT64_LANE.magnitude_mask)
