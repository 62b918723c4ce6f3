"""Scales as people write them."""

from __future__ import annotations

import math
from fractions import Fraction

from precsim.errors import InputError
from precsim.number.explain import parse_real

__all__ = ["is_power_of_two", "parse_scale"]

_LIMIT = 300
"""Exponents of usable scales lie within ± this: no float64 sinks or overflows on the way of any recorded gradient."""


def is_power_of_two(scale: float) -> bool:
    """Whether a positive number is one."""
    return math.frexp(scale)[0] == 0.5


def parse_scale(text: str) -> float:
    """Read a scale.

    Parameters
    ----------
    text : str
        A positive number such as ``1024``, ``2^10`` or ``1.5``; one that float64 lacks is rounded to it.

    Raises
    ------
    InputError
        If it is none, or outside 2^-300 … 2^300.
    """
    number = parse_real(text)
    if not isinstance(number, int | Fraction) or not Fraction(1, 1 << _LIMIT) <= number <= 1 << _LIMIT:
        raise InputError(
            f"scale {text}: must be a number from 2^-{_LIMIT} to 2^{_LIMIT}, such as 1024 or 2^10"
        )
    return float(number)
