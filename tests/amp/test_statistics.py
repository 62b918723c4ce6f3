"""Scalers that follow statistics: OpenSeq2Seq's LogMax and the layer-wise scale."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns import bits_of

from precsim.amp.scalers import LayerFacts, LayerWise, LogNormal
from precsim.errors import InputError

magnitudes = st.lists(st.one_of(st.none(), st.floats(2.0**-40, 2.0**20, width=32)), min_size=1, max_size=30)


def numpy_scales(values, beta1, beta2, deviations, nonfinite):
    """The rule in NumPy's float32, the whole sums of it written out."""
    single = np.float32
    b1, r1, b2, r2 = single(beta1), single(1 - beta1), single(beta2), single(1 - beta2)
    mean = slow = square = single(0)
    c1 = c2 = single(1)
    for value in values:
        x = single(nonfinite) if value is None else single(math.log(value)) / single(math.log(2))
        mean = b1 * mean + r1 * x
        slow = b2 * slow + r2 * x
        square = b2 * square + r2 * (x * x)
        c1, c2 = c1 * b1, c2 * b2
        mu = mean / (single(1) - c1)
        variance = square / (single(1) - c2) - (slow / (single(1) - c2)) ** 2
        sigma = np.sqrt(np.maximum(variance, single(0)))
        power = float(single(16) - (sigma * single(deviations) + mu))
        yield float(np.clip(single(2.0 ** max(min(power, 1000), -1000)) if power < 128 else np.inf, 1, 2**24))


@settings(max_examples=1000, deadline=None)
@given(magnitudes, st.sampled_from([0.99, 0.5, 0.0]), st.sampled_from([0.999, 0.9]), st.booleans())
def test_lognormal_is_float32_throughout(values, beta1, beta2, meant):
    scaler = LogNormal(beta1=beta1, beta2=beta2, nonfinite_is_log_max=meant)
    wanted = list(numpy_scales(values, beta1, beta2, 3.09, 16 if meant else 65536))
    got = [state.scale for state in scaler.states([value is None for value in values], values)]
    assert [bits_of(scale) for scale in got] == [bits_of(scale) for scale in wanted]


def test_lognormal_lets_the_greatest_gradient_come_to_2_to_the_16():
    """No spread: scale·amax = 2^16, until the cap."""
    scaler = LogNormal(beta1=0.5, beta2=0.5)  # decays that float32 holds, so that nothing is rounded
    for amax, scale in ((1.0, 2.0**16), (2.0**-4, 2.0**20), (2.0**-20, 2.0**24), (2.0**20, 1.0)):
        assert [state.scale for state in scaler.states([False] * 5, [amax] * 5)] == [scale] * 5
    published = LogNormal(beta1=0.5, beta2=0.5, max_scale=2**14)
    assert published.update(published.initial(), False, 1.0).scale == 2**14


def test_lognormal_keeps_away_by_309_deviations():
    """log2(amax) alternates between ±1, decays of 1/2: after two steps μ = 1/3, E[x²] = 1."""
    scaler = LogNormal(beta1=0.5, beta2=0.5)
    second = [*scaler.states([False] * 2, [0.5, 2.0])][-1].scale
    cutoff = 1 / 3 + 3.09 * math.sqrt(1 - 1 / 9)
    assert abs(math.log2(second) - (16 - cutoff)) < 2**-18  # float32 on the way: 16 has an ulp of 2^-19


@pytest.mark.parametrize(("meant", "scale"), [(True, 2.0**16 / 2.0**16), (False, 1.0)])
def test_lognormal_after_one_infinite_step(meant, scale):
    scaler = LogNormal(nonfinite_is_log_max=meant)
    assert scaler.update(scaler.initial(), True).scale == scale


def test_lognormal_is_held_at_its_floor_as_long_as_it_warns():
    """One non-finite step, counted as log2(amax) = 65536, keeps the scale at 1 for 11,979 steps."""
    (line,) = [line for line in LogNormal().warnings() if "65536" in line]
    steps = int(line.split(" for ")[1].split()[0])
    pattern = [False] * 999 + [True] + [False] * (steps + 1)
    scales = [state.scale for state in LogNormal().states(pattern, [1.0] * len(pattern))]
    assert set(scales[999 : 999 + steps]) == {1.0}
    assert scales[999 + steps] > 1.0
    assert not any("65536" in line for line in LogNormal(nonfinite_is_log_max=True).warnings())


def test_lognormal_never_recovers_from_a_step_of_zeros():
    states = list(LogNormal().states([False] * 50, [1.0, 0.0] + [1.0] * 48))
    assert [math.isnan(state.scale) for state in states] == [False] + [True] * 49
    assert any("all zero" in line for line in LogNormal().warnings())


def test_lognormal_asks_for_amax():
    with pytest.raises(InputError, match="needs amax at each finite step"):
        LogNormal().update(LogNormal().initial(), False)


FACTS = LayerFacts(
    gradient_mean=0.0,
    gradient_std=1e-6,
    gradient_amax=5e-6,
    weight_mean=0.0,
    weight_std=0.02,
    weight_amax=0.1,
    fan_in=512,
)


def scales_of(layers, **settings):
    scaler = LayerWise(**settings)
    return scaler.scaled(scaler.initial(), layers).layers


def test_layers_lift_a_thousandth_of_their_products_out_of_underflow():
    """σ of a sum: 1e-6·0.02·√256 = 3.2e-7; |z| < 0.00125331 has probability 0.001; 6e-8 / that = 149.6."""
    assert scales_of([FACTS], max_layer_scale=1024) == (128.0,)
    (raw,) = scales_of([FACTS], max_layer_scale=1024, power_of_two=False)
    assert raw == float(np.float16(6e-8 / (0.001253314465432556 * 3.2e-7)))


def test_bounds_of_a_layer_and_of_all():
    small = dataclasses.replace(FACTS, gradient_std=1e-12, gradient_amax=1e-11)
    assert scales_of([small] * 4) == (16.0, 256.0, 1024.0, 1024.0)
    assert scales_of([small] * 4, max_layer_scale=128, max_accumulated=4096) == (
        128.0,
        4096.0,
        4096.0,
        4096.0,
    )


def test_a_scale_travels_with_the_gradient():
    """The second layer's gradient is 16 times larger when it arrives: it needs 149.6 / 16, the third nothing."""
    assert scales_of([FACTS] * 3) == (16.0, 128.0, 128.0)
    assert scales_of([FACTS], init=64.0) == (128.0,)


def test_means_count_and_zeros_do_not():
    shifted = dataclasses.replace(FACTS, gradient_mean=1e-4, weight_mean=1.0)
    assert scales_of([shifted]) == (1.0,)
    for nothing in ({"gradient_std": 0.0, "gradient_amax": 0.0}, {"weight_std": 0.0, "weight_amax": 0.0}):
        assert scales_of([dataclasses.replace(FACTS, **nothing)]) == (1.0,)


def test_the_greatest_sum_is_kept_from_overflow():
    """6e4 / 512 / (1000·0.1) = 1.17 → 1; ten times that gradient: 0.117 → 2^-4, a layer that scales down."""
    large = dataclasses.replace(FACTS, gradient_amax=1000.0)
    assert scales_of([large]) == (1.0,)
    assert scales_of([dataclasses.replace(large, gradient_amax=10_000.0)]) == (0.0625,)


def test_layers_are_looked_at_every_so_many_steps():
    scaler = LayerWise(every=2)
    large = dataclasses.replace(FACTS, gradient_std=1e-2)
    seen, state = [], scaler.initial()
    for facts in (FACTS, large, large, FACTS):
        state = scaler.scaled(state, [facts])
        seen.append(state.layers)
        state = scaler.update(state, False)
    assert seen == [(16.0,), (16.0,), (1.0,), (1.0,)]
    with pytest.raises(InputError, match="2 layers were given where 1 were looked at before"):
        scaler.scaled(dataclasses.replace(state, iteration=1), [FACTS, FACTS])
