"""Advice on recorded gradients, line by line against analyze; what a recording can't prove; what is set apart."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import precsim as ps
from precsim.advice import set_apart, unproven
from precsim.advice.evidence import scale_jump
from precsim.analyze import analyze
from precsim.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples" / "gradients"


def write(folder: Path, step: int | None, tensors: dict[str, np.ndarray], **metadata: str) -> Path:
    said = {} if step is None else {"step": str(step)}
    path = folder / f"file{len(list(folder.iterdir())):04}.safetensors"
    safetensors.numpy.save_file(tensors, path, metadata=said | metadata)
    return path


def gradients(seed: int = 0, n: int = 5000, exponent: float = -10) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        f"grad/layer{i}.weight": (rng.normal(size=n) * 2.0**exponent).astype(np.float32) for i in range(10)
    }


@pytest.mark.parametrize("run", ["cnn", "gpt", "minilm"])
def test_each_option_says_what_analyze_says(run):
    advice = ps.advise(ps.open_run(EXAMPLES / run), steps=100_000)
    kept, _ = set_apart(advice.analysis.total.tensors)
    total = sum((tensor.sketch for tensor in kept), ps.Sketch())
    assert {option.kind for option in advice.options} >= {"static", "dynamic", "none", "per-tensor"}
    for option in advice.options:
        assert option.why, option.title
        assert option.sure, option.title
        if option.kind == "static" and option.settings:
            scale = option.settings["scale"]
            window = total.window(option.format, Fraction(1, 1000), 1)
            assert window.low <= math.log2(scale) <= window.high
            assert option.outcomes == total.outcomes(option.format, scale)
            assert str(window) in option.why[0]
            assert option.sqnr_db == total.error(option.format, scale).sqnr_db
        if option.kind == "none":
            assert option.outcomes == total.outcomes(option.format)
    verdicts = [option.verdict for option in advice.options]
    order = ["serves", "serves with care", "does not serve"]
    assert verdicts == sorted(verdicts, key=order.index)


def test_the_window_of_cnn_moves_by_eight_octaves_and_that_is_said():
    advice = ps.advise(ps.open_run(EXAMPLES / "cnn"), ["fp16"])
    first, last = (w.window.high for w in advice.windows)
    assert last - first == 8
    assert "moved by +8 octaves" in " ".join(advice.movement)
    assert "step 0" in advice.movement[0]
    assert "step 500" in advice.movement[0]


def test_key_biases_of_minilm_are_noise_and_drive_nothing():
    advice = ps.advise(ps.open_run(EXAMPLES / "minilm"), ["fp16"])
    noise = {item.name for item in advice.apart if item.kind == "noise"}
    assert noise == {f"grad/layers.{i}.key.bias" for i in range(6)}
    assert all("below float32's eps" in item.reason for item in advice.apart if item.kind == "noise")
    assert all(window.most_flushed not in noise for window in advice.windows)
    dead = {item.name for item in advice.apart if item.kind == "dead"}
    assert {"grad/layers.5.ln2.weight", "grad/layers.5.ln2.bias"} <= dead


def test_a_tensor_alone_of_its_module_is_no_noise(tmp_path):
    write(tmp_path, 1, {"a.weight": np.float32([1.0]), "a.bias": np.float32([1e-9])}, loss_scale="1")
    assert set_apart(analyze(ps.open_run(tmp_path), [ps.FP16]).total.tensors)[1] == []


def test_an_unknown_loss_scale_gives_no_verdict(tmp_path):
    """Case D37: a captured 655.36 at scale 2^16 is 0.01; without the scale nothing can be said."""
    write(tmp_path, 1, {"g.weight": np.float32([655.36, 65.536, 6.5536])})
    advice = ps.advise(ps.open_run(tmp_path), ["fp16"])
    assert advice.options == ()
    assert "--captured-scale" in advice.refused[0]
    told = ps.advise(ps.open_run(tmp_path), ["fp16"], captured_scale=2.0**16)
    assert told.refused == ()
    assert told.windows[0].window.high == ps.sketch(np.float32([655.36])).window(ps.FP16, 1, 1).high + 16
    true = np.float32([655.36, 65.536, 6.5536]) / np.float32(2**16)
    assert true[0] == np.float32(0.01)
    plain = next(option for option in told.options if option.kind == "none")
    assert plain.outcomes == ps.sketch(true).outcomes(ps.FP16)


def test_a_stated_loss_scale_is_divided_out(tmp_path):
    """Case D37: the scale in the capture's metadata."""
    for step, exponent in ((1, 16), (2, 15)):
        scaled = {name: x * np.float32(2.0**exponent) for name, x in gradients().items()}
        write(tmp_path, step, scaled, loss_scale=str(2**exponent))
    advice = ps.advise(ps.open_run(tmp_path), ["fp16"])
    first, second = advice.windows
    assert first.window == second.window
    assert any("65536" in note for note in advice.notes)


def test_a_loss_scale_that_is_no_power_of_two_is_refused(tmp_path):
    write(tmp_path, 1, gradients(), loss_scale="1000")
    with pytest.raises(ps.InputError, match="no power of two"):
        ps.advise(ps.open_run(tmp_path), ["fp16"])
    with pytest.raises(ps.InputError, match="power of two"):
        ps.advise(ps.open_run(tmp_path), ["fp16"], captured_scale=3.0)


@pytest.mark.parametrize(("moved", "found"), [(1, (1, 2, 1)), (-1, (1, 2, -1)), (0, None), (0.5, None)])
def test_a_jump_of_all_tensors_by_a_power_of_two_is_the_scale(tmp_path, moved, found):
    """Case D37: a jump by exactly 2 between steps is the scale."""
    write(tmp_path, 1, gradients(seed=1))
    write(tmp_path, 2, gradients(seed=2, exponent=-10 + moved))
    tensors = analyze(ps.open_run(tmp_path), [ps.FP16]).total.tensors
    assert scale_jump(tensors) == found
    assert any("move by" in reason for reason in unproven(tensors, None)) == (found is not None)


def test_gradients_of_a_training_show_no_jump():
    for run in ("cnn", "gpt", "minilm"):
        assert scale_jump(analyze(ps.open_run(EXAMPLES / run), [ps.FP16]).total.tensors) is None


def test_a_capture_after_the_cast_proves_nothing_of_underflow(tmp_path):
    half = {name: x.astype(np.float16) for name, x in gradients(exponent=-20).items()}
    write(tmp_path, 1, half, loss_scale="1")
    advice = ps.advise(ps.open_run(tmp_path), ["fp16"])
    assert advice.options == ()
    assert "float16" in advice.refused[0]
    assert ps.advise(ps.open_run(tmp_path), ["fp16"], captured_scale=1).refused == ()


def test_infinite_gradients_and_zeros_give_no_verdict(tmp_path):
    (tmp_path / "a").mkdir()
    write(tmp_path / "a", 1, {"g.w": np.float32([1, np.inf])}, loss_scale="1")
    assert "infinite or NaN" in ps.advise(ps.open_run(tmp_path / "a")).refused[0]
    (tmp_path / "b").mkdir()
    write(tmp_path / "b", 1, {"g.w": np.float32([0, 0])}, loss_scale="1")
    assert "zero" in ps.advise(ps.open_run(tmp_path / "b")).refused[0]


def test_no_single_scale_serves_a_spread_beyond_fp16(tmp_path):
    wide = np.float32(2.0) ** np.arange(-60, 0).astype(np.float32)
    write(tmp_path, 1, {"g.w": wide}, loss_scale="1")
    advice = ps.advise(ps.open_run(tmp_path), ["fp16", "bf16"])
    assert (advice.options[0].format, advice.options[0].verdict) == (ps.BF16, "serves")
    static = next(option for option in advice.options if option.kind == "static")
    assert static.verdict == "does not serve"
    assert "octaves are missing" in " ".join(static.why)


def test_many_recorded_steps_give_a_fitted_risk(tmp_path):
    for step in range(60):
        write(tmp_path, step, {"g.w": gradients(seed=step, n=300)["grad/layer0.weight"]}, loss_scale="1")
    advice = ps.advise(ps.open_run(tmp_path), ["fp16"], steps=10_000)
    static = next(option for option in advice.options if option.kind == "static")
    assert static.risk is not None
    assert static.risk.tail is not None
    assert static.risk.expected_overflows is not None
    assert static.verdict == "serves"


def test_bad_arguments():
    run = ps.open_run(EXAMPLES / "cnn")
    with pytest.raises(ps.InputError, match="max_flushed"):
        ps.advise(run, max_flushed=2)
    with pytest.raises(ps.InputError, match="at least 1 step"):
        ps.advise(run, steps=0)
    with pytest.raises(ps.InputError, match="unknown format"):
        ps.advise(run, ["fp17"])


def test_the_verb_prints_and_writes_the_advice(tmp_path, capsys):
    target = tmp_path / "advice.json"
    assert main(["advise", str(EXAMPLES / "cnn"), "--steps", "1000", "--json", str(target)]) == 0
    printed = capsys.readouterr().out
    data = json.loads(target.read_text())
    assert data["schema"] == "precsim.advise/1"
    assert "moved by +8 octaves" in printed
    for rank, option in enumerate(data["options"], start=1):
        assert f"{rank}. {option['title']}" in printed
    assert main(["advise", str(EXAMPLES / "cnn"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["options"]


def test_the_verb_exits_with_1_without_a_verdict_and_2_on_bad_input(tmp_path, capsys):
    write(tmp_path, 1, gradients())
    assert main(["advise", str(tmp_path)]) == 1
    assert "No verdict" in capsys.readouterr().out
    assert main(["advise", str(tmp_path), "--captured-scale", "1"]) == 0
    capsys.readouterr()
    for wrong in (
        ["--captured-scale", "3"],
        ["--max-flushed", "2"],
        ["--format", "fp17"],
        ["--steps", "0"],
        ["--steps", "1", "--captured-scale", "1"],
    ):
        assert main(["advise", str(tmp_path), *wrong]) == 2, wrong
        assert capsys.readouterr().err.count("\n") == 1


def test_the_published_histogram_of_ssd(tmp_path):
    """Micikevicius et al. 2018, figure 3: 66.8 % zeros, 31 % lost in FP16, ×8 keeps what matters, ×32768 all but 0.1 %.

    A synthetic tensor with these shares: of 100,000 numbers 66,800 zeros, 31,000 that FP16 flushes, of which those in
    [2^-27, 2^-24) matter, and the rest above; 100 numbers below 2^-40.
    """
    rng = np.random.default_rng(0)

    def between(low: int, high: int, count: int) -> np.ndarray:
        exponents = rng.uniform(low, high, count)
        return (2.0**exponents).astype(np.float32)

    lost = [
        between(-45, -41, 100),
        between(-39, -32, 9_000),
        between(-32, -30, 4_000),
        between(-30, -27, 10_000),
    ]
    lost.append(between(-27, -25.001, 7_900))
    x = np.concatenate([np.zeros(66_800, np.float32), *lost, between(-24, -1, 2_200)])
    s = ps.sketch(x * rng.choice([-1, 1], len(x)).astype(np.float32))
    assert s.n == 100_000
    assert s.outcomes(ps.FP16).flushed == 31_000
    by_8 = s.outcomes(ps.FP16, 8)
    assert by_8.flushed == 31_000 - int((np.abs(x) * 8 > 2.0**-25).sum()) + 2_200
    assert (np.abs(x) >= 2.0**-27).sum() <= by_8.nonzero - by_8.flushed  # nothing that matters is lost
    by_32768 = s.outcomes(ps.FP16, 32768)
    assert (by_32768.flushed, by_32768.overflowed) == (100, 0)
    assert by_32768.flushed / s.n == 0.001
