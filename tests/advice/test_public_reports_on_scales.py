"""Public bug reports that touch advice, each with its right value."""

from __future__ import annotations

import numpy as np
import pytest
import safetensors.numpy

import precsim as ps


@pytest.mark.parametrize(
    ("eps", "code"), [(1e-8, 0), (3e-8, 1), (6e-8, 1), (1e-7, 2), (1e-12, 0), (2.0**-25, 0)]
)
def test_d40_which_eps_survives_in_fp16(eps, code):
    assert int(ps.encode(np.array([eps]), ps.FP16)[0]) == code
    flushed = ps.sketch(np.array([eps])).outcomes(ps.FP16).flushed
    assert flushed == (code == 0)


def test_d40_bf16_keeps_eps():
    assert float(ps.quantize(np.array([1e-8]), ps.BF16)[0]) == pytest.approx(1.001e-8, rel=1e-3)
    assert ps.sketch(np.array([1e-8])).outcomes(ps.BF16).normal == 1


def test_d41_squares_overflow_from_256_on():
    squares = np.array([256.0, 255.875]) ** 2
    assert ps.quantize(squares, ps.FP16).tolist() == [np.inf, 65472.0]
    assert ps.sketch(squares).outcomes(ps.FP16).overflowed == 1


def summed(value: float, n: int, fmt: ps.Format) -> list[float]:
    """Sums after each of n additions, one by one, rounded each time."""
    total, sums = 0.0, []
    for _ in range(n):
        total = float(ps.quantize(np.array([total + value]), fmt)[0])
        sums.append(total)
    return sums


def test_d41_a_sum_of_squares_overflows_though_their_mean_is_64():
    sums = summed(64.0, 1024, ps.FP16)
    assert sums[1022] == 65472.0
    assert sums[1023] == np.inf


def test_d43_sums_of_ones_stop_growing():
    assert summed(1.0, 4096, ps.FP16)[-1] == 2048.0
    assert summed(1.0, 4096, ps.BF16)[-1] == 256.0
    assert ps.quantize(np.array([65519.0, 65520.0, 20500 * 9.6]), ps.FP16).tolist() == [
        65504.0,
        np.inf,
        np.inf,
    ]


def test_d47_a_forward_overflow_is_not_cured_by_any_loss_scale(tmp_path):
    assert ps.quantize(np.array([66246.0, 65519.9]), ps.FP16).tolist() == [np.inf, 65504.0]
    assert int(ps.encode(np.array([66246.0]), ps.BF16)[0]) == 0x4781
    assert float(ps.quantize(np.array([66246.0]), ps.BF16)[0]) == 66048.0
    gradients = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    tensors = {"act/encoder.block.2": np.float32([66246.0, 1.0]), "grad/encoder.weight": gradients}
    safetensors.numpy.save_file(tensors, tmp_path / "step1.safetensors", metadata={"loss_scale": "1"})
    advice = ps.advise(ps.open_run(tmp_path), ["fp16", "bf16"])
    assert (advice.options[0].format, advice.options[0].verdict) == (ps.BF16, "serves")
    halves = [option for option in advice.options if option.format == ps.FP16]
    assert len(halves) == 3
    for option in halves:
        assert option.verdict == "does not serve"
        assert "66246" in option.why[0]
        assert "no loss scale mends that" in option.why[0]
    (tmp_path / "step1.safetensors").unlink()
    safetensors.numpy.save_file({"act/x": gradients}, tmp_path / "step1.safetensors")
    with pytest.raises(ps.InputError, match="activations and weights alone"):
        ps.advise(ps.open_run(tmp_path))
