"""Outcomes that a sketch can't tell, from the numbers themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from precsim.kernels import Engine, Source
from precsim.number import NAMED_FORMATS, Format
from precsim.sketches import Outcomes, outcomes

__all__ = ["as_numbers", "direct_outcomes"]

_IN_FULL = (NAMED_FORMATS["fp32"], NAMED_FORMATS["fp64"])


def as_numbers(source: Source, engine: Engine) -> Any:
    """A chunk of floats as float32 or float64 numbers."""
    if source.format is None or source.format in _IN_FULL:
        return source.data
    numbers = np.empty(len(source.data), np.float32)
    engine.decode(source.data, source.format, numbers)
    return numbers


def direct_outcomes(source: Source, fmt: Format, scale: float, engine: Engine) -> Outcomes:
    """What a cast to nearest even does to a chunk of floats, at any scale."""
    numbers = as_numbers(source, engine)
    # Formats without NaN refuse to encode one; here it is counted, not cast.
    finite = numbers[np.isfinite(numbers)]
    unfit = len(numbers) - len(finite)
    return outcomes(finite, fmt, scale) + Outcomes(0, 0, 0, 0, 0, unfit)
