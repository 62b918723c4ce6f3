"""Tensors and numbers that are set apart: rounding noise and dead channels must not drive advice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from precsim.analyze import TensorResult
from precsim.analyze.dead import EPS_BITS, GAP, dead_below

__all__ = ["SetApart", "set_apart"]

_FEWEST_SIBLINGS = 3


@dataclass(frozen=True)
class SetApart:
    """What advice leaves out.

    Attributes
    ----------
    name : str
    steps : tuple of int
        Training steps at which it was seen, where they are known.
    kind : {"noise", "dead"}
        A whole tensor of rounding noise, or a few numbers of a tensor.
    numbers : int
        How many numbers, over all steps.
    reason : str
        One line.
    """

    name: str
    steps: tuple[int, ...]
    kind: str
    numbers: int
    reason: str


def set_apart(tensors: Iterable[TensorResult]) -> tuple[list[TensorResult], list[SetApart]]:
    """Tensors without noise and without their dead numbers, and what was left out.

    *Noise* is a tensor all of whose magnitudes lie below float32's eps times the greatest one of its siblings: the
    others of the same module (at least three) in the same file. A sum of terms of that size that cancels, such as the
    gradient of an attention key's bias, is made of its rounding errors.

    *Dead* are numbers of a tensor below eps times its greatest one, apart from all others by 16 empty binades, at most
    one in a hundred: channels that a checkpoint no longer uses.
    """
    every = list(tensors)
    greatest = _sibling_amax(every)
    kept: list[TensorResult] = []
    found: dict[tuple[str, str], list[tuple[TensorResult, int, str]]] = {}
    for tensor in every:
        sketch, siblings = tensor.sketch, greatest.get(id(tensor), 0.0)
        if sketch.nonzero and sketch.amax < math.ldexp(siblings, -EPS_BITS):
            reason = (
                f"amax {sketch.amax:.1e} beside {siblings:.1e} in the same module: below float32's eps of it"
            )
            found.setdefault((tensor.name, "noise"), []).append((tensor, sketch.nonzero, reason))
            continue
        cut = dead_below(sketch)
        if cut is not None:
            alive = sketch.without_binades_below(cut)
            dead = sketch.nonzero - alive.nonzero
            reason = f"{dead} of {sketch.nonzero:,} below 2^{cut - 1}, apart from the others by {GAP} binades or more"
            found.setdefault((tensor.name, "dead"), []).append((tensor, dead, reason))
            tensor = replace(tensor, sketch=alive)
        kept.append(tensor)
    if not any(tensor.sketch.nonzero for tensor in kept):
        return every, []
    return kept, [_summary(name, kind, cases) for (name, kind), cases in found.items()]


def _summary(name: str, kind: str, cases: list[tuple[TensorResult, int, str]]) -> SetApart:
    steps = sorted({tensor.step for tensor, _, _ in cases if tensor.step is not None})
    most = max(cases, key=lambda case: case[0].sketch.amax if kind == "noise" else case[1])
    return SetApart(name, tuple(steps), kind, sum(numbers for _, numbers, _ in cases), most[2])


def _sibling_amax(tensors: list[TensorResult]) -> dict[int, float]:
    """Greatest magnitude among a tensor's siblings, where it has enough of them."""
    families: dict[tuple[str, str, int | None], list[TensorResult]] = {}
    for tensor in tensors:
        if "." in tensor.name:
            families.setdefault((str(tensor.path), tensor.name.rsplit(".", 2)[0], tensor.step), []).append(
                tensor
            )
    return {
        id(tensor): max(other.sketch.amax for other in family)
        for family in families.values()
        if len(family) > _FEWEST_SIBLINGS
        for tensor in family
    }
