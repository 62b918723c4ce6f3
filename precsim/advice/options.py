"""The settings that advice ranks: each with its counts, how sure they are, and what would change them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from precsim.advice.risk import Risk
from precsim.analyze import TensorResult
from precsim.number import Format
from precsim.sketches import Outcomes, Sketch, Window
from precsim.wording import counted, percent

__all__ = [
    "Option",
    "TensorScale",
    "block_scales",
    "dynamic_scale",
    "no_scale",
    "static_scale",
    "tensor_scales",
]

_DYNAMIC_HIGHEST = 24
"""torch's GradScaler starts at 2^16; beyond 2^24 a start buys nothing that growth does not."""
_GROWTH_INTERVALS = (2000, 1000, 500, 200, 100)


@dataclass(frozen=True)
class TensorScale:
    """One tensor under a scale of its own.

    Attributes
    ----------
    name : str
    low, high : int or None
        Exponents of the greatest scale at which nothing overflows, over the recorded steps: least and greatest.
    outcomes : Outcomes
        At each step's own scale, over all steps.
    sqnr_db : float or None
    serves : bool
        Whether no more than the allowed share is flushed.
    """

    name: str
    low: int | None
    high: int | None
    outcomes: Outcomes
    sqnr_db: float | None
    serves: bool


@dataclass(frozen=True)
class Option:
    """One way to train, judged.

    Attributes
    ----------
    title : str
        E.g. "FP16, static loss scale 2^14".
    format : Format
    kind : {"static", "dynamic", "none", "per-tensor", "blockwise"}
    verdict : {"serves", "serves with care", "does not serve"}
    settings : mapping of str to number
        E.g. ``{"init_scale": 65536.0, "growth_interval": 2000}``.
    outcomes : Outcomes or None
        Of all recorded numbers under these settings.
    sqnr_db : float or None
        Signal to quantization noise under them.
    risk : Risk or None
        Of overflow at the scale.
    why, sure, changes : tuple of str
        Sentences: on which counts, how sure, what would change it.
    tensors : tuple of TensorScale
        For scales per tensor, worst first.
    keep : tuple of str
        Tensors to keep in a wider format.
    """

    title: str
    format: Format
    kind: str
    verdict: str
    settings: Mapping[str, float] = field(default_factory=dict)
    outcomes: Outcomes | None = None
    sqnr_db: float | None = None
    risk: Risk | None = None
    why: tuple[str, ...] = ()
    sure: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    tensors: tuple[TensorScale, ...] = ()
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class Situation:
    """What options are judged on: true gradients, without what is set apart.

    `risk_at` gives the risk of overflow at a scale 2^k; `seen` is a sentence on the evidence.
    """

    total: Sketch
    by_step: Sequence[tuple[int | None, Sketch]]
    tensors: Sequence[TensorResult]
    max_flushed: Fraction
    risks: Mapping[Format, Mapping[int, Risk]]
    seen: str
    forward: Sequence[TensorResult] = ()
    """Activations and weights: no loss scale moves them."""


def flushed_and_over(outcomes: Outcomes) -> str:
    """Counts in words."""
    parts = {"flushed": outcomes.flushed, "subnormal": outcomes.subnormal, "overflowed": outcomes.overflowed}
    words = [_counted_share(count, outcomes.nonzero, name) for name, count in parts.items()]
    return f"of {outcomes.nonzero:,} nonzero numbers {', '.join(words)}"


def _counted_share(count: int, whole: int, name: str) -> str:
    return f"{count:,} {name} ({percent(count, whole)})" if count else f"none {name}"


def _db(sketch: Sketch, fmt: Format, exponent: int) -> float | None:
    """SQNR at a scale, where the sketch can tell it."""
    if sketch.moments is None:
        return None
    value = sketch.error(fmt, math.ldexp(1.0, exponent)).sqnr_db
    return None if math.isnan(value) else value


def _stepwise_db(
    situation: Situation, fmt: Format, windows: Sequence[tuple[int | None, Window]]
) -> float | None:
    """SQNR with each step's scale one octave below its limit."""
    signal = noise = Fraction(0)
    for (_, sketch), (_, window) in zip(situation.by_step, windows, strict=True):
        if sketch.moments is not None and window.high is not None:
            error = sketch.error(fmt, math.ldexp(1.0, window.high - 1))
            signal, noise = signal + error.signal, noise + error.squared
    return 10 * math.log10(signal / noise) if signal and noise else None


def forward_overflow(situation: Situation, fmt: Format) -> list[str]:
    """What of the forward pass overflows in a format: a sentence, or none."""
    over = [
        (outcomes.overflowed, tensor)
        for tensor in situation.forward
        if (outcomes := tensor.sketch.outcomes(fmt)).overflowed
    ]
    if not over:
        return []
    _, worst = max(over, key=lambda pair: pair[1].sketch.amax)
    return [
        f"The forward pass overflows in {counted(len(over), 'tensor')}, {worst.name} with amax "
        f"{worst.sketch.amax:.6g} first of all: no loss scale mends that, since it scales gradients alone."
    ]


def no_scale(situation: Situation, fmt: Format) -> Option:
    """The format without any loss scale."""
    outcomes = situation.total.outcomes(fmt)
    within = outcomes.flushed <= situation.max_flushed * outcomes.nonzero
    fits = within and not outcomes.overflowed
    window = situation.total.window(fmt, situation.max_flushed, 1)
    why = [f"At scale 1: {flushed_and_over(outcomes)}."]
    if window.octaves is not None:
        why.append(f"Usable scales: {window}" + (f", {window.octaves} powers of two." if window else "."))
    changes = []
    if fits and window.high is not None:
        changes.append(f"A gradient 2^{window.high + 1} times the largest seen would overflow.")
    return Option(
        f"{fmt.name.upper()}, no loss scale",
        fmt,
        "none",
        "serves" if fits else "does not serve",
        {},
        outcomes,
        _db(situation.total, fmt, 0),
        None,
        tuple(why),
        (situation.seen,),
        tuple(changes),
    )


def static_scale(situation: Situation, fmt: Format) -> Option:
    """The format with one power-of-two loss scale for the whole run."""
    total, window = situation.total, situation.total.window(fmt, situation.max_flushed, 1)
    title = f"{fmt.name.upper()}, static loss scale"
    if not window or window.high is None or window.low is None:
        return _no_static(situation, fmt, title, window)
    exponent = _static_exponent(situation, fmt, window)
    outcomes, risk = (
        total.outcomes(fmt, math.ldexp(1.0, exponent)),
        situation.risks.get(fmt, {}).get(exponent),
    )
    headroom = window.high - exponent
    flushing = [
        (step, sketch.outcomes(fmt, math.ldexp(1.0, exponent)))
        for (step, own), (_, sketch) in zip(_windows(situation, fmt), situation.by_step, strict=True)
        if own.low is not None and exponent < own.low
    ]
    why = [
        f"One window serves all recorded numbers: {window}; the scale lies {headroom} octaves below its end.",
        f"At 2^{exponent}: {flushed_and_over(outcomes)}.",
    ]
    care = []
    if headroom < 1:
        care.append("No headroom: the next larger gradient overflows, and nothing lowers a static scale.")
    if flushing:
        step, worst = max(flushing, key=lambda pair: pair[1].share("flushed"))
        at = "an unknown step" if step is None else f"step {step}"
        care.append(
            f"More than the allowed share is flushed at {counted(len(flushing), 'recorded step')}; most at {at}: "
            f"{percent(worst.flushed, worst.nonzero)}."
        )
    if risk is None or risk.tail is None:
        care.append(
            f"{counted(len(situation.by_step), 'recorded step')} are too few to bound what later ones do, and nothing "
            "lowers a static scale: record more steps, spread over the run."
        )
    if risk is not None and risk.expected_overflows is not None and risk.expected_overflows.estimate >= 1:
        care.append(
            f"About {risk.expected_overflows.estimate:.3g} planned steps are expected to overflow, and would be lost."
        )
    return Option(
        f"{title} 2^{exponent}",
        fmt,
        "static",
        "serves with care" if care else "serves",
        {"scale": math.ldexp(1.0, exponent)},
        outcomes,
        _db(total, fmt, exponent),
        risk,
        (*why, *care),
        (situation.seen, *(risk.explain() if risk is not None else ())),
        (
            f"A gradient 2^{headroom + 1} times the largest seen overflows.",
            f"Gradients that shrink by 2^{exponent - window.low + 1} are flushed beyond the allowed share.",
        ),
    )


def _static_exponent(situation: Situation, fmt: Format, window: Window) -> int:
    """Two octaves below the window's end, or as far as it reaches; lower still where the risk asks for it."""
    assert window.low is not None
    assert window.high is not None
    start = max(window.low, window.high - 2)
    risks = situation.risks.get(fmt, {})
    for exponent in range(start, window.low - 1, -1):
        risk = risks.get(exponent)
        if risk is None or risk.expected_overflows is None or risk.expected_overflows.estimate < 1:
            return exponent
    return window.low


def _no_static(situation: Situation, fmt: Format, title: str, window: Window) -> Option:
    why = [f"No single scale serves all recorded numbers: {window}."]
    if window.low is not None and window.high is not None:
        why.append(
            f"Nothing overflows up to 2^{window.high}, but only from 2^{window.low} on is enough kept: "
            f"{1 - (window.octaves or 0)} octaves are missing."
        )
        outcomes = situation.total.outcomes(fmt, math.ldexp(1.0, min(max(window.high, -900), 900)))
        why.append(f"At 2^{window.high}: {flushed_and_over(outcomes)}.")
    return Option(title, fmt, "static", "does not serve", why=tuple(why), sure=(situation.seen,))


def _windows(situation: Situation, fmt: Format) -> list[tuple[int | None, Window]]:
    return [(step, sketch.window(fmt, situation.max_flushed, 1)) for step, sketch in situation.by_step]


def dynamic_scale(situation: Situation, fmt: Format) -> Option:
    """The format with a scaler that backs off on overflow and grows by turns."""
    windows = _windows(situation, fmt)
    title = f"{fmt.name.upper()}, dynamic loss scale"
    broken = [(step, window) for step, window in windows if not window]
    bounded = [(step, w) for step, w in windows if w and w.low is not None and w.high is not None]
    why: list[str] = []
    if broken:
        named = ", ".join("unknown" if step is None else str(step) for step, _ in broken[:5])
        why.append(
            f"At {len(broken)} of {len(windows)} recorded steps no single scale serves (step {named})."
        )
    if not bounded:
        return Option(title, fmt, "dynamic", "does not serve", why=tuple(why), sure=(situation.seen,))
    first = bounded[0][1]
    assert first.high is not None
    init = min(first.high - 1, _DYNAMIC_HIGHEST)
    floor = min(window.low for _, window in bounded if window.low is not None)
    interval, pace = _growth_interval(bounded, init)
    narrow = sum((window.octaves or 0) < 2 for _, window in bounded)
    why += [
        f"Start at 2^{init}, one octave below the end of the first recorded step's window ({first}): no step is "
        "lost to backing off.",
        f"Below 2^{floor} more than the allowed share is flushed at every recorded step: take it as the floor, and "
        "stop to look if it is reached (torch's GradScaler has no floor of its own).",
        pace,
    ]
    outcomes = sum(
        (
            sketch.outcomes(fmt, math.ldexp(1.0, window.high - 1))
            for (_, sketch), (_, window) in zip(situation.by_step, windows, strict=True)
            if window.high is not None
        ),
        Outcomes(0, 0, 0, 0, 0, 0),
    )
    why.append(f"With each step's scale one octave below its limit: {flushed_and_over(outcomes)}.")
    care = []
    if narrow:
        care.append(
            f"At {narrow} of {len(windows)} steps the window is less than two octaves wide: the scaler, which moves by "
            "octaves, spends its time on the edge of overflow or of flushing."
        )
    worst = outcomes.flushed > situation.max_flushed * outcomes.nonzero
    verdict = "does not serve" if broken and (2 * len(broken) > len(windows) or worst) else "serves"
    if verdict == "serves" and (care or broken or worst):
        verdict = "serves with care"
    return Option(
        f"{title}: start 2^{init}, growth interval {interval}, floor 2^{floor}",
        fmt,
        "dynamic",
        verdict,
        {"init_scale": math.ldexp(1.0, init), "growth_interval": interval, "floor": math.ldexp(1.0, floor)},
        outcomes,
        _stepwise_db(situation, fmt, windows),
        None,
        (*why, *care),
        (situation.seen,),
        (
            "It doubles after each growth interval without overflow: at the edge one step in as many is skipped.",
        ),
    )


def _growth_interval(windows: Sequence[tuple[int | None, Window]], init: int) -> tuple[int, str]:
    """The longest usual interval at which growth from the start keeps up with the windows' lower ends, and why."""
    known = [(step, window.low) for step, window in windows if step is not None and window.low is not None]
    late = [(step, low) for step, low in known if low > init and step > known[0][0]]
    if not late:
        return _GROWTH_INTERVALS[0], (
            f"The start serves all recorded steps, so growth is in no hurry: {_GROWTH_INTERVALS[0]} steps, torch's own."
        )
    first = known[0][0]
    needed = min((step - first) // (low - init) for step, low in late)
    interval = next((n for n in _GROWTH_INTERVALS if n <= needed), _GROWTH_INTERVALS[-1])
    step, low = max(late, key=lambda pair: (pair[1] - init) / (pair[0] - first))
    return interval, (
        f"By step {step} the window begins at 2^{low}, above the start: the scale must double "
        f"{counted(low - init, 'time')} by then, which takes a growth interval of {interval} steps."
    )


def tensor_scales(situation: Situation, fmt: Format) -> Option:
    """The format with a scale for each tensor, taken anew at each step from its greatest magnitude."""
    rows = [_tensor_row(situation, fmt, name, tensors) for name, tensors in _by_name(situation.tensors)]
    rows.sort(key=lambda row: -row.outcomes.share("flushed"))
    outcomes = sum((row.outcomes for row in rows), Outcomes(0, 0, 0, 0, 0, 0))
    keep = tuple(row.name for row in rows if not row.serves)
    served = len(rows) - len(keep)
    why = [
        f"Each tensor at its own greatest scale without overflow: {flushed_and_over(outcomes)}.",
        f"{served} of {len(rows)} tensors keep all but the allowed share.",
    ]
    if keep:
        worst = rows[0]
        why.append(
            f"Worst: {worst.name}, {percent(worst.outcomes.flushed, worst.outcomes.nonzero)} flushed at its own scale: "
            "such tensors stay in a wider format."
        )
    verdict = "serves" if not keep else "serves with care" if 2 * len(keep) <= len(rows) else "does not serve"
    return Option(
        f"{fmt.name.upper()}, one scale per tensor",
        fmt,
        "per-tensor",
        verdict,
        {},
        outcomes,
        None,
        None,
        tuple(why),
        (
            situation.seen,
            "Scales are current ones; delayed scaling uses older maxima and overflows where gradients grow.",
        ),
        ("A wider spread within a tensor flushes more; blocks with scales of their own flush less.",),
        tuple(rows),
        keep,
    )


def _by_name(tensors: Sequence[TensorResult]) -> list[tuple[str, list[TensorResult]]]:
    names: dict[str, list[TensorResult]] = {}
    for tensor in tensors:
        if tensor.sketch.nonzero:
            names.setdefault(tensor.name, []).append(tensor)
    return list(names.items())


def _tensor_row(situation: Situation, fmt: Format, name: str, tensors: Sequence[TensorResult]) -> TensorScale:
    outcomes = Outcomes(0, 0, 0, 0, 0, 0)
    ends: list[int] = []
    signal = noise = Fraction(0)
    for tensor in tensors:
        high = tensor.sketch.window(fmt, 1, 1).high
        exponent = 0 if high is None else high
        ends += [] if high is None else [high]
        outcomes += tensor.sketch.outcomes(fmt, math.ldexp(1.0, min(max(exponent, -900), 900)))
        if tensor.sketch.moments is not None:
            error = tensor.sketch.error(fmt, math.ldexp(1.0, min(max(exponent, -900), 900)))
            signal, noise = signal + error.signal, noise + error.squared
    return TensorScale(
        name,
        min(ends, default=None),
        max(ends, default=None),
        outcomes,
        10 * math.log10(signal / noise) if signal and noise else None,
        outcomes.flushed <= situation.max_flushed * outcomes.nonzero,
    )


def block_scales(situation: Situation, fmt: Format) -> Option | None:
    """The format with a scale for each block of 128 elements; None if no tensor is whole."""
    rows = []
    for name, tensors in _by_name(situation.tensors):
        seen = [tensor.blockwise[fmt] for tensor in tensors if fmt in tensor.blockwise]
        if seen:
            outcomes = sum(seen, Outcomes(0, 0, 0, 0, 0, 0))
            serves = outcomes.flushed <= situation.max_flushed * outcomes.nonzero
            rows.append(TensorScale(name, None, None, outcomes, None, serves))
    if not rows:
        return None
    rows.sort(key=lambda row: -row.outcomes.share("flushed"))
    outcomes = sum((row.outcomes for row in rows), Outcomes(0, 0, 0, 0, 0, 0))
    keep = tuple(row.name for row in rows if not row.serves)
    names = len(_by_name(situation.tensors))
    sampled = names - len(rows)
    why = [
        f"Each block of 128 neighbouring elements at its own greatest scale: {flushed_and_over(outcomes)}.",
        f"{len(rows) - len(keep)} of {len(rows)} tensors keep all but the allowed share.",
    ]
    if sampled:
        why.append(
            f"{sampled} tensors were recorded as samples, whose elements are no neighbours: not judged."
        )
    verdict = "serves" if not keep else "serves with care" if 2 * len(keep) <= len(rows) else "does not serve"
    return Option(
        f"{fmt.name.upper()}, one scale per block of 128",
        fmt,
        "blockwise",
        verdict if not sampled or verdict != "serves" else "serves with care",
        {"block": 128},
        outcomes,
        None,
        None,
        tuple(why),
        (situation.seen,),
        ("Blocks along another dimension than the last, or of other sizes, have other counts.",),
        tuple(rows),
        keep,
    )
