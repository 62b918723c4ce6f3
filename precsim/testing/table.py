"""The reference as a table: its codes of all 2^32 float32 numbers, from the few at which the code changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from precsim.errors import InputError
from precsim.number import Format, Mode, Rounding
from precsim.number.reference import encode, round_magnitude

__all__ = ["ReferenceTable"]

_INFINITY = 0x7F800000
_LEAST_NORMAL = 0x00800000
_END = 0x80000000
Array = np.ndarray[Any, Any]


class ReferenceTable:
    """What `precsim.number.reference.encode` makes of every float32 number under one rule.

    Rounding is monotonic, so that a few switching points say all; each is found by evaluating the reference on both
    sides of it.

    Parameters
    ----------
    fmt : Format
        Target of at most 16 bits.
    rounding : Rounding
        Any deterministic rule under which a NaN has a result.

    Raises
    ------
    InputError
        For stochastic rounding, wider formats, or a format without NaN and a rule that makes NaN an error.
    """

    def __init__(self, fmt: Format, rounding: Rounding) -> None:
        if fmt.bits > 16 or rounding.mode is Mode.STOCHASTIC:
            raise InputError("a table needs a format of at most 16 bits and a rounding without chance")
        self.dtype = np.uint8 if fmt.bits <= 8 else np.uint16
        self._halves = [self._half(fmt, rounding, negative) for negative in (False, True)]

    def _half(self, fmt: Format, rounding: Rounding, negative: bool) -> tuple[Array, Array]:
        """Magnitude bits at which runs of equal codes start, and the codes."""
        points = _switching_points(fmt, rounding.mode, negative and fmt.signed)
        starts = sorted({0, 1, _LEAST_NORMAL, *points, _INFINITY, _INFINITY + 1})
        sign = _END if negative else 0
        source = Format(8, 23)
        codes = [encode(_number(start | sign), fmt, rounding, source=source) for start in starts]
        return np.array(starts, np.int64), np.array(codes, self.dtype)

    def codes(self, x: Array) -> Array:
        """The codes of float32 numbers.

        Parameters
        ----------
        x : float32 array, shape (n,)

        Returns
        -------
        uint8 or uint16 array, shape (n,)
        """
        bits = x.view(np.uint32)
        magnitudes = (bits & np.uint32(_END - 1)).astype(np.int64)
        of_sign = [codes[np.searchsorted(starts, magnitudes, "right") - 1] for starts, codes in self._halves]
        return np.where(bits >> 31, of_sign[1], of_sign[0])

    def codes_of_range(self, first: int, count: int) -> Array:
        """The codes of the numbers with the bits first … first + count − 1, all of one sign."""
        starts, codes = self._halves[first // _END]
        if (first + count - 1) // _END != first // _END:
            raise InputError("a range of bits must have one sign")
        low = first % _END
        edges = np.clip(np.append(starts, _END), low, low + count)
        return np.repeat(codes, np.diff(edges))


def _number(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


@lru_cache(maxsize=512)
def _switching_points(fmt: Format, mode: Mode, negative: bool) -> list[int]:
    """Bits of the float32 magnitudes from which on the reference gives another magnitude code."""
    rounding = Rounding(mode)

    @cache
    def rank(bits: int) -> int:
        """−1 for what becomes zero, else the magnitude code; the overflown one is the last."""
        code = round_magnitude(Fraction(_number(bits)), negative, fmt, rounding, None)
        return -1 if code is None else min(code, fmt.max_magnitude_code + 1)

    magnitudes = [0.0, *map(fmt.decode, range(fmt.least_magnitude_code, fmt.max_magnitude_code + 1))]
    magnitudes.append(fmt.max + 2.0 ** (fmt.greatest_exponent - fmt.significand_bits))
    points = []
    low = 1
    for below, above in pairwise(magnitudes):
        if rank(low) == rank(_INFINITY - 1):
            break
        low = _first_other(low, _INFINITY - 1, rank, _hints(below, above))
        points.append(low)
    return points


def _hints(below: float, above: float) -> Iterable[int]:
    """Where the switch from one value to the next will be in one of the modes."""
    with np.errstate(over="ignore"):
        middle, left, right = _bits(math.ldexp(below + above, -1)), _bits(below), _bits(above)
    return middle, middle - 1, middle + 1, left + 1, right, right - 1


def _first_other(low: int, high: int, rank: Callable[[int], int], hints: Iterable[int]) -> int:
    """The least integer above `low` with another rank, by bisection that tries the hints first; `high` has one."""
    inside, beyond = low, high
    for hint in hints:
        if inside < hint < beyond:
            inside, beyond = (hint, beyond) if rank(hint) == rank(low) else (inside, hint)
    while beyond - inside > 1:
        middle = (inside + beyond) // 2
        inside, beyond = (middle, beyond) if rank(middle) == rank(low) else (inside, middle)
    return beyond
