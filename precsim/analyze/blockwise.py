"""Outcomes where each block of a tensor has its own power-of-two scale, as large as nothing in it overflows."""

from __future__ import annotations

import numpy as np

from precsim.analyze.direct import as_numbers
from precsim.kernels import Engine, Source
from precsim.number import Format, Mode
from precsim.sketches import Outcomes, sketch
from precsim.sketches.edges import split
from precsim.sketches.thresholds import thresholds

__all__ = ["BLOCK", "blockwise_outcomes"]

BLOCK = 128
"""Neighbouring elements, in C order, that share a scale (DeepSeek-V3's activations; arXiv 2412.19437, section 3.3)."""


def blockwise_outcomes(
    source: Source, fmt: Format, engine: Engine, *, dead_below: int | None = None
) -> Outcomes:
    """What a cast to nearest even does to a chunk of floats, block by block.

    Chunks of a large tensor begin at multiples of the block. Nonzero numbers below 2^dead_below are left out.
    """
    numbers = np.abs(np.asarray(as_numbers(source, engine), np.float64))
    nonfinite = int(numbers.size - np.count_nonzero(np.isfinite(numbers)))
    numbers = np.where(np.isfinite(numbers), numbers, 0.0)
    dead = 0
    if dead_below is not None:
        is_dead = (numbers > 0) & (numbers < np.ldexp(1.0, dead_below))
        dead, numbers = int(is_dead.sum()), np.where(is_dead, 0.0, numbers)
    blocks = np.pad(numbers, (0, -numbers.size % BLOCK)).reshape(-1, BLOCK)
    greatest = blocks.max(axis=1)
    limit = thresholds(fmt, Mode.NEAREST_EVEN, False).overflow
    limit_exponent, limit_significand = split(limit.value)
    halves, exponents = np.frexp(greatest)  # significands in [1/2, 1)
    edge = float(limit_significand) / 2
    fits = (halves < edge) | ((halves == edge) & (not limit.inclusive))
    top = np.where(greatest > 0, limit_exponent - (exponents - 1) - ~fits, 0)
    scaled = np.ldexp(blocks, top[:, None])
    total = sketch(scaled, errors=False).outcomes(fmt)
    left_out = blocks.size - numbers.size + nonfinite + dead
    return Outcomes(
        total.zero - left_out,
        total.flushed,
        total.subnormal,
        total.normal,
        total.overflowed,
        nonfinite,
    )
