"""`decode`: from a format's codes to values, for NumPy arrays and torch tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from precsim.cast.operand import Operand, operand
from precsim.errors import InputError
from precsim.number import Format, Rounding, find_format, plan_cast

__all__ = ["decode", "fits_float32"]

_BLOCK = 1 << 16
"""Codes converted at a time where they are not stored as the engine wants them."""


def decode(codes: Any, fmt: object) -> Any:
    """Values of a format's codes, exactly.

    Parameters
    ----------
    codes : array_like or torch.Tensor of integers
        Codes, 0 … 2^bits − 1.
    fmt : Format, str or dtype
        Their format.

    Returns
    -------
    array or torch.Tensor of float32
        In the shape of codes; float64 where the format has values that float32 lacks. A NumPy scalar for 0-d.

    Raises
    ------
    InputError
        If codes are no integers, or have more bits than the format.

    Examples
    --------
    >>> import numpy as np, precsim as ps
    >>> ps.decode(np.uint8([0x7E, 0x7F, 0x80]), ps.E4M3)
    array([448.,  nan,  -0.], dtype=float32)
    """
    target = find_format(fmt)
    if target.bits > 32:
        raise InputError(f"format {target.name} is too wide: codes have at most 32 bits")
    source = operand(codes, what="codes")
    if source.format is not None:
        raise InputError(f"codes must be integers, got {source.dtype}: view them as unsigned integers first")
    result, flat = source.empty("float32" if fits_float32(target) else "float64")
    storage = f"uint{plan_cast(target, Rounding()).storage_bits}"
    for chunk, first in _code_chunks(source, storage):
        _check_codes(chunk, target)
        width = {"uint8": "uint8", "uint16": "int16", "uint32": "int32"}[storage]
        data = chunk.astype(storage, copy=False) if source.in_cpu_memory else _cast_codes(chunk, width)
        source.engine.decode(data, target, flat[first : first + len(data)])
    return source.finish(result)


def _cast_codes(chunk: Any, dtype: str) -> Any:
    import torch

    return chunk.to(getattr(torch, dtype))


def _code_chunks(source: Operand, storage: str) -> Iterator[tuple[Any, int]]:
    """The codes in pieces, directly where they are stored as the engine wants them."""
    direct = source.in_cpu_memory and source.array.dtype == storage and source.array.flags.c_contiguous
    if direct:
        if source.size:
            yield source.array.reshape(-1), 0
        return
    for chunk, first in source.chunks():
        for start in range(0, len(chunk.data), _BLOCK):
            yield chunk.data[start : start + _BLOCK], first + start


def _check_codes(codes: Any, fmt: Format) -> None:
    fills_storage = (
        isinstance(codes, np.ndarray) and codes.dtype.kind == "u" and codes.dtype.itemsize * 8 == fmt.bits
    )
    if not fills_storage and not (0 <= int(codes.min()) and int(codes.max()) < 1 << fmt.bits):
        raise InputError(
            f"codes of {fmt.name} lie in 0 … {(1 << fmt.bits) - 1}, got {int(codes.min())} … {codes.max()}"
        )


def fits_float32(fmt: Format) -> bool:
    """Whether every value of the format is a float32 value."""
    least = fmt.least_exponent - fmt.significand_bits
    return fmt.precision <= 24 and least >= -149 and fmt.greatest_exponent <= 127
