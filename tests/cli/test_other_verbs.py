"""`format`, `cast`, `demo`, `--version`, `--help`, and how the program ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest

import precsim as ps


def test_help_names_every_verb(precsim):
    result = precsim("--help")
    assert (result.code, result.err) == (0, "")
    for verb in ("analyze", "cast", "demo", "format"):
        assert re.search(rf"^  {verb} ", result.out, re.MULTILINE)
        assert precsim(verb, "--help").out.startswith(f"Usage: precsim {verb}")
    assert precsim().out == result.out


def test_version(precsim):
    assert precsim("--version").out == f"precsim {ps.__version__}\n"
    verbose = precsim("--version", "-v").out
    assert "flush to zero" in verbose
    assert "engine " in verbose


def test_help_loads_click_and_nothing_heavy():
    code = (
        "import sys; from precsim.cli import main; main(['--help']);"
        "print(*sorted({'torch', 'scipy', 'rich', 'ml_dtypes', 'safetensors'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""


def test_help_is_quick(program):
    program("--help")  # compiled once
    times = []
    for _ in range(5):
        start = time.perf_counter()
        program("--help")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.4


# ---- format ---------------------------------------------------------------------------------------------------------


def test_all_formats(precsim):
    lines = precsim("format").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(ps.NAMED_FORMATS)
    e4m3 = next(line for line in lines if line.startswith("e4m3 "))
    assert e4m3.split()[1:7] == ["8", "4", "3", "7", "448", "2^-6"]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "E4M3"])
def test_one_format_by_any_name(precsim, name):
    out = precsim("format", name).out
    for text in ("e4m3", "448.0 (code 0x7e)", "0.015625 = 2^-6", "0.001953125 = 2^-9", "0x7f", "OCP"):
        assert text in out


def test_every_format_can_be_shown(precsim):
    for name, fmt in ps.NAMED_FORMATS.items():
        out = precsim("format", name).out
        assert repr(fmt.max) in out
        assert fmt.source.split()[0] in out


@pytest.mark.parametrize("name", ["e2m1", "e4m3", "binary8p3", "e8m0", "int8"])
def test_values_are_those_of_the_codes(precsim, name):
    fmt = ps.format(name)
    out = precsim("format", name, "--values").out
    table = out[out.index("\ncode ") :].splitlines()[2:]
    shown = [cell for line in table for cell in line.split()[1:]]
    assert shown == [f"{fmt.decode(code):.6g}" for code in range(1 << fmt.bits)]


# ---- cast -----------------------------------------------------------------------------------------------------------


def test_cast_takes_the_number_exactly(precsim):
    out = precsim("cast", "0.1", "e4m3").out
    for text in ("1/10 to e4m3", "0.1015625", "0x1d", "the upper neighbour is nearer"):
        assert text in out
    assert "0x9d  (1 0011 101)" in precsim("cast", "-0.1", "e4m3").out
    assert "a tie" in precsim("cast", "2049", "fp16").out
    # 2^-25 is half of FP16's least number: a tie that goes to even, to zero; float64's 2^-25 + 2^-78 does not.
    assert "0x0000" in precsim("cast", "2^-25", "fp16").out
    assert "0x0001" in precsim("cast", "0x1.0000000000001p-25", "fp16").out


@pytest.mark.parametrize("value", ["-1e-9", "-inf", "-3"])
def test_cast_takes_negative_numbers(precsim, value):
    result = precsim("cast", value, "fp16", "--rounding", "up")
    assert (result.code, result.err) == (0, "")
    assert "0x8000" in precsim("cast", "-1e-9", "fp16", "--rounding", "up").out


def test_cast_follows_rules_and_profiles(precsim):
    assert "448" in precsim("cast", "1e6", "e4m3", "--overflow", "saturate").out
    assert "0x7e" in precsim("cast", "1e6", "e4m3", "--profile", "ptx-satfinite").out
    down = precsim("cast", "0.1", "fp16", "--rounding", "stochastic", "--random", "0").out
    assert ps.explain("0.1", "fp16", "stochastic", random=0) is not None
    assert "0x2e66" in down


# ---- demo -----------------------------------------------------------------------------------------------------------


def test_demo_analyzes_the_recorded_gradients(precsim):
    result = precsim("demo")
    assert (result.code, result.err) == (0, "")
    for run in ("cnn", "gpt", "minilm"):
        assert re.search(rf"\$ precsim analyze \S*{run}\n", result.out)
    assert result.out.count("Seen: ") == 3


def test_demo_without_the_examples_says_where_they_are(precsim, monkeypatch, tmp_path):
    import precsim.cli.demo as demo

    monkeypatch.setattr(demo, "__file__", str(tmp_path / "a" / "b" / "demo.py"))
    result = precsim("demo")
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "come with the source" in result.err


# ---- endings --------------------------------------------------------------------------------------------------------


def test_a_reader_that_leaves_early_is_no_error(gradients):
    for arguments in (["format"], ["analyze", str(gradients), "--json", "-"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "precsim", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        process.stdout.close()
        assert process.stderr.read() == ""
        process.stderr.close()
        assert process.wait(timeout=60) == 141


def test_an_interrupt_ends_it_quietly(monkeypatch, precsim):
    import precsim.cli.demo as demo

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_examples", interrupt)
    result = precsim("demo")
    assert (result.code, result.err.strip()) == (128 + signal.SIGINT, "")
