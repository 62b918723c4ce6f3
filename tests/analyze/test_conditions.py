"""`--fail-if` conditions: what they mean and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

import precsim as ps
from precsim.analyze import analyze, parse_condition, parse_scale


@pytest.fixture
def analysis(tmp_path):
    """grad/low loses 1 of 1000 nonzero numbers in FP16; grad/high overflows in one of 10, at 2^4 in all."""
    low = np.float32([0.0, 2.0**-30] + 999 * [1.0])
    high = np.float32(9 * [2.0**14] + [1e6])
    save_file({"grad/low": low, "grad/high": high}, tmp_path / "x.safetensors")
    return analyze(ps.open_run(tmp_path), [ps.FP16, ps.BF16], scales=(1.0, 2.0**4), group_by="tensor")


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("flushed(fp16, scale=1)>=0.1%", {"grad/low"}),
        ("flushed(fp16, scale=1)>0.1%", set()),
        ("flushed(fp16,scale=2^0)>0", {"all", "grad/low"}),
        ("flushed(fp16)<=1", {"all", "grad/low", "grad/high"}),
        ("flushed(fp16, scale=2^10)>0", set()),
        ("overflowed(fp16, scale=1)>=10%", {"grad/high"}),
        ("overflowed(fp16)>=100%", {"grad/high"}),  # at 2^4, the last scale asked for
        ("overflowed ( FP16 ) >= 1e1", {"all", "grad/high"}),
        ("subnormal(fp16, scale=2^-20)>50%", {"all", "grad/low"}),
        ("overflowed(bfloat16)>0", set()),
        ("window(fp16)<20", set()),
        ("window(fp16)<23", {"all"}),
        ("window(fp16)<=1000", {"all", "grad/low", "grad/high"}),
    ],
)
def test_conditions_hold_for(analysis, text, groups):
    assert set(parse_condition(text).failures(analysis)) == groups


def test_what_is_not_finite_has_no_window(tmp_path):
    save_file({"x": np.float32([1.0, np.nan])}, tmp_path / "x.safetensors")
    analysis = analyze(ps.open_run(tmp_path), [ps.FP16])
    assert parse_condition("window(fp16)<1").failures(analysis) == ["all"]


def test_negative_numbers_have_no_window_in_unsigned_formats(tmp_path):
    save_file({"x": np.float32([1.0, -1.0])}, tmp_path / "x.safetensors")
    analysis = analyze(ps.open_run(tmp_path), [ps.E8M0])
    assert parse_condition("window(e8m0)<1").failures(analysis) == ["all"]
    assert str(analysis.total.formats[0].window) == "no window (negative numbers)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flushed",
        "flushed(fp16)",
        "flushed(fp16)=1",
        "flushed(fp16)>-1",
        "flushed(fp16)>1e9999",
        "lost(fp16)>1",
        "window(fp16)<4%",
        "window(fp16, scale=2)<4",
        "flushed(fp16)>1; import os",
        "flushed(fp16)>0.1% and flushed(bf16)>0",
    ],
)
def test_other_texts_are_refused_with_an_example(text):
    with pytest.raises(ps.InputError, match="is not understood: write e.g.") as caught:
        parse_condition(text)
    assert "\n" not in str(caught.value)


def test_parts_of_a_condition_are_checked_too():
    with pytest.raises(ps.InputError, match="unknown format 'fp17'"):
        parse_condition("flushed(fp17)>0")
    with pytest.raises(ps.InputError, match="its scale must be a power of two"):
        parse_condition("flushed(fp16, scale=3)>0")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1024", 1024.0), ("2^10", 1024.0), ("2^-300", 2.0**-300), ("0.1", 0.1), ("1/3", 1 / 3), ("1e5", 1e5)],
)
def test_scales(text, value):
    assert parse_scale(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "2^301", "2^-301", "2^4000"])
def test_unusable_scales(text):
    with pytest.raises(ps.InputError, match="must be a number from 2\\^-300 to 2\\^300"):
        parse_scale(text)
