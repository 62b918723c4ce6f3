"""`Outcomes`: what a cast does to how many numbers, and the direct count of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, SupportsFloat

import numpy as np

from precsim.cast.convert import as_floats, encode_by_rule, given_bits
from precsim.cast.operand import Operand, operand
from precsim.cast.overflow import overflows_by_rule
from precsim.cast.rule import randomness, resolve_rule
from precsim.kernels import Source
from precsim.number import Format, Mode, Rounding

__all__ = ["Outcomes", "outcomes"]

_BLOCK = 1 << 16


@dataclass(frozen=True)
class Outcomes:
    """How many numbers end up how in a cast. The fields add up to the number of elements.

    Attributes
    ----------
    zero : int
        Zero in the source.
    flushed : int
        Nonzero in the source, zero in the result.
    subnormal : int
        Subnormal in the result: precision was lost.
    normal : int
        Normal in the result.
    overflowed : int
        Finite in the source; rounded as if the range had no upper end, the magnitude exceeds the greatest finite value
        (IEEE 754-2019, 7.4), whatever the overflow rule then makes of it. Negative numbers in unsigned formats too.
    nonfinite : int
        Infinite or NaN in the source.
    """

    zero: int
    flushed: int
    subnormal: int
    normal: int
    overflowed: int
    nonfinite: int

    @property
    def n(self) -> int:
        """Number of numbers in all."""
        return sum(getattr(self, item.name) for item in fields(self))

    @property
    def nonzero(self) -> int:
        """Number of finite nonzero numbers in the source: what shares are shares of."""
        return self.flushed + self.subnormal + self.normal + self.overflowed

    def share(self, outcome: str) -> float:
        """Share of one outcome among the finite nonzero numbers, 0 … 1; 0 where there are none."""
        count: int = getattr(self, outcome)
        return count / self.nonzero if self.nonzero else 0.0

    def __add__(self, other: Outcomes) -> Outcomes:
        if not isinstance(other, Outcomes):
            return NotImplemented
        return Outcomes(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


def outcomes(
    x: Any,
    fmt: object,
    scale: SupportsFloat | None = None,
    rounding: Rounding | Mode | str = "nearest-even",
    *,
    profile: str | None = None,
    seed: int | None = None,
    random_bits: Any = None,
) -> Outcomes:
    """Cast a tensor's numbers and count what happens to them.

    Takes any scale, any rule and any format, where `Sketch.outcomes` answers from a table for named formats and
    power-of-two scales.

    Parameters
    ----------
    x, fmt, scale, rounding, profile, seed, random_bits
        As for `precsim.encode`.

    Returns
    -------
    Outcomes

    Raises
    ------
    InputError
        As for `precsim.encode`; for a NaN in a format without NaN too.

    Examples
    --------
    >>> import numpy as np, precsim as ps
    >>> ps.outcomes(np.float32([1e-3, 500.0]), ps.E4M3, scale=3.0).overflowed
    1
    """
    source = operand(x)
    rule = resolve_rule(fmt, rounding, profile=profile, random_bits=random_bits, scale=scale)
    bits = given_bits(random_bits, rule, source)
    random = randomness(rule, seed, bits)
    overflowed = overflows_by_rule(source, rule, random)
    codes = encode_by_rule(source, rule, random)
    zero = nonfinite = flushed = subnormal = normal = beyond = 0
    for numbers, is_over, code in _blocks(source, _array(overflowed), _array(codes)):
        finite = np.isfinite(numbers)
        is_zero = numbers == 0
        zero += int(np.count_nonzero(is_zero))
        nonfinite += int(numbers.size - np.count_nonzero(finite))
        rest = finite & ~is_zero
        outside = rest & (is_over | ((numbers < 0) & (not rule.format.signed)))
        magnitude = _magnitudes(code[rest & ~outside], rule.format)
        beyond += int(np.count_nonzero(outside))
        is_flushed = magnitude < rule.format.least_magnitude_code
        is_normal = magnitude >= rule.format.least_normal_code
        flushed += int(np.count_nonzero(is_flushed))
        normal += int(np.count_nonzero(is_normal))
        subnormal += int(magnitude.size - np.count_nonzero(is_flushed | is_normal))
    return Outcomes(zero, flushed, subnormal, normal, beyond, nonfinite)


def _array(result: Any) -> np.ndarray[Any, Any]:
    """A result of a cast as a flat NumPy array."""
    array = result.cpu().numpy() if hasattr(result, "cpu") else np.asarray(result)
    return array.reshape(-1)


def _blocks(
    source: Operand, overflowed: np.ndarray[Any, Any], codes: np.ndarray[Any, Any]
) -> Iterator[tuple[Any, Any, Any]]:
    """Blocks of the source's numbers, with what became of them."""
    for chunk, first in source.chunks():
        for start in range(0, len(chunk.data), _BLOCK):
            part = Source(chunk.data[start : start + _BLOCK], chunk.format)
            numbers = part.data if part.format is None else as_floats(source, part)
            numbers = numbers if isinstance(numbers, np.ndarray) else numbers.cpu().numpy()
            place = slice(first + start, first + start + len(numbers))
            yield numbers, overflowed[place], codes[place]


def _magnitudes(codes: np.ndarray[Any, Any], fmt: Format) -> np.ndarray[Any, Any]:
    """Codes without their signs."""
    wide = codes.astype(np.int64)
    if fmt.twos_complement:
        return np.where(wide & fmt.sign_bit, (1 << fmt.bits) - wide, wide)
    return wide & ~fmt.sign_bit
