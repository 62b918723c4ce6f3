"""Scalers against the systems themselves, where they are installed: DeepSpeed, Keras, jmp."""

from __future__ import annotations

import os
import struct
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns import bits_of, patterns

from precsim.amp.scalers import DeepSpeed, Jmp, Keras

powers = st.integers(-4, 40).map(lambda exponent: 2.0**exponent)
scales = st.one_of(powers, st.floats(2.0**-20, 2.0**30, width=32))


def optional(*modules):
    """The last of some modules, or a skip; their own warnings are theirs."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [pytest.importorskip(module, exc_type=ImportError) for module in modules][-1]


@settings(max_examples=2000, deadline=None)
@given(
    scales,
    st.integers(1, 6),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([0.25, 1.0, 3.0]),
    st.booleans(),
    patterns,
)
def test_deepspeed(init, window, hysteresis, consecutive, minimum, raises, pattern):
    module = optional("deepspeed.runtime.fp16.loss_scaler")
    real = module.DynamicLossScaler(
        init_scale=init,
        scale_window=window,
        min_scale=minimum,
        delayed_shift=hysteresis,
        consecutive_hysteresis=consecutive,
        raise_error_at_min_scale=raises,
    )
    module.dist.get_rank = lambda: 1  # rank 0 logs
    scaler = DeepSpeed(
        init=init,
        growth_interval=window,
        hysteresis=hysteresis,
        consecutive_hysteresis=consecutive,
        min_scale=minimum,
        raise_at_min=raises,
    )
    for found, state in zip(pattern, scaler.states(pattern), strict=True):
        if state.raised:
            with pytest.raises(Exception, match="already at minimum") as caught:
                real.update_scale(found)
            assert state.raised == f"Exception: {caught.value}"
            return
        real.update_scale(found)
        assert bits_of(state.scale) == bits_of(real.loss_scale)
        assert state.hysteresis == real.cur_hysteresis


@settings(max_examples=100, deadline=None)
@given(scales, st.integers(0, 5), patterns)
def test_keras(init, interval, pattern):
    keras = optional("torch", "keras")
    if keras.backend.backend() != "torch":
        pytest.skip(f"Keras was configured for {keras.backend.backend()}")
    torch = optional("torch")
    real = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.0), initial_scale=init, dynamic_growth_steps=interval
    )
    variable = keras.Variable([0.0])
    real.build([variable])
    scaler = Keras(init=init, growth_interval=interval)
    for found, state in zip(pattern, scaler.states(pattern), strict=True):
        real.apply([torch.tensor([float("inf") if found else 1.0])], [variable])
        assert bits_of(float(real.dynamic_scale.value)) == bits_of(state.scale)
        assert int(real.step_counter.value) == state.growth_tracker


@settings(max_examples=100, deadline=None)
@given(scales, st.integers(2, 5), st.integers(1, 5), st.sampled_from([0.25, 1.0, 3.0]), patterns)
def test_jmp(init, factor, period, minimum, pattern):
    optional("jax", "jmp")
    import jax
    import jmp
    import numpy as np

    real = jmp.DynamicLossScale(
        jax.numpy.float32(init), period=period, factor=factor, min_loss_scale=np.float32(minimum)
    )
    scaler = Jmp(init=init, factor=factor, growth_interval=period, min_scale=minimum)
    for found, state in zip(pattern[:16], scaler.states(pattern[:16]), strict=True):
        real = real.adjust(jax.numpy.array(not found))
        assert struct.pack(">f", float(real.loss_scale)) == struct.pack(">f", state.scale)
        assert int(real.counter) == state.growth_tracker


def test_jmp_drops_its_minimum_when_flattened():
    """What `Jmp.warnings` says."""
    optional("jax", "jmp")
    import jax
    import jmp
    import numpy as np

    real = jmp.DynamicLossScale(jax.numpy.float32(1.0), min_loss_scale=np.float32(0.25))
    leaves, structure = jax.tree_util.tree_flatten(real)
    again = jax.tree_util.tree_unflatten(structure, leaves)
    assert (float(real.min_loss_scale), float(again.min_loss_scale)) == (0.25, 1.0)
    assert any("min_scale 0.25 is 1 again" in line for line in Jmp(min_scale=0.25).warnings())
