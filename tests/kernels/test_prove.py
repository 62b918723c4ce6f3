"""The fast part of the proofs, and planted bugs that they must find."""

from __future__ import annotations

import dataclasses

import pytest

import precsim as ps
from precsim.kernels.array import bits as engine_bits
from precsim.number import plan_cast
from precsim.testing.prove import LANES, MODES, prove, replay, switching_points

pytest.importorskip("z3", reason="proofs need z3-solver")


@pytest.mark.parametrize("source", LANES)
@pytest.mark.parametrize("fmt", [ps.FP16, ps.BF16, ps.E5M2, ps.E4M3], ids=str)
def test_nearest_even_is_proved_for_every_input(fmt, source):
    assert prove(fmt, ps.Mode.NEAREST_EVEN, source, timeout=120).status == "proved"


@pytest.mark.parametrize(
    "mode", [mode for mode in MODES if mode is not ps.Mode.NEAREST_EVEN], ids=lambda m: m.value
)
def test_every_mode_is_proved_for_every_float32(mode):
    assert prove(ps.FP16, mode, "fp32", timeout=120).status == "proved"
    assert prove(ps.E4M3, mode, "fp32", timeout=120).status == "proved"


def half_up(ops, bits, plan, lane):
    """Bug: ties go away from zero."""
    return engine_bits.cast_bits(ops, bits, dataclasses.replace(plan, mode=ps.Mode.NEAREST_AWAY), lane)


def sticky_lost(ops, bits, plan, lane):
    """Bug: the source's last bit is not looked at."""
    return engine_bits.cast_bits(ops, (bits >> 1) << 1, plan, lane)


def overflow_early(ops, bits, plan, lane):
    """Bug: the greatest finite value counts as beyond the range."""
    return engine_bits.cast_bits(ops, bits, dataclasses.replace(plan, max_code=plan.max_code - 1), lane)


@pytest.mark.parametrize("source", LANES)
@pytest.mark.parametrize("fmt", [ps.FP16, ps.E4M3], ids=str)
@pytest.mark.parametrize("bug", [half_up, sticky_lost, overflow_early], ids=lambda f: f.__name__)
def test_a_planted_bug_is_refuted_by_an_input_that_shows_it(bug, fmt, source):
    mode = ps.Mode.NEAREST_EVEN
    plan = plan_cast(fmt, ps.Rounding(mode))
    verdict = prove(fmt, mode, source, cast=bug, timeout=120)
    assert verdict.status == "refuted"
    got, want = replay(fmt, mode, source, verdict.counterexample, plan, bug)
    assert got != want
    right, want_again = replay(fmt, mode, source, verdict.counterexample, plan)
    assert right == want_again == want


def test_switching_points_are_where_the_standard_has_them():
    points = switching_points(ps.E2M1, ps.Mode.NEAREST_EVEN, False, LANES["fp32"])
    assert [code for _, code in points] == [1, 2, 3, 4, 5, 6, 7, 7]  # the last one is where it overflows
    # 0.25 is a tie that goes to zero; the next float32 does not.
    assert points[0][0] == 0x3E800001
    # 0.75 is a tie between 0.5 (odd) and 1 (even).
    assert points[1][0] == 0x3F400000
