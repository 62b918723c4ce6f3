"""What the page holds: counts by binade and by those bins that the shown formats tell apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from precsim.analyze import Analysis, TensorResult
from precsim.errors import InputError
from precsim.number import Format, Mode
from precsim.sketches import Sketch, Window
from precsim.sketches.sketch import first_place
from precsim.sketches.thresholds import Limit, thresholds

__all__ = ["page_data"]

MOST_CELLS = 20_000
"""Cells of the picture of tensors and steps; beyond that the tensors with the most flushed are shown."""


def page_data(analysis: Analysis, marks: Mapping[str, int]) -> dict[str, Any]:
    """Everything that the page's script reads, as JSON values.

    An *item* is a group of tensors, or one tensor over all steps: ``first`` is its first row's binade, ``rows`` has
    for each binade the counts of magnitudes by class; class c holds those at or above cut c of its binade and below cut
    c + 1. A format's limit is a binade and a class from which on its outcome changes. ``negative`` has the rows of
    negative numbers where an unsigned format is shown.
    """
    formats = [result.format for result in analysis.total.formats]
    cuts = _cuts(formats)
    split = any(not fmt.signed for fmt in formats)
    several = len(analysis.groups) > 1
    groups = [analysis.total, *(analysis.groups if several else ())]
    tensors = _by_name(analysis.total.tensors)
    return {
        "formats": [_format(fmt, cuts) for fmt in formats],
        "groups": [
            {
                "name": group.name if several else "all tensors",
                **_item(group.sketch, cuts, split),
                "windows": [_window(result.window) for result in group.formats],
            }
            for group in groups
        ],
        "tensors": [
            {
                "name": name,
                "dtype": found[0].dtype,
                "steps": len({tensor.step for tensor in found}),
                **_item(total, cuts, split),
                "windows": [_window(total.window(fmt, analysis.max_flushed, 1)) for fmt in formats],
            }
            for name, found, total in tensors
        ],
        "cells": _cells(tensors, formats),
        "movement": [
            {"step": step, "format": result.format.name, **_window(result.window)}
            for step, group in analysis.steps
            for result in group.formats
        ],
        "marks": dict(marks),
        "max_flushed": float(analysis.max_flushed),
    }


def _by_name(tensors: Iterable[TensorResult]) -> list[tuple[str, list[TensorResult], Sketch]]:
    """Tensors with their sketches over all steps, in order of appearance."""
    names: dict[str, list[TensorResult]] = {}
    for tensor in tensors:
        names.setdefault(tensor.name, []).append(tensor)
    return [
        (name, found, sum((replace(t.sketch, moments=None) for t in found), Sketch()))
        for name, found in names.items()
    ]


def _limits(fmt: Format) -> dict[str, Limit | None]:
    limits = thresholds(fmt, Mode.NEAREST_EVEN, False)
    return {"nonzero": limits.nonzero, "normal": limits.normal, "overflow": limits.overflow}


def _place(limit: Limit, fmt: Format) -> tuple[int, int]:
    place = first_place(limit)
    if place is None:
        raise InputError(f"a page can't show format {fmt.name}: its thresholds are not resolved by sketches")
    return place


def _cuts(formats: Sequence[Format]) -> list[int]:
    """Bins at which some shown format's outcome changes."""
    return sorted(
        {_place(limit, fmt)[1] for fmt in formats for limit in _limits(fmt).values() if limit is not None}
    )


def _format(fmt: Format, cuts: Sequence[int]) -> dict[str, Any]:
    places = {
        name: None if limit is None else [_place(limit, fmt)[0], cuts.index(_place(limit, fmt)[1]) + 1]
        for name, limit in _limits(fmt).items()
    }
    return {
        "name": fmt.name,
        "signed": fmt.signed,
        "places": places,
        "log2_least": math.log2(fmt.smallest_subnormal),
        "log2_normal": math.log2(fmt.smallest_normal),
        "log2_greatest": math.log2(fmt.max),
    }


def _item(sketch: Sketch, cuts: Sequence[int], split: bool) -> dict[str, Any]:
    starts = np.array([0, *cuts])
    # reduceat sums from each start to the next; a start at 0 would make the first class empty and is left out.
    classes = (
        np.add.reduceat(sketch.counts, starts, axis=2) if sketch.counts.shape[1] else sketch.counts[:, :, :0]
    )
    if cuts and cuts[0] == 0 and sketch.counts.shape[1]:
        classes[:, :, 0] = 0
    item: dict[str, Any] = {
        "elements": sketch.n,
        "zeros": sketch.zeros,
        "nonfinite": sketch.nonfinite,
        "nonzero": sketch.nonzero,
        "amax": sketch.amax if sketch.nonzero else None,
        "amin": sketch.amin if sketch.nonzero else None,
        "first": sketch.least_exponent,
        "rows": classes.sum(axis=0).tolist(),
    }
    if split:
        item["negative"] = classes[1].tolist()
    return item


def _window(window: Window) -> dict[str, Any]:
    return {"low": window.low, "high": window.high, "usable": bool(window), "text": str(window)}


def _cells(
    tensors: Sequence[tuple[str, list[TensorResult], Sketch]], formats: Sequence[Format]
) -> dict[str, Any]:
    """For each tensor and step log2 of the greatest magnitude, and the share that each format flushes at scale 1."""
    steps = sorted({tensor.step for _, found, _ in tensors for tensor in found if tensor.step is not None})
    if len(steps) < 2:
        return {"steps": steps, "tensors": [], "amax": [], "flushed": {}, "left_out": 0}
    most = max(1, MOST_CELLS // len(steps))
    order = range(len(tensors))
    if len(tensors) > most:
        worst = sorted(order, key=lambda i: -tensors[i][2].outcomes(formats[0]).share("flushed"))
        order = sorted(worst[:most])  # type: ignore[assignment]
    column = {step: i for i, step in enumerate(steps)}
    amax: list[list[float | None]] = []
    flushed: dict[str, list[list[float | None]]] = {fmt.name: [] for fmt in formats}
    for i in order:
        by_step: list[Sketch] = [Sketch() for _ in steps]
        for tensor in tensors[i][1]:
            if tensor.step is not None:
                by_step[column[tensor.step]] += replace(tensor.sketch, moments=None)
        amax.append([round(math.log2(s.amax), 2) if s.amax else None for s in by_step])
        for fmt in formats:
            flushed[fmt.name].append(
                [_short(s.outcomes(fmt).share("flushed")) if s.n else None for s in by_step]
            )
    return {
        "steps": steps,
        "tensors": list(order),
        "amax": amax,
        "flushed": flushed,
        "left_out": len(tensors) - len(amax),
    }


def _short(share: float) -> float:
    """Three significant digits: a colour needs no more."""
    return float(f"{share:.3g}")
