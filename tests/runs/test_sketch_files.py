"""Sketches stored as Parquet: read back equal, queried by another engine, refused where damaged."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import precsim as ps
from precsim.advice import advise
from precsim.analyze import analyze
from precsim.kernels import engine
from precsim.runs import SketchRow, read_sketches, write_sketches

EXAMPLES = Path(__file__).parents[2] / "examples" / "gradients"


def rows() -> list[SketchRow]:
    rng = np.random.default_rng(0)
    tensors = {
        "a.weight": rng.normal(size=3000).astype(np.float32),
        "a.bias": np.float32([0, np.inf, -np.inf, np.nan, 1e-42, -3e38]),
        "b": rng.lognormal(0, 40, 500),
        "empty": np.float32([]),
        "zeros": np.float32([0, -0.0]),
    }
    return [
        SketchRow(
            name, ps.sketch(x), "run", step, rank, "grad", str(x.dtype), 2.0**step, 10_000 if step else None
        )
        for step in (0, 3)
        for rank, (name, x) in enumerate(tensors.items())
    ] + [SketchRow("counts", ps.sketch(rng.normal(size=9), errors=False), step=None, loss_scale=None)]


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "s.parquet"
    written = rows()
    write_sketches(path, written)
    assert list(read_sketches(path)) == written
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


def test_another_engine_can_query_it(tmp_path):
    path = tmp_path / "s.parquet"
    write_sketches(path, rows())
    answer = duckdb.sql(
        f"select step, sum(numel), sum(zeros), max(amax), sum(list_sum(binades)) from '{path}' where kind = 'grad' "
        "group by step order by step"
    ).fetchall()
    grads = [row for row in rows() if row.kind == "grad"]
    want = [
        (
            step,
            sum(row.sketch.n for row in grads if row.step == step),
            sum(row.sketch.zeros for row in grads if row.step == step),
            max(row.sketch.amax for row in grads if row.step == step),
            sum(row.sketch.nonzero for row in grads if row.step == step),
        )
        for step in (0, 3)
    ]
    assert answer == want


@pytest.mark.parametrize("run", ["cnn", "gpt"])
def test_advice_on_sketches_is_advice_on_the_tensors(tmp_path, run):
    """All but scales by block, which need the elements."""
    folder = tmp_path / "sketches"
    folder.mkdir()
    entries = list(ps.open_run(EXAMPLES / run))
    for step in sorted({entry.step for entry in entries}):
        write_sketches(
            folder / f"step-{step:08}.parquet",
            [
                SketchRow(
                    entry.name.split("/", 1)[1],
                    entry.sketch(engine()),
                    run,
                    step,
                    0,
                    entry.name.split("/")[0],
                    loss_scale=1.0,
                )
                for entry in entries
                if entry.step == step
            ],
        )
    (tmp_path / "scalars.parquet").write_bytes(b"no sketches, and not read")
    stored, whole = advise(ps.open_run(tmp_path), steps=1000), advise(ps.open_run(EXAMPLES / run), steps=1000)

    def without_blocks(advice):
        return [option for option in advice.options if option.kind != "blockwise"]

    names = [(o.title, o.verdict, o.outcomes, o.sqnr_db) for o in without_blocks(stored)]
    assert names == [(o.title, o.verdict, o.outcomes, o.sqnr_db) for o in without_blocks(whole)]


def test_other_scales_and_elements_need_the_tensors(tmp_path):
    path = tmp_path / "s.parquet"
    write_sketches(path, rows()[:1])
    with pytest.raises(ps.InputError, match="powers of two"):
        analyze(ps.open_run(path), [ps.FP16], scales=[3.0])
    entry = next(iter(ps.open_run(path)))
    with pytest.raises(ps.InputError, match="only the sketch was kept"):
        entry.array()
    write_sketches(path, rows()[-1:])
    total = analyze(ps.open_run(path), [ps.FP16], errors=True).total.sketch
    with pytest.raises(ps.InputError, match="counts alone"):
        total.error(ps.FP16)
    assert analyze(ps.open_run(path), [ps.FP16]).total.sketch.n == 9


def test_files_that_are_none_of_ours_are_refused(tmp_path):
    path = tmp_path / "s.parquet"
    for content in (b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"):
        path.write_bytes(content)
        with pytest.raises(ps.InputError, match="no readable Parquet"):
            list(read_sketches(path))
    pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2]}), path)
    with pytest.raises(ps.InputError, match=r"no precsim\.schema"):
        list(read_sketches(path))
    with pytest.raises(ps.InputError, match="can't be written"):
        write_sketches(tmp_path / "missing" / "s.parquet", rows())


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("counts", [1, 2, 3], "damaged"),
        ("binades", [1], "do not add up to its binades"),
        ("numel", 7, "number of elements"),
        ("amax", "text", "layout"),
        ("distances", [5], "damaged"),
    ],
)
def test_damaged_rows_are_refused(tmp_path, column, value, message):
    path = tmp_path / "s.parquet"
    write_sketches(path, rows()[:1])
    table = pyarrow.parquet.read_table(path)
    at = table.schema.get_field_index(column)
    kind = pyarrow.string() if isinstance(value, str) else table.schema.field(at).type
    changed = table.set_column(at, pyarrow.field(column, kind), pyarrow.array([value], kind))
    pyarrow.parquet.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(ps.InputError, match=message):
        list(read_sketches(path))


def test_truncated_files_are_refused_everywhere(tmp_path):
    path = tmp_path / "s.parquet"
    write_sketches(path, rows())
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ps.InputError):
            list(read_sketches(path))


def test_an_unfinished_file_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "s.parquet"
    write_sketches(path, rows()[:1])
    before = path.read_bytes()

    def broken(*args, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet, "write_table", broken)
    with pytest.raises(ps.InputError, match="No space left"):
        write_sketches(path, rows())
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]
