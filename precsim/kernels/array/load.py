"""From a source's memory to the bits of float32 or float64, exactly and in any flush-to-zero state of the processor."""

from __future__ import annotations

import struct
from typing import Any

from precsim.kernels.array.bits import FLOAT32_LANE, FLOAT64_LANE, Lane
from precsim.kernels.array.spaces import Space
from precsim.kernels.engine import Source
from precsim.number.catalogue import NAMED_FORMATS

__all__ = ["is_wide", "load_bits"]

_FP32, _FP64 = NAMED_FORMATS["fp32"], NAMED_FORMATS["fp64"]


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
        bits = space.view(_integers_to_odd(space, source.data), "int64")
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
    return bits if lane is own_lane else _widen(space, bits)


def _bits_of(value: float, lane: Lane) -> int:
    single = lane is FLOAT32_LANE
    packed = struct.pack("<f" if single else "<d", value)
    return int.from_bytes(packed, "little")


def _integers_to_odd(space: Space, integers: Any) -> Any:
    """64-bit integers as float64, those of more than 53 bits rounded to odd.

    ⌊x/2^11⌋ has at most 53 bits; setting its last bit where bits are lost picks the odd one of the two neighbours,
    for negative x too.
    """
    is_unsigned = str(integers.dtype) == "uint64"
    shifted = space.convert(integers >> 11, "int64")
    lost = (integers & 2047) != 0
    rounded = shifted | space.convert(lost, "int64")
    limit = 1 << 53
    wide = integers >= limit if is_unsigned else (integers >= limit) | (integers <= -limit)
    exact = space.convert(integers, "float64")
    return space.where(wide, space.multiply(space.convert(rounded, "float64"), 2048.0), exact)


def _widen(space: Space, bits: Any) -> Any:
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
