"""Inputs at which a cast can go wrong, by construction: what can't be exhausted is at least tried where it matters.

After Berkeley TestFloat's case generator: chosen exponents times chosen significands, and beside them every point where
the rounding to a given target changes, one source unit in the last place below, at, and above it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from precsim.errors import InputError
from precsim.number import Format

__all__ = ["boundary_values", "float_patterns"]

_CODES_IN_FULL = 16
"""Formats of at most so many bits have all their values tried."""

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=128)
def boundary_values(fmt: Format, source: str = "fp32") -> Array:
    """Inputs that matter for a cast to a format.

    Parameters
    ----------
    fmt : Format
        Target.
    source : {"fp32", "fp64"}
        What the inputs are.

    Returns
    -------
    float32 or float64 array, shape (n,), read-only
        All finite values of the target (a selection beyond 16 bits) and the points half-way between neighbours, each
        with the source's numbers next to it on both sides; the same beyond the greatest value; the source's own
        special numbers. Both signs, no number twice, NaNs last.
    """
    dtype = _dtype(source)
    targets = _target_values(fmt)
    half_way = targets[1:] / 2 + targets[:-1] / 2
    greatest, step = targets[-1], 2.0 ** (fmt.greatest_exponent - fmt.significand_bits)
    beyond = [greatest + step / 2, greatest + step, greatest * 2, greatest * 4]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        points = np.concatenate([targets, half_way, beyond]).astype(dtype)
        near = np.concatenate(
            [points, np.nextafter(points, dtype(np.inf)), np.nextafter(points, dtype(-np.inf))]
        )
        values = np.concatenate([near, -near, float_patterns(source)])
    values = _distinct(values)
    values.flags.writeable = False
    return values


def _dtype(source: str) -> Any:
    if source not in ("fp32", "fp64"):
        raise InputError(f"source must be 'fp32' or 'fp64', got {source!r}")
    return np.float32 if source == "fp32" else np.float64


def _target_values(fmt: Format) -> Array:
    """Non-negative finite values in ascending order."""
    if fmt.bits <= _CODES_IN_FULL:
        codes = np.arange(fmt.max_magnitude_code + 1)
    else:
        m = fmt.significand_bits
        fields = [0, 1, 2, fmt.bias - 1, fmt.bias, fmt.bias + 1, (fmt.max_magnitude_code >> m) - 1]
        fractions = [0, 1, 2, 3, (1 << m) - 2, (1 << m) - 1, *(1 << i for i in range(m))]
        some = {(field << m) + fraction + d for field in fields for fraction in fractions for d in (0, 1)}
        last = {fmt.max_magnitude_code - d for d in range(4)}
        codes = np.array(sorted(code for code in some | last if 0 <= code <= fmt.max_magnitude_code))
    return np.unique([fmt.decode(code) for code in codes.tolist()])


def float_patterns(source: str) -> Array:
    """The source's own extremes: exponents {least, ±1, bias, greatest} × significands {0, 1, ones, walking bits}.

    Infinities, zeros and NaNs (quiet and signalling, with payloads) of both signs included.
    """
    dtype = _dtype(source)
    m, bias = (23, 127) if source == "fp32" else (52, 1023)
    fields = [0, 1, 2, bias - 1, bias, bias + 1, 2 * bias - 1, 2 * bias, 2 * bias + 1]
    ones = (1 << m) - 1
    walking = [1 << i for i in range(m)] + [ones ^ (1 << i) for i in range(m)]
    fractions = [0, 1, 2, ones, ones - 1, *walking]
    bits = np.array([(field << m) + fraction for field in fields for fraction in fractions], np.uint64)
    both = np.concatenate([bits, bits | np.uint64(1 << (31 if source == "fp32" else 63))])
    return both.astype(np.uint32 if source == "fp32" else np.uint64).view(dtype)


def _distinct(values: Array) -> Array:
    """Each bit pattern once, numbers in ascending order."""
    unsigned = np.uint32 if values.dtype == np.float32 else np.uint64
    distinct = np.unique(values.view(unsigned)).view(values.dtype)
    return distinct[np.argsort(distinct, kind="stable")]
