"""``python -m benchmarks.risk_calibration``: how often the intervals of precsim.advice.risk hold the truth.

Runs are drawn from a known law, the first steps of each are "recorded", and what is said of them is compared with the
law: the chance that the last recorded step, and the last planned one, overflows at a limit that one step in a thousand
exceeds; the level to expect once in the planned run; the number of its steps that overflow; the slope of the trend.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import signal, stats

from precsim.advice.risk import Interval, Risk, overflow_risk

RATE = 1e-3
"""Chance that a step reaches the limit at the last recorded step."""

Law = stats.distributions.rv_frozen
Columns = dict[str, tuple[Interval | None, float]]


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes
    ----------
    name : str
    law : frozen distribution
        Of log2 amax at the last recorded step, marginally.
    steps : int
        Recorded.
    rise : float
        Of the location over the record, in octaves.
    planned : int
    autocorrelation : float
        Of neighbouring steps' normal scores.
    """

    name: str
    law: Law
    steps: int
    rise: float
    planned: int
    autocorrelation: float = 0.0

    def location(self, step: np.ndarray) -> np.ndarray:
        """Of a step, from the last recorded one's."""
        return self.rise * (step - self.steps + 1) / (self.steps - 1)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """One record."""
        noise = rng.standard_normal(self.steps)
        if rho := self.autocorrelation:
            noise[1:] *= (1 - rho * rho) ** 0.5
            noise = signal.lfilter([1.0], [1.0, -rho], noise)
        # The upper half by its complement: 1 - p would round p's last bits away.
        upper = noise > 0
        values = np.empty(self.steps)
        values[upper] = self.law.isf(stats.norm.sf(noise[upper]))
        values[~upper] = self.law.ppf(stats.norm.cdf(noise[~upper]))
        return values + self.location(np.arange(self.steps))

    def compared(self, risk: Risk) -> Columns:
        """What is said and what is true."""
        limit = risk.log2_limit
        chance = self.law.sf(limit - self.location(np.arange(self.planned)))
        level = float(self.law.isf(1 / self.planned) + self.location(np.array(self.planned - 1)))
        slope = 1000 * self.rise / (self.steps - 1)
        return {
            "p now": (risk.probability, RATE),
            "p at end": (risk.probability_at_end, float(chance[-1])),
            "level": (risk.return_level, level),
            "overflows": (risk.expected_overflows, float(chance.sum())),
            "slope": (risk.trend and risk.trend.slope, slope),
        }


@dataclass(frozen=True)
class Coverage:
    """Counts over runs, by column: intervals, those that lie above the truth, and those that lie below it."""

    case: Case
    intervals: dict[str, int]
    too_high: dict[str, int]
    too_low: dict[str, int]
    trends: int
    methods: dict[str, int]
    seconds: float

    def share(self, column: str) -> float:
        """Of the intervals that hold the truth."""
        misses = self.too_high[column] + self.too_low[column]
        return 1 - misses / self.intervals[column]


def coverage(case: Case, runs: int, seed: int, confidence: float = 0.9) -> Coverage:
    """How often intervals hold the truth over a number of runs."""
    rng = np.random.default_rng(seed)
    limit = float(case.law.isf(RATE))
    intervals: dict[str, int] = {}
    too_high: dict[str, int] = {}
    too_low: dict[str, int] = {}
    methods: dict[str, int] = {}
    trends = 0
    begin = time.process_time()
    for run in range(runs):
        risk = overflow_risk(
            range(case.steps),
            case.draw(rng),
            limit,
            planned_steps=case.planned,
            confidence=confidence,
            seed=run,
        )
        method = risk.method.removesuffix(" with trend")
        methods[method] = methods.get(method, 0) + 1
        trends += risk.trend is not None and risk.trend.included
        for column, (said, truth) in case.compared(risk).items():
            if said is not None:
                intervals[column] = intervals.get(column, 0) + 1
                too_high[column] = too_high.get(column, 0) + (said.low > truth)
                too_low[column] = too_low.get(column, 0) + (said.high < truth)
    return Coverage(case, intervals, too_high, too_low, trends, methods, (time.process_time() - begin) / runs)


TAILS: dict[str, Callable[[], Law]] = {
    "Weibull -0.2": lambda: stats.genextreme(0.2),  # SciPy's c is minus the shape
    "Gumbel": lambda: stats.gumbel_r(),
    "Fréchet 0.15": lambda: stats.genextreme(-0.15),
}


def cases() -> Iterator[Case]:
    """Those that must hold: laws of the model, with a trend that is there and with none."""
    for steps in (30, 100, 250, 500, 1500):
        for name, law in TAILS.items():
            deviation = float(law().std())
            yield Case(name, law(), steps, 0.0, 10_000)
            if steps >= 100:  # a trend that is found: its rise is four standard errors or more
                yield Case(f"{name}, trend", law(), steps, 2 * deviation, 3 * steps)


def hard_cases() -> Iterator[Case]:
    """To know: dependent steps, a trend too weak to be found each time, a law outside the model."""
    for name, law in TAILS.items():
        yield Case(f"{name}, autocorrelation 0.5", law(), 300, 0.0, 10_000, 0.5)
    for rise in (0.25, 0.5, 1.0):
        yield Case(f"Gumbel, trend of {rise} over the record", stats.gumbel_r(), 200, rise, 600)
    for steps in (200, 500, 1500):
        yield Case("normal", stats.norm(), steps, 0.0, 10_000)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.risk_calibration", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=500, help="simulated runs of each case (default 500)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    columns = ("p now", "p at end", "level", "overflows", "slope")
    print("Share of 90 % intervals that hold the truth, in %; in brackets how many lie above : below it.\n")
    print(f"{'law of log2 amax':<36} {'steps':>5} {'planned':>7} ", end="")
    print("".join(f"{column:>19}" for column in columns), " trend   ms  method")
    outside = 0
    with ProcessPoolExecutor(options.processes) as pool:
        for group in (list(cases()), list(hard_cases())):
            seeds = range(options.seed, options.seed + len(group))
            for row in pool.map(coverage, group, [options.runs] * len(group), seeds):
                print(_line(row, columns), flush=True)
                if group[0].steps == 30:
                    outside += sum(not 0.85 <= row.share(column) <= 0.95 for column in row.intervals)
            if group[0].steps == 30:
                print(f"\n{outside} of these lie outside 85 to 95 %. Beyond the model, to know:\n")
    return int(outside > 0)


def _line(row: Coverage, columns: tuple[str, ...]) -> str:
    cells = []
    for column in columns:
        if column in row.intervals:
            n = row.intervals[column]
            sides = f"({100 * row.too_high[column] / n:4.1f} :{100 * row.too_low[column] / n:4.1f})"
            cells.append(f"{100 * row.share(column):5.1f} {sides}")
        else:
            cells.append("")
    methods = ", ".join(
        f"{name.split()[-1].strip('()') if '(' in name else name} {number}"
        for name, number in sorted(row.methods.items())
    )
    return (
        f"{row.case.name:<36} {row.case.steps:>5} {row.case.planned:>7} "
        + "".join(f"{cell:>19}" for cell in cells)
        + f"  {100 * row.trends / max(1, sum(row.methods.values())):4.0f} % {1000 * row.seconds:4.0f}  {methods}"
    )


if __name__ == "__main__":
    sys.exit(main())
