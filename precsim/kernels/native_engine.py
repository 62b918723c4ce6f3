"""`NativeEngine`: the specification in C++, for arrays in CPU memory.

Importing this module fails with `ImportError` where the extension was not built.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np

from precsim.errors import InputError
from precsim.kernels import _native
from precsim.kernels.array import ArrayEngine
from precsim.kernels.array.spaces import value_table
from precsim.kernels.engine import BinMap, CountTable, GroupMap, MomentTable, Randomness, Source
from precsim.number.catalogue import NAMED_FORMATS
from precsim.number.format import Format
from precsim.number.plan import CastPlan
from precsim.number.rounding import Mode

__all__ = ["NativeEngine", "default_threads"]

_FP32, _FP64 = NAMED_FORMATS["fp32"], NAMED_FORMATS["fp64"]
_MODES = {mode: number for number, mode in enumerate(Mode)}
_FLOAT32, _FLOAT64, _CODES8, _CODES16, _INT64, _UINT64 = range(6)
"""Kinds of sources, as in source.hpp."""


def default_threads() -> int:
    """Threads of a call: ``PRECSIM_NUM_THREADS``, else the CPUs that this process may use.

    Raises
    ------
    InputError
        If the variable is no positive integer.
    """
    wanted = os.environ.get("PRECSIM_NUM_THREADS")
    if wanted is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not wanted.isdecimal() or int(wanted) < 1:
        raise InputError(f"PRECSIM_NUM_THREADS must be a positive integer, got {wanted!r}")
    return int(wanted)


@lru_cache(maxsize=1024)
def _native_plan(plan: CastPlan) -> Any:
    narrow = plan.least_exponent >= -126 and plan.significand_bits < 23 and plan.bits < 32
    pairs = (plan.nan, plan.infinity, plan.zero, plan.underflow, plan.overflow)
    return _native.Plan(
        [
            plan.storage_bits,
            plan.significand_bits,
            plan.least_exponent,
            plan.low_shift,
            _MODES[plan.mode],
            plan.random_bits,
            plan.parity_flip,
            plan.flush_below,
            plan.max_code,
            plan.code_offset,
            plan.negative_xor,
            plan.negative_add,
            *(code for pair in pairs for code in pair),
            -1 if plan.negative_code is None else plan.negative_code,
            plan.ignore_sign,
            narrow,
            narrow and _is_usual(plan),
        ]
    )


def _is_usual(plan: CastPlan) -> bool:
    """Whether usual.hpp can do the cast from float32."""
    sign = plan.negative_add
    plain = (
        not (plan.negative_xor or plan.code_offset or plan.low_shift) and sign > 0 and plan.flush_below == 1
    )
    signs_alike = all(b == a + sign for a, b in (plan.zero, plan.underflow, plan.nan, plan.infinity))
    zero_is_zero = plan.zero[0] == plan.underflow[0] == 0
    clamps = all(code - plan.max_code in (0, 1) for code in (plan.overflow[0], plan.overflow[1] - sign))
    drops_two_bits = plan.significand_bits <= 21
    exact_product = plan.least_exponent == -126 or -104 <= plan.least_exponent <= plan.significand_bits
    return plain and signs_alike and zero_is_zero and clamps and drops_two_bits and exact_product


@lru_cache(maxsize=64)
def _full_table(fmt: Format, dtype: str) -> np.ndarray[Any, Any]:
    """Values of all codes that the storage can hold: a lookup may not leave the table, whatever the memory holds."""
    table = value_table(fmt, dtype)
    size = 1 << (8 if fmt.bits <= 8 else 16)
    return table if len(table) == size else np.resize(table, size)


class NativeEngine:
    """See `precsim.kernels.engine.Engine`.

    Attributes
    ----------
    threads : int or None
        Threads that a call may use; None for `default_threads`. Results do not depend on it.
    """

    name = "native"

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads
        self._array = ArrayEngine()

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
        given = (flush_inputs_below, multiplier, _native_plan(plan))
        _native.encode(*_unpacked(source), *given, out, *_noise(random), self._thread_count())

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
        if fmt.bits > 16:  # too many codes for a table
            self._quantize_wide(source, plan, fmt, out, flush_inputs_below, multiplier, divisor, random)
            return
        run = _native.quantize32 if out.dtype == np.float32 else _native.quantize64
        run(
            *_unpacked(source),
            flush_inputs_below,
            multiplier,
            _native_plan(plan),
            _full_table(fmt, out.dtype.name),
            out,
            divisor,
            *_noise(random),
            self._thread_count(),
        )

    def _quantize_wide(
        self,
        source: Source,
        plan: CastPlan,
        fmt: Format,
        out: Any,
        flush_below: float,
        multiplier: float,
        divisor: float,
        random: Randomness | None,
    ) -> None:
        for start in range(0, len(out), _BLOCK):
            block = slice(start, start + _BLOCK)
            part = Source(source.data[block], source.format)
            codes = np.empty(len(part.data), np.uint32)
            self.encode(
                part,
                plan,
                codes,
                flush_inputs_below=flush_below,
                multiplier=multiplier,
                random=_moved(random, block),
            )
            self._array.decode(codes, fmt, out[block])
            if divisor != 1.0:
                with np.errstate(all="ignore"):
                    out[block] /= out.dtype.type(divisor)

    def decode(self, codes: Any, fmt: Format, out: Any) -> None:
        """See `Engine.decode`."""
        if fmt.bits > 16:
            self._array.decode(codes, fmt, out)
            return
        run = _native.decode32 if out.dtype == np.float32 else _native.decode64
        run(codes, _full_table(fmt, out.dtype.name), out, self._thread_count())

    def count(self, source: Source, bins: BinMap) -> CountTable:
        """See `Engine.count`."""
        kind, data, table = _unpacked(source)
        values = None if table is None else _full_table(_format_of(source), "float64")
        arguments = (kind, data, values, bins.count, bins.coarse, bins.fine, self._thread_count())
        return CountTable(*_native.count(*arguments))

    def moments(self, source: Source, bins: BinMap, groups: GroupMap) -> tuple[CountTable, MomentTable]:
        """See `Engine.moments`."""
        kind, data, table = _unpacked(source)
        values = None if table is None else _full_table(_format_of(source), "float64")
        tables = (bins.count, bins.coarse, bins.fine, groups.count, groups.of)
        counts, *sums = _native.moments(kind, data, values, *tables, self._thread_count())
        return CountTable(*counts), MomentTable(*sums)

    def _thread_count(self) -> int:
        return default_threads() if self.threads is None else self.threads


_BLOCK = 1 << 16


def _moved(random: Randomness | None, block: slice) -> Randomness | None:
    """The random bits of a block."""
    if random is None:
        return None
    given = None if random.given is None else random.given[block]
    return Randomness(random.seed, random.first + block.start, given)


def _format_of(source: Source) -> Format:
    assert source.format is not None
    return source.format


def _unpacked(source: Source) -> tuple[int, Any, Any]:
    """Kind, data, and the values of codes."""
    if source.format is None:
        return (_UINT64 if source.data.dtype == np.uint64 else _INT64), source.data, None
    if source.format == _FP32:
        return _FLOAT32, source.data, None
    if source.format == _FP64:
        return _FLOAT64, source.data, None
    kind = _CODES8 if source.data.dtype.itemsize == 1 else _CODES16
    return kind, source.data, _full_table(source.format, "float32")


def _noise(random: Randomness | None) -> tuple[int, int, Any]:
    return (0, 0, None) if random is None else (random.seed, random.first, random.given)
