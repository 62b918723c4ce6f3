"""What the array engine's casts stand on: integers read to odd, random words. NumPy and torch alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import precsim as ps
from precsim.kernels import Source
from precsim.kernels.array.bits import FLOAT64_LANE
from precsim.kernels.array.load import load_bits
from precsim.kernels.array.philox import philox
from precsim.kernels.array.spaces import space_of
from precsim.sketches.edges import bin_map

LENGTHS = range(1, 65)
CUTS = (0, 1, 2, 10, 11, 12, 51, 52, 53, 54)


def integers_of_every_length(dtype) -> np.ndarray:
    """Powers of two, runs of ones, and both with one more bit set or cleared at every place that could matter."""
    magnitudes = {0}
    for length in LENGTHS:
        top, ones = 1 << (length - 1), (1 << length) - 1
        magnitudes |= {top, ones}
        for cut in CUTS:
            magnitudes |= {top | (top >> cut), ones ^ (top >> cut), ones - ((1 << cut) - 1) & ones}
            magnitudes |= {top | (top >> 52) | (1 << cut), top + (1 << cut)}
    limits = np.iinfo(dtype)
    signed = {sign * n for n in magnitudes for sign in (1, -1)}
    return np.array(sorted(n for n in signed if limits.min <= n <= limits.max), dtype)


def to_odd(n: int) -> float:
    """The float64 of an integer, the odd one of its neighbours where there is none."""
    cut = max(abs(n).bit_length() - 53, 0)
    kept = abs(n) >> cut
    kept |= kept << cut != abs(n)
    return float(kept << cut) * (-1 if n < 0 else 1)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_are_read_to_odd(dtype):
    numbers = integers_of_every_length(dtype)
    want = np.array([to_odd(n) for n in numbers.tolist()])
    bits = load_bits(space_of(numbers, FLOAT64_LANE), Source(numbers, None), FLOAT64_LANE, 0.0, 1.0)
    assert np.array_equal(bits, want.view(np.int64))
    if dtype is np.int64:
        tensor = torch.from_numpy(numbers)
        same = load_bits(space_of(tensor, FLOAT64_LANE), Source(tensor, None), FLOAT64_LANE, 0.0, 1.0)
        assert np.array_equal(same.numpy(), bits)


@pytest.mark.parametrize("name", ps.available_engines())
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_every_engine_reads_integers_so(name, dtype):
    with ps.use_engine(name) as chosen:
        for n in integers_of_every_length(dtype).tolist():
            if n:
                table = chosen.count(Source(np.array([n], dtype), None), bin_map())
                assert table.amax == table.amin == abs(to_odd(n)), n


# Random123, kat_vectors, philox4x32 of 10 rounds: counter, key, words.
KNOWN_ANSWERS = [
    ([0] * 4, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ([0xFFFFFFFF] * 4, (1 << 64) - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        0x299F31D0A4093822,
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize("array_of", [np.array, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(array_of, counter, key, words):
    got = philox(tuple(array_of([word]) for word in counter), key)
    assert " ".join(f"{int(word[0]):08x}" for word in got) == words
