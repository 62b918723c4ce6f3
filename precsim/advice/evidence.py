"""What recorded gradients can prove: whether their scale is known, and whether a cast came before the capture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from precsim.analyze import TensorResult
from precsim.analyze.scale import is_power_of_two
from precsim.errors import InputError

__all__ = ["FULL", "true_gradients", "unproven"]

FULL = ("float32", "float64")
"""Types that lose nothing of a gradient that matters here."""
_FEWEST = 8
"""Tensors that must move together before a jump is taken for the loss scale's."""


def true_gradients(
    tensors: Sequence[TensorResult], captured_scale: float | None
) -> tuple[list[TensorResult], list[str]]:
    """Gradients without the loss scale that they carry, and what was assumed.

    Parameters
    ----------
    tensors : sequence of TensorResult
    captured_scale : float, optional
        Scale of the files that state none.

    Raises
    ------
    InputError
        For scales that are no powers of two: dividing by them would round.
    """
    notes: list[str] = []
    if captured_scale is not None and not is_power_of_two(captured_scale):
        raise InputError(f"the captured scale must be a power of two, got {captured_scale:g}")
    result = []
    for tensor in tensors:
        scale = tensor.loss_scale if tensor.loss_scale is not None else captured_scale
        if scale is None or scale == 1.0:
            result.append(tensor)
            continue
        if not is_power_of_two(scale):
            raise InputError(
                f"{tensor.path}: gradients carry loss scale {scale:g}, which is no power of two: divide them by it "
                "before they are recorded"
            )
        exponent = math.frexp(scale)[1] - 1
        result.append(replace(tensor, sketch=tensor.sketch.scaled(-exponent)))
    stated = sorted({t.loss_scale for t in tensors if t.loss_scale not in (None, 1.0)}, key=float)
    if stated:
        notes.append(
            f"Divided by the loss scale that the files state: {', '.join(f'{s:g}' for s in stated)}."
        )
    if captured_scale is not None and any(tensor.loss_scale is None for tensor in tensors):
        notes.append(f"Taken as captured with loss scale {captured_scale:g}, as was said.")
    return result, notes


def unproven(tensors: Sequence[TensorResult], captured_scale: float | None) -> list[str]:
    """Why nothing can be said of underflow, in sentences; none if it can."""
    reasons = []
    unknown = {tensor.path for tensor in tensors if tensor.loss_scale is None}
    if unknown and captured_scale is None:
        what = "1 file does" if len(unknown) == 1 else f"{len(unknown)} files do"
        reasons.append(
            f"{what} not say which loss scale the gradients carry: record it (metadata loss_scale), or give "
            "--captured-scale (1 for gradients that were unscaled)."
        )
        jump = scale_jump(tensors)
        if jump is not None:
            before, after, octaves = jump
            reasons.append(
                f"Between steps {before} and {after} all tensors move by 2^{octaves:+d} together: that looks like a "
                "loss scale that changed, so the gradients probably still carry it."
            )
    narrow = sorted({tensor.dtype for tensor in tensors if tensor.dtype not in FULL})
    if narrow and captured_scale is None:
        reasons.append(
            f"Tensors were captured in {', '.join(narrow)}: what that cast flushed can't be seen any more. Record in "
            "float32, before any cast; or give --captured-scale, and take what is flushed as a lower bound."
        )
    return reasons


def scale_jump(tensors: Sequence[TensorResult]) -> tuple[int, int, int] | None:
    """Two successive steps between which all tensors move by one power of two, not 2^0, and which.

    Training moves tensors apart by fractions of octaves; a loss scale that doubles moves all by 1 exactly, on top of
    that. So the moves of the tensors' mean exponents must have a median within 0.1 of a whole number, and three
    quarters of them must lie within 0.25 of it.
    """
    levels: dict[int, dict[str, float]] = {}
    for tensor in tensors:
        if tensor.step is not None and tensor.sketch.nonzero:
            levels.setdefault(tensor.step, {})[tensor.name] = _level(tensor)
    steps = sorted(levels)
    for before, after in pairwise(steps):
        common = levels[before].keys() & levels[after].keys()
        moves = [levels[after][name] - levels[before][name] for name in common]
        if len(moves) < _FEWEST:
            continue
        median = statistics.median(moves)
        whole = round(median)
        near = sum(abs(move - whole) <= 0.25 for move in moves)
        if whole and abs(median - whole) <= 0.1 and 4 * near >= 3 * len(moves):
            return before, after, whole
    return None


def _level(tensor: TensorResult) -> float:
    """Mean exponent of a tensor's nonzero numbers."""
    binades = tensor.sketch.binades()
    return sum(exponent * count for exponent, count in binades.items()) / tensor.sketch.nonzero
