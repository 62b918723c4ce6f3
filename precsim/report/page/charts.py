"""Vega-Lite specifications by Altair; the page's script fills in the data."""

from __future__ import annotations

from typing import Any

__all__ = ["chart_specs"]

# Okabe and Ito's colours, told apart by people with any colour vision; dashes and labels say the same once more.
FLUSHED, SUBNORMAL, OVERFLOWED, FULL, BAR = "#0072B2", "#CC79A7", "#D55E00", "#009E73", "#56B4E9"
OUTCOMES = ["flushed", "subnormal", "overflow"]


def chart_specs() -> dict[str, Any]:
    """Specifications by name."""
    import altair as alt

    alt.data_transformers.disable_max_rows()
    return {
        "histogram": _histogram(alt),
        "curve": _curve(alt),
        "movement": _movement(alt),
        "cells": _cells(alt),
    }


def _spec(chart: Any) -> dict[str, Any]:
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("config", None)
    return spec


def _histogram(alt: Any) -> dict[str, Any]:
    x = alt.X(
        "from:Q",
        title="log2 |x · scale|",
        scale=alt.Scale(nice=False, zero=False),
        axis=alt.Axis(tickMinStep=1),
    )
    bars = (
        alt.Chart(alt.NamedData("bars"))
        .mark_bar(color=BAR, clip=True, orient="vertical")
        .encode(
            x=x,
            x2="to:Q",
            y=alt.Y("count:Q", title="numbers per binade", axis=alt.Axis(format="~s", tickCount=4)),
            y2=alt.datum(0),
            tooltip=[
                alt.Tooltip("from:Q", title="from 2^"),
                alt.Tooltip("count:Q", title="numbers", format=","),
            ],
        )
    )
    # The ranges have a band of their own above the bars: rows in pixels, so that both share one x axis.
    ranges = alt.Chart(alt.NamedData("ranges"))
    line = {"clip": True}
    y = alt.Y("pixel:Q", scale=None, axis=None)
    normal = ranges.mark_rule(strokeWidth=5, color=FULL, **line).encode(x="normal:Q", x2="greatest:Q", y=y)
    subnormal = ranges.mark_rule(strokeWidth=2, strokeDash=[4, 3], color=SUBNORMAL, **line).encode(
        x="least:Q", x2="normal:Q", y=y
    )
    label = ranges.mark_text(align="left", fontSize=11).encode(x=alt.value(3), y=y, text="name:N")
    chart = alt.layer(bars, normal, subnormal, label).resolve_scale(y="independent")
    return _spec(chart.properties(width="container", height=300))


def _curve(alt: Any) -> dict[str, Any]:
    x = alt.X("k:Q", title="loss scale 2^k", scale=alt.Scale(domain=[-40, 40]), axis=alt.Axis(tickMinStep=1))
    window = (
        alt.Chart(alt.NamedData("window"))
        .mark_rect(color=FULL, opacity=0.16, clip=True)
        .encode(x=alt.X("low:Q", scale=alt.Scale(domain=[-40, 40])), x2="high:Q")
    )
    lines = (
        alt.Chart(alt.NamedData("points"))
        .mark_line(strokeWidth=2)
        .encode(
            x=x,
            y=alt.Y(
                "share:Q",
                title="share of nonzero",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%", tickCount=4),
            ),
            color=alt.Color(
                "outcome:N",
                scale=alt.Scale(domain=OUTCOMES, range=[FLUSHED, SUBNORMAL, OVERFLOWED]),
                legend=alt.Legend(title=None, orient="top"),
            ),
            strokeDash=alt.StrokeDash(
                "outcome:N",
                scale=alt.Scale(domain=OUTCOMES, range=[[1, 0], [6, 3], [2, 2]]),
                legend=alt.Legend(title=None, orient="top"),
            ),
            tooltip=[
                alt.Tooltip("k:Q", title="scale 2^"),
                "outcome:N",
                alt.Tooltip("label:N", title="share"),
            ],
        )
    )
    rules = (
        alt.Chart(alt.NamedData("rules"))
        .mark_rule(strokeWidth=1.5, color="#808890")
        .encode(
            x="k:Q",
            strokeDash=alt.StrokeDash(
                "what:N",
                scale=alt.Scale(domain=["slider", "recommended"], range=[[2, 3], [1, 0]]),
                legend=None,
            ),
        )
    )
    labels = (
        alt.Chart(alt.NamedData("rules"))
        .mark_text(align="left", dx=4, fontSize=11)
        .encode(x="k:Q", y=alt.value(10), text="text:N")
    )
    chart = alt.layer(window, lines, rules, labels).resolve_scale(
        color="independent", strokeDash="independent"
    )
    return _spec(chart.properties(width="container", height=190))


def _movement(alt: Any) -> dict[str, Any]:
    base = alt.Chart(alt.NamedData("steps"))
    x = alt.X("step:Q", title="training step", scale=alt.Scale(nice=False))
    y = alt.Y("low:Q", title="usable scales 2^k", scale=alt.Scale(zero=False))
    band = base.mark_area(opacity=0.25, color=FULL).encode(x=x, y=y, y2="high:Q")
    tips = [
        alt.Tooltip("step:Q", title="step"),
        alt.Tooltip("text:N", title="usable scales"),
    ]
    high = base.mark_line(
        point=alt.OverlayMarkDef(shape="triangle-down", size=60, color=OVERFLOWED), color=OVERFLOWED
    ).encode(x=x, y="high:Q", tooltip=tips)
    low = base.mark_line(
        point=alt.OverlayMarkDef(shape="triangle-up", size=60, color=FLUSHED),
        color=FLUSHED,
        strokeDash=[6, 3],
    ).encode(x=x, y=y, tooltip=tips)
    return _spec(alt.layer(band, high, low).properties(width="container", height=220))


def _cells(alt: Any) -> dict[str, Any]:
    chart = (
        alt.Chart(alt.NamedData("cells"))
        .mark_rect()
        .encode(
            x=alt.X("step:O", title="training step", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("tensor:N", title=None, sort=None, axis=alt.Axis(labelLimit=170, labelFontSize=10)),
            color=alt.Color(
                "value:Q",
                scale=alt.Scale(scheme="viridis"),
                legend=alt.Legend(title=None, orient="top", gradientLength=180),
            ),
            tooltip=["tensor:N", "step:O", alt.Tooltip("label:N", title="value")],
        )
    )
    return _spec(chart.properties(width="container"))
