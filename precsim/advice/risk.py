"""Extreme-value risk: how likely the largest gradient of a step overflows, from the steps that were recorded.

What is recorded of a step is a maximum over many elements, so its logarithm is modelled by the limit law of maxima
(generalized extreme value, GEV) with the step as the block, or, from 300 steps on, by the law of excesses over a high
threshold (generalized Pareto, GPD), which asks nothing of the bulk: where log2 amax is normal, as it is when the scale
of a whole step's gradients varies log-normally, a GEV misses the tail by far. A linear trend of the location is tested
by likelihood ratio. Intervals are equal-tailed intervals of the posterior under a prior that is flat in location,
slope, logarithm of the scale and shape, computed by importance sampling. They are meant to be read as confidence
intervals: `python -m benchmarks.risk_calibration` counts how often they hold the truth.

References
----------
S. Coles, An Introduction to Statistical Modeling of Extreme Values, Springer 2001: chapters 3 (GEV), 4 (GPD),
6 (trends), 9.1 (Bayesian inference). P. J. Northrop and N. Attalides, Posterior propriety in Bayesian extreme value
analyses using reference priors, Statistica Sinica 26 (2016): the flat prior's posterior is proper from four maxima on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from precsim.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["FlushTrend", "Interval", "Risk", "Seen", "Tail", "Trend", "flush_trend", "overflow_risk"]

LEAST_STEPS = 30
"""Fewest (independent) steps that a tail is fitted to. With 30 the 90 % interval of the shape is about ±0.3, from a
bounded to a heavy tail, so a fit says little more than a count; its intervals are still calibrated there, and on fewer
steps the answer is the prior's rather than the data's."""

LEAST_FLUSH_STEPS = 5
"""Fewest steps that a line is drawn through: two go into the line, and three are the least that show its scatter."""

_MANY_STEPS = 300
"""From here on the highest steps alone tell enough of the tail, and the bulk's shape needs no assumption."""

_TREND_LEVEL = 0.01
"""Significance at which a trend goes into the model. A trend that isn't there, extended over a long run, misses by far:
at 5 % it alone would use up half of what a 90 % interval may miss."""

_MISFIT = 0.83
"""Anderson-Darling distance that a fitted GEV exceeds in 1 % of samples that come from a GEV, with or without a trend.
Found by simulation (0.79 to 0.88 for shapes −0.2 to 0.15 and 100 or 500 values)."""

_DRAWS = 3000
"""Draws from the posterior; some two thousand are left after weighting, which places a 5 % quantile within ±0.5 %."""

_PARAMETERS = 4
"""Of the laws. Of n values the likelihood counts n − 4, as a variance does: else 30 values would give 86 % for 90 %."""

_LIGHT = 0.1
"""Shapes within ±0.1 behave like a light tail over the decades that a run spans."""


@dataclass(frozen=True)
class Interval:
    """An estimate and what it may be.

    Attributes
    ----------
    estimate : float
        Median of the posterior, or the observed share.
    low, high : float
        Ends at the result's confidence.
    """

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Seen:
    """What was observed, without any model.

    Attributes
    ----------
    overflowed, steps : int
        k of n recorded steps reach the limit.
    at_most : float
        One-sided exact binomial (Clopper-Pearson) upper bound of the share, at the result's confidence. It holds for
        independent steps.
    rule_of_three : float or None
        3/n where k is 0: the same bound at 95 %, in the head.
    """

    overflowed: int
    steps: int
    at_most: float
    rule_of_three: float | None


@dataclass(frozen=True)
class Trend:
    """A line that the level of log2 amax follows.

    Attributes
    ----------
    slope : Interval
        Octaves per 1000 steps.
    p_value : float
        Of the likelihood-ratio test against no trend.
    included : bool
        Whether the test is significant (1 %), and so the trend is part of the model.
    """

    slope: Interval
    p_value: float
    included: bool


@dataclass(frozen=True)
class Tail:
    """Which of the three limit laws the largest values follow.

    Attributes
    ----------
    case : str
        "bounded (Weibull)", "light (Gumbel)", "heavy (Fréchet)" or "not told apart".
    shape : Interval
        Negative for a bounded tail, positive for a heavy one.
    """

    case: str
    shape: Interval


@dataclass(frozen=True)
class Risk:
    """The result of `overflow_risk`.

    Attributes
    ----------
    method : str
        "count only", "block maxima (GEV)" or "peaks over threshold (GPD)"; the latter two end in " with trend" if one
        is included.
    confidence : float
    log2_limit : float
    step : int
        The step that `probability` holds for: the last recorded one. Without a trend all steps are alike.
    probability : Interval
        Chance that one step overflows.
    planned_steps, horizon : int or None
        Length of the run counted from step 0, and how many of its steps lie from the first recorded one on.
    probability_at_end : Interval or None
        `probability` at the last planned step. None without planned steps or fit.
    expected_overflows : Interval or None
        Number of overflowing steps over the horizon.
    at_least_one : Interval or None
        Chance that any step of the horizon overflows. For steps that depend on each other it is too high, not too low.
    return_level : Interval or None
        log2 amax that a step exceeds with chance 1/horizon: the level to expect once in the run. With a trend, at the
        last planned step. None without planned steps or fit.
    seen : Seen
    effective_steps : float
        How many independent steps the recorded ones are worth, by their autocorrelation.
    trend : Trend or None
        None if nothing was fitted.
    tail : Tail or None
        None if nothing was fitted.
    largest : float
        Greatest recorded log2 amax.
    cautions : tuple of str
        What limits the answer.
    """

    method: str
    confidence: float
    log2_limit: float
    step: int
    probability: Interval
    planned_steps: int | None
    horizon: int | None
    probability_at_end: Interval | None
    expected_overflows: Interval | None
    at_least_one: Interval | None
    return_level: Interval | None
    seen: Seen
    effective_steps: float
    trend: Trend | None
    tail: Tail | None
    largest: float
    cautions: tuple[str, ...]

    def explain(self) -> list[str]:
        """Sentences: what was seen, which case that is, what is extrapolated, and what to be careful with."""
        sentences = [*_seen_sentences(self)]
        if self.tail is not None and self.trend is not None:
            sentences += _fit_sentences(self, self.tail, self.trend)
        return [*sentences, *self.cautions]


@dataclass(frozen=True)
class FlushTrend:
    """The result of `flush_trend`.

    Attributes
    ----------
    confidence : float
    steps, zeros : int
        Recorded steps, and those at which nothing was flushed.
    growth : Interval or None
        Factor of the odds flushed : kept per 1000 steps. None where no line is drawn.
    significant : bool
        Whether that factor's interval excludes 1.
    planned_steps : int
    forecast : Interval or None
        Share flushed at one step, at the last planned step: a prediction interval, the scatter of steps included.
    effective_steps : float
        How many independent steps the recorded ones are worth, by their autocorrelation.
    largest : float
        Greatest recorded share.
    cautions : tuple of str
        What limits the answer.
    """

    confidence: float
    steps: int
    zeros: int
    growth: Interval | None
    significant: bool
    planned_steps: int
    forecast: Interval | None
    effective_steps: float
    largest: float
    cautions: tuple[str, ...]

    def explain(self) -> list[str]:
        """Sentences: what was seen, what it comes to, and what to be careful with."""
        sentences = [
            f"{self.zeros} of {self.steps} recorded steps flush nothing; the most that one flushes is "
            f"{self.largest:.2g}."
        ]
        if self.growth is not None and self.forecast is not None:
            verdict = "the share moves with the steps" if self.significant else "that may be no change at all"
            sentences += [
                f"The odds of being flushed change by a factor of {_spread(self.growth)} per 1000 steps "
                f"({_percent(self.confidence)} interval): {verdict}.",
                f"At step {self.planned_steps - 1} a share of {_spread(self.forecast)} is forecast, scatter included.",
            ]
        return [*sentences, *self.cautions]


def overflow_risk(
    steps: ArrayLike,
    log2_amax: ArrayLike,
    log2_limit: float,
    *,
    planned_steps: int | None = None,
    confidence: float = 0.9,
    seed: int = 0,
) -> Risk:
    """How likely a step's largest gradient reaches a limit, from the steps recorded so far.

    Parameters
    ----------
    steps : array_like of int, shape (n,)
        Recorded steps, ascending, gaps allowed.
    log2_amax : array_like of float, shape (n,)
        log2 of the largest magnitude at each of them. Steps whose gradients are all zero are left out beforehand.
    log2_limit : float
        log2 of the magnitude from which on a gradient overflows: log2(limit) − log2(S) at the loss scale S.
    planned_steps : int, optional
        Length of the run counted from step 0. Risk is summed over its steps from the first recorded one on.
    confidence : float, default 0.9
        Of all intervals.
    seed : int, default 0
        Of the draws that intervals are computed from.

    Returns
    -------
    Risk

    Raises
    ------
    InputError
        If steps are no ascending integers, lengths differ, values are not finite, the confidence is outside (0, 1), or
        the plan ends before the first recorded step.
    """
    t, y = _series(steps, log2_amax, "log2 amax")
    _check_confidence(confidence)
    limit = float(log2_limit)
    if not math.isfinite(limit):
        raise InputError(f"the limit's log2 is {limit}: give a finite number")
    horizon = None if planned_steps is None else _horizon(t, planned_steps)
    seen = _count(int((y >= limit).sum()), len(y), confidence)
    why_not, effective = _unfit(t, y)
    common: dict[str, Any] = {
        "confidence": confidence,
        "log2_limit": limit,
        "step": int(t[-1]),
        "planned_steps": planned_steps,
        "horizon": horizon,
        "seen": seen,
        "effective_steps": effective,
        "largest": float(y.max()),
    }
    if why_not is not None:
        return _counted(common, why_not)
    return _fitted(common, t, y, np.random.default_rng(seed))


def flush_trend(
    steps: ArrayLike, shares: ArrayLike, *, planned_steps: int, confidence: float = 0.9
) -> FlushTrend:
    """Trend of the share that a cast flushes to zero, and what it comes to by the end of the run.

    A line is fitted to the log odds of the share by least squares. A share of exactly 0 (or 1) has no log odds: it
    counts as half the distance of the nearest share that has, and no line is drawn where those are the majority.

    Parameters
    ----------
    steps : array_like of int, shape (n,)
        Recorded steps, ascending, gaps allowed.
    shares : array_like of float, shape (n,)
        Share flushed at each of them, 0 to 1.
    planned_steps : int
        Length of the run counted from step 0.
    confidence : float, default 0.9
        Of the intervals.

    Returns
    -------
    FlushTrend

    Raises
    ------
    InputError
        If steps are no ascending integers, lengths differ, shares are outside 0 to 1, the confidence is outside (0, 1),
        or the plan ends before the first recorded step.
    """
    from scipy import stats

    t, share = _series(steps, shares, "share")
    _check_confidence(confidence)
    if share.min() < 0 or share.max() > 1:
        raise InputError(f"shares run from {share.min():g} to {share.max():g}: give shares between 0 and 1")
    _horizon(t, planned_steps)
    n = len(t)
    inside = (share > 0) & (share < 1)

    def result(
        growth: Interval | None, forecast: Interval | None, effective: float, *cautions: str
    ) -> FlushTrend:
        return FlushTrend(
            confidence=confidence,
            steps=n,
            zeros=int((share == 0).sum()),
            growth=growth,
            significant=growth is not None and not growth.low <= 1 <= growth.high,
            planned_steps=planned_steps,
            forecast=forecast,
            effective_steps=effective,
            largest=float(share.max()),
            cautions=cautions,
        )

    if n < LEAST_FLUSH_STEPS:
        return result(
            None, None, n, f"{_steps(n)} are too few for a trend: at least {LEAST_FLUSH_STEPS} are needed."
        )
    if 2 * int(inside.sum()) <= n or int(inside.sum()) < LEAST_FLUSH_STEPS:
        return result(
            None,
            None,
            n,
            "Most steps flush nothing or everything: a line through the rest says nothing of them.",
        )
    floor, ceiling = share[inside].min() / 2, (1 + share[inside].max()) / 2
    kept = np.clip(share, floor, ceiling)
    odds = np.log(kept) - np.log1p(-kept)
    centre, spread = t.mean(), float(((t - t.mean()) ** 2).sum())
    slope = float(((t - centre) * odds).sum()) / spread
    residual = odds - odds.mean() - slope * (t - centre)
    effective = max(_effective_size(residual), 3.0)
    # Least squares on effective rather than counted steps: what the scatter is divided by, and Student's degrees.
    variance = float((residual**2).sum()) / n * effective / (effective - 2)
    student = float(stats.t.ppf((1 + confidence) / 2, effective - 2))
    ahead = planned_steps - 1 - centre
    error = student * math.sqrt(variance / effective / (spread / n))
    reach = student * math.sqrt(variance * (1 + 1 / effective + ahead**2 / (effective * spread / n)))
    middle = float(odds.mean()) + slope * ahead

    def back(value: float) -> float:
        # A forecast beyond the floor that stands for exact zeros can't be told from zero.
        p = 0.5 * (1 + math.tanh(value / 2))
        return 0.0 if p <= floor and (share == 0).any() else 1.0 if p >= ceiling and (share == 1).any() else p

    growth = Interval(*(_exp(1000 * s) for s in (slope, slope - error, slope + error)))
    forecast = Interval(back(middle), back(middle - reach), back(middle + reach))
    return result(
        growth, forecast, effective, *_flush_cautions(t, planned_steps, n, effective, ~inside, share)
    )


def _flush_cautions(
    t: NDArray[np.float64],
    planned_steps: int,
    n: int,
    effective: float,
    bare: NDArray[np.bool_],
    share: NDArray[np.float64],
) -> list[str]:
    cautions = []
    if planned_steps - 1 > t[-1]:
        cautions.append(
            f"The forecast extends a line from steps {t[0]:.0f} to {t[-1]:.0f} on to step {planned_steps - 1}: "
            f"a trend is no law, and its interval doesn't hold a change of course."
        )
    if bare.any():
        cautions.append(
            f"{_steps(int(bare.sum()))} of {n} flush nothing or everything and count as half the distance of the "
            f"nearest share that doesn't: intervals are rough."
        )
    if effective < n:
        cautions.append(_dependence(n, effective))
    elif n < 50:
        cautions.append(
            f"{_steps(n)} are too few to see whether they depend on each other; if so, intervals are too narrow."
        )
    if np.ptp(share) == 0:
        cautions.append("All shares are equal: intervals have no width, for lack of scatter to learn from.")
    return cautions


# Input


def _series(
    steps: ArrayLike, values: ArrayLike, what: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both as float64, checked."""
    try:
        t, y = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"steps and {what} must be arrays of numbers: {error}") from None
    if t.ndim != 1 or y.ndim != 1:
        raise InputError(f"steps and {what} have shapes {t.shape} and {y.shape}: give one number per step")
    if len(t) != len(y):
        raise InputError(f"{len(t)} steps and {len(y)} values of {what}: give one value per step")
    if len(t) == 0:
        raise InputError("no steps are given: record at least one")
    if not np.isfinite(t).all() or (t != np.floor(t)).any() or (np.diff(t) <= 0).any():
        raise InputError("steps must be ascending integers: sort them, and give each once")
    if not np.isfinite(y).all():
        at = int(np.flatnonzero(~np.isfinite(y))[0])
        raise InputError(f"{what} at step {t[at]:.0f} is {y[at]}: leave out steps without a finite value")
    return t, y


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"the confidence is {confidence}: give a number between 0 and 1, such as 0.9")


def _horizon(t: NDArray[np.float64], planned_steps: int) -> int:
    """Number of planned steps from the first recorded one on."""
    if not float(planned_steps).is_integer() or planned_steps - 1 < t[0]:
        raise InputError(
            f"planned_steps is {planned_steps}, the first recorded step {t[0]:.0f}: "
            f"give the length of the run from step 0, beyond that step"
        )
    return int(planned_steps - t[0])


# Without a fit


def _count(k: int, n: int, confidence: float) -> Seen:
    return Seen(k, n, _upper(k, n, confidence), 3 / n if k == 0 else None)


def _upper(k: float, n: float, confidence: float) -> float:
    """Clopper-Pearson upper bound, one-sided."""
    from scipy import stats

    return 1.0 if k >= n else float(stats.beta.ppf(confidence, k + 1, n - k))


def _unfit(t: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[str | None, float]:
    """Why no tail can be fitted, if so, and the number of independent steps."""
    n = len(y)
    if n < LEAST_STEPS:
        return (
            f"{_steps(n)} are too few to fit a tail, which takes {LEAST_STEPS}: with fewer, the shape "
            f"may be anything from bounded to heavy. Only the count's bound is given.",
            float(n),
        )
    values, counts = np.unique(y, return_counts=True)
    if len(values) == 1:
        return "All recorded values are equal: there is no tail to fit. Only the count's bound is given.", n
    if len(values) < 10:
        return (
            f"The recorded values take only {len(values)} levels: there is no tail to fit. "
            f"Only the count's bound is given.",
            n,
        )
    if 2 * counts.max() > n:
        return "Most recorded values are equal: there is no tail to fit. Only the count's bound is given.", n
    if counts[-1] >= max(3, 0.05 * n):
        return (
            f"{_steps(int(counts[-1]))} of {n} share the greatest value, as clipping or saturation before the "
            f"recording makes them: what lies beyond was not seen. Only the count's bound is given.",
            n,
        )
    rest = _detrended(t, y)
    if rest.std() < 1e-9 * y.std():
        return (
            "The recorded values lie on a line: there is no tail to fit. Only the count's bound is given.",
            n,
        )
    effective = _effective_size(rest)
    if effective < LEAST_STEPS:
        return (
            f"{_dependence(n, effective)} A tail takes {LEAST_STEPS}: record steps farther apart or longer. Only the "
            f"count's bound is given.",
            effective,
        )
    return None, effective


def _counted(common: dict[str, Any], why_not: str) -> Risk:
    """What the count alone tells."""
    seen: Seen = common["seen"]
    ratio = min(1.0, common["effective_steps"] / seen.steps)
    k, n = seen.overflowed * ratio, seen.steps * ratio
    side = (1 + common["confidence"]) / 2
    probability = Interval(k / n, 1 - _upper(n - k, n, side), _upper(k, n, side))
    expected = at_least_one = None
    if (horizon := common["horizon"]) is not None:
        expected = _mapped(probability, lambda p: horizon * p)
        at_least_one = _mapped(probability, lambda p: 1 - (1 - p) ** horizon)
    return Risk(
        method="count only",
        probability=probability,
        probability_at_end=None,
        expected_overflows=expected,
        at_least_one=at_least_one,
        return_level=None,
        trend=None,
        tail=None,
        cautions=(why_not,),
        **common,
    )


# Dependence of steps on each other


def _detrended(t: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is left of a line."""
    return np.asarray(y - y.mean() - _line(t, y)[0] * (t - t.mean()))


def _line(t: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """A slope that a few spikes can't tilt, and its standard error for independent steps.

    Medians of the outer thirds give a first one; least squares improve it on what is left, cut at four deviations.
    """
    third = len(t) // 3
    slope = float(np.median(y[-third:]) - np.median(y[:third])) / float(t[-third:].mean() - t[:third].mean())
    centred = t - t.mean()
    square = float((centred**2).sum())
    rest = y
    for _ in range(4):
        rest = y - slope * centred
        rest = rest - np.median(rest)
        far = 4 * 1.4826 * float(np.median(np.abs(rest)))
        rest = np.clip(rest, -far, far)
        slope += float((centred * rest).sum()) / square
    return slope, float(rest.std()) / math.sqrt(square)


def _effective_size(residual: NDArray[np.float64]) -> float:
    """How many independent values say as much about a mean as these.

    Autocorrelations of normal scores (so that a heavy tail can't hide them) are added as long as they stay positive in
    pairs (C. J. Geyer, Practical Markov chain Monte Carlo, Statistical Science 7, 1992, section 3.3), and only if they
    are significant (the first, or ten by Ljung and Box, 5 %): adding noise would widen every interval. High values
    depend on each other less than middling ones, so this errs toward wide intervals.
    """
    from scipy import stats

    n = len(residual)
    if n < 8 or np.ptp(residual) == 0:
        return float(n)
    scores = stats.norm.ppf((stats.rankdata(residual) - 0.5) / n)
    scores -= scores.mean()
    spectrum = np.fft.rfft(scores, 2 * n)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), 2 * n)[: n // 2 + 1]
    rho = covariance / covariance[0]
    lags = min(10, n // 5)
    ljung_box = n * (n + 2) * float((rho[1 : lags + 1] ** 2 / (n - np.arange(1, lags + 1))).sum())
    if rho[1] <= 1.645 / math.sqrt(n) and stats.chi2.sf(ljung_box, lags) > 0.05:
        return float(n)
    pairs = rho[0 : len(rho) // 2 * 2 : 2] + rho[1 : len(rho) // 2 * 2 : 2]
    stop = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs)
    total = 2 * float(np.minimum.accumulate(pairs[:stop]).sum()) - 1
    return float(n) / max(1.0, total)


# The likelihood of a tail


@dataclass(frozen=True)
class _Model:
    """Values in units that make parameters of order 1, and how their likelihood is written.

    A draw of parameters is a row (place, slope, log scale, shape). The intensity at a value y and time t is

        τ = exp(−rate − log1p(shape·s)/shape),   s = (y − location − slope·t) / scale

    GEV: place is the location, rate is 0, and P(Y > y) = 1 − exp(−τ). GPD: the location is the threshold (0 in these
    units), place is the rate (minus the logarithm of the share of steps above it), and P(Y > y) = τ; y holds excesses
    over the line, and t is 0: a slope shifts all steps, so all of them tell it, and the few highest tell the rest.
    """

    excesses: bool
    origin: float
    unit: float
    first: float
    last: float
    y: NDArray[np.float64]
    t: NDArray[np.float64]
    ratio: float
    body: NDArray[np.float64] = field(
        default_factory=lambda: np.empty(0)
    )  # GPD: what stays below the threshold, sorted
    slope: float = 0.0  # GPD: what all steps say of the slope, and its standard error
    slope_error: float = math.inf

    def time(self, step: float) -> float:
        """−1 at the first recorded step, 1 at the last."""
        return (2 * step - self.first - self.last) / (self.last - self.first)

    def value(self, y: float) -> float:
        """In the model's units."""
        return (y - self.origin) / self.unit

    def log_likelihood(self, draws: NDArray[np.float64], weight: float = 1.0) -> NDArray[np.float64]:
        """Of each row, times the share of independent steps and a weight; −inf where a value is impossible."""
        blocks = [self._log_likelihood(draws[i : i + 250]) for i in range(0, len(draws), 250)]
        return np.asarray(
            weight * np.concatenate(blocks) - ((draws[:, 1] - self.slope) / self.slope_error) ** 2 / 2
        )

    def weight(self) -> float:
        """What the likelihood counts for where it makes intervals."""
        return max(1 - _PARAMETERS / (self.ratio * len(self.y)), 0.1)

    def _log_likelihood(self, draws: NDArray[np.float64]) -> NDArray[np.float64]:
        log_scale, shape = draws[:, 2, None], draws[:, 3, None]
        with np.errstate(all="ignore"):
            exponent = _exponent(draws, self.y, self.t, self.excesses)
            terms = -log_scale - (1 + shape) * exponent
            if self.excesses:
                rate = draws[:, 0]
                total = terms.sum(1) - len(self.y) * rate + len(self.body) * np.log(-np.expm1(-rate))
            else:
                total = (terms - np.exp(-exponent)).sum(1)
        return np.where(np.isfinite(total) & (np.abs(draws[:, 3]) < 1), total * self.ratio, -np.inf)

    def probability(self, draws: NDArray[np.float64], y: float, t: ArrayLike) -> NDArray[np.float64]:
        """P(Y > y) of each row (first axis) at each time (second)."""
        shape, time = draws[:, 3, None], np.atleast_1d(np.asarray(t, float))
        with np.errstate(all="ignore"):
            exponent = _exponent(draws, np.asarray(y), time, self.excesses)
            # Outside the support: beyond the upper end of a bounded tail, below the lower end of a heavy one.
            exponent = np.where(np.isnan(exponent), np.where(shape < 0, np.inf, -np.inf), exponent)
            if not self.excesses:
                return np.asarray(-np.expm1(-np.exp(-exponent)))
            share = np.exp(-draws[:, 0, None])
            chance = share * np.exp(-exponent)
        # Where a trend brings the threshold above the limit, steps below it overflow too: those seen say how many.
        over = y - draws[:, 1, None] * time
        if (under := over < 0).any():
            rank = np.searchsorted(self.body, over, side="right") / len(self.body)
            chance = np.where(under, 1 - (1 - share) * rank, chance)
        return np.asarray(chance)

    def level(self, draws: NDArray[np.float64], probability: float, t: float) -> NDArray[np.float64]:
        """The value that a step exceeds with a probability, of each row."""
        place, slope, log_scale, shape = draws.T
        exponent = -math.log(-math.log1p(-probability)) - place * 0
        location = place
        if self.excesses:
            exponent, location = -math.log(probability) - place, 0 * place
        with np.errstate(all="ignore"):
            s = np.where(np.abs(shape) < 1e-6, exponent, np.expm1(shape * exponent) / shape)
        return np.asarray(self.origin + self.unit * (location + slope * t + np.exp(log_scale) * s))


def _exponent(
    draws: NDArray[np.float64], y: NDArray[np.float64], t: NDArray[np.float64], excesses: bool
) -> NDArray[np.float64]:
    """log1p(shape·s)/shape of each row (first axis) and value (second); NaN outside the support."""
    slope, log_scale, shape = draws[:, 1, None], draws[:, 2, None], draws[:, 3, None]
    location = 0.0 if excesses else draws[:, 0, None]
    s = (y - location - slope * t) * np.exp(-log_scale)
    return np.asarray(np.where(np.abs(shape) < 1e-6, s, np.log1p(shape * s) / shape))


def _maxima(t: NDArray[np.float64], y: NDArray[np.float64], ratio: float) -> _Model:
    """All steps, GEV."""
    rest = _detrended(t, y)
    first, last = float(t[0]), float(t[-1])
    origin, unit = float(y.mean()), float(rest.std()) or float(y.std())
    when = (2 * t - first - last) / (last - first)
    return _Model(False, origin, unit, first, last, (y - origin) / unit, when, ratio)


def _peaks(t: NDArray[np.float64], y: NDArray[np.float64], ratio: float, trend: bool) -> tuple[_Model, float]:
    """The highest steps, GPD, and the threshold's greatest value.

    With a trend, the threshold follows the line. The number of excesses grows with the square root of the record, so
    that it rises without end and their share falls without end; 30 at least, to tell a shape.
    """
    first, last = float(t[0]), float(t[-1])
    when = (2 * t - first - last) / (last - first)
    slope, error = _line(when, y)
    rest = y - slope * when * trend
    peaks = int(np.clip(2.6 * math.sqrt(len(y)), 30, 500))
    origin = float(np.partition(rest, len(y) - peaks - 1)[len(y) - peaks - 1])
    over = rest > origin
    unit = float((rest[over] - origin).mean())
    return _Model(
        excesses=True,
        origin=origin,
        unit=unit,
        first=first,
        last=last,
        y=(rest[over] - origin) / unit,
        t=np.zeros(int(over.sum())),
        ratio=ratio,
        body=np.sort(rest[~over] - origin) / unit,
        slope=slope / unit,
        slope_error=error / math.sqrt(ratio) / unit,
    ), origin + abs(slope) * trend


@dataclass(frozen=True)
class _Optimum:
    """Most likely parameters, those that are free, and the log likelihood."""

    free: list[int]
    best: NDArray[np.float64]
    log_likelihood: float


_STEP = np.array([0.5, 0.3, 0.3, 0.2])
"""How far parameters may be from their start, in the model's units."""


def _optimum(model: _Model, trend: bool) -> _Optimum:
    """Maximum of the likelihood."""
    from scipy import optimize

    free = [0, 1, 2, 3] if trend else [0, 2, 3]
    if model.excesses:
        above, below = len(model.y), len(model.body)
        start = np.array([-math.log(above / (above + below)), model.slope * trend, 0.0, -0.05])
    else:
        # Mean and deviation of a Gumbel law; the slope of the line.
        scale = math.sqrt(6) / math.pi
        if not trend:
            scale *= float(model.y.std())
        start = np.array(
            [-np.euler_gamma * scale, _line(model.t, model.y)[0] * trend, math.log(scale), -0.05],
        )

    def loss(point: NDArray[np.float64]) -> float:
        return float(-model.log_likelihood(_rows(point[None], free))[0])

    simplex = start[free] + np.vstack([np.zeros(len(free)), np.diag(_STEP[free])])
    if not math.isfinite(
        loss(simplex[0])
    ):  # a bounded tail that ends before the greatest value: begin without bound
        simplex[:, free.index(3)] += 0.15
    with np.errstate(invalid="ignore"):  # inf − inf, between corners that are both impossible
        found = optimize.minimize(
            loss,
            simplex[0],
            method="Nelder-Mead",
            options={"initial_simplex": simplex, "xatol": 1e-4, "fatol": 1e-4, "maxfev": 2000},
        )
    return _Optimum(free, found.x, -float(found.fun))


def _rows(points: NDArray[np.float64], free: list[int]) -> NDArray[np.float64]:
    rows = np.zeros((len(points), 4))
    rows[:, free] = points
    return rows


@dataclass(frozen=True)
class _Posterior:
    """Weighted draws."""

    draws: NDArray[np.float64]
    weights: NDArray[np.float64]
    confidence: float

    def interval(self, values: NDArray[np.float64]) -> Interval:
        """Median and equal-tailed interval of what each draw says."""
        order = np.argsort(values)
        share = np.cumsum(self.weights[order]) - self.weights[order] / 2
        tail = (1 - self.confidence) / 2
        # Neighbours are not interpolated: they may be 0 and inf.
        at = np.minimum(np.searchsorted(share, [0.5, tail, 1 - tail]), len(order) - 1)
        middle, low, high = values[order[at]]
        return Interval(float(middle), float(low), float(high))


def _posterior(model: _Model, optimum: _Optimum, confidence: float, rng: np.random.Generator) -> _Posterior:
    """Importance sampling with Student's t, fitted to the posterior's moments in two rounds of fewer draws."""
    degrees, size = 5, len(optimum.free)
    mean, covariance = optimum.best, _curvature(model, optimum)
    for n in (_DRAWS // 4, _DRAWS // 4, _DRAWS):
        root = np.linalg.cholesky(1.15 * covariance)
        offsets = rng.standard_normal((n, size)) * np.sqrt(degrees / rng.chisquare(degrees, (n, 1)))
        points = mean + offsets @ root.T
        density = -(degrees + size) / 2 * np.log1p((offsets**2).sum(1) / degrees)
        draws = _rows(points, optimum.free)
        log_weight = model.log_likelihood(draws, model.weight()) - density
        weights = np.exp(log_weight - log_weight.max())
        weights /= weights.sum()
        mean = weights @ points
        # A floor under the variances: few draws with weight would make the next round blind.
        floor = np.diag((_STEP[optimum.free] * 1e-3) ** 2)
        covariance = (points - mean).T @ ((points - mean) * weights[:, None]) + floor
    possible = weights > 0  # a draw that the values exclude may not even have probabilities
    return _Posterior(draws[possible], weights[possible], confidence)


def _curvature(model: _Model, optimum: _Optimum) -> NDArray[np.float64]:
    """Inverse of the likelihood's curvature at its maximum, or a guess where that is an edge."""
    size, scale = len(optimum.free), _STEP[optimum.free]
    number = max(LEAST_STEPS, model.ratio * len(model.y))
    pairs = [(i, j) for i in range(size) for j in range(i, size)]
    width = np.diag(0.5 * scale / math.sqrt(number))
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    points = [optimum.best + a * width[i] + b * width[j] for i, j in pairs for a, b in signs]
    values = model.log_likelihood(_rows(np.array(points), optimum.free)).reshape(-1, 4)
    if not np.isfinite(values).all():
        return np.asarray(np.diag(scale**2 * 4 / number))
    information = np.zeros((size, size))
    for (i, j), (pp, pm, mp, mm) in zip(pairs, values, strict=True):
        information[i, j] = information[j, i] = -(pp - pm - mp + mm) / (4 * width[i, i] * width[j, j])
    least, axes = np.linalg.eigh(information * np.outer(scale, scale))
    least = np.maximum(least, 0.02 * number)
    return np.asarray((axes / least) @ axes.T * np.outer(scale, scale))


def _misfit(model: _Model, optimum: _Optimum) -> float:
    """Anderson-Darling distance between the values and a fitted GEV, for the share of independent steps."""
    row = _rows(optimum.best[None], optimum.free)
    with np.errstate(all="ignore"):
        log_p = np.sort(-np.exp(-_exponent(row, model.y, model.t, False)[0]))
        n = len(log_p)
        odd = 2 * np.arange(1, n + 1) - 1
        distance = -n - float((odd * (log_p + np.log(-np.expm1(log_p))[::-1])).sum()) / n
    return distance * model.ratio if math.isfinite(distance) else math.inf


# The fit


def _fitted(
    common: dict[str, Any], t: NDArray[np.float64], y: NDArray[np.float64], rng: np.random.Generator
) -> Risk:
    confidence, limit, horizon = common["confidence"], common["log2_limit"], common["horizon"]
    model, optimum, p_value, cautions = _choose(common, t, y)
    included = p_value < _TREND_LEVEL
    chosen = _posterior(model, optimum, confidence, rng)
    draws = chosen.draws
    slope = _slope_interval(model, chosen, included, rng)
    per_thousand = 1000 * model.unit * 2 / (model.last - model.first)
    trend = Trend(_mapped(slope, lambda value: value * per_thousand), p_value, included)
    shape = chosen.interval(draws[:, 3])
    value = model.value(limit)
    at_end = expected = at_least_one = level = None
    if horizon is not None:
        end = model.time(common["planned_steps"] - 1)
        at_end = chosen.interval(model.probability(draws, value, end)[:, 0])
        # Steps that are alike are one; with a trend, 100 points of time stand for all steps between them.
        points = np.linspace(-1, end, 100 if included and horizon > 1 else 1)
        weight = np.ones(len(points))
        if len(points) > 1:
            weight[[0, -1]] = 0.5
        weight *= horizon / weight.sum()
        chance = model.probability(draws, value, points)
        expected = chosen.interval(chance @ weight)
        with np.errstate(divide="ignore"):
            at_least_one = chosen.interval(0.0 - np.expm1(np.log1p(-chance) @ weight))
        level = chosen.interval(model.level(draws, 1 / max(horizon, 2), end if included else 1.0))
    name = "peaks over threshold (GPD)" if model.excesses else "block maxima (GEV)"
    risk = Risk(
        method=name + " with trend" * included,
        probability=chosen.interval(model.probability(draws, value, 1.0)[:, 0]),
        probability_at_end=at_end,
        expected_overflows=expected,
        at_least_one=at_least_one,
        return_level=level,
        trend=trend,
        tail=Tail(_case(shape), shape),
        cautions=(),
        **common,
    )
    recorded = model.probability(draws, value, np.linspace(-1, 1, 50) if included else 1.0).mean(1)
    cautions += _cautions(risk, trend, len(y) * chosen.interval(recorded).estimate)
    return Risk(**(vars(risk) | {"cautions": tuple(cautions)}))


def _choose(
    common: dict[str, Any], t: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[_Model, _Optimum, float, list[str]]:
    """The model and its optimum, how significant a trend is, and what is wrong with the model."""
    ratio = common["effective_steps"] / len(y)
    horizon = common["horizon"]
    maxima = _maxima(t, y, ratio)
    plain, sloped = _optimum(maxima, False), _optimum(maxima, True)
    p_value = _p_value(plain, sloped)
    included = p_value < _TREND_LEVEL
    if len(y) >= _MANY_STEPS:
        peaks, top = _peaks(t, y, ratio, included)
        # Below the threshold a model of excesses says nothing; ties may leave few above it.
        if len(peaks.y) >= 20 and common["log2_limit"] > top and (horizon is None or horizon > 20):
            return peaks, _optimum(peaks, included), p_value, []
    optimum = sloped if included else plain
    cautions = []
    if _misfit(maxima, optimum) > _MISFIT:
        cautions.append(
            "The fitted law doesn't follow the recorded values well (Anderson-Darling, 1 %): trust the count before it."
        )
    return maxima, optimum, p_value, cautions


def _slope_interval(model: _Model, chosen: _Posterior, included: bool, rng: np.random.Generator) -> Interval:
    """In the model's units, whether or not the model that was chosen has one."""
    if included:
        return chosen.interval(chosen.draws[:, 1])
    if not model.excesses:
        sloped = _posterior(model, _optimum(model, True), chosen.confidence, rng)
        return sloped.interval(sloped.draws[:, 1])
    from scipy import stats

    reach = float(stats.norm.ppf((1 + chosen.confidence) / 2)) * model.slope_error
    return Interval(model.slope, model.slope - reach, model.slope + reach)


def _p_value(plain: _Optimum, sloped: _Optimum) -> float:
    """Likelihood-ratio test of no trend."""
    from scipy import stats

    return float(stats.chi2.sf(max(0.0, 2 * (sloped.log_likelihood - plain.log_likelihood)), 1))


def _case(shape: Interval) -> str:
    if shape.high < 0:
        return "bounded (Weibull)"
    if shape.low > 0:
        return "heavy (Fréchet)"
    if -_LIGHT < shape.low and shape.high < _LIGHT:
        return "light (Gumbel)"
    return "not told apart"


# Words


def _cautions(risk: Risk, trend: Trend, expected: float) -> list[str]:
    from scipy import stats

    cautions = []
    seen = risk.seen
    if seen.steps > risk.effective_steps:
        cautions.append(_dependence(seen.steps, risk.effective_steps))
    k = seen.overflowed
    if min(stats.poisson.sf(k - 1, expected), stats.poisson.cdf(k, expected)) < 0.005:
        cautions.append(
            f"The fit would have {expected:.2g} of the recorded steps overflow, and {k} did: trust the count before it."
        )
    if risk.horizon is None or risk.planned_steps is None:
        return cautions
    end = risk.planned_steps - 1
    if trend.included and end > risk.step:
        cautions.append(
            f"Extending the trend from step {risk.step} to step {end} is extrapolation: a trend is no law, and no "
            f"interval here holds a change of course."
        )
    if not trend.included and end > risk.step:
        rise = trend.slope.high * (end - risk.step) / 1000
        if rise > 0:
            cautions.append(
                f"No trend is included, as none is significant; one that the record doesn't rule out would raise amax "
                f"by {rise:.2g} octaves by step {end}."
            )
    return cautions


def _seen_sentences(risk: Risk) -> list[str]:
    seen = risk.seen
    bound = f"at most {seen.at_most:.2g} of steps overflow ({_percent(risk.confidence)}, if steps are independent)"
    if seen.rule_of_three is not None:
        bound += f", or at most 3/{seen.steps} = {seen.rule_of_three:.2g} (95 %)"
    sentences = [
        f"Seen: {seen.overflowed} of {seen.steps} recorded steps reach the limit 2^{_places(risk.log2_limit)}; the "
        f"greatest amax is 2^{_places(risk.largest)}.",
        f"By the count alone, {bound}.",
    ]
    return sentences


def _fit_sentences(risk: Risk, tail: Tail, trend: Trend) -> list[str]:
    meaning = {
        "bounded (Weibull)": "there is a value that amax doesn't exceed",
        "light (Gumbel)": "each further octave is rarer by a constant factor",
        "heavy (Fréchet)": "outliers far beyond the record must be expected",
    }.get(tail.case, "the record is too short to say which of the three laws holds, and intervals span them")
    share = _percent(risk.confidence)
    sentences = [
        f"Method: {risk.method}. Tail: {tail.case}, shape {_spread(tail.shape)} ({share} interval): {meaning}.",
        f"Trend: {_spread(trend.slope)} octaves per 1000 steps, p = {trend.p_value:.2g}: "
        f"{'significant, so included' if trend.included else 'not significant, so left out'}.",
        f"A step overflows with probability {_spread(risk.probability)}"
        f"{f' at step {risk.step}' if trend.included else ''}.",
    ]
    end, horizon = risk.probability_at_end, risk.horizon
    if (
        end is None
        or horizon is None
        or risk.planned_steps is None
        or risk.expected_overflows is None
        or risk.at_least_one is None
        or risk.return_level is None
    ):
        return sentences
    if trend.included:
        sentences.append(f"At step {risk.planned_steps - 1} it does with probability {_spread(end)}.")
    beyond = horizon > risk.seen.steps
    sentences += [
        f"{'Extrapolated' if beyond else 'Expected'} over {_steps(horizon)}: {_spread(risk.expected_overflows)} "
        f"overflows; at least one with probability {_spread(risk.at_least_one)}.",
        f"The level that one step in {horizon} exceeds is 2^({_spread(risk.return_level)})"
        f"{f' at step {risk.planned_steps - 1}' if trend.included else ''}"
        f"{f': beyond what {_steps(risk.seen.steps)} can show, so it rests on the law' if beyond else ''}.",
    ]
    return sentences


def _dependence(n: int, effective: float) -> str:
    return f"Steps depend on each other: {_steps(n)} are worth {effective:.0f} independent ones (autocorrelation)."


def _steps(n: int) -> str:
    return f"{n} step{'s' * (n != 1)}"


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _spread(interval: Interval) -> str:
    return f"{interval.estimate:.3g} ({interval.low:.3g} to {interval.high:.3g})"


def _places(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"


def _mapped(interval: Interval, function: Callable[[float], float]) -> Interval:
    return Interval(function(interval.estimate), function(interval.low), function(interval.high))


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf
