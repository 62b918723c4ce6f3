"""`precsim analyze`: what it prints, writes and returns."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import precsim as ps

OUTCOMES = ("zero", "flushed", "subnormal", "normal", "overflowed", "nonfinite")


def whole(folder):
    """All floats of a folder."""
    arrays = [x for path in folder.iterdir() for name, x in load_file(path).items() if name != "ids"]
    return np.concatenate([x.reshape(-1) for x in arrays])


# ---- the table ------------------------------------------------------------------------------------------------------


def test_the_table_says_what_the_sketch_says(precsim, gradients):
    result = precsim("analyze", gradients)
    assert result.code == 0
    assert result.err == ""
    for line in (
        "grad  4 tensors, 2,008 elements",
        "act_grad  2 tensors, 2,000 elements",
        "all  6 tensors, 4,008 elements",
        "Seen: 6 tensors, 4,008 elements, 2 files.",
        "Left out, not floats: 2 tensors (ids, ids).",
    ):
        assert line in result.out
    counts = ps.sketch(whole(gradients)).outcomes(ps.FP16)
    share = f"{100 * counts.flushed / counts.nonzero:.3g} %"
    fp16_of_all = result.out[result.out.index("all  6") :].splitlines()[3]
    assert re.split(r"\s{2,}", fp16_of_all.strip())[:2] == ["fp16", share]


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit(precsim, gradients, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for more in ([], ["--scale", "2^16"], ["--tensors"]):
        lines = precsim("analyze", gradients, *more).out.splitlines()
        assert lines
        # Tables don't wrap at 80 columns; prose may be wider in a pipe.
        tables = [line for line in lines if re.match(r" (format|fp16|bf16|e4m3|e5m2) {2}", line)]
        assert len(tables) >= 10
        assert max(len(line.rstrip()) for line in tables) <= 80


def test_small_shares_are_not_printed_as_zero(precsim, tmp_path):
    x = np.ones(3_000_001, np.float32)
    x[0] = 2.0**-30
    save_file({"x": x}, tmp_path / "x.safetensors")
    out = precsim("analyze", tmp_path, "--format", "fp16", "--scale", "2^-40").out
    assert re.search(r"fp16 +2\^0 +3\.3e-05 % +0 +0 ", out)
    assert re.search(r" 2\^-40 +100 % +0 +0 ", out)
    assert not re.search(r"\b0\.0+ %", out)


def test_no_window_names_the_tensors_that_bind(precsim, gradients):
    out = precsim("analyze", gradients, "--format", "e4m3").out
    assert "no window" in out
    lines = " ".join(out.split())
    assert re.search(r"nothing overflows up to 2\^\d+ \(bound by grad/fc.bias in step1\)", lines)
    assert re.search(r"enough is kept from 2\^\d+ on \(most is lost of act_grad/fc in step\d\)", lines)


def test_scales_are_compared_row_by_row(precsim, gradients):
    out = precsim("analyze", gradients, "--format", "fp16", "--scale", "1000").out
    assert re.search(r"fp16\s+2\^0 .*\n\s+1000 ", out)


def test_notes_on_the_evidence(precsim, tmp_path):
    x = np.float16([1.0, 2.0])
    save_file({"x": x}, tmp_path / "a.safetensors", {"loss_scale": "65536.0", "numel_full": '{"x": 10}'})
    save_file({"x": x}, tmp_path / "b.safetensors")
    out = " ".join(precsim("analyze", tmp_path).out.split())
    assert "The files state loss scale 2^16: numbers are taken as stored" in out
    assert "1 file without a stated loss scale" in out
    assert "Captured in float16: what was flushed or overflowed before that can't be seen." in out
    assert "1 tensor of them sampled from larger ones" in out


def test_names_can_not_write_to_the_terminal(precsim, tmp_path):
    names = ["a\x1b[31m/red", "[bold]b/x", "line\nbreak/x", "c\x07/x"]
    save_file({name: np.ones(2, np.float32) for name in names}, tmp_path / "x.safetensors")
    result = precsim("analyze", tmp_path, "--tensors", "--fail-if", "window(fp16)<99")
    assert result.code == 1
    for text in (result.out, result.err):
        assert "\x1b" not in text
        assert "\x07" not in text
    assert all(shown in result.out for shown in (r"a\x1b[31m/red", "[bold]b/x", r"line\nbreak/x"))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are Unicode")
def test_a_file_whose_name_is_no_text(program, tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.safetensors")
    save_file({"x": np.ones(2, np.float32)}, path)
    for arguments in ([], ["--csv", "-"], ["--json", "-"]):
        result = program("analyze", path, "--group-by", "file", *arguments)
        assert (result.code, result.err) == (0, "")
        assert ("all  1 tensor" if not arguments else r"\udcff.safetensors") in result.out
    path.write_bytes(b"")
    broken = program("analyze", path)
    assert broken.code == 2
    assert broken.err.count("\n") == 1


# ---- JSON and CSV ---------------------------------------------------------------------------------------------------


def test_json_holds_every_count(precsim, gradients):
    result = precsim("analyze", gradients, "--json", "-", "--scale", "2^8", "--format", "fp16,e8m0")
    data = json.loads(result.out)
    sketch = ps.sketch(whole(gradients))
    assert data["schema"] == "precsim.analyze/1"
    assert data["scales"] == [1.0, 256.0]
    assert data["evidence"]["skipped"] == ["ids", "ids"]
    total = data["total"]
    assert (total["elements"], total["zeros"], total["nonzero"]) == (sketch.n, sketch.zeros, sketch.nonzero)
    assert (total["amax"], total["amin"]) == (sketch.amax, sketch.amin)
    assert {int(k): n for k, n in total["binades"].items()} == sketch.binades()
    for name, given in zip(("fp16", "e8m0"), total["formats"], strict=True):
        assert given["format"] == name
        for at in given["outcomes"]:
            want = sketch.outcomes(name, at["scale"])
            assert {key: at[key] for key in OUTCOMES} == {key: getattr(want, key) for key in OUTCOMES}
    window = sketch.window("fp16", headroom=1)
    assert total["formats"][0]["window"] == {
        "low": window.low,
        "high": window.high,
        "octaves": window.octaves,
        "usable": bool(window),
    }
    assert total["formats"][1]["window"]["usable"] is False
    assert [group["name"] for group in data["groups"]] == ["act_grad", "grad"]
    assert len(data["tensors"]) == 6


def kinds(value):
    """The layout of a JSON value: names and types, not numbers."""
    if isinstance(value, dict):
        if value and all(re.fullmatch(r"-?\d+", key) for key in value):
            return {"<integer>": kinds(next(iter(value.values())))}
        return {key: kinds(item) for key, item in value.items()}
    if isinstance(value, list):
        return [kinds(value[0])] if value else []
    return type(value).__name__


def test_the_layout_of_schema_1(precsim, gradients):
    """A change here is a new schema: readers rely on these names."""
    data = json.loads(precsim("analyze", gradients, "--json", "-", "--format", "e4m3").out)
    numbers = {
        **dict.fromkeys(("elements", "zeros", "nonzero", "nonfinite"), "int"),
        "amax": "float",
        "amin": "float",
        "binades": {"<integer>": "int"},
    }
    place = {"name": "str", "path": "str"}
    group = {
        "name": "str",
        "tensors": "int",
        **numbers,
        "formats": [
            {
                "format": "str",
                "outcomes": [{"scale": "float", **dict.fromkeys(OUTCOMES, "int")}],
                "window": {"low": "int", "high": "int", "octaves": "int", "usable": "bool"},
                "largest": place,
                "most_flushed": place,
            }
        ],
    }
    (result,) = group["formats"]
    group_that_loses_nothing = {**group, "formats": [{**result, "most_flushed": "NoneType"}]}
    tensor = {**place, "dtype": "str", "group": "str", "numel_full": "NoneType", **numbers}
    assert kinds(data) == {
        "schema": "str",
        "scales": ["float"],
        "max_flushed": "float",
        "evidence": {
            **dict.fromkeys(("files", "tensors", "elements", "samples"), "int"),
            "narrow": [],
            "loss_scales": ["float"],
            "files_without_loss_scale": "int",
            "skipped": ["str"],
        },
        "total": group,
        "groups": [group_that_loses_nothing],
        "tensors": [tensor],
    }


def test_json_without_numbers_is_json_still(precsim, tmp_path):
    save_file({"x": np.float32([np.inf, np.nan, 0.0])}, tmp_path / "x.safetensors")
    result = precsim("analyze", tmp_path, "--json", "-")
    total = json.loads(result.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["total"]
    assert (total["amax"], total["amin"], total["nonfinite"]) == (None, None, 2)


def test_csv_has_a_row_for_each_group_format_and_scale(precsim, gradients, tmp_path):
    path = tmp_path / "table.csv"
    result = precsim("analyze", gradients, "--csv", path, "--quiet", "--scale", "2^4")
    assert (result.code, result.out, result.err) == (0, "", "")
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert len(rows) == 3 * 4 * 2
    row = next(row for row in rows if (row["group"], row["format"], row["scale"]) == ("all", "e5m2", "16.0"))
    want = ps.sketch(whole(gradients)).outcomes(ps.E5M2, 16.0)
    assert {key: int(row[key]) for key in OUTCOMES} == {key: getattr(want, key) for key in OUTCOMES}


def test_both_files_and_the_table_at_once(precsim, gradients, tmp_path):
    result = precsim("analyze", gradients, "--json", tmp_path / "a.json", "--csv", tmp_path / "a.csv")
    assert "usable scales" in result.out
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == "precsim.analyze/1"
    assert (tmp_path / "a.csv").read_text().startswith("group,")


# ---- options --------------------------------------------------------------------------------------------------------


def test_fail_if(precsim, gradients):
    holds = precsim("analyze", gradients, "--quiet", "--fail-if", "flushed(fp16)>1%")
    assert (holds.code, holds.out) == (1, "")
    assert holds.err == "precsim: flushed(fp16)>1% holds for all, act_grad\n"
    other = ["--fail-if", "overflowed(fp16)>0", "--fail-if", "window(bf16)<4"]
    assert precsim("analyze", gradients, "--quiet", *other).code == 0
    tensor = precsim("analyze", gradients, "--quiet", "--tensors", "--fail-if", "flushed(fp16)>=40%")
    assert tensor.err == "precsim: flushed(fp16)>=40% holds for all, act_grad/fc\n"


def test_conditions_may_ask_for_other_formats(precsim, gradients):
    result = precsim("analyze", gradients, "--format", "bf16", "--quiet", "--fail-if", "flushed(e2m1)>0")
    assert result.code == 1


def test_max_flushed_as_share_and_percentage(precsim, gradients):
    outs = [precsim("analyze", gradients, "--max-flushed", share).out for share in ("0.01", "1%", "1/100")]
    assert outs[0] == outs[1] == outs[2]
    assert "at most 1 %" in " ".join(outs[0].split())
    assert "none of these flushed" in " ".join(
        precsim("analyze", gradients, "--max-flushed", "0").out.split()
    )


def test_dtype_of_a_file_that_lost_it(precsim, tmp_path):
    np.save(tmp_path / "x.npy", np.array([0x3F80, 0x4000], np.uint16).view("V2"))
    assert precsim("analyze", tmp_path).code == 2
    result = precsim("analyze", tmp_path, "--dtype", "x=bfloat16", "--json", "-")
    assert json.loads(result.out)["total"]["amax"] == 2.0


def test_files_globs_and_folders_together(precsim, gradients):
    for paths in ([gradients], [gradients / "step*.safetensors"], sorted(gradients.iterdir())):
        assert "Seen: 6 tensors" in precsim("analyze", *paths).out


# ---- a pipe and a terminal ------------------------------------------------------------------------------------------


def test_nothing_but_the_table_in_a_pipe(program, gradients):
    result = program("analyze", gradients)
    assert (result.code, result.err) == (0, "")
    assert "\x1b" not in result.out
    assert "\r" not in result.out


def test_an_encoding_without_the_signs(program, gradients):
    result = program("analyze", gradients, PYTHONIOENCODING="ascii")
    assert (result.code, result.err) == (0, "")
    assert "usable scales" in result.out
