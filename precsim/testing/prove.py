"""Proofs that the array engine casts every input right: ``python -m precsim.testing.prove``.

The engine's own functions (`precsim.kernels.array`) run on symbolic bits of the SMT solver z3, which then looks for an
input, and random bits where there are any, whose code differs from `precsim.testing.specification`. Finding none, it
has proved that there is none among all 2^32 or 2^64.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from precsim.kernels.array.bits import FLOAT32_LANE, FLOAT64_LANE, Lane, cast_bits, lane_for
from precsim.kernels.array.load import integers_to_odd, load_bits, widen
from precsim.kernels.array.spaces import NumpySpace
from precsim.kernels.engine import Source
from precsim.number import NAMED_FORMATS, CastPlan, Format, MissingNan, Mode, Overflow, Rounding, plan_cast
from precsim.number.reference import encode
from precsim.testing.specification import THEORY_FORMATS, float_sort, is_right
from precsim.testing.symbols import SignedInteger, Symbols

__all__ = ["LANES", "Verdict", "prove", "prove_reading", "replay", "rule"]

LANES = {"fp32": FLOAT32_LANE, "fp64": FLOAT64_LANE}
Cast = Callable[[Any, Any, CastPlan, Lane, Any], Any]

_OTHER_OVERFLOWS = (Overflow.SATURATE, Overflow.SATURATE_FINITE, Overflow.NAN)
_MODES_WITH_THEM = (Mode.NEAREST_EVEN, Mode.UP, Mode.TO_ODD, Mode.STOCHASTIC)
_RANDOM_BITS = (1, 8, 13, 32)


@dataclass(frozen=True)
class Verdict:
    """What the solver found.

    Attributes
    ----------
    subject : str
        What was cast, how, and from what.
    status : str
        ``proved``, ``refuted``, ``sampled`` (the solver gave up; boundary cases are right) or ``unknown``.
    seconds : float
        The solver's.
    counterexample : int or None
        Bits of an input that is cast wrong.
    random : int or None
        The random bits with which it is.
    """

    subject: str
    status: str
    seconds: float
    counterexample: int | None = None
    random: int | None = None


def _z3() -> Any:
    try:
        import z3
    except ImportError:
        print("precsim.testing.prove needs z3: pip install z3-solver", file=sys.stderr)
        raise SystemExit(2) from None
    return z3


def rule(mode: Mode, overflow: Overflow = Overflow.INFINITY, random_bits: int | None = None) -> Rounding:
    """The rule under proof; a NaN has to become something in formats without one too."""
    return Rounding(mode, overflow, random_bits, missing_nan=MissingNan.LARGEST)


def prove(
    fmt: Format,
    rounding: Rounding,
    source: str,
    *,
    cast: Cast = cast_bits,
    timeout: int = 300,
) -> Verdict:
    """Look for an input that the engine casts differently from the specification.

    Parameters
    ----------
    fmt : Format
        fp32, tf32, fp16, bf16, e5m2, or a format of at most 8 bits.
    rounding : Rounding
        Without flushing.
    source : {"fp32", "fp64"}
    cast : callable
        The engine's function; a wrong one is to be refuted.
    timeout : int
        Seconds.
    """
    z3 = _z3()
    source_lane, plan = LANES[source], plan_cast(fmt, rounding)
    lane = lane_for(plan, source_is_wide=source == "fp64")
    bits, random = z3.BitVec("x", source_lane.bits), z3.BitVec("R", 64)
    symbols = Symbols(z3, lane)
    loaded = bits if lane is source_lane else widen(symbols, bits)
    code = z3.Extract(fmt.bits - 1, 0, cast(symbols, loaded, plan, lane, random))
    wrong = z3.Not(is_right(z3, bits, code, fmt, rounding, source_lane, random))
    noise_fits = z3.ULT(random, 1 << plan.random_bits)
    return _solve(z3, f"{fmt} {rounding.mode.value} {source}", [wrong, noise_fits], bits, random, timeout)


def prove_reading(what: str, *, timeout: int = 300) -> Verdict:
    """Look for a float32 or an int64 that the engine reads wrong as a float64.

    Parameters
    ----------
    what : {"fp32", "int64"}
    timeout : int
        Seconds.
    """
    z3 = _z3()
    symbols = Symbols(z3, FLOAT64_LANE)
    if what == "fp32":
        bits = z3.BitVec("x", 32)
        value = z3.fpToFP(z3.RNE(), z3.fpBVToFP(bits, float_sort(z3, FLOAT32_LANE)), z3.Float64())
        got = widen(symbols, bits)
        is_nan = z3.fpIsNaN(z3.fpBVToFP(got, z3.Float64()))
        right = z3.If(z3.fpIsNaN(value), is_nan, got == z3.fpToIEEEBV(value))
    else:
        bits = z3.BitVec("x", 64)
        below, above = (z3.fpSignedToFP(direction, bits, z3.Float64()) for direction in (z3.RTN(), z3.RTP()))
        is_odd = z3.Extract(0, 0, z3.fpToIEEEBV(below)) == 1
        right = integers_to_odd(symbols, SignedInteger(bits)) == z3.fpToIEEEBV(
            z3.If(z3.Or(below == above, is_odd), below, above)
        )
    return _solve(z3, f"{what} read as fp64", [z3.Not(right)], bits, z3.BitVec("R", 64), timeout)


def _solve(z3: Any, subject: str, claims: list[Any], bits: Any, random: Any, timeout: int) -> Verdict:
    solver = z3.Solver()
    solver.set("timeout", timeout * 1000)
    solver.add(*claims)
    begin = time.perf_counter()
    answer = solver.check()
    seconds = time.perf_counter() - begin
    if answer != z3.sat:
        return Verdict(subject, "proved" if answer == z3.unsat else "unknown", seconds)
    example, noise = (solver.model().eval(symbol, True).as_long() for symbol in (bits, random))
    return Verdict(subject, "refuted", seconds, example, noise)


def replay(
    fmt: Format, rounding: Rounding, source: str, bits: int, random: int | None = None, cast: Cast = cast_bits
) -> tuple[int, int]:
    """What the engine's function on a NumPy array and the reference make of one input.

    Returns
    -------
    tuple of int
        Code of the engine, code of the reference.
    """
    unsigned, floating = (np.uint32, np.float32) if source == "fp32" else (np.uint64, np.float64)
    x = np.array([bits], unsigned).view(floating)
    plan = plan_cast(fmt, rounding)
    lane = lane_for(plan, source_is_wide=source == "fp64")
    space = NumpySpace(lane)
    loaded = load_bits(space, Source(x, NAMED_FORMATS[source]), lane, 0.0, 1.0)
    noise = np.array([random or 0], np.int64)
    got = int(cast(space, loaded, plan, lane, noise)[0]) & ((1 << fmt.bits) - 1)
    return got, encode(float(x[0]), fmt, rounding, random=random)


# ---- the table ------------------------------------------------------------------------------------------------------

Task = tuple[str, Mode, str]
"""Format, mode, source: one place in the table, for all overflow rules and numbers of random bits."""


def _tasks(fast: bool) -> list[Task]:
    if fast:
        return [
            (name, Mode.NEAREST_EVEN, source) for name in ("fp16", "bf16", "e5m2", "e4m3") for source in LANES
        ]
    small = [fmt.name for fmt in NAMED_FORMATS.values() if fmt.bits <= 8 and fmt.name not in THEORY_FORMATS]
    return list(itertools.product((*THEORY_FORMATS, *small), Mode, LANES))


def _rules(mode: Mode) -> list[Rounding]:
    plain = [rule(mode, random_bits=r) for r in (_RANDOM_BITS if mode is Mode.STOCHASTIC else (None,))]
    others = _OTHER_OVERFLOWS if mode in _MODES_WITH_THEM else ()
    return [*plain, *(replace(plain[-1], overflow=overflow) for overflow in others)]


def _run(task: Task) -> list[Verdict]:
    name, mode, source = task
    return [_verdict(NAMED_FORMATS[name], rounding, source) for rounding in _rules(mode)]


def _verdict(fmt: Format, rounding: Rounding, source: str) -> Verdict:
    """The proof's verdict; a refutation says what the input becomes, and where the solver gave up a sample is tried."""
    verdict = prove(fmt, rounding, source)
    if verdict.status == "unknown":
        return _sample(verdict, fmt, rounding, source)
    if verdict.counterexample is None:
        return verdict
    noise = verdict.random if rounding.mode is Mode.STOCHASTIC else None
    got, want = replay(fmt, rounding, source, verdict.counterexample, noise)
    with_noise = "" if noise is None else f" with R = {noise:#x}"
    account = f"{verdict.counterexample:#x}{with_noise} → {got:#x}, reference {want:#x}"
    return replace(verdict, subject=f"{verdict.subject}, overflow {rounding.overflow.value}: {account}")


def _sample(verdict: Verdict, fmt: Format, rounding: Rounding, source: str) -> Verdict:
    """What is left where the solver gave up: the boundary cases, said to be a sample."""
    from precsim.testing.boundaries import boundary_values

    noise = (1 << (rounding.random_bits or 0)) - 1
    unsigned = np.uint32 if source == "fp32" else np.uint64
    for bits in boundary_values(fmt, source)[:: 1 if fmt.bits <= 8 else 37].view(unsigned).tolist():
        got, want = replay(fmt, rounding, source, bits, noise if rounding.random_bits else None)
        if got != want:
            return replace(verdict, status="refuted", counterexample=bits, random=noise)
    return replace(verdict, status="sampled")


def _print_table(found: dict[Task, list[Verdict]]) -> None:
    print(f"{'format':<12} {'mode':<13} " + " ".join(f"from {source:<25}" for source in LANES))
    for name, mode in dict.fromkeys((name, mode) for name, mode, _ in found):
        cells = (f"{_cell(found[name, mode, source]):<30}" for source in LANES)
        print(f"{name:<12} {mode.value:<13} " + " ".join(cells).rstrip())


def _cell(verdicts: list[Verdict]) -> str:
    """One word for one place, the worst that applies to any of its rules."""
    statuses = {verdict.status for verdict in verdicts}
    status = next(word for word in ("refuted", "unknown", "sampled", "proved") if word in statuses)
    rules = f", {len(verdicts)} rules" if len(verdicts) > 1 else ""
    return f"{status} in {sum(verdict.seconds for verdict in verdicts):.1f} s{rules}"


def main(arguments: Iterable[str] | None = None) -> int:
    """Prove what can be proved and print a table.

    Returns
    -------
    int
        0 if nothing was refuted, else 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m precsim.testing.prove", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--fast", action="store_true", help="the quick part alone")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(None if arguments is None else list(arguments))
    _z3()
    begin = time.perf_counter()
    tasks = _tasks(options.fast)
    with ProcessPoolExecutor(options.processes) as pool:
        found = dict(zip(tasks, pool.map(_run, tasks), strict=True))
        readings = list(pool.map(prove_reading, ("fp32",) if options.fast else ("fp32", "int64")))
    _print_table(found)
    for reading in readings:
        print(f"{reading.subject}: {_cell([reading])}")
    print("from formats of at most 16 bits: exhausted, every code (tests/kernels)")
    print("to formats of your own, and rules that flush: sampled, on boundary cases (tests/kernels)")
    verdicts = [*itertools.chain.from_iterable(found.values()), *readings]
    print(f"{len(verdicts)} claims in {time.perf_counter() - begin:.0f} s")
    refuted = [verdict for verdict in verdicts if verdict.status == "refuted"]
    for verdict in refuted:
        print(f"REFUTED {verdict.subject}")
    return 1 if refuted else 0


if __name__ == "__main__":
    sys.exit(main())
