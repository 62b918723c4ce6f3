"""Numbers of a tensor that no longer take part: far below all others, and few."""

from __future__ import annotations

from itertools import pairwise

from precsim.sketches import Sketch

__all__ = ["EPS_BITS", "GAP", "dead_below"]

EPS_BITS = 23
"""float32's eps is 2^-23: gradients are summed in float32 at best."""
GAP = 16
"""Empty binades between a tensor's dead numbers and its others."""
_MOST = 100
"""Dead numbers are at most one in so many of a tensor's nonzero ones."""


def dead_below(sketch: Sketch) -> int | None:
    """The binade below which a tensor's numbers are dead; None if none are.

    They lie below float32's eps times the greatest magnitude, apart from all others by `GAP` empty binades, and are at
    most one in a hundred.
    """
    binades = sorted(sketch.binades().items())
    if not binades:
        return None
    below, allowed = 0, sketch.nonzero // _MOST
    eps = binades[-1][0] - EPS_BITS
    cut = None
    for (exponent, count), (following, _) in pairwise(binades):
        below += count
        if below > allowed or exponent >= eps:
            break
        if following - exponent > GAP:
            cut = exponent + 1
    return cut
