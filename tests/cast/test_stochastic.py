"""Stochastic rounding: its law exactly, and bits that depend on seed and element alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import precsim as ps
from precsim.number.reference import encode as reference_encode

pytestmark = pytest.mark.usefixtures("engine")


def philox_4x32_10(counter: tuple[int, ...], key: tuple[int, int]) -> list[int]:
    """The published generator in plain integers (Salmon et al. 2011, section 3.3)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 1 << 32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % (1 << 32), (k1 + 0xBB67AE85) % (1 << 32)
    return [c0, c1, c2, c3]


def test_the_test_s_own_generator_gives_the_published_answer():
    key = (0xA4093822, 0x299F31D0)
    counter = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert philox_4x32_10(counter, key) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize("random_bits", [1, 7, 16, 32])
@pytest.mark.parametrize("seed", [0, 1, (1 << 64) - 1])
def test_bits_come_from_the_stated_counter(seed, random_bits):
    x = np.float32(np.random.default_rng(5).normal(size=37))
    rounding = ps.Rounding("stochastic", random_bits=random_bits)
    key = (seed % (1 << 32), seed >> 32)
    got = ps.encode(x, ps.E4M3, rounding, seed=seed)
    for i, value in enumerate(x.tolist()):
        word = philox_4x32_10((i // 4, 0, 0, 0), key)[i % 4]
        assert got[i] == reference_encode(value, ps.E4M3, rounding, random=word >> (32 - random_bits))


def test_neither_layout_nor_engine_changes_the_bits():
    x = np.float32(np.random.default_rng(6).normal(size=(300, 701)))
    want = ps.encode(x, ps.BF16, "stochastic", seed=9)
    assert np.array_equal(ps.encode(np.asfortranarray(x), ps.BF16, "stochastic", seed=9), want)
    assert np.array_equal(ps.encode(torch.from_numpy(x), ps.BF16, "stochastic", seed=9).numpy(), want)
    for name in ps.available_engines():
        with ps.use_engine(name):
            assert np.array_equal(ps.encode(x, ps.BF16, "stochastic", seed=9), want)
    assert not np.array_equal(ps.encode(x, ps.BF16, "stochastic", seed=10), want)


@pytest.mark.parametrize(
    ("value", "ups", "low", "high"),
    [
        (0x3F801000, 4096, 0x3F80, 0x3F81),
        (0x3FFFF000, 61440, 0x3FFF, 0x4000),
        (0x3F800000, 0, 0x3F80, 0x3F81),
    ],
    ids=hex,
)
def test_the_law_is_exact_over_all_65536_noise_values(value, ups, low, high):
    x = np.full(65536, value, np.uint32).view(np.float32)
    noise = np.arange(65536, dtype=np.uint16)
    codes = ps.encode(x, ps.BF16, "stochastic", random_bits=noise)
    assert np.count_nonzero(codes == high) == ups
    assert np.count_nonzero(codes == low) == 65536 - ups


def test_every_noise_value_in_the_subnormal_range_and_at_the_overflow_edge():
    noise = np.arange(256, dtype=np.uint8)
    for value, fmt in [
        (2.0**-12 * 1.25, ps.E4M3),
        (65504 + 8.0, ps.FP16),
        (449.0, ps.E4M3),
        (2.0**-40, ps.E5M2),
    ]:
        codes = ps.encode(np.full(256, value), fmt, "stochastic", random_bits=noise)
        rounding = ps.Rounding("stochastic", random_bits=8)
        assert codes.tolist() == [reference_encode(value, fmt, rounding, random=r) for r in range(256)]


def test_randomness_is_an_argument():
    with pytest.raises(ps.InputError, match="needs seed="):
        ps.encode(1.0, ps.FP16, "stochastic")
    with pytest.raises(ps.InputError, match="seed must lie in"):
        ps.encode(1.0, ps.FP16, "stochastic", seed=-1)
    with pytest.raises(ps.InputError, match="seed must be an integer"):
        ps.encode(1.0, ps.FP16, "stochastic", seed=0.5)
    with pytest.raises(ps.InputError, match="x's shape"):
        ps.encode(np.zeros(3), ps.FP16, "stochastic", random_bits=np.zeros(4, np.uint8))
    with pytest.raises(ps.InputError, match="0 … 15"):
        ps.encode(np.zeros(3), ps.FP16, ps.Rounding("stochastic", random_bits=4), random_bits=np.full(3, 16))
    with pytest.raises(ps.InputError, match="needs rounding 'stochastic'"):
        ps.encode(1.0, ps.FP16, random_bits=8)
    with pytest.raises(ps.InputError, match="take at most 28 random bits"):
        ps.encode(np.int64([1 << 60]), ps.FP32, "stochastic", seed=1)


def test_given_bits_of_quantize_reach_tensors():
    x = torch.full((256,), 1.0 + 2.0**-8)
    noise = torch.arange(256, dtype=torch.uint8)
    got = ps.quantize(x, ps.BF16, "stochastic", random_bits=noise)
    assert int((got > 1).sum()) == 128
    assert torch.equal(
        got, torch.from_numpy(ps.quantize(x.numpy(), ps.BF16, "stochastic", random_bits=noise.numpy()))
    )
