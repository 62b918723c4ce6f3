"""Static pictures."""

from __future__ import annotations

import re

import pytest
from pages import write_run

import precsim as ps
from precsim.analyze import analyze
from precsim.report.plot import plot_curves


def test_a_picture_names_formats_windows_and_the_advised_scale(tmp_path):
    analysis = analyze(ps.open_run(write_run(tmp_path)), [ps.FP16, ps.E4M3])
    target = tmp_path / "p.svg"
    plot_curves(analysis, target, marks={"fp16": 9})
    text = target.read_text()
    for result in analysis.total.formats:
        assert str(result.window) in text
    assert "advised 2^9" in text
    assert f"{analysis.total.sketch.nonzero:,} nonzero numbers" in text
    assert len(re.findall("<path", text)) > 30
    plot_curves(analysis, tmp_path / "p.PNG")
    assert (tmp_path / "p.PNG").read_bytes().startswith(b"\x89PNG")


def test_other_files_are_refused(tmp_path):
    analysis = analyze(ps.open_run(write_run(tmp_path)), [ps.FP16])
    with pytest.raises(ps.InputError, match=r"a \.png or \.svg file"):
        plot_curves(analysis, tmp_path / "p.pdf")
    with pytest.raises(ps.InputError, match="can't be written"):
        plot_curves(analysis, tmp_path / "missing" / "p.svg")
