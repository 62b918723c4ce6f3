"""The command line as a person uses it."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import precsim as ps
from precsim.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples" / "gradients"
FORMATS = {"fp16": torch.float16, "e5m2": torch.float8_e5m2}


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a call."""
    code = main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.fixture
def grads(tmp_path: Path) -> Path:
    x = np.float32([1.0, 2.0**-30, 0.0, -(2.0**-15), 1e5, 3e-3])
    np.save(tmp_path / "w.npy", x)
    return tmp_path / "w.npy"


# ---- analyze --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["cnn", "gpt", "minilm"])
@pytest.mark.parametrize("exponent", [0, 8, 16])
def test_counts_on_real_gradients_are_those_of_a_cast_by_torch(capsys, folder, exponent):
    code, out, _ = run(
        capsys,
        "analyze",
        EXAMPLES / folder,
        "--format",
        "fp16,e5m2",
        "--scale",
        f"2^{exponent}",
        "--json",
        "-",
    )
    assert code == 0
    report = json.loads(out)
    for group in report["groups"]:
        values = [
            torch.from_numpy(entry.array())
            for entry in ps.open_run(EXAMPLES / folder)
            if entry.name.split("/")[0] == group["name"]
        ]
        x = torch.cat([value.reshape(-1) for value in values])
        for result in group["formats"]:
            assert result["outcomes"][-1] == brute_force(x, FORMATS[result["format"]], 2.0**exponent)


def brute_force(x: torch.Tensor, dtype: torch.dtype, scale: float) -> dict[str, float]:
    """Outcomes by torch's own cast. The scaled float32 numbers are exact: none of these leaves float32's normal range."""
    scaled = (x * scale).to(dtype).to(torch.float32).abs()
    nonzero = x != 0
    infinite = torch.isinf(scaled)
    flushed = nonzero & (scaled == 0)
    subnormal = nonzero & ~flushed & (scaled < torch.finfo(dtype).tiny)
    return {
        "scale": scale,
        "zero": int((~nonzero).sum()),
        "flushed": int(flushed.sum()),
        "subnormal": int(subnormal.sum()),
        "normal": int((nonzero & ~flushed & ~subnormal & ~infinite).sum()),
        "overflowed": int(infinite.sum()),
        "nonfinite": 0,
    }


def test_the_table_shows_small_shares_and_names_what_binds(capsys):
    code, out, err = run(capsys, "analyze", EXAMPLES / "gpt")
    assert (code, err) == (0, "")
    assert "0.00 %" not in out
    assert "no window" in out
    assert "act_grad/b0.scores" in out
    assert "Percentages are of the finite nonzero elements" in out
    assert "sampled from larger ones" in out
    assert "\x1b" not in out  # no colours in a pipe


def test_a_share_is_never_rounded_to_nothing_or_all(capsys, tmp_path):
    x = np.ones(3_000_000, np.float32)
    x[0] = 2.0**-40
    np.save(tmp_path / "x.npy", x)
    _, out, _ = run(capsys, "analyze", tmp_path / "x.npy", "--format", "fp16")
    assert "3.3e-05 %" in out
    np.save(tmp_path / "x.npy", np.where(x == 1, np.float32(2.0**-40), np.float32(1.0)))
    _, out, _ = run(capsys, "analyze", tmp_path / "x.npy", "--format", "fp16")
    assert "> 99.9 %" in out


def test_json_has_a_version_and_integers(capsys, grads):
    _, out, _ = run(capsys, "analyze", grads, "--json", "-", "--scale", "1024")
    report = json.loads(out)
    assert report["schema"] == "precsim.analyze/1"
    assert report["scales"] == [1.0, 1024.0]
    assert set(report) == {"schema", "scales", "max_flushed", "evidence", "total", "groups", "tensors"}
    (fp16, *_) = report["total"]["formats"]
    assert fp16["outcomes"][0] == {
        "scale": 1.0,
        "zero": 1,
        "flushed": 1,
        "subnormal": 1,
        "normal": 2,
        "overflowed": 1,
        "nonfinite": 0,
    }
    assert fp16["window"] == {"low": 6, "high": -1, "octaves": -6, "usable": False}
    assert (fp16["largest"]["name"], fp16["most_flushed"]["name"]) == ("w", "w")
    assert report["tensors"][0]["amax"] == 1e5


def test_csv_and_files(capsys, grads, tmp_path):
    code, out, _ = run(capsys, "analyze", grads, "--json", tmp_path / "r.json", "--csv", tmp_path / "r.csv")
    assert code == 0
    assert "fp16" in out
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert {row["format"] for row in rows} == {"fp16", "bf16", "e4m3", "e5m2"}
    assert rows[0]["flushed"] == "1"
    assert json.loads((tmp_path / "r.json").read_text())["total"]["elements"] == 6


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("flushed(fp16)>0.1%", 1),
        ("flushed(fp16) > 20%", 0),  # one of five is 20 %, not more
        ("flushed(fp16)>=20%", 1),
        ("overflowed(fp16)>0", 1),
        ("overflowed(bf16)>0", 0),
        ("subnormal(float16)>=2", 0),
        ("window(fp16)<1", 1),
        ("window(bf16)<1", 0),
        ("flushed(binary8p3)>0", 1),  # a format that is not in the table
    ],
)
def test_fail_if(capsys, grads, condition, code):
    got, out, err = run(capsys, "analyze", grads, "--quiet", "--fail-if", condition)
    assert (got, out) == (code, "")
    assert err == (f"precsim: {condition} holds for all\n" if code else "")


def test_fail_if_is_judged_at_the_scale_that_was_asked_for(capsys, grads):
    assert run(capsys, "analyze", grads, "--quiet", "--fail-if", "flushed(fp16)>0", "--scale", "2^10")[0] == 0


def test_groups(capsys):
    for option, name in [
        (("--group-by", "file"), "step0000.safetensors"),
        (("--group-by", "module"), "grad/l1.b1"),
        (("--tensors",), "grad/fc.weight"),
    ]:
        code, out, _ = run(capsys, "analyze", EXAMPLES / "cnn", "--format", "fp16", *option)
        assert code == 0
        assert name in out


def test_other_tensors_are_left_out_and_named(capsys, tmp_path):
    np.savez(tmp_path / "x.npz", w=np.ones(3), step=np.array(7))
    code, out, _ = run(capsys, "analyze", tmp_path)
    assert code == 0
    assert "(step)" in out
    np.savez(tmp_path / "x.npz", step=np.array(7))
    code, _, err = run(capsys, "analyze", tmp_path)
    assert code == 2
    assert "holds no tensor of floats" in err


def test_what_a_capture_can_not_tell_is_said(capsys, tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3, np.float16))
    _, out, _ = run(capsys, "analyze", tmp_path)
    assert "Captured in float16" in out
    assert "loss scale" in out


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["analyze"], "Missing argument 'PATH...'"),
        (["analyse", "x"], "No such command 'analyse'"),
        (["analyze", "nothing-here"], "nothing-here: no such file or folder"),
        (["analyze", "{grads}", "--format", "fp61"], "unknown format 'fp61': did you mean"),
        (["analyze", "{grads}", "--format", "fp64"], "fp64"),
        (["analyze", "{grads}", "--scale", "2^9999"], "scale 2^9999: must be a number from 2^-300 to 2^300"),
        (["analyze", "{grads}", "--scale", "-1"], "scale -1: must be a number"),
        (["analyze", "{grads}", "--max-flushed", "2"], "share from 0 to 1"),
        (["analyze", "{grads}", "--max-flushed", "x"], "'x' is not a number"),
        (["analyze", "{grads}", "--fail-if", "flushed>1"], "is not understood"),
        (["analyze", "{grads}", "--fail-if", "flushed(e4m4)>1"], "unknown format 'e4m4'"),
        (["analyze", "{grads}", "--dtype", "bfloat16"], "write NAME=TYPE"),
        (["analyze", "{grads}", "--dtype", "w=bf61"], "unknown format 'bf61'"),
        (["analyze", "{grads}", "--json", "{grads}/x"], "can't be written"),
        (["analyze", "{grads}", "--wat"], "No such option"),
        (["format", "e4m4"], "unknown format 'e4m4': did you mean e4m3"),
        (["format", "fp16", "--values"], "at most 8 bits"),
        (["cast", "ten", "fp16"], "'ten' is not a number"),
        (["cast", "1e99999", "fp16"], "is not a number"),
        (["cast", "nan", "e2m1"], "e2m1 has no NaN"),
        (["cast", "0.1", "fp16", "--rounding", "stochastic"], "needs random"),
        (["cast", "1", "fp16", "--profile", "ocp-saturate"], "profile ocp-saturate has no cast to fp16"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, grads, arguments, message):
    filled = [argument.format(grads=grads) for argument in arguments]
    code, _, err = run(capsys, *filled)
    assert code == 2
    assert err.startswith("precsim: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_damaged_file_is_one_line(capsys, tmp_path):
    (tmp_path / "x.safetensors").write_text("text, not tensors")
    code, _, err = run(capsys, "analyze", tmp_path)
    assert code == 2
    assert err.startswith(f"precsim: error: {tmp_path}/x.safetensors: not a safetensors file")
    assert err.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m precsim format e4m3 --values | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("format")
    assert done.stderr == ""


# ---- the other verbs ------------------------------------------------------------------------------------------------


def test_format(capsys):
    code, out, _ = run(capsys, "format", "float8_e4m3fn", "--values")
    assert code == 0
    assert "448.0 (code 0x7e)" in out
    assert "0x7f (top-code)" in out
    assert "OFP8" in out
    code, out, _ = run(capsys, "format")
    assert code == 0
    assert all(name in out for name in ps.NAMED_FORMATS)


def test_cast(capsys):
    code, out, _ = run(capsys, "cast", "-0.1", "e4m3")
    assert code == 0
    assert "0x9d  (1 0011 101)" in out
    assert run(capsys, "cast", "1000", "e4m3", "--overflow", "saturate")[1].count("448.0") >= 1
    assert "0x7e" in run(capsys, "cast", "inf", "e4m3", "--profile", "ptx-satfinite")[1]
    assert "a tie" in run(capsys, "cast", "2049", "fp16")[1]


def test_demo(capsys):
    code, out, err = run(capsys, "demo")
    assert (code, err) == (0, "")
    assert all(f"gradients/{name}" in out for name in ("cnn", "gpt", "minilm"))


def test_version_and_help(capsys):
    assert run(capsys, "--version")[1] == f"precsim {ps.__version__}\n"
    _, out, _ = run(capsys, "--version", "-v")
    assert "engine" in out
    assert "flush to zero    False" in out
    for arguments in ([], ["--help"], ["-h"]):
        code, out, _ = run(capsys, *arguments)
        assert code == 0
        assert "analyze" in out
    for verb in ("analyze", "cast", "demo", "format"):
        assert run(capsys, verb, "--help")[0] == 0


def test_help_loads_nothing_heavy():
    code = "from precsim.cli import main; main(['--help']); import sys; print(sorted({'torch', 'numpy', 'rich', 'scipy'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.splitlines()[-1] == "[]"
