"""Proofs that the array engine casts every input right: ``python -m precsim.testing.prove``.

The engine's own functions (`precsim.kernels.array.bits`) run on symbolic bits of the SMT solver z3, which then looks
for an input whose code differs from a specification. Finding none, it has proved that there is none among all 2^32 or
2^64.

Two specifications, neither of which shares a line with the engine:

* FP16, BF16, E5M2: the floating-point theory of SMT-LIB, whose five rounding modes are those of IEEE 754. The other
  modes are put together from these: away from zero, to odd, and ties toward zero.
* formats of at most 8 bits: the number of switching points, computed by the reference in fractions, that the magnitude
  has reached.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from precsim.kernels.array.bits import FLOAT32_LANE, FLOAT64_LANE, Lane, cast_bits, lane_for
from precsim.number import NAMED_FORMATS, CastPlan, Format, MissingNan, Mode, Rounding, plan_cast
from precsim.number.reference import encode, round_magnitude

__all__ = ["Verdict", "prove", "replay"]

IEEE_FORMATS = ("fp16", "bf16", "e5m2")
MODES = tuple(mode for mode in Mode if mode is not Mode.STOCHASTIC)
LANES = {"fp32": FLOAT32_LANE, "fp64": FLOAT64_LANE}
Cast = Callable[[Any, Any, CastPlan, Lane], Any]


@dataclass(frozen=True)
class Verdict:
    """What the solver found.

    Attributes
    ----------
    format, mode, source : str
    status : str
        ``proved``, ``refuted`` or ``unknown``.
    seconds : float
    counterexample : int or None
        Bits of an input that is cast wrong.
    """

    format: str
    mode: str
    source: str
    status: str
    seconds: float
    counterexample: int | None = None


class _Symbols:
    """`Ops` on z3 bit-vectors."""

    def __init__(self, z3: Any, lane: Lane) -> None:
        self.z3, self.lane = z3, lane

    def _value(self, x: Any) -> Any:
        return self.z3.BitVecVal(x, self.lane.bits) if isinstance(x, int) else x

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return self.z3.If(condition, self._value(yes), self._value(no))

    def maximum(self, x: Any, least: int) -> Any:
        return self.where(x < least, least, x)

    def minimum(self, x: Any, greatest: int) -> Any:
        return self.where(x > greatest, greatest, x)

    def as_integer(self, condition: Any) -> Any:
        return self.where(condition, 1, 0)

    def power_of_two(self, exponent: Any) -> Any:
        return self._value(1) << exponent


def _z3() -> Any:
    try:
        import z3
    except ImportError:
        print("precsim.testing.prove needs z3: pip install z3-solver", file=sys.stderr)
        raise SystemExit(2) from None
    return z3


def _rule(mode: Mode) -> Rounding:
    """The rule under proof; a NaN has to become something in formats without one too."""
    return Rounding(mode, missing_nan=MissingNan.LARGEST)


def prove(
    fmt: Format,
    mode: Mode,
    source: str,
    *,
    plan: CastPlan | None = None,
    cast: Cast = cast_bits,
    timeout: int = 900,
) -> Verdict:
    """Look for an input that the engine casts differently from the specification.

    Parameters
    ----------
    fmt : Format
        fp16, bf16, e5m2, or a format of at most 8 bits with a sign.
    mode : Mode
        Any but stochastic.
    source : {"fp32", "fp64"}
    plan : CastPlan, optional
        What the engine goes by; a wrong one is to be refuted.
    cast : callable
        The engine's function; a wrong one is to be refuted.
    timeout : int
        Seconds.
    """
    z3 = _z3()
    rounding = _rule(mode)
    plan = plan_cast(fmt, rounding) if plan is None else plan
    source_lane = LANES[source]
    lane = lane_for(plan, source_is_wide=source == "fp64")
    bits = z3.BitVec("x", source_lane.bits)
    result = cast(_Symbols(z3, lane), bits, plan, lane)
    solver = z3.Solver()
    solver.set("timeout", timeout * 1000)
    right = _by_theory if fmt.name in IEEE_FORMATS else _by_switching_points
    solver.add(z3.Not(right(z3, bits, z3.Extract(fmt.bits - 1, 0, result), fmt, mode, source_lane)))
    begin = time.perf_counter()
    answer = solver.check()
    seconds = time.perf_counter() - begin
    status = "proved" if answer == z3.unsat else "refuted" if answer == z3.sat else "unknown"
    example = solver.model().eval(bits, True).as_long() if answer == z3.sat else None
    return Verdict(fmt.name, mode.value, source, status, seconds, example)


def _by_theory(z3: Any, bits: Any, code: Any, fmt: Format, mode: Mode, lane: Lane) -> Any:
    """Whether a code is what floating-point theory says; for NaN, whether it is one."""
    source = z3.FPSort(lane.bits - lane.fraction_bits - 1, lane.fraction_bits + 1)
    target = z3.FPSort(fmt.exponent_bits, fmt.precision)
    x = z3.fpBVToFP(bits, source)

    def rounded(direction: Any) -> Any:
        return z3.fpToFP(direction, x, target)

    toward_zero, negative = rounded(z3.RTZ()), z3.fpIsNegative(x)
    away = z3.If(negative, rounded(z3.RTN()), rounded(z3.RTP()))
    match mode:
        case Mode.NEAREST_EVEN:
            want = rounded(z3.RNE())
        case Mode.NEAREST_AWAY:
            want = rounded(z3.RNA())
        case Mode.TOWARD_ZERO:
            want = toward_zero
        case Mode.UP:
            want = rounded(z3.RTP())
        case Mode.DOWN:
            want = rounded(z3.RTN())
        case Mode.AWAY:
            want = away
        case Mode.NEAREST_ZERO:
            # Half-way points are source numbers: x is beyond one iff the source number before x has reached it.
            plain = z3.Or(z3.fpIsZero(x), z3.fpIsInf(x))
            before = z3.fpToFP(z3.RNA(), z3.fpBVToFP(bits - 1, source), target)
            want = z3.If(plain, rounded(z3.RNA()), before)
        case _:
            odd = z3.Extract(0, 0, z3.fpToIEEEBV(toward_zero)) == 1
            exact = z3.fpEQ(z3.fpToFP(z3.RNE(), toward_zero, source), x)
            # Beyond the greatest value, whose code is odd, rounding toward zero stays there.
            want = z3.If(z3.Or(exact, odd), toward_zero, away)
    numbers = z3.fpToIEEEBV(want) == code
    is_nan = z3.fpIsNaN(z3.fpBVToFP(code, target))
    return z3.If(z3.fpIsNaN(x), is_nan, numbers)


def _by_switching_points(z3: Any, bits: Any, code: Any, fmt: Format, mode: Mode, lane: Lane) -> Any:
    """Whether a code is the number of switching points that the magnitude has reached, the sign put on; or special."""
    rounding = _rule(mode)
    width = lane.bits
    magnitude = bits & lane.magnitude_mask

    def of_sign(negative: bool) -> Any:
        points = switching_points(fmt, mode, negative, lane)
        reached = z3.BitVecVal(encode(-0.0 if negative else 0.0, fmt, rounding), fmt.bits)
        for point, point_code in points:
            reached = z3.If(
                z3.UGE(magnitude, z3.BitVecVal(point, width)), z3.BitVecVal(point_code, fmt.bits), reached
            )
        infinite = z3.BitVecVal(encode(-math.inf if negative else math.inf, fmt, rounding), fmt.bits)
        not_a_number = z3.BitVecVal(
            encode(math.copysign(math.nan, -1.0 if negative else 1.0), fmt, rounding), fmt.bits
        )
        special = z3.If(magnitude == lane.infinity, infinite, not_a_number)
        return z3.If(z3.UGE(magnitude, z3.BitVecVal(lane.infinity, width)), special, reached)

    return code == z3.If(bits < 0, of_sign(True), of_sign(False))


@lru_cache(maxsize=256)
def switching_points(fmt: Format, mode: Mode, negative: bool, lane: Lane) -> list[tuple[int, int]]:
    """Source magnitudes (bits, ascending) from which on the result is another code, with the signed code.

    Found by bisection of the reference, which is monotonic, between the bits of 0 and infinity.
    """
    rounding = _rule(mode)
    unsigned = np.uint32 if lane is FLOAT32_LANE else np.uint64
    floating = np.float32 if lane is FLOAT32_LANE else np.float64
    sign = -1.0 if negative else 1.0

    def rank(bits: int) -> int:
        """0 for zero, then the magnitude codes, the overflown one last."""
        if bits == 0:
            return 0
        value = Fraction(float(unsigned(bits).view(floating)))
        code = round_magnitude(value, negative, fmt, rounding, None)
        return 0 if code is None else min(code, fmt.max_magnitude_code + 1)

    points = []
    low = 0
    while rank(low) <= fmt.max_magnitude_code:
        inside, beyond = low, lane.infinity - 1
        if rank(beyond) == rank(inside):
            break
        while beyond - inside > 1:
            middle = (inside + beyond) // 2
            inside, beyond = (middle, beyond) if rank(middle) == rank(low) else (inside, middle)
        points.append((beyond, encode(sign * float(unsigned(beyond).view(floating)), fmt, rounding)))
        low = beyond
    return points


def replay(
    fmt: Format, mode: Mode, source: str, bits: int, plan: CastPlan, cast: Cast = cast_bits
) -> tuple[int, int]:
    """What the engine's function on a NumPy array and the reference make of one input.

    Returns
    -------
    tuple of int
        Code of the engine, code of the reference.
    """
    from precsim.kernels.array.load import load_bits
    from precsim.kernels.array.spaces import NumpySpace
    from precsim.kernels.engine import Source

    unsigned, floating = (np.uint32, np.float32) if source == "fp32" else (np.uint64, np.float64)
    x = np.array([bits], unsigned).view(floating)
    lane = lane_for(plan, source_is_wide=source == "fp64")
    space = NumpySpace(lane)
    loaded = load_bits(space, Source(x, NAMED_FORMATS[source]), lane, 0.0, 1.0)
    got = int(cast(space, loaded, plan, lane)[0])
    rounding = _rule(mode)
    return got, encode(float(x[0]), fmt, rounding)


# ---- the table ------------------------------------------------------------------------------------------------------

Task = tuple[str, Mode, str]


def _tasks(fast: bool) -> list[Task]:
    if fast:
        nearest = [(name, Mode.NEAREST_EVEN, source) for name in IEEE_FORMATS for source in LANES]
        return [*nearest, ("e4m3", Mode.NEAREST_EVEN, "fp32"), ("fp16", Mode.TO_ODD, "fp32")]
    small = [
        fmt.name for fmt in NAMED_FORMATS.values() if fmt.bits <= 8 and fmt.signed and fmt.name != "e5m2"
    ]
    return [(name, mode, source) for name in (*IEEE_FORMATS, *small) for mode in MODES for source in LANES]


def _run(task: Task) -> Verdict:
    name, mode, source = task
    verdict = prove(NAMED_FORMATS[name], mode, source)
    if verdict.status == "unknown":
        return _sample(verdict)
    return verdict


def _sample(verdict: Verdict) -> Verdict:
    """What is left where the solver gave up: the boundary cases, said to be a sample."""
    from precsim.testing.boundaries import boundary_values

    fmt, mode = NAMED_FORMATS[verdict.format], Mode(verdict.mode)
    plan = plan_cast(fmt, _rule(mode))
    values = boundary_values(fmt, verdict.source)[:: 1 if fmt.bits <= 8 else 37]
    unsigned = np.uint32 if verdict.source == "fp32" else np.uint64
    for bits in values.view(unsigned).tolist():
        got, want = replay(fmt, mode, verdict.source, bits, plan)
        if got != want:
            return Verdict(verdict.format, verdict.mode, verdict.source, "refuted", verdict.seconds, bits)
    return Verdict(verdict.format, verdict.mode, verdict.source, f"sampled ({len(values)})", verdict.seconds)


def _print_table(verdicts: list[Verdict]) -> None:
    sources = sorted({verdict.source for verdict in verdicts})
    print(f"{'format':<12} {'mode':<13} " + " ".join(f"from {source:<19}" for source in sources))
    found = {(v.format, v.mode, v.source): v for v in verdicts}
    for name, mode in dict.fromkeys((verdict.format, verdict.mode) for verdict in verdicts):
        cells = []
        for source in sources:
            verdict = found.get((name, mode, source))
            cells.append("-" if verdict is None else f"{verdict.status} in {verdict.seconds:.1f} s")
        print(f"{name:<12} {mode:<13} " + " ".join(f"{cell:<24}" for cell in cells))
    print("stochastic: sampled, on boundary cases and on every value of 8 and 16 random bits (tests/cast)")
    print("e8m0 and 17- to 32-bit formats: sampled, on boundary cases (tests/kernels)")
    print("sources of at most 16 bits: exhausted, every code (tests/kernels)")


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
    with ProcessPoolExecutor(options.processes) as pool:
        verdicts = list(pool.map(_run, _tasks(options.fast)))
    _print_table(verdicts)
    print(f"{len(verdicts)} combinations in {time.perf_counter() - begin:.0f} s")
    refuted = [verdict for verdict in verdicts if verdict.status == "refuted"]
    for verdict in refuted:
        fmt, mode = NAMED_FORMATS[verdict.format], Mode(verdict.mode)
        plan = plan_cast(fmt, _rule(mode))
        assert verdict.counterexample is not None
        got, want = replay(fmt, mode, verdict.source, verdict.counterexample, plan)
        what = f"{verdict.format} {verdict.mode} {verdict.source}"
        print(f"REFUTED {what}: {verdict.counterexample:#x} → {got:#x}, reference {want:#x}")
    return 1 if refuted else 0


if __name__ == "__main__":
    sys.exit(main())
