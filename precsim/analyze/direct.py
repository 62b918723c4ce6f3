"""Outcomes that a sketch can't tell, from the numbers themselves."""

from __future__ import annotations

import numpy as np

from precsim.kernels import Engine, Source
from precsim.number import NAMED_FORMATS, Format
from precsim.sketches import Outcomes, outcomes

__all__ = ["direct_outcomes"]

_IN_FULL = (NAMED_FORMATS["fp32"], NAMED_FORMATS["fp64"])


def direct_outcomes(source: Source, fmt: Format, scale: float, engine: Engine) -> Outcomes:
    """What a cast to nearest even does to a chunk of floats, at any scale."""
    numbers = source.data
    if source.format is not None and source.format not in _IN_FULL:
        numbers = np.empty(len(source.data), np.float32)
        engine.decode(source.data, source.format, numbers)
    # Formats without NaN refuse to encode one; here it is counted, not cast.
    finite = numbers[np.isfinite(numbers)]
    unfit = len(numbers) - len(finite)
    return outcomes(finite, fmt, scale) + Outcomes(0, 0, 0, 0, 0, unfit)
