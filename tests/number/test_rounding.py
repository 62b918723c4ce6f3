"""Rounding rules as values: choices by name, what contradicts, equality."""

from __future__ import annotations

import dataclasses

import pytest

import precsim as ps
from precsim.number import plan_cast


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        (ps.Mode, "NEAREST_EVEN"),
        (ps.Overflow, "SATURATE_FINITE"),
        (ps.NanPolicy, "KEEP_SIGN"),
        (ps.MissingNan, "LARGEST"),
    ],
)
def test_a_choice_is_found_by_its_value(choice, name):
    member = choice[name]
    for given in (member, member.value, f" {member.value.upper()} ", member.value.replace("-", "_")):
        assert choice.of(given) is member


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"mode": "nearest"},
            "Mode 'nearest' is unknown; did you mean 'nearest-[a-z]+'.? Known: nearest-even,",
        ),
        ({"mode": 1}, "Mode 1 is unknown"),
        ({"overflow": "saturated"}, "Overflow 'saturated' is unknown; did you mean 'saturate'"),
        ({"overflow": ps.Mode.UP}, "Overflow <Mode.UP: 'up'> is unknown"),
        ({"nan": "payload"}, "NanPolicy 'payload' is unknown"),
        ({"missing_nan": "zero"}, "MissingNan 'zero' is unknown"),
        ({"out_of_domain": "abs"}, "OutOfDomain 'abs' is unknown"),
        ({"random_bits": 8}, "random_bits needs mode 'stochastic', got mode 'nearest-even'"),
        ({"mode": "stochastic", "random_bits": 0}, "random_bits must be 1 to 32, got 0"),
        ({"mode": "stochastic", "random_bits": 33}, "random_bits must be 1 to 32, got 33"),
    ],
    ids=str,
)
def test_unknown_choices_and_contradictions(fields, message):
    with pytest.raises(ps.InputError, match=message) as caught:
        ps.Rounding(**fields)
    assert "\n" not in str(caught.value)


def test_rules_are_frozen_and_equal_by_meaning():
    rule = ps.Rounding("stochastic", "saturate")
    assert rule == ps.Rounding(ps.Mode.STOCHASTIC, ps.Overflow.SATURATE, random_bits=32)
    assert hash(rule) == hash(ps.Rounding("stochastic", "saturate", 32))
    assert rule != ps.Rounding("stochastic", "saturate", 16)
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.mode = ps.Mode.UP


@pytest.mark.parametrize(
    ("mode", "positive", "negative"),
    [
        ("nearest-even", False, False),
        ("toward-zero", True, True),
        ("up", False, True),
        ("down", True, False),
        ("away", False, False),
        ("to-odd", True, True),
        ("stochastic", False, False),
    ],
)
def test_modes_that_end_at_the_greatest_finite_value(mode, positive, negative):
    """IEEE 754-2019, 7.4."""
    rule = ps.Rounding(mode)
    assert rule.overflows_inward(False) is positive
    assert rule.overflows_inward(True) is negative
    assert ps.Rounding(mode, "saturate").overflows_inward(False)
    assert ps.Rounding(mode, "saturate-finite").overflows_inward(True)


def test_a_plan_needs_a_format_of_at_most_32_bits():
    with pytest.raises(ps.InputError, match="format fp64 is too wide to be a cast's target"):
        plan_cast(ps.FP64, ps.Rounding())
    assert plan_cast(ps.FP32, ps.Rounding()).storage_bits == 32
