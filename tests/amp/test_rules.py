"""Each scaler's rule, against what its history says, and the trace on which the systems differ.

The oracles here keep no state between steps: they look at the whole history so far.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns import PATTERN, bits_of, patterns

from precsim.amp.scalers import (
    SCALERS,
    Apex,
    Backoff,
    DeepSpeed,
    ExponentialUpdate,
    Fairseq,
    Jmp,
    Keras,
    Megatron,
    Metaseq,
    Paddle,
    ShardedTorch,
    Static,
    TensorFlow,
    Torch,
    TrackerState,
    parse_scaler,
)


def exponents(scaler, pattern):
    """log2 of the scale after each step."""
    logarithms = [math.log2(state.scale) for state in scaler.states(pattern)]
    assert all(logarithm.is_integer() for logarithm in logarithms)
    return [int(logarithm) for logarithm in logarithms]


TORCH = "16 16 16 16 17 17 17 16 16 16 16 16 17 17 17 16 15 14 14 14 14 14 15 15 15"
DEEPSPEED = "16 16 16 16 16 17 17 17 17 17 17 17 17 18 18 18 17 16 16 16 16 16 16 17 17"
MEGATRON = "16 16 16 16 17 17 17 17 17 17 17 17 18 18 18 18 17 16 16 16 16 16 17 17 17"
METASEQ = "16 16 16 16 17 17 17 16 16 16 16 16 17 17 17 16 15 14 15 16 16 17 17 17 17"


@pytest.mark.parametrize(
    ("scaler", "trace"),
    [
        (Torch(growth_interval=5), TORCH),
        (ShardedTorch(growth_interval=5), TORCH),
        (Apex(growth_interval=5), TORCH),
        (Fairseq(init=2**16, growth_interval=5), TORCH),
        (TensorFlow(init=2**16, growth_interval=5), TORCH),
        (Keras(init=2**16, growth_interval=5), TORCH),
        (Jmp(init=2**16, growth_interval=5), TORCH),
        (Paddle(growth_interval=5), TORCH),
        (Metaseq(init=2**16, growth_interval=5), METASEQ),
        (DeepSpeed(growth_interval=5, hysteresis=2), DEEPSPEED),
        (Megatron(init=2**16, growth_interval=5, hysteresis=2), MEGATRON),
    ],
    ids=lambda value: value.name if not isinstance(value, str) else "",
)
def test_the_reference_trace(scaler, trace):
    assert exponents(scaler, PATTERN) == [int(number) for number in trace.split()]


def good_runs(pattern):
    """For each step, the good steps that end at it, since the last overflow."""
    run = 0
    for found in pattern:
        run = 0 if found else run + 1
        yield run


@settings(max_examples=3000, deadline=None)
@given(st.integers(1, 7), patterns)
def test_one_octave_down_at_each_overflow_and_up_at_each_full_interval(interval, pattern):
    """From 2^40 at most 32 octaves in either direction meet no bound of these settings."""
    moves = [-1 if not run else int(run % interval == 0) for run in good_runs(pattern)]
    wanted = [40 + sum(moves[: step + 1]) for step in range(len(pattern))]
    for scaler in (
        Torch(init=2**40, growth_interval=interval),
        ShardedTorch(init=2**40, growth_interval=interval),
        Apex(init=2**40, growth_interval=interval, max_scale=2.0**100),
        TensorFlow(init=2**40, growth_interval=interval),
        Keras(init=2**40, growth_interval=interval),
        Jmp(init=2**40, growth_interval=interval),
        Paddle(init=2**40, growth_interval=interval),
        Fairseq(init=2**40, growth_interval=interval, min_scale=2.0**-100),
        DeepSpeed(init=2**40, growth_interval=interval, hysteresis=1, min_scale=2**-20, early_growth=True),
        Megatron(init=2**40, growth_interval=interval, hysteresis=1, min_scale=2**-20),
    ):
        got = [math.frexp(state.scale)[1] - 1 for state in scaler.states(pattern)]
        assert got == wanted, scaler


@settings(max_examples=3000, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), patterns)
def test_megatron_counts_overflows_since_the_last_growth(interval, hysteresis, pattern):
    """Not since the last good step, as its text says."""
    grown = [bool(run) and run % interval == 0 for run in good_runs(pattern)]
    exponent = 60
    for step, state in enumerate(
        Megatron(init=2**60, growth_interval=interval, hysteresis=hysteresis).states(pattern)
    ):
        since = max((index for index in range(step) if grown[index]), default=-1)
        if pattern[step]:
            exponent -= sum(pattern[since + 1 : step + 1]) >= hysteresis
        else:
            exponent += grown[step]
        assert state.scale == 2.0**exponent


@settings(max_examples=3000, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.booleans(), patterns)
def test_deepspeed_grows_a_step_late_and_refills_as_told(window, hysteresis, consecutive, pattern):
    runs = list(good_runs(pattern))
    refills = [run > 0 and (consecutive or (run > 1 and (run - 1) % window == 0)) for run in runs]
    exponent = 60
    scaler = DeepSpeed(
        2.0**60, growth_interval=window, hysteresis=hysteresis, consecutive_hysteresis=consecutive
    )
    for step, state in enumerate(scaler.states(pattern)):
        since = max((index for index in range(step) if refills[index]), default=-1)
        if pattern[step]:
            exponent -= sum(pattern[since + 1 : step + 1]) >= hysteresis
        else:
            exponent += runs[step] > 1 and (runs[step] - 1) % window == 0
        assert state.scale == 2.0**exponent


def test_deepspeed_log_of_a_real_run():
    """Overflow from the start at 2^16: the hysteresis goes first, then 32768, 16384, 8192 (DeepSpeed #931)."""
    states = list(DeepSpeed().states([True] * 4))
    assert [(state.scale, state.hysteresis) for state in states] == [
        (65536, 1),
        (32768, 1),
        (16384, 1),
        (8192, 1),
    ]


def test_deepspeed_raises_at_its_minimum():
    states = list(DeepSpeed(init=4, hysteresis=1).states([True, True, True, False, True]))
    assert [state.scale for state in states] == [2, 1, 1, 1, 1]
    assert [state.raised is not None for state in states] == [False, False, True, True, True]
    assert states[2].raised.endswith("already at minimum - cannot decrease scale anymore. Exiting run.")
    assert all(state.raised is None for state in DeepSpeed(init=4, raise_at_min=False).states([True] * 9))


def test_megatron_two_overflows_999_steps_apart_count_together():
    scaler = Megatron()
    states = list(scaler.states([True] + [False] * 999 + [True]))
    assert (states[0].scale, states[-1].scale) == (2**32, 2**31)
    refilled = list(scaler.states([True] + [False] * 1000 + [True]))
    assert refilled[-1].scale == 2**33


def test_megatron_floor_is_1():
    assert [state.scale for state in Megatron(init=4, hysteresis=1).states([True] * 4)] == [2, 1, 1, 1]


@settings(max_examples=2000, deadline=None)
@given(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 9), patterns)
def test_fairseq_falls_at_its_share_of_overflows(tolerance, window, pattern):
    exponent, falls, changes = 60, [-1], [-1]
    runs = list(good_runs(pattern))
    scaler = Fairseq(init=2**60, growth_interval=window, tolerance=tolerance)
    for step, state in enumerate(scaler.states(pattern)):
        if pattern[step]:
            share = Fraction(sum(pattern[falls[-1] + 1 : step + 1]), step - changes[-1])
            if share >= Fraction(tolerance):
                exponent -= 1
                falls.append(step)
                changes.append(step)
        elif runs[step] % window == 0:
            exponent += 1
            changes.append(step)
        assert state.scale == 2.0**exponent


def test_fairseq_raises_at_1e_minus_4():
    """From 2^7 the 21st overflow would lead to 2^-14, which is at most 1e-4; the scale is kept as it was."""
    states = list(Fairseq().states([True] * 22))
    assert [state.raised is not None for state in states] == [False] * 20 + [True] * 2
    assert states[-1].scale == 2.0**-13
    assert states[-1].raised == "FloatingPointError: Minimum loss scale reached (0.0001)"


def test_fairseq_raises_at_its_minimum_metaseq_below_it():
    raised = list(Fairseq(init=1, min_scale=0.25).states([True] * 2))
    assert [(state.scale, state.raised is None) for state in raised] == [(0.5, True), (0.5, False)]
    assert [state.scale for state in Metaseq(init=1, min_scale=0.25).states([True] * 3)] == [0.5, 0.25, 0.25]


def test_fairseq_threshold_is_a_floor_that_ends_the_run_only_at_the_minimum():
    states = list(Fairseq(threshold=2.0**-5).states([True] * 40))
    assert (states[-1].scale, states[-1].raised) == (2.0**-5, None)


def test_metaseq_window_moves_with_the_scale_and_its_floor_is_2_to_the_minus_5():
    scaler = Metaseq()
    assert (scaler.init, scaler.growth_interval) == (4.0, 256)
    grown = list(scaler.states([False] * 1024))
    changes = [step + 1 for step in range(1, 1024) if grown[step].scale != grown[step - 1].scale]
    assert changes == [256, 512, 1024]
    fallen = list(scaler.states([True] * 12))
    assert [state.scale for state in fallen] == [2, 1, 0.5, 0.25, 0.125, 0.0625] + [2.0**-5] * 6
    assert [state.window for state in fallen] == [128, 64, 32, 16, 8, 4, 2, 1, 1, 1, 1, 1]


@settings(max_examples=2000, deadline=None)
@given(st.integers(1, 6), patterns)
def test_backoff_starts_at_its_cap_and_stays_between(window, pattern):
    exponent = 14
    runs = list(good_runs(pattern))
    for step, state in enumerate(Backoff(max_scale=2**14, growth_interval=window).states(pattern)):
        if pattern[step]:
            exponent = max(exponent - 1, 0)
        elif runs[step] % window == 0:
            exponent = min(exponent + 1, 14)
        assert state.scale == 2.0**exponent


def test_exponential_update_adds_up_bad_steps_over_good_ones():
    scaler = ExponentialUpdate(init=1000, growth_interval=4)
    pattern = [1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    #  one bad, two good, second bad: lowered; four good: doubled; one bad, four good: doubled and bad steps forgotten
    lowered = 1000 * 0.8
    wanted = [1000] * 3 + [lowered] * 4 + [2 * lowered] * 5 + [4 * lowered] * 2
    got = [state.scale for state in scaler.states(pattern)]
    assert [round(value, 3) for value in got] == wanted
    assert [math.frexp(value)[0] * 2**24 % 1 for value in got] == [0.0] * len(got)  # float32, each of them


def test_exponential_update_stops_at_1_and_grows_to_no_infinity():
    low = list(ExponentialUpdate(init=1.5, growth_interval=9, hysteresis=1).states([True] * 3))
    assert [state.scale for state in low][1:] == [1.0, 1.0]
    high = list(ExponentialUpdate(init=2.0**127, growth_interval=1).states([False] * 3))
    assert {(state.scale, state.good_steps) for state in high} == {(2.0**127, 0)}


def test_paddle_bad_steps_have_to_follow_one_another():
    before_2_5 = Paddle(init=2**15, growth_interval=1000, hysteresis=2)
    assert [state.scale for state in before_2_5.states([1, 0, 1, 0, 1])] == [2**15] * 5
    assert [state.scale for state in before_2_5.states([1, 1, 1, 1])] == [2**15, 2**14, 2**14, 2**13]


def test_paddle_static_graph_has_a_floor_and_no_infinity():
    pattern = [True] * 200
    assert [*Paddle(static_graph=True).states(pattern)][-1].scale == 1
    assert [*Paddle().states(pattern)][-1].scale == 0
    good = [False] * 3
    assert [*Paddle(init=2**126, growth_interval=1, static_graph=True).states(good)][-1].scale == 2.0**127
    assert [*Paddle(init=2**126, growth_interval=1).states(good)][-1].scale == math.inf


def test_apex_bounds():
    assert Apex(init=2.0**30).initial().scale == 2.0**24
    assert [*Apex(growth_interval=1).states([False] * 20)][-1].scale == 2.0**24
    assert [*Apex(min_scale=128).states([True] * 20)][-1].scale == 128
    assert [*Apex().states([True] * 200)][-1].scale == 2.0 ** (16 - 200)  # a Python float, far below float32


def test_tensorflow_floor_1_and_keras_none():
    pattern = [True] * 20
    assert [*TensorFlow().states(pattern)][-1].scale == 1
    assert [*Keras().states(pattern)][-1].scale == 2.0**-5
    good = [False] * 3
    assert [*TensorFlow(init=2**126, growth_interval=1).states(good)][-1].scale == 2.0**127
    assert [*Keras(init=2**126, growth_interval=1).states(good)][-1].scale == math.inf


def test_jmp_floor_1_and_last_finite():
    assert [*Jmp().states([True] * 20)][-1].scale == 1
    assert [*Jmp(init=2**126, growth_interval=1).states([False] * 3)][-1].scale == 2.0**127


def test_torch_edges():
    """Interval lowered below the tracker, interval 0, no floor: 2^-148, 2^-149, 0."""
    state, scaler = TrackerState(scale=8.0, growth_tracker=3), Torch(growth_interval=3)
    for _ in range(100):
        state = scaler.update(state, False)
    assert (state.scale, state.growth_tracker) == (8.0, 103)
    assert [*Torch(growth_interval=0).states([False] * 100)][-1].scale == 65536
    lowest = [state.scale for state in Torch(init=2.0**-147).states([True] * 3)]
    assert lowest == [2.0**-148, 2.0**-149, 0.0]
    first = next(step for step, state in enumerate(Torch().states([False] * 3000), 1) if state.scale > 65536)
    assert first == 2000


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("torch", {"init": 2**16, "growth_factor": 2, "backoff_factor": 0.5, "growth_interval": 2000}),
        (
            "sharded-torch",
            {"init": 2**16, "growth_factor": 2, "backoff_factor": 0.5, "growth_interval": 2000},
        ),
        ("apex", {"init": 2**16, "growth_interval": 2000, "min_scale": None, "max_scale": 2**24}),
        ("megatron", {"init": 2**32, "growth_interval": 1000, "min_scale": 1}),
        ("deepspeed", {"init": 2**16, "growth_interval": 1000, "hysteresis": 2, "min_scale": 1}),
        ("fairseq", {"init": 2**7, "growth_interval": 2**14, "tolerance": 0, "min_scale": 1e-4}),
        ("metaseq", {"init": 4, "growth_interval": 256, "min_scale": 2**-5}),
        ("backoff", {"min_scale": 1, "growth_interval": 2000}),
        ("lognormal", {"min_scale": 1, "beta1": 0.99, "beta2": 0.999, "deviations": 3.09}),
        ("tensorflow", {"init": 2**15, "factor": 2, "growth_interval": 2000}),
        ("keras", {"init": 2**15, "growth_interval": 2000}),
        ("paddle", {"init": 2**16, "growth_interval": 2000, "hysteresis": 1}),
        ("jmp", {"init": 2**15, "factor": 2, "growth_interval": 2000, "min_scale": 1}),
    ],
)
def test_defaults(name, defaults):
    scaler = parse_scaler(name)
    assert {key: getattr(scaler, key) for key in defaults} == defaults


DYNAMIC = [
    "torch",
    "sharded-torch",
    "apex",
    "megatron",
    "deepspeed",
    "fairseq",
    "metaseq",
    "backoff",
    "tensorflow",
]
DYNAMIC += ["keras", "paddle", "jmp", "exponential-update:init=2^15,growth_interval=2"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(DYNAMIC), patterns)
def test_a_state_is_all_that_a_step_depends_on(name, pattern):
    """Same state, same step; no overflow raises the scale and no good step lowers it."""
    scaler = parse_scaler(name)
    state = scaler.initial()
    for found in pattern:
        after = scaler.update(state, found)
        assert scaler.update(state, found) == after
        assert hash(after) == hash(scaler.update(state, found))
        assert (after.scale <= state.scale) if found else (after.scale >= state.scale)
        state = after
    assert bits_of(state.scale) == bits_of([*parse_scaler(name).states(pattern)][-1].scale)


def test_static_never_moves():
    assert {state.scale for state in Static(128).states([True, False] * 20)} == {128.0}


def test_every_scaler_names_its_source():
    for scaler in SCALERS.values():
        assert "Source:" in scaler.__doc__, scaler
