"""Settings of scalers: warnings that come true at the step they name, refusals, one line to read them from."""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from precsim.amp.scalers import (
    SCALERS,
    ExponentialUpdate,
    Jmp,
    Megatron,
    MegatronState,
    Paddle,
    Static,
    Torch,
    TrackerState,
    parse_scaler,
)
from precsim.amp.scalers.float32 import reciprocal32, to_float16, to_float32
from precsim.amp.scalers.hysteresis import GoodAndBadState
from precsim.errors import InputError

EXAMPLES = {
    "static": "static:scale=1024",
    "exponential-update": "exponential-update:init=2^15,growth_interval=1000",
}


def named(name):
    return parse_scaler(EXAMPLES.get(name, name))


def steps_in(text, pattern):
    """The number of steps that a warning names, None if no warning matches."""
    found = re.search(pattern, text)
    return found and int(found[1])


@pytest.mark.parametrize(
    "text",
    [
        "torch",
        "torch:init=3000,backoff_factor=0.7",
        "sharded-torch",
        "apex",
        "megatron:init=2^-100,min_scale=2^-140,hysteresis=4",
        "deepspeed:min_scale=2^-140,raise_at_min=false,hysteresis=3",
        "keras",
        "paddle:hysteresis=2",
        "jmp:min_scale=0",
        "torch:backoff_factor=0",
    ],
)
def test_the_fall_comes_at_the_overflow_that_is_named(text):
    scaler = parse_scaler(text)
    lines = "\n".join(scaler.warnings())
    states = list(scaler.states([True] * 2000))
    zero = next((step for step, state in enumerate(states, 1) if state.scale == 0), None)
    infinite = next(
        (step for step, state in enumerate(states, 1) if math.isinf(reciprocal32(state.scale))), None
    )
    assert infinite is not None
    said_zero = (
        1
        if "after one overflow the scale is 0" in lines
        else steps_in(lines, r"after (\d+) \S+ in a row the scale is 0")
    )
    assert said_zero == zero
    if not scaler.divides and infinite != zero:
        assert (
            steps_in(lines, r"after (\d+) overflows in a row the scale is \S+, whose reciprocal") == infinite
        )


def test_torch_is_named_the_numbers_of_its_defaults():
    lines = Torch().warnings()
    assert lines[0].startswith(
        "after 144 overflows in a row the scale is 2^-128, whose reciprocal is infinite"
    )
    assert lines[1].startswith("no floor: after 166 overflows in a row the scale is 0")


@pytest.mark.parametrize("text", ["tensorflow", "backoff", "jmp", "metaseq", "fairseq", "deepspeed"])
def test_what_has_a_floor_and_a_cap_is_not_warned_of(text):
    assert parse_scaler(text).warnings() == ()


@pytest.mark.parametrize(
    "text",
    [
        "sharded-torch:growth_interval=3",
        "torch:growth_interval=3,finite_check=false,init=3",
        "megatron:growth_interval=3,growth_factor=1.5",
        "keras:growth_interval=3",
        "paddle:growth_interval=3",
    ],
)
def test_infinity_comes_at_the_good_step_that_is_named(text):
    scaler = parse_scaler(text)
    said = steps_in("\n".join(scaler.warnings()), r"after (\d+) good steps in a row the scale is infinite")
    states = list(scaler.states([False] * said + [True] * 5 + [False] * 5))
    assert math.isfinite(states[said - 2].scale)
    assert {state.scale for state in states[said - 1 :]} == {math.inf}
    assert not any("infinite, for good" in line for line in Torch().warnings())


def test_an_interval_below_the_tracker():
    state = TrackerState(scale=65536.0, growth_tracker=1500)
    scaler = Torch(growth_interval=1000)
    (line,) = set(scaler.warnings(state)) - set(scaler.warnings())
    assert line.startswith(
        "growth_tracker 1500 has passed growth_interval 1000, to which it is compared by equality"
    )
    for _ in range(5000):
        state = scaler.update(state, False)
    assert state.scale == 65536.0
    # One below the interval is not late: the next good step is the one.
    assert scaler.warnings(TrackerState(scale=65536.0, growth_tracker=999)) == scaler.warnings()
    # Where the count is compared by "at least" there is nothing to warn of.
    assert (
        parse_scaler("tensorflow:growth_interval=10").warnings(TrackerState(scale=8.0, growth_tracker=50))
        == ()
    )


def test_an_interval_below_the_tracker_of_other_systems():
    (line,) = set(Megatron(growth_interval=5).warnings(MegatronState(scale=8.0, growth_tracker=7))) - set(
        Megatron(growth_interval=5).warnings(MegatronState(scale=8.0))
    )
    assert "growth_tracker 7" in line
    bad = Paddle(hysteresis=2).warnings(GoodAndBadState(scale=8.0, bad_steps=2))
    assert any(line.startswith("bad_steps 2 has passed hysteresis 2") for line in bad)
    scaler, state = Jmp(growth_interval=5), TrackerState(scale=8.0, growth_tracker=11)
    (line,) = scaler.warnings(state)
    assert "restarts at 2" in line
    steps = steps_in(line, r"does not grow for (\d+) good steps")
    for _ in range(steps):
        state = scaler.update(state, False)
        assert state.scale == 8.0
    assert scaler.update(state, False).scale == 16.0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("torch:init=3000", "init 3000.0: no power of two"),
        ("torch:growth_factor=1.5", "growth_factor 1.5: no power of two"),
        ("exponential-update:init=1,growth_interval=9", "backoff_factor 0.8: no power of two"),
        ("fairseq:threshold=0.3", "threshold 0.3: no power of two"),
        ("static:scale=1000", "scale 1000.0: no power of two"),
        ("static:scale=2^-130", "at the first step 1/scale, of 2^-130, is infinite in float32"),
        ("torch:init=2^-130", "at the first step 1/scale, of 2^-130, is infinite in float32"),
        ("static:scale=2^127", "at the first step 1/scale, of 2^127, is subnormal in float32"),
        ("torch:init=2^127", "growth leaves the scale at 2^127"),
        ("torch:growth_factor=1.00000001", "growth leaves the scale at 2^16"),
        ("torch:growth_interval=0", "growth_interval 0 is never reached"),
        ("torch:backoff_factor=-1", "backoff_factor -1 is negative"),
        (
            "fairseq:threshold=256",
            "the floor is above the scale: overflow number 1 raises it from 2^7 to 2^8",
        ),
        ("deepspeed:init=0.5", "the floor is above the scale: overflow number 2 raises it from 2^-1 to 2^0"),
        ("jmp:min_scale=0.25", "min_scale 0.25 is 1 again"),
        ("layerwise:power_of_two=false", "power_of_two is off"),
        ("lognormal", "the scale is no power of two at nearly every step"),
    ],
)
def test_a_warning_fires(text, line):
    assert any(warning.startswith(line) for warning in parse_scaler(text).warnings())


def test_an_odd_scale_rounds_twice():
    """1/3000 in float32, then the product: a gradient of 3 comes back as 0.0009999999310821295."""
    inverse = reciprocal32(3000.0)
    assert inverse == float(np.float32(0.00033333332976326346))
    assert to_float32(3.0 * inverse) == 0.0009999999310821295


@pytest.mark.parametrize("name", SCALERS)
def test_warnings_are_single_lines_and_quick_to_say(name):
    for line in named(name).warnings():
        assert line.isprintable()


@pytest.mark.parametrize("name", SCALERS)
def test_the_spec_is_read_back(name):
    scaler = named(name)
    assert parse_scaler(scaler.spec) == scaler
    assert scaler == named(name)
    assert hash(scaler) == hash(named(name))
    for alias in (name.upper(), name.replace("-", "_"), f" {name} ", *SCALERS[name].other_names):
        assert type(parse_scaler(scaler.spec.replace(name, alias, 1))) is type(scaler)


@pytest.mark.parametrize(
    "scaler",
    [
        Torch(init=3.7, growth_factor=1.1, backoff_factor=1 / 3, growth_interval=7, finite_check=False),
        Torch(init=2.0**-126),
        Static(1e30),
        Static(0.1),
        ExponentialUpdate(init=2**31, growth_interval=2),
        parse_scaler("fairseq:threshold=0.25"),
    ],
)
def test_odd_settings_are_read_back(scaler):
    assert parse_scaler(scaler.spec) == scaler


def test_settings_of_the_originals_are_understood():
    assert parse_scaler("torch:init=65536,growth_interval=2000") == Torch()
    assert parse_scaler("deepspeed:loss_scale_window=500,min_loss_scale=2").growth_interval == 500
    assert parse_scaler("fairseq:threshold-loss-scale=2^-2").threshold == 0.25
    assert parse_scaler("fairseq:threshold=none").threshold is None
    for scaler in SCALERS.values():
        names = {field.name for field in scaler.settings()}
        assert set(scaler.originals.values()) <= names
        assert not set(scaler.originals) & names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torhc", "unknown scaler 'torhc', did you mean 'torch'?; known: static, torch, sharded-torch"),
        ("", "unknown scaler ''; known: static"),
        (
            "torch:int=3",
            "scaler torch: unknown setting 'int', did you mean 'init'?; settings: init, growth_factor",
        ),
        ("torch:init", "scaler torch: 'init' has no =; settings: init"),
        ("torch:init=many", "scaler torch: init must be a finite number, got 'many'"),
        ("torch:init=nan", "scaler torch: init must be a finite number, got 'nan'"),
        ("torch:growth_interval=2.5", "scaler torch: growth_interval must be a whole number, got '2.5'"),
        ("torch:finite_check=maybe", "scaler torch: finite_check must be true or false, got 'maybe'"),
        ("torch:init=1,init_scale=2", "scaler torch: init is given twice"),
        ("torch:init=2^128", "scaler torch: init 3.40282e+38 is beyond float32"),
        ("torch:init=2^-160", "scaler torch: init 6.84228e-49 is 0 in float32"),
        ("torch:init=0", "scaler torch: init must be above 0, got 0"),
        ("torch:growth_factor=1", "scaler torch: growth_factor must be above 1, got 1"),
        ("torch:backoff_factor=1", "scaler torch: backoff_factor must be below 1, got 1"),
        ("megatron:min_scale=2^40", "scaler megatron: min_scale must be above 0 and at most init"),
        ("megatron:hysteresis=0", "scaler megatron: hysteresis must be at least 1, got 0"),
        ("deepspeed:growth_interval=0", "scaler deepspeed: growth_interval must be at least 1, got 0"),
        ("fairseq:tolerance=2", "scaler fairseq: tolerance must be a share in 0 … 1, got 2"),
        ("apex:min_scale=2^30", "scaler apex: min_scale must be above 0 and at most max_scale"),
        ("lognormal:beta1=1", "scaler lognormal: beta1 must be at least 0 and below 1, got 1"),
        (
            "layerwise:max_layer_scale=1e6",
            "scaler layerwise: max_layer_scale must be above 0 and within float16",
        ),
        ("static", "scaler static needs scale, as in static:scale=1024"),
        (
            "exponential-update",
            "scaler exponential-update needs init and growth_interval, as in "
            "exponential-update:init=2^15,growth_interval=2000",
        ),
    ],
)
def test_unusable_lines_are_refused_in_one(text, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        parse_scaler(text)


@pytest.mark.parametrize("value", [True, "8", None, math.inf, 1 + 2j])
def test_a_setting_of_another_kind_is_refused(value):
    with pytest.raises(InputError, match="^init must be a finite number"):
        Torch(init=value)


def test_numbers_of_other_types_are_taken():
    scaler = Torch(init=np.float32(8), growth_interval=np.int64(3))
    assert scaler == Torch(init=8, growth_interval=3)
    assert type(scaler.init) is float
    assert type(scaler.growth_interval) is int
    with pytest.raises(dataclasses.FrozenInstanceError):
        scaler.init = 1.0


def test_float32_and_float16_round_as_numpy_does():
    generator = np.random.default_rng(0)
    exponents = np.concatenate([generator.integers(-160, 140, 5000), generator.integers(-30, 20, 5000)])
    values = np.ldexp(1 + generator.random(10_000), exponents)
    with np.errstate(over="ignore"):
        singles, halves = values.astype(np.float32), values.astype(np.float16)
    assert np.array_equal([to_float32(value) for value in values], singles.astype(float))
    assert np.array_equal([to_float16(value) for value in values], halves.astype(float))
    assert to_float32(-1e39) == -math.inf


def test_scalers_load_no_heavy_package():
    heavy = {"torch", "scipy", "rich", "safetensors", "pyarrow", "jax"}
    code = "import sys, precsim.amp.scalers; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert heavy & set(loaded.split()) == set()
    assert "precsim.amp.scalers.catalogue" in loaded.split()
