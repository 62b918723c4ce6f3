"""`ArrayEngine`: the specification on NumPy arrays and torch tensors of any device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from precsim.kernels.array.bits import FLOAT32_LANE, cast_bits, lane_for
from precsim.kernels.array.count import count_source
from precsim.kernels.array.load import is_wide, load_bits
from precsim.kernels.array.moments import sum_source
from precsim.kernels.array.philox import philox_words
from precsim.kernels.array.small_target import MIN_ELEMENTS, codes_by_table, has_table
from precsim.kernels.array.spaces import NumpySpace, Space, settle_heap, space_of
from precsim.kernels.engine import BinMap, CountTable, GroupMap, MomentTable, Randomness, Source
from precsim.number.format import Format, NanEncoding
from precsim.number.plan import CastPlan

__all__ = ["ArrayEngine"]


class ArrayEngine:
    """See `precsim.kernels.engine.Engine`."""

    name = "array"

    def __init__(self) -> None:
        settle_heap()

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
        """See `Engine.encode`."""
        if (
            isinstance(out, np.ndarray)
            and len(out) >= MIN_ELEMENTS
            and not is_wide(source)
            and has_table(plan)
        ):
            space = NumpySpace(FLOAT32_LANE)
            for block in _blocks(len(out), space.block):
                part = Source(source.data[block], source.format)
                codes_by_table(
                    load_bits(space, part, FLOAT32_LANE, flush_inputs_below, multiplier), plan, out[block]
                )
            return
        for block, codes in self._codes(source, plan, flush_inputs_below, multiplier, random):
            out[block] = codes

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
        """See `Engine.quantize`."""
        space = space_of(out, FLOAT32_LANE)
        for block, codes in self._codes(source, plan, flush_inputs_below, multiplier, random):
            values = _values(space, codes, fmt, _name(out))
            out[block] = values if divisor == 1.0 else space.divide(values, divisor)

    def decode(self, codes: Any, fmt: Format, out: Any) -> None:
        """See `Engine.decode`."""
        space = space_of(codes, FLOAT32_LANE)
        for block in _blocks(len(codes), space.block):
            out[block] = _values(space, codes[block], fmt, _name(out))

    def count(self, source: Source, bins: BinMap) -> CountTable:
        """See `Engine.count`."""
        return count_source(source, bins)

    def moments(self, source: Source, bins: BinMap, groups: GroupMap) -> tuple[CountTable, MomentTable]:
        """See `Engine.moments`."""
        counts = count_source(source, bins)
        return counts, sum_source(source, groups, counts)

    def _codes(
        self,
        source: Source,
        plan: CastPlan,
        flush_below: float,
        multiplier: float,
        random: Randomness | None,
    ) -> Iterator[tuple[slice, Any]]:
        """Blocks, and their codes in an unsigned type (signed 16- and 32-bit ones on torch)."""
        lane = lane_for(plan, is_wide(source))
        space = space_of(source.data, lane)
        for block in _blocks(len(source.data), space.block):
            part = Source(source.data[block], source.format)
            bits = load_bits(space, part, lane, flush_below, multiplier)
            noise = None if random is None else _noise(space, random, plan.random_bits, block)
            codes = cast_bits(space, bits, plan, lane, noise)
            yield block, space.convert(codes, f"uint{plan.storage_bits}")


def _blocks(length: int, size: int) -> Iterator[slice]:
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def _noise(space: Space, random: Randomness, random_bits: int, block: slice) -> Any:
    """R of a block's elements."""
    if random.given is not None:
        return space.convert(random.given[block], "int64") & ((1 << 32) - 1)
    first, last = random.first + block.start, random.first + block.stop
    counter = space.count_up(first // 4, (last + 3) // 4 - first // 4)
    words = space.interleave(philox_words(counter, random.seed))
    offset = first % 4
    return words[offset : offset + last - first] >> (32 - random_bits)


def _name(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def _values(space: Space, codes: Any, fmt: Format, dtype: str) -> Any:
    """Values of a block of codes."""
    if fmt.bits <= 16:
        return space.take(space.table(fmt, dtype), codes)
    wide = space.convert(codes, "int64") & ((1 << fmt.bits) - 1)
    if _is_cut_float32(fmt):
        bits = space.convert(wide << (32 - fmt.bits), "uint32")
        return space.convert(space.view(bits, "float32"), dtype)
    return space.convert(_wide_values(space, wide, fmt), dtype)


def _is_cut_float32(fmt: Format) -> bool:
    """Whether the format's codes are the leading bits of float32's."""
    return fmt == Format(8, fmt.significand_bits) and fmt.bits > 16


def _wide_values(space: Space, codes: Any, fmt: Format) -> Any:
    """float64 values of codes of 17 to 32 bits."""
    m = fmt.significand_bits
    negative = (codes & fmt.sign_bit) != 0 if fmt.signed else codes < 0
    magnitude = codes & ~fmt.sign_bit
    if fmt.twos_complement:
        magnitude = space.where(negative, (1 << fmt.bits) - codes, magnitude)
    field = magnitude >> m
    fraction = magnitude & ((1 << m) - 1)
    if fmt.zero:
        significand = space.where(
            field > 0, fraction + (1 << m), fraction + 0 if fmt.subnormals else fraction * 0
        )
        exponent = space.maximum(field, 1) + (1023 - fmt.bias - m)
    else:
        significand = fraction + (1 << m)
        exponent = field + (1023 - fmt.bias - m)
    # 2^exponent by its float64 bits; below float64's normal range the product is taken in two steps.
    low = space.maximum(-exponent + 1, 0)
    scale = space.view((exponent + low) << 52, "float64")
    rest = space.view((1023 - low) << 52, "float64")
    values = space.convert(significand, "float64") * scale * rest
    infinity = -1 if fmt.infinity_code is None else fmt.infinity_code
    values = space.where(magnitude == infinity, float("inf"), values)
    signed = space.view(space.view(values, "int64") | (space.convert(negative, "int64") << 63), "float64")
    if not fmt.signed_zero:
        signed = space.where(values == 0.0, 0.0, signed)
    if fmt.nan is NanEncoding.NEGATIVE_ZERO:
        return space.where(codes == fmt.sign_bit, float("nan"), signed)
    if fmt.nan is NanEncoding.NONE:
        return signed
    is_nan = (magnitude > fmt.max_magnitude_code) & (magnitude != infinity)
    quiet = space.view((space.convert(negative, "int64") << 63) | 0x7FF8000000000000, "float64")
    return space.where(is_nan, quiet, signed)
