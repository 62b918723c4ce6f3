"""A static picture: histogram of magnitudes and S-curves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precsim.analyze import Analysis
from precsim.errors import InputError
from precsim.number import Format
from precsim.sketches import Curve

__all__ = ["plot_curves"]

_LOWEST, _HIGHEST = -40, 40
_OUTCOMES = {"flushed": "flushed", "subnormal": "subnormal", "overflow": "overflowed"}


def plot_curves(
    analysis: Analysis, path: str | os.PathLike[str], *, marks: Mapping[str, int] | None = None
) -> None:
    """Draw all tensors together: their magnitudes with the formats' ranges, and outcomes by loss scale.

    Parameters
    ----------
    analysis : Analysis
    path : path_like
        A .png or .svg file.
    marks : mapping of str to int
        Exponents of advised scales by format name.

    Raises
    ------
    InputError
        For another suffix, if the file can't be written, or without the packages of ``precsim[report]``.
    """
    target = Path(path)
    if target.suffix.lower() not in (".png", ".svg"):
        raise InputError(f"{target}: a plot is a .png or .svg file")
    try:
        import altair  # noqa: F401 (is it there?)
        import vl_convert
    except ImportError as error:
        raise InputError(f"a plot needs {error.name}: pip install 'precsim[report]'") from error
    spec = _spec(analysis, marks or {})
    if target.suffix.lower() == ".svg":
        content = vl_convert.vegalite_to_svg(spec).encode()
    else:
        content = vl_convert.vegalite_to_png(spec, scale=2)
    try:
        target.write_bytes(content)
    except OSError as error:
        raise InputError(f"{target}: can't be written: {error.strerror}") from error


def _spec(analysis: Analysis, marks: Mapping[str, int]) -> dict[str, Any]:
    """The page's charts with their data, one below the other."""
    from precsim.report.page.charts import chart_specs

    specs, total = chart_specs(), analysis.total
    binades = total.sketch.binades()
    first, last = _domain(analysis)
    histogram = {
        **specs["histogram"],
        "width": 640,
        "title": f"{total.sketch.nonzero:,} nonzero numbers, scale 1",
    }
    bars = [{"from": e, "to": e + 1, "count": n} for e, n in binades.items() if first <= e < last]
    peak = max(binades.values(), default=1)
    layers = histogram["layer"]
    layers[0]["encoding"]["x"]["scale"] = {"domain": [first, last], "nice": False}
    band = (10 + 16 * len(total.formats)) / histogram["height"]
    layers[0]["encoding"]["y"]["scale"] = {"domain": [0, peak / (0.98 - band)], "nice": False}
    ranges = [_range(result.format, i, first + 5, last) for i, result in enumerate(total.formats)]
    _fill(histogram, {"bars": bars, "ranges": ranges})
    rows: list[Any] = [histogram]
    for result in total.formats:
        curve = total.sketch.curve(result.format, _LOWEST, _HIGHEST)
        window = result.window
        low = _LOWEST if window.low is None else max(window.low, _LOWEST)
        high = _HIGHEST if window.high is None else min(window.high, _HIGHEST)
        shaded = [{"low": low, "high": high}] if window and low <= high else []
        mark = marks.get(result.format.name)
        rules = [] if mark is None else [{"k": mark, "what": "recommended", "text": f"advised 2^{mark}"}]
        chart = {
            **_copy(specs["curve"]),
            "width": 640,
            "title": f"{result.format.name}: {'usable scales ' if window else ''}{window}",
        }
        _fill(chart, {"points": _points(curve), "window": shaded, "rules": rules})
        rows.append(chart)
    return {
        "$schema": specs["curve"]["$schema"],
        "vconcat": rows,
        "resolve": {
            "scale": {
                "color": "independent",
                "strokeDash": "independent",
                "x": "independent",
                "y": "independent",
            }
        },
        "config": {"view": {"stroke": None}, "background": "white"},
    }


def _domain(analysis: Analysis) -> tuple[int, int]:
    binades = sorted(analysis.total.sketch.binades())
    low = min([-30, *(max(e, -60) for e in binades[:1])]) - 6
    high = max([20, *(min(e + 1, 60) for e in binades[-1:])]) + 2
    return low, high


def _range(fmt: Format, row: int, low: int, high: int) -> dict[str, Any]:
    import math

    def inside(value: float) -> float:
        return min(max(math.log2(value), low), high)

    return {
        "name": fmt.name,
        "pixel": 10 + 16 * row,
        "least": inside(fmt.smallest_subnormal),
        "normal": inside(fmt.smallest_normal),
        "greatest": inside(fmt.max),
    }


def _points(curve: Curve) -> list[dict[str, Any]]:
    return [
        {"k": k, "outcome": shown, "share": outcomes.share(name), "label": ""}
        for k, outcomes in zip(curve.exponents, curve.outcomes, strict=True)
        for shown, name in _OUTCOMES.items()
    ]


def _copy(spec: dict[str, Any]) -> dict[str, Any]:
    import copy

    return copy.deepcopy(spec)


def _fill(spec: dict[str, Any], data: Mapping[str, list[dict[str, Any]]]) -> None:
    """Put rows in place of the names of data."""
    for layer in spec["layer"]:
        layer["data"] = {"values": data[layer["data"]["name"]]}
    spec.pop("$schema", None)
    spec.pop("data", None)
