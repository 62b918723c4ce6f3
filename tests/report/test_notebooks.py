"""What notebooks show: tables and lists, whose names stay text."""

from __future__ import annotations

import numpy as np
from pages import HOSTILE, write_run

import precsim as ps
from precsim.analyze import analyze


def test_a_sketch_shows_formats_and_windows():
    s = ps.sketch(np.float32([0.0, 1e-8, 1e-5, 1.0]))
    shown = s._repr_html_()
    assert "33.3 %" in shown
    assert f"<td>{s.window('fp16', headroom=1)}</td>" in shown


def test_an_analysis_and_advice_show_names_as_text(tmp_path):
    run = ps.open_run(write_run(tmp_path))
    by_tensor = analyze(run, [ps.FP16], group_by="tensor")._repr_html_()
    assert "&lt;img src=x onerror=alert(1)&gt;" in by_tensor
    advice = ps.advise(run)
    shown = by_tensor + advice._repr_html_()
    for name in HOSTILE[:3]:
        assert name not in shown
    assert advice.options[0].title in advice._repr_html_()


def test_a_refusal_is_shown(tmp_path):
    np.save(tmp_path / "g.npy", np.float32([1, 2]))
    assert "No verdict" in ps.advise(ps.open_run(tmp_path))._repr_html_()
