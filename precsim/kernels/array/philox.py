"""Philox4x32-10, the counter-based generator of stochastic rounding, on arrays of 64-bit integers.

Salmon, Moraes, Dror and Shaw 2011, Parallel Random Numbers: As Easy as 1, 2, 3, section 3.3. Written with additions
and shifts on signed integers, since torch has no unsigned multiplication: a 32 × 32-bit product is put together from
16-bit halves of the constant.
"""

from __future__ import annotations

from typing import Any

__all__ = ["philox", "philox_words"]

Words = tuple[Any, Any, Any, Any]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def philox_words(block: Any, seed: int) -> Words:
    """The four 32-bit words of each block of a stream.

    Parameters
    ----------
    block : int64 array
        Block numbers, 0 … 2^62.
    seed : int
        0 … 2^64 − 1.

    Returns
    -------
    tuple of four int64 arrays
        Words, 0 … 2^32 − 1.
    """
    return philox((block & _MASK, block >> 32, block & 0, block & 0), seed)


def philox(counter: Words, seed: int) -> Words:
    """Ten rounds on four counter words (int64 arrays, 0 … 2^32 − 1), the seed's halves being the key."""
    words = counter
    key = [seed & _MASK, seed >> 32]
    for _ in range(10):
        high0, low0 = _product(words[0], _MULTIPLIERS[0])
        high1, low1 = _product(words[2], _MULTIPLIERS[1])
        words = (high1 ^ words[1] ^ key[0], low1, high0 ^ words[3] ^ key[1], low0)
        key = [(key[0] + _WEYL[0]) & _MASK, (key[1] + _WEYL[1]) & _MASK]
    return words


def _product(x: Any, constant: int) -> tuple[Any, Any]:
    """High and low half of x·constant; no partial product reaches 2^49."""
    by_low = x * (constant & 0xFFFF)
    by_high = x * (constant >> 16) + (by_low >> 16)
    return by_high >> 16, ((by_high & 0xFFFF) << 16) | (by_low & 0xFFFF)
