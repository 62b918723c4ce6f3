"""Overflow patterns and the published trace, shared by the tests of scalers."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

PATTERN = [0] * 7 + [1] + [0] * 7 + [1] * 3 + [0] * 7
"""Overflows of the 25 steps on which scalers are compared."""


def bits_of(value: float) -> str:
    """A number's float64 bits, for comparison; NaNs alike."""
    return "nan" if value != value else struct.pack(">d", value).hex()


def pattern_of(data: bytes) -> list[bool]:
    """Eight steps from each byte."""
    return [bool(byte >> bit & 1) for byte in data for bit in range(8)]


patterns = st.binary(min_size=1, max_size=4).map(pattern_of)
"""Overflow sequences of 8 to 32 steps."""
