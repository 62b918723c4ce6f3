"""`Torch` and `ShardedTorch` against PyTorch's own: bits of the scale and the tracker at every step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns import PATTERN, bits_of, pattern_of, patterns

from precsim.amp.scalers import ShardedTorch, Torch, TrackerState

torch = pytest.importorskip("torch", reason="what is compared with is torch")

scales = st.floats(2.0**-149, 2.0**127, width=32)
growth_factors = st.one_of(st.sampled_from([2.0, 4.0]), st.floats(1.0, 10.0, exclude_min=True))
backoff_factors = st.one_of(st.sampled_from([0.5, 0.0, -1.0]), st.floats(0.01, 1.0, exclude_max=True))
intervals = st.integers(-1, 6)


def kernel_states(scaler, pattern, scale, tracker=0):
    """What torch's kernel makes of a pattern, step by step."""
    scale = torch.tensor(scale, dtype=torch.float32)
    tracker = torch.tensor(tracker, dtype=torch.int32)
    for found in pattern:
        torch._amp_update_scale_(
            scale,
            tracker,
            torch.tensor(float(found)),
            scaler.growth_factor,
            scaler.backoff_factor,
            scaler.growth_interval,
        )
        yield bits_of(scale.item()), tracker.item()


def own_states(scaler, pattern, state):
    for found in pattern:
        state = scaler.update(state, found)
        yield bits_of(state.scale), state.growth_tracker


def test_ten_thousand_patterns_step_like_the_kernel():
    scaler = Torch(growth_interval=3)
    data = np.random.default_rng(5).bytes(10_000 * 4)
    # Overflows are rare in half of the patterns (the and of two random bytes) and the rule in the other half.
    for start in range(0, len(data), 4):
        first, second = data[start : start + 2], data[start + 2 : start + 4]
        join = (lambda a, b: a & b) if start % 8 else (lambda a, b: a | b)
        pattern = pattern_of(bytes(join(a, b) for a, b in zip(first, second, strict=True)))
        wanted = list(kernel_states(scaler, pattern, 65536.0))
        assert list(own_states(scaler, pattern, scaler.initial())) == wanted, pattern


@settings(max_examples=1000, deadline=None)
@given(scales, growth_factors, backoff_factors, intervals, st.integers(0, 8), patterns)
def test_any_settings_step_like_the_kernel(scale, growth, backoff, interval, tracker, pattern):
    scaler = Torch(init=scale, growth_factor=growth, backoff_factor=backoff, growth_interval=interval)
    start = TrackerState(scale=scaler.initial().scale, growth_tracker=tracker)
    assert list(own_states(scaler, pattern, start)) == list(kernel_states(scaler, pattern, scale, tracker))


@settings(max_examples=200, deadline=None)
@given(growth_factors, backoff_factors, st.integers(0, 4), patterns)
def test_the_class_itself_steps_alike(growth, backoff, interval, pattern):
    given_settings = {"growth_factor": growth, "backoff_factor": backoff, "growth_interval": interval}
    real = torch.amp.GradScaler("cpu", init_scale=2.0**16, **given_settings)
    weight = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    real.scale(torch.zeros(()))
    scaler = Torch(**given_settings)
    for found, state in zip(pattern, scaler.states(pattern), strict=True):
        weight.grad = torch.tensor([1.0, math.inf if found else 1.0])
        real.step(optimizer)
        real.update()
        assert bits_of(real.get_scale()) == bits_of(state.scale)
        assert real._growth_tracker.item() == state.growth_tracker


@settings(max_examples=300, deadline=None)
@given(scales, growth_factors, backoff_factors, intervals, patterns)
def test_any_settings_step_like_the_sharded_scaler(scale, growth, backoff, interval, pattern):
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    given_settings = {"growth_factor": growth, "backoff_factor": backoff, "growth_interval": interval}
    real = ShardedGradScaler("cpu", init_scale=scale, process_group=None, **given_settings)
    real._lazy_init_scale_growth_tracker(torch.device("cpu"))
    scaler = ShardedTorch(init=scale, **given_settings)
    for found, state in zip(pattern, scaler.states(pattern), strict=True):
        real._amp_update_scale_cpu_(torch.tensor([float(found)]))
        assert bits_of(real._scale.item()) == bits_of(state.scale)
        assert real._growth_tracker.item() == state.growth_tracker


def test_the_published_trace_is_the_kernels():
    scaler = Torch(growth_interval=5)
    assert list(own_states(scaler, PATTERN, scaler.initial())) == list(
        kernel_states(scaler, PATTERN, 65536.0)
    )


def test_a_kept_and_an_infinite_growth():
    """2^127·2: the kernel keeps the scale and resets the tracker; the sharded scaler on the CPU, and CUDA before the
    check was added, go to infinity, from where no backoff leads back."""
    start = TrackerState(scale=2.0**127, growth_tracker=1)
    kept = Torch(growth_interval=2).update(start, False)
    assert kept == TrackerState(scale=2.0**127, growth_tracker=0)
    for scaler in (ShardedTorch(growth_interval=2), Torch(growth_interval=2, finite_check=False)):
        grown = scaler.update(start, False)
        assert grown == TrackerState(scale=math.inf, growth_tracker=0)
        assert scaler.update(grown, True).scale == math.inf


def test_the_factor_is_rounded_by_the_sharded_scaler_alone():
    """1.1 is no float32: 3·1.1 rounded once and twice differ in the last bit."""
    once = Torch(init=3.0, growth_factor=1.1, growth_interval=1)
    both = ShardedTorch(init=3.0, growth_factor=1.1, growth_interval=1)
    tensor = torch.tensor(3.0)
    tensor *= 1.1
    (first,), (second,) = once.states([False]), both.states([False])
    assert bits_of(second.scale) == bits_of(tensor.item())
    assert first.scale != second.scale


@pytest.mark.parametrize("scale", [2.0**-128, 0.0])
def test_the_scale_that_warnings_name_destroys_weights_unseen(scale):
    """At 2^-128 the reciprocal is infinite; torch takes the step, and the weight is gone."""
    real = torch.amp.GradScaler("cpu")
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    real.scale(torch.zeros(()))
    real.update(scale)
    loss = real.scale((weight * 3).sum())
    loss.backward()
    real.step(optimizer)
    assert real._found_inf_per_device(optimizer)[weight.device].item() == 0
    assert not torch.isfinite(weight).any()


def test_the_scale_just_above_does_not():
    real = torch.amp.GradScaler("cpu")
    weight = torch.ones(1, requires_grad=True)
    real.scale(torch.zeros(()))
    real.update(2.0**-127)
    real.scale((weight * 3).sum()).backward()
    real.step(torch.optim.SGD([weight], lr=0.5))
    assert weight.item() == -0.5
