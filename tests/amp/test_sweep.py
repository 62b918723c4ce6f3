"""A sweep against stepping each scaler by itself: every number, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns import bits_of

from precsim.amp.scalers import Fairseq, Torch, parse_scaler, sweep
from precsim.errors import InputError

SETTINGS = [
    "torch:growth_interval={n},init={s}",
    "torch:growth_interval={n},init={s},growth_factor=1.3,backoff_factor=0.7",
    "torch:growth_interval=0,init={s}",
    "torch:growth_interval={n},init=2^126,growth_factor=3,finite_check=false",
    "torch:growth_interval={n},init=2^126,growth_factor=3",
    "sharded-torch:growth_interval={n},init={s},growth_factor=1.1,backoff_factor=0.9",
    "apex:growth_interval={n},init={s},min_scale=0.5,max_scale=4096",
    "apex:growth_interval={n},init={s}",
    "megatron:growth_interval={n},init={s},min_scale=2^-3,hysteresis={h}",
    "megatron:growth_interval={n},init={s},min_scale=0.1,hysteresis={h},backoff_factor=0.6,growth_factor=1.7",
    "deepspeed:growth_interval={n},init={s},hysteresis={h}",
    "deepspeed:growth_interval={n},init={s},hysteresis={h},consecutive_hysteresis=true,min_scale=4",
    "deepspeed:growth_interval={n},init={s},hysteresis={h},raise_at_min=false,early_growth=true,min_scale=4",
    "tensorflow:growth_interval={n},init={s},factor=3",
    "tensorflow:growth_interval=0,init={s}",
    "keras:growth_interval={n},init={s}",
    "paddle:growth_interval={n},init={s},hysteresis={h}",
    "paddle:growth_interval={n},init={s},hysteresis={h},static_graph=true",
    "jmp:growth_interval={n},init={s},factor=3,min_scale=0.3",
]


def floor_of(scaler):
    """The scale at which the scaler stays, if there is one."""
    if scaler.name == "tensorflow" or (scaler.name == "paddle" and scaler.static_graph):
        return 1.0
    return getattr(scaler, "min_scale", None)


def stepped(scaler, limits, nonfinite):
    """One scaler's row, with `update` alone."""
    state = scaler.initial()
    floor = floor_of(scaler)
    floor = -math.inf if floor is None else float(np.float32(floor)) if scaler.single else floor
    scales, skipped, at_floor = [state.scale], 0, 0
    for step, (limit, bad) in enumerate(zip(limits, nonfinite, strict=True)):
        found = bool(bad or state.scale > limit)
        skipped += found
        at_floor += state.scale <= floor
        state = scaler.update(state, found)
        if state.raised:
            return skipped, state.scale, min(scales), max(scales), at_floor, step
        scales.append(state.scale)
    return skipped, state.scale, min(scales), max(scales), at_floor, -1


def rows(result):
    columns = (result.skipped, result.final, result.least, result.greatest, result.at_floor, result.raised_at)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.sampled_from([0.0, 0.1, 0.6, 1.0]))
def test_every_number_is_that_of_stepping(seed, steps, share):
    generator = np.random.default_rng(seed)
    limits = np.exp2(generator.normal(6, 5, steps))
    nonfinite = generator.random(steps) < share * generator.random()
    scalers = [
        parse_scaler(
            text.format(
                n=generator.integers(1, 7), h=generator.integers(1, 4), s=2.0 ** generator.integers(-2, 15)
            )
        )
        for text in SETTINGS
        for _ in range(2)
    ]
    result = sweep(scalers, limits, nonfinite)
    for scaler, row in zip(scalers, rows(result), strict=True):
        wanted = stepped(scaler, limits, nonfinite)
        assert [bits_of(value) for value in row] == [bits_of(value) for value in wanted], scaler.spec


def test_a_long_run_of_all_systems():
    generator = np.random.default_rng(1)
    limits = np.exp2(np.cumsum(generator.normal(0, 0.05, 20_000)) + 12)
    nonfinite = generator.random(20_000) < 1e-3
    scalers = [parse_scaler(text.format(n=200, h=2, s=65536)) for text in SETTINGS]
    result = sweep(scalers, limits, nonfinite)
    assert rows(result) == [stepped(scaler, limits, nonfinite) for scaler in scalers]
    assert result.steps == 20_000
    assert 0 < result.skipped.min() < result.skipped.max()


def test_a_run_of_no_steps_and_a_sweep_of_no_scalers():
    result = sweep([Torch()], [])
    assert rows(result) == [(0, 65536.0, 65536.0, 65536.0, 0, -1)]
    assert rows(sweep([], [1.0])) == []


@pytest.mark.parametrize(
    ("scalers", "limits", "nonfinite", "message"),
    [
        ([Fairseq()], [1.0], None, "^Fairseq can't be swept: step it with update"),
        ([Torch()], [[1.0]], None, "^limits must be one number a step without NaN"),
        ([Torch()], [math.nan], None, "^limits must be one number a step without NaN"),
        ([Torch()], [1.0, 2.0], [True], r"^nonfinite must have one flag a step: \(2,\), got \(1,\)"),
    ],
)
def test_what_can_not_be_swept(scalers, limits, nonfinite, message):
    with pytest.raises(InputError, match=message):
        sweep(scalers, limits, nonfinite)


def test_an_infinite_limit_never_overflows():
    assert sweep([Torch(growth_interval=1)], [math.inf] * 200).skipped.tolist() == [0]


def test_shares_flushed_are_of_the_steps_taken_at_their_scale():
    random = np.random.default_rng(3)
    limits = 2.0 ** random.integers(2, 9, 300)
    table = random.random((300, 6))  # scales 2^2 … 2^7
    scalers = [Torch(init=2.0**k, growth_interval=n) for k in (0, 3, 12) for n in (1, 3, 50)]
    result = sweep(scalers, limits, flushed=table, first_exponent=2)
    assert result.flushed is not None
    for i, scaler in enumerate(scalers):
        state, shares = scaler.initial(), []
        for limit, row in zip(limits, table, strict=True):
            if not (found := state.scale > limit):
                shares.append(row[min(max(int(math.log2(state.scale)) - 2, 0), 5)])
            state = scaler.update(state, found)
        assert len(shares) == 300 - result.skipped[i]
        assert result.flushed[i] == pytest.approx(
            np.mean(shares), rel=1e-12
        )  # sums of floats, in another order


def test_the_pareto_front():
    limits = [2.0**10] * 50
    table = np.linspace(1, 0, 21)[None].repeat(50, 0)  # the higher the scale, the less is flushed
    texts = ["torch:init=2^10,growth_interval=10", "torch:init=2^8"]
    scalers = [Torch(init=2.0**4, growth_interval=1000), Torch(init=2.0**8, growth_interval=1000)]
    scalers += [parse_scaler(text) for text in texts]
    result = sweep(scalers, limits, flushed=table)
    assert result.skipped.tolist() == [0, 0, 4, 0]
    assert result.pareto() == [1, 2]
    with pytest.raises(InputError, match="no shares flushed"):
        sweep(scalers, limits).pareto()
    with pytest.raises(InputError, match="a row for each of 50 steps"):
        sweep(scalers, limits, flushed=table[:3])
