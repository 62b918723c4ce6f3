"""`advise`: formats and loss scales, ranked, each with its evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from precsim.advice.apart import SetApart, set_apart
from precsim.advice.evidence import true_gradients, unproven
from precsim.advice.options import (
    Option,
    Situation,
    block_scales,
    dynamic_scale,
    forward_overflow,
    no_scale,
    static_scale,
    tensor_scales,
)
from precsim.advice.risk import Risk, overflow_risk
from precsim.analyze import Analysis, TensorResult, analyze
from precsim.analyze.roles import is_forward
from precsim.errors import InputError
from precsim.number import Format, Mode, find_format
from precsim.runs import TensorEntry
from precsim.sketches import Sketch, Window
from precsim.sketches.thresholds import thresholds
from precsim.wording import counted, html_list

__all__ = ["DEFAULT_FORMATS", "Advice", "StepWindow", "advise", "advise_on"]

DEFAULT_FORMATS = ("fp16", "bf16", "e4m3", "e5m2")
_VERDICTS = ("serves", "serves with care", "does not serve")


@dataclass(frozen=True)
class StepWindow:
    """Usable scales of a format at one recorded step, and what bounds them.

    Attributes
    ----------
    step : int or None
    format : Format
    window : precsim.sketches.Window
    largest, most_flushed : str or None
        Tensor with the greatest magnitude; tensor that loses most at the window's high end.
    """

    step: int | None
    format: Format
    window: Window
    largest: str | None
    most_flushed: str | None


@dataclass(frozen=True)
class Advice:
    """The result of `advise`.

    Attributes
    ----------
    options : tuple of Option
        Best first. Empty where the recording proves nothing of underflow: see `refused`.
    refused : tuple of str
        Why no verdict is given, and what to record instead.
    apart : tuple of SetApart
        Noise and dead channels, which drive none of it.
    windows : tuple of StepWindow
        By format and step.
    movement : tuple of str
        How windows move as steps go by.
    notes : tuple of str
        What was assumed.
    evidence : tuple of str
        What was seen, and what was not.
    steps : int or None
        Planned length of the run.
    analysis : Analysis
        What it rests on.
    """

    options: tuple[Option, ...]
    refused: tuple[str, ...]
    apart: tuple[SetApart, ...]
    windows: tuple[StepWindow, ...]
    movement: tuple[str, ...]
    notes: tuple[str, ...]
    evidence: tuple[str, ...]
    steps: int | None
    analysis: Analysis

    def _repr_html_(self) -> str:
        parts = [html_list("No verdict", self.refused)] if self.refused else []
        for rank, option in enumerate(self.options, start=1):
            lines = [*option.why, *option.sure, *option.changes]
            parts.append(html_list(f"{rank}. {option.title}: {option.verdict}", lines))
        return "".join(
            [*parts, html_list("What this rests on", [*self.movement, *self.notes, *self.evidence])]
        )


def advise(
    run: Iterable[TensorEntry],
    formats: Sequence[object] = DEFAULT_FORMATS,
    *,
    steps: int | None = None,
    max_flushed: float | str | Fraction = "0.001",
    captured_scale: float | None = None,
    confidence: float = 0.9,
    progress: Callable[[TensorEntry], None] = lambda entry: None,
) -> Advice:
    """Rank formats and loss scales for a run of which a few steps were recorded.

    Parameters
    ----------
    run : Run or iterable of TensorEntry
        As `precsim.open_run` gives it.
    formats : sequence of Format, str or dtype
        Those of 16 bits are looked at with a static, with a dynamic and without a loss scale, those of 8 bits or fewer
        with a scale per tensor and per block.
    steps : int, optional
        Planned length of the run; risk is summed over it.
    max_flushed : float
        Share of the nonzero numbers that may be flushed.
    captured_scale : float, optional
        Loss scale of gradients whose files state none; a power of two, 1 for unscaled ones.
    confidence : float
        Of intervals.
    progress : callable
        Called with each tensor before it is read.

    Returns
    -------
    Advice

    Raises
    ------
    InputError
        For unreadable files, shares out of range, scales that are no powers of two.

    Examples
    --------
    >>> import precsim as ps
    >>> advice = ps.advise(ps.open_run("examples/gradients/cnn"), steps=10_000)
    >>> advice.options[0].verdict
    'serves'
    """
    targets = [find_format(fmt) for fmt in formats]
    share = Fraction(str(max_flushed))
    if not 0 <= share <= 1:
        raise InputError(f"max_flushed must be 0 … 1, got {max_flushed}")
    if steps is not None and steps < 1:
        raise InputError(f"the planned run must have at least 1 step, got {steps}")
    narrow = [fmt for fmt in targets if fmt.bits <= 8]
    analysis = analyze(
        run, targets, max_flushed=share, errors=True, blockwise=narrow, progress=progress, group_by="kind"
    )
    return advise_on(analysis, targets, steps=steps, captured_scale=captured_scale, confidence=confidence)


def advise_on(
    analysis: Analysis,
    formats: Sequence[Format],
    *,
    steps: int | None = None,
    captured_scale: float | None = None,
    confidence: float = 0.9,
) -> Advice:
    """`advise`, on an analysis with errors that was made before."""
    recorded = [tensor for tensor in analysis.total.tensors if not is_forward(tensor.name)]
    forward = [tensor for tensor in analysis.total.tensors if is_forward(tensor.name)]
    if not recorded:
        raise InputError(
            "the recording holds activations and weights alone: advice on loss scales needs gradients"
        )
    kept, apart = set_apart(recorded)
    refused = unproven(recorded, captured_scale)
    tensors, notes = true_gradients(kept, captured_scale)
    by_step = _by_step(tensors)
    total = _sum(tensors)
    if total.nonfinite:
        refused.append(
            f"{counted(total.nonfinite, 'number')} of the recording are infinite or NaN: no scale mends that. "
            "Record steps that did not overflow."
        )
    windows = tuple(
        _step_window(step, group, fmt, analysis.max_flushed) for fmt in formats for step, group in by_step
    )
    if not total.nonzero:
        refused.append("All recorded gradients are zero.")
    options: list[Option] = []
    if not refused:
        sums = [(step, _sum(group)) for step, group in by_step]
        situation = Situation(
            total,
            sums,
            tensors,
            analysis.max_flushed,
            _risks(formats, sums, total, analysis.max_flushed, steps, confidence),
            _seen(tensors, by_step, analysis),
            forward,
        )
        options = _ranked(situation, formats)
    return Advice(
        tuple(options),
        tuple(refused),
        tuple(apart),
        windows,
        tuple(_movement(windows, formats)),
        tuple(notes),
        tuple(_evidence(analysis, apart)),
        steps,
        analysis,
    )


def _ranked(situation: Situation, formats: Sequence[Format]) -> list[Option]:
    """By verdict; among equals 16 bits before 8, then by signal-to-noise ratio, then the simpler setting."""
    options: list[Option] = []
    for fmt in formats:
        if fmt.bits > 8:
            plain = no_scale(situation, fmt)
            options.append(plain)
            if fmt.exponent_bits < 8:
                options += [static_scale(situation, fmt), dynamic_scale(situation, fmt)]
            broken = forward_overflow(situation, fmt)
            if broken:
                options = [
                    replace(option, verdict=_VERDICTS[-1], why=(*broken, *option.why))
                    if option.format == fmt
                    else option
                    for option in options
                ]
        else:
            options.append(tensor_scales(situation, fmt))
            blocks = block_scales(situation, fmt)
            options += [] if blocks is None else [blocks]
    simplicity = ("none", "static", "dynamic", "per-tensor", "blockwise")

    def key(option: Option) -> tuple[Any, ...]:
        noise = -option.sqnr_db if option.sqnr_db is not None else 0.0
        return _VERDICTS.index(option.verdict), option.format.bits <= 8, noise, simplicity.index(option.kind)

    return sorted(options, key=key)


def _by_step(tensors: Sequence[TensorResult]) -> list[tuple[int | None, list[TensorResult]]]:
    """Tensors by step; those of unknown steps together, by file."""
    groups: dict[tuple[int | None, str], list[TensorResult]] = {}
    for tensor in tensors:
        place = (tensor.step, "") if tensor.step is not None else (None, str(tensor.path))
        groups.setdefault(place, []).append(tensor)
    known = sorted((step, group) for (step, _), group in groups.items() if step is not None)
    unknown = [(step, group) for (step, _), group in groups.items() if step is None]
    return [*unknown, *known]


def _sum(tensors: Sequence[TensorResult]) -> Sketch:
    return sum((tensor.sketch for tensor in tensors), Sketch())


def _step_window(
    step: int | None, tensors: Sequence[TensorResult], fmt: Format, max_flushed: Fraction
) -> StepWindow:
    window = _sum(tensors).window(fmt, max_flushed, 1)
    largest = max(tensors, key=lambda tensor: tensor.sketch.amax)
    most = None
    if window.high is not None:
        scale = math.ldexp(1.0, min(max(window.high, -900), 900))
        flushed = [(tensor.sketch.outcomes(fmt, scale).flushed, tensor.name) for tensor in tensors]
        lost, name = max(flushed, key=lambda pair: pair[0])
        most = name if lost else None
    return StepWindow(step, fmt, window, largest.name if largest.sketch.nonzero else None, most)


def _risks(
    formats: Sequence[Format],
    sums: Sequence[tuple[int | None, Sketch]],
    total: Sketch,
    max_flushed: Fraction,
    planned: int | None,
    confidence: float,
) -> dict[Format, dict[int, Risk]]:
    """Risk of overflow at each scale that a static one may be set to."""
    known = [(step, sketch.amax) for step, sketch in sums if step is not None and sketch.amax > 0]
    if not known or len({step for step, _ in known}) != len(known):
        return {}
    steps = [step for step, _ in known]
    if planned is not None and planned <= steps[0]:
        raise InputError(
            f"the planned run of {planned} steps ends before the first recorded step, {steps[0]}"
        )
    amax = [math.log2(value) for _, value in known]
    result: dict[Format, dict[int, Risk]] = {}
    for fmt in formats:
        window = total.window(fmt, max_flushed, 1)
        if fmt.bits <= 8 or not window or window.low is None or window.high is None:
            continue
        limit = math.log2(thresholds(fmt, Mode.NEAREST_EVEN, False).overflow.value)
        at = range(max(window.low, window.high - 12), window.high + 1)
        result[fmt] = {
            k: overflow_risk(steps, amax, limit - k, planned_steps=planned, confidence=confidence) for k in at
        }
    return result


def _seen(
    tensors: Sequence[TensorResult],
    by_step: Sequence[tuple[int | None, list[TensorResult]]],
    analysis: Analysis,
) -> str:
    steps = [step for step, _ in by_step if step is not None]
    span = f" (steps {steps[0]} … {steps[-1]})" if len(steps) > 1 else f" (step {steps[0]})" if steps else ""
    names = len({tensor.name for tensor in tensors})
    sampled = ", sampled" if analysis.evidence.samples else ""
    what = f"{counted(len(by_step), 'step')}{span}, {counted(names, 'tensor')}{sampled}"
    return f"Seen: {what}; nothing is known of others."


def _movement(windows: Sequence[StepWindow], formats: Sequence[Format]) -> list[str]:
    """How the windows of formats that need a loss scale move."""
    lines = []
    for fmt in formats:
        own = [w for w in windows if w.format == fmt and w.step is not None and w.window.high is not None]
        if len(own) < 2 or fmt.exponent_bits >= 8 or fmt.bits <= 8:
            continue
        first, last = own[0], own[-1]
        assert first.window.high is not None
        assert last.window.high is not None
        highs = [w.window.high for w in own if w.window.high is not None]
        moved = last.window.high - first.window.high
        way = f" (between 2^{min(highs)} and 2^{max(highs)} on the way)" if len(own) > 2 else ""
        below = f", below by {last.most_flushed}" if last.most_flushed else ""
        lines += [
            f"{fmt.name.upper()}: usable scales {first.window} at step {first.step}, "
            f"{last.window} at step {last.step}.",
            f"Its upper end moved by {moved:+d} octaves{way}. At step {last.step} it is bound above by "
            f"{last.largest}{below}.",
        ]
    return lines


def _evidence(analysis: Analysis, apart: Sequence[SetApart]) -> list[str]:
    evidence = analysis.evidence
    lines = [
        f"{counted(evidence.tensors, 'tensor')} in {counted(evidence.files, 'file')}, "
        f"{counted(evidence.elements, 'element')}: counts are exact for these.",
    ]
    if evidence.samples:
        lines.append(
            f"{counted(evidence.samples, 'tensor')} are samples of larger ones: shares are of the samples."
        )
    kinds = {tensor.name.split("/", 1)[0] for tensor in analysis.total.tensors if "/" in tensor.name}
    if kinds and not any(kind.startswith("act") for kind in kinds):
        lines.append("No activation gradients were recorded: overflow and flushing start there.")
    if apart:
        noise = sum(item.kind == "noise" for item in apart)
        dead = len(apart) - noise
        parts = [counted(noise, "tensor") + " of rounding noise"] if noise else []
        parts += [f"dead numbers of {counted(dead, 'tensor')}"] if dead else []
        lines.append(f"Set apart: {' and '.join(parts)}.")
    forward = sum(is_forward(tensor.name) for tensor in analysis.total.tensors)
    if forward:
        lines.append(
            f"{counted(forward, 'tensor')} are of the forward pass: judged at scale 1, whatever the loss scale."
        )
    if evidence.skipped:
        lines.append(f"Left out, no floats: {counted(len(evidence.skipped), 'tensor')}.")
    return lines
