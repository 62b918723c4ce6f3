"""Scales by block against each block's own window, and roles by usual names."""

from __future__ import annotations

import numpy as np
import pytest

import precsim as ps
from precsim.analyze.blockwise import BLOCK, blockwise_outcomes
from precsim.analyze.dead import dead_below
from precsim.analyze.roles import role_of
from precsim.kernels import Source, engine
from precsim.sketches import Outcomes


@pytest.mark.parametrize("fmt", [ps.E4M3, ps.E5M2, ps.FP16, ps.E2M1], ids=str)
@pytest.mark.parametrize("n", [0, 1, BLOCK, 5 * BLOCK + 17])
def test_each_block_is_cast_at_the_high_end_of_its_window(fmt, n):
    rng = np.random.default_rng(n)
    x = (rng.lognormal(-9, 5, n) * rng.choice([-1, 1, 0], n)).astype(np.float32)
    x[2::BLOCK] = np.float32(fmt.max) * np.float32(2.0**-40)
    x[BLOCK : BLOCK + 100] = 0
    want = Outcomes(0, 0, 0, 0, 0, 0)
    for start in range(0, n, BLOCK):
        s = ps.sketch(x[start : start + BLOCK])
        high = s.window(fmt, 1.0, 1.0).high
        want += s.outcomes(fmt, 1.0 if high is None else 2.0**high)
    got = blockwise_outcomes(Source(x, ps.FP32), fmt, engine())
    assert got == want
    assert got.overflowed == 0


def test_numbers_that_are_not_finite_set_no_scale():
    x = np.float32([np.inf, np.nan, 1.0, 2.0**-60])
    assert blockwise_outcomes(Source(x, ps.FP32), ps.FP16, engine()) == Outcomes(0, 1, 0, 1, 0, 2)


def test_dead_numbers_are_left_out_of_blocks():
    x = np.full(300, 2.0**-5, np.float32)
    x[[3, 200]] = 2.0**-100
    s = ps.sketch(x)
    assert dead_below(s) == -99
    got = blockwise_outcomes(Source(x, ps.FP32), ps.E4M3, engine(), dead_below=-99)
    assert got == Outcomes(0, 0, 0, 298, 0, 0)


@pytest.mark.parametrize(
    ("numbers", "cut"),
    [
        ([1.0] * 200 + [2.0**-40], -39),  # 39 empty binades
        ([1.0] * 200 + [2.0**-40, 2.0**-60], -39),
        ([1.0] * 200 + [2.0**-20], None),  # not below eps
        ([1.0] * 200 + [2.0**-k for k in range(16, 60, 15)], None),  # no gap
        ([1.0] * 100 + [2.0**-40] * 2, None),  # too many
        ([0.0], None),
    ],
)
def test_which_numbers_are_dead(numbers, cut):
    assert dead_below(ps.sketch(np.float32(numbers))) == cut


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("act_grad/layer0.probs@a", "activation gradient"),
        ("act/layer0.ln1", "activation"),
        ("grad/layers.0.ln1.weight", "norm"),
        ("grad/bn.bias", "norm"),
        ("grad/layers.0.key.bias", "bias"),
        ("grad/word.weight.touched_rows", "embedding"),
        ("grad/wte.weight", "embedding"),
        ("transformer.h.0.ln_1.weight", "norm"),
        ("model.embed_tokens.weight", "embedding"),
        ("model.layers.3.input_layernorm.weight", "norm"),
        ("grad/layers.0.down.weight", "weight"),
        ("stem.weight", "weight"),
        ("fc.bias", "bias"),
        ("w", "weight"),
    ],
)
def test_a_role_is_read_from_the_name(name, role):
    assert role_of(name) == role
