"""The fast part of the proofs, and planted bugs that they must find."""

from __future__ import annotations

import dataclasses

import pytest

import precsim as ps
from precsim.kernels.array import bits as engine_bits
from precsim.number import Mode, Overflow
from precsim.testing import prove as proofs
from precsim.testing.prove import LANES, main, prove, prove_reading, replay, rule
from precsim.testing.specification import switching_points

pytest.importorskip("z3", reason="proofs need z3-solver")

OTHER_MODES = [mode for mode in Mode if mode not in (Mode.NEAREST_EVEN, Mode.STOCHASTIC)]


@pytest.mark.parametrize("source", LANES)
@pytest.mark.parametrize("fmt", [ps.FP32, ps.TF32, ps.FP16, ps.BF16, ps.E5M2, ps.E4M3, ps.E8M0], ids=str)
def test_nearest_even_is_proved_for_every_input(fmt, source):
    assert prove(fmt, rule(Mode.NEAREST_EVEN), source, timeout=120).status == "proved"


@pytest.mark.parametrize("mode", OTHER_MODES, ids=lambda m: m.value)
def test_every_mode_is_proved_for_every_float32(mode):
    assert prove(ps.FP16, rule(mode), "fp32", timeout=120).status == "proved"
    assert prove(ps.E4M3, rule(mode), "fp32", timeout=120).status == "proved"


@pytest.mark.parametrize("overflow", Overflow, ids=lambda o: o.value)
def test_every_overflow_rule_is_proved_for_every_float32(overflow):
    for fmt in (ps.BF16, ps.E4M3, ps.E4M3FNUZ):
        assert prove(fmt, rule(Mode.UP, overflow), "fp32", timeout=120).status == "proved"


@pytest.mark.parametrize("source", LANES)
@pytest.mark.parametrize("fmt", [ps.FP16, ps.E4M3, ps.INT8], ids=str)
def test_stochastic_rounding_is_proved_for_every_input_and_every_noise(fmt, source):
    assert prove(fmt, rule(Mode.STOCHASTIC, random_bits=13), source, timeout=120).status == "proved"


@pytest.mark.parametrize("what", ["fp32", "int64"])
def test_sources_are_read_right_as_is_proved_for_every_one(what):
    assert prove_reading(what, timeout=120).status == "proved"


def half_up(ops, bits, plan, lane, random):
    """Bug: ties go away from zero."""
    return engine_bits.cast_bits(ops, bits, dataclasses.replace(plan, mode=Mode.NEAREST_AWAY), lane)


def sticky_lost(ops, bits, plan, lane, random):
    """Bug: the source's last bit is not looked at."""
    return engine_bits.cast_bits(ops, (bits >> 1) << 1, plan, lane)


def overflow_early(ops, bits, plan, lane, random):
    """Bug: the greatest finite value counts as beyond the range."""
    return engine_bits.cast_bits(ops, bits, dataclasses.replace(plan, max_code=plan.max_code - 1), lane)


@pytest.mark.parametrize("source", LANES)
@pytest.mark.parametrize("fmt", [ps.FP16, ps.E4M3], ids=str)
@pytest.mark.parametrize("bug", [half_up, sticky_lost, overflow_early], ids=lambda f: f.__name__)
def test_a_planted_bug_is_refuted_by_an_input_that_shows_it(bug, fmt, source):
    rounding = rule(Mode.NEAREST_EVEN)
    verdict = prove(fmt, rounding, source, cast=bug, timeout=120)
    assert verdict.status == "refuted"
    got, want = replay(fmt, rounding, source, verdict.counterexample, cast=bug)
    assert got != want
    assert replay(fmt, rounding, source, verdict.counterexample) == (want, want)


def noise_short(ops, bits, plan, lane, random):
    """Bug: the last random bit is not looked at."""
    return engine_bits.cast_bits(ops, bits, plan, lane, (random >> 1) << 1)


@pytest.mark.parametrize("fmt", [ps.FP16, ps.E4M3], ids=str)
def test_a_lost_random_bit_is_refuted_by_an_input_and_noise_that_show_it(fmt):
    rounding = rule(Mode.STOCHASTIC, random_bits=8)
    verdict = prove(fmt, rounding, "fp32", cast=noise_short, timeout=120)
    assert verdict.status == "refuted"
    got, want = replay(fmt, rounding, "fp32", verdict.counterexample, verdict.random, cast=noise_short)
    assert got != want
    assert replay(fmt, rounding, "fp32", verdict.counterexample, verdict.random) == (want, want)


def test_integers_cut_short_are_refuted(monkeypatch):
    read = proofs.integers_to_odd

    def bit_lost(space, integers):
        return read(space, type(integers)((integers.bits >> 1) << 1))

    monkeypatch.setattr(proofs, "integers_to_odd", bit_lost)
    verdict = prove_reading("int64", timeout=120)
    assert verdict.status == "refuted"
    assert verdict.counterexample & 1


def test_switching_points_are_where_the_standard_has_them():
    points = switching_points(ps.E2M1, Mode.NEAREST_EVEN, False, LANES["fp32"])
    assert len(points) == 8  # seven codes, and where it overflows
    # 0.25 is a tie that goes to zero; the next float32 does not.
    assert points[0] == 0x3E800001
    # 0.75 is a tie between 0.5 (odd) and 1 (even).
    assert points[1] == 0x3F400000


@pytest.fixture
def one_process(monkeypatch):
    """A pool whose work is done here: what is patched stays so, and nothing forks beside pytest's threads."""

    class Pool:
        map = staticmethod(map)

        def __init__(self, processes):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(proofs, "ProcessPoolExecutor", Pool)


@pytest.mark.usefixtures("one_process")
def test_the_command_prints_what_is_proved(capsys):
    assert main(["--fast"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("proved in" in line for line in lines) == 5
    assert not any(word in line for line in lines for word in ("refuted", "unknown"))


@pytest.mark.usefixtures("one_process")
def test_the_command_fails_where_something_is_refuted(monkeypatch, capsys):
    monkeypatch.setattr(proofs, "_tasks", lambda fast: [])
    refuted = proofs.Verdict("int64 read as fp64", "refuted", 0.0, 1)
    monkeypatch.setattr(proofs, "prove_reading", lambda what: refuted)
    assert main([]) == 1
    assert "REFUTED int64 read as fp64" in capsys.readouterr().out
