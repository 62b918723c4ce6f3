"""The page as text: size, no outside resource, names that stay text, numbers that the data hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pages import HOSTILE, write_run

import precsim as ps
from precsim.analyze import Analysis, analyze
from precsim.cli import main
from precsim.report.page import render_page
from precsim.report.page.data import page_data

FORMATS = [ps.FP16, ps.BF16, ps.E4M3, ps.E5M2]
EXAMPLES = Path(__file__).parents[2] / "examples" / "gradients"


@pytest.fixture(scope="module")
def analysis(tmp_path_factory) -> Analysis:
    return analyze(ps.open_run(write_run(tmp_path_factory.mktemp("run"))), FORMATS)


def scripts_and_markup(page: str) -> tuple[list[str], str]:
    """Contents of script elements, as a parser sees them, and the rest."""
    found = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    return found, re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)


def test_nothing_is_loaded_from_anywhere(analysis):
    page = render_page(analysis, title="run")
    scripts, markup = scripts_and_markup(page)
    assert len(scripts) == 4
    assert not re.search(r"(src|href|action|data)\s*=", markup)
    assert "url(" not in markup
    assert "@import" not in markup
    assert "default-src 'none'" in markup
    assert "unsafe-eval" not in markup


def test_names_stay_text(analysis):
    page = render_page(analysis, title=HOSTILE[0], advice=[(HOSTILE[1], [HOSTILE[0]])], evidence=[HOSTILE[2]])
    scripts, markup = scripts_and_markup(page)
    assert "<img" not in markup
    assert "&lt;img src=x onerror=alert(1)&gt;" in markup
    names = {tensor["name"] for tensor in json.loads(scripts[1])["tensors"]}
    assert set(HOSTILE) <= names


def test_200_tensors_and_50_steps_stay_under_2_mb(tmp_path):
    folder = write_run(tmp_path, steps=50, tensors=195, n=300)
    page = render_page(analyze(ps.open_run(folder), FORMATS), title="large")
    assert len(page.encode()) < 2_000_000
    data = json.loads(scripts_and_markup(page)[0][1])
    assert len(data["tensors"]) == 200
    assert len(data["cells"]["steps"]) == 50


def outcomes_of(item: dict, fmt: dict, k: int) -> tuple[int, int, int]:
    """As the page's script does it: flushed, subnormal, overflowed."""
    rows, over = np.array(item["rows"], np.int64), 0
    if not fmt["signed"]:
        negative = np.array(item["negative"], np.int64)
        rows, over = rows - negative, int(negative.sum())

    def above(place: list[int]) -> int:
        row = place[0] - k - item["first"]
        if row < 0:
            return int(rows.sum())
        return int(rows[row + 1 :].sum() + rows[row, place[1] :].sum()) if row < len(rows) else 0

    places = fmt["places"]
    total = int(rows.sum())
    nonzero = above(places["nonzero"]) if places["nonzero"] else total
    normal = above(places["normal"]) if places["normal"] else nonzero
    return total - nonzero, nonzero - normal, above(places["overflow"]) + over


@pytest.mark.parametrize("names", ["fp16 bf16 e4m3 e5m2", "e8m0 e2m1 fp16", "e5m3fnu"])
def test_the_data_of_the_page_hold_every_outcome(tmp_path, names):
    formats = [ps.format(name) for name in names.split()]
    edges = [v for f in formats for v in (f.max, f.smallest_normal, f.smallest_subnormal) if v < 1e30]
    boundary = np.float32([edge * factor for edge in edges for factor in (1, -1, 0.5, 1.5, 2)])
    folder = write_run(tmp_path)
    np.save(folder / "boundary.npy", np.concatenate([boundary, np.float32([0, np.inf, np.nan])]))
    analysis = analyze(ps.open_run(folder), formats)
    data = page_data(analysis, {})
    sketches = {"all": analysis.total.sketch}
    items = {"all": data["groups"][0]}
    for tensor in analysis.total.tensors:
        sketches[tensor.name] = sketches.get(tensor.name, ps.Sketch()) + tensor.sketch
    items |= {item["name"]: item for item in data["tensors"]}
    for name, sketch in sketches.items():
        for fmt, described in zip(formats, data["formats"], strict=True):
            for k in range(-40, 41, 3):
                want = sketch.outcomes(fmt, 2.0**k)
                got = outcomes_of(items[name], described, k)
                assert got == (want.flushed, want.subnormal, want.overflowed), f"{name}, {fmt} at 2^{k}"


def test_more_cells_than_fit_leave_tensors_out(monkeypatch, analysis):
    monkeypatch.setattr("precsim.report.page.data.MOST_CELLS", 9)
    cells = page_data(analysis, {})["cells"]
    assert (len(cells["tensors"]), cells["left_out"]) == (3, 8)


def test_the_verbs_write_pages_and_plots(tmp_path, capsys):
    page, plot = tmp_path / "r.html", tmp_path / "p.svg"
    assert main(["advise", str(EXAMPLES / "cnn"), "--html", str(page), "--plot", str(plot)]) == 0
    assert "Advice, best first" in page.read_text()
    assert "advised 2^17" in plot.read_text()
    assert (
        main(["analyze", str(EXAMPLES / "cnn"), "--html", str(page), "--plot", str(tmp_path / "p.png")]) == 0
    )
    assert "Advice, best first" not in page.read_text()
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert main(["analyze", str(EXAMPLES / "cnn"), "--plot", str(tmp_path / "p.gif")]) == 2
    assert ".png or .svg" in capsys.readouterr().err
    assert main(["analyze", str(EXAMPLES / "cnn"), "--html", str(tmp_path / "no" / "r.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
