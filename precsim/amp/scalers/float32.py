"""float32 arithmetic on Python floats, without NumPy's warnings and without its import.

A product, quotient or sum of two float32 numbers that is taken in float64 and rounded once more is the correctly
rounded float32 one: float64 has 53 significand bits, and 2·24 + 2 suffice (Figueroa 1995, "When is double rounding
innocuous?").
"""

from __future__ import annotations

import math
import struct

__all__ = ["FLOAT32_MAX", "reciprocal32", "to_float16", "to_float32"]

FLOAT32_MAX = (2.0 - 2.0**-23) * 2.0**127

_SINGLE = struct.Struct("<f")
_HALF = struct.Struct("<e")


def _rounded(value: float, target: struct.Struct) -> float:
    try:
        result: float = target.unpack(target.pack(value))[0]
    except OverflowError:  # raised where a finite number would become infinite
        return math.copysign(math.inf, value)
    return result


def to_float32(value: float) -> float:
    """The float32 nearest to a number, ties to even; infinite beyond its range."""
    return _rounded(value, _SINGLE)


def to_float16(value: float) -> float:
    """The float16 nearest to a number, ties to even; infinite beyond its range."""
    return _rounded(value, _HALF)


def reciprocal32(scale: float) -> float:
    """What torch multiplies gradients with: 1/scale taken in float64 and rounded to float32 (1/0 is infinite)."""
    return to_float32(1.0 / scale) if scale else math.copysign(math.inf, scale)
