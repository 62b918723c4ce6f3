"""An analysis as JSON and CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import IO, Any

from precsim.analyze import Analysis, FormatResult, Group, TensorResult
from precsim.sketches import Outcomes, Sketch, Window

__all__ = ["SCHEMA", "analysis_to_dict", "write_analysis_csv"]

SCHEMA = "precsim.analyze/1"
"""Name and version of the JSON layout; a change that readers could notice gets a new number."""


def analysis_to_dict(analysis: Analysis) -> dict[str, Any]:
    """Everything that an analysis holds, as plain JSON values: counts as integers, no number rounded."""
    return {
        "schema": SCHEMA,
        "scales": list(analysis.scales),
        "max_flushed": float(analysis.max_flushed),
        "evidence": asdict(analysis.evidence),
        "total": _group(analysis.total),
        "groups": [_group(group) for group in analysis.groups],
        "tensors": [
            {
                "name": tensor.name,
                "path": str(tensor.path),
                "dtype": tensor.dtype,
                "group": tensor.group,
                "numel_full": tensor.numel_full,
                **_numbers(tensor.sketch),
            }
            for tensor in analysis.total.tensors
        ],
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "tensors": len(group.tensors),
        **_numbers(group.sketch),
        "formats": [_format(result) for result in group.formats],
    }


def _numbers(sketch: Sketch) -> dict[str, Any]:
    return {
        "elements": sketch.n,
        "zeros": sketch.zeros,
        "nonzero": sketch.nonzero,
        "nonfinite": sketch.nonfinite,
        "amax": sketch.amax if sketch.nonzero else None,
        "amin": sketch.amin if math.isfinite(sketch.amin) else None,
        "binades": {str(exponent): number for exponent, number in sketch.binades().items()},
    }


def _format(result: FormatResult) -> dict[str, Any]:
    return {
        "format": result.format.name,
        "outcomes": [{"scale": scale, **asdict(outcomes)} for scale, outcomes in result.outcomes.items()],
        "window": _window(result.window),
        "largest": _place(result.largest),
        "most_flushed": _place(result.most_flushed),
    }


def _place(tensor: TensorResult | None) -> dict[str, str] | None:
    return None if tensor is None else {"name": tensor.name, "path": str(tensor.path)}


def _window(window: Window) -> dict[str, Any]:
    return {"low": window.low, "high": window.high, "octaves": window.octaves, "usable": bool(window)}


def write_analysis_csv(analysis: Analysis, file: IO[str]) -> None:
    """One row for each group (and all together), format and scale."""
    writer = csv.writer(file, lineterminator="\n")
    fields = list(Outcomes.__dataclass_fields__)
    writer.writerow(["group", "tensors", "elements", "format", "scale", *fields, "window_low", "window_high"])
    writer.writerows(_rows(analysis))


def _rows(analysis: Analysis) -> Iterator[list[object]]:
    for group in (*analysis.groups, analysis.total):
        for result in group.formats:
            for scale, outcomes in result.outcomes.items():
                window = result.window
                ends = [window.low, window.high] if window else [None, None]
                yield [
                    group.name,
                    len(group.tensors),
                    group.sketch.n,
                    result.format.name,
                    scale,
                    *asdict(outcomes).values(),
                    *ends,
                ]
