"""An analysis in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from precsim.analyze import Analysis, FormatResult, Group
from precsim.report.numbers import count, percent, power, power_range

__all__ = ["render_analysis"]


def render_analysis(analysis: Analysis) -> RenderableType:
    """Groups, all of them together, and what the numbers rest on."""
    groups = [*analysis.groups, analysis.total] if len(analysis.groups) > 1 else [analysis.total]
    blocks: list[RenderableType] = []
    for group in groups:
        blocks += [_title(group), _table(group, analysis), *_binding_notes(group), ""]
    return Lines(*blocks, *_notes(analysis))


def _title(group: Group) -> Text:
    sketch = group.sketch
    facts = [
        f"{count(len(group.tensors))} tensor{'s' if len(group.tensors) != 1 else ''}",
        f"{count(sketch.n)} elements",
        f"{count(sketch.zeros)} zero{'s' if sketch.zeros != 1 else ''} ({percent(sketch.zeros, sketch.n)})",
        f"|x| {power_range(sketch.amin, sketch.amax)}",
    ]
    if sketch.amax:
        facts.append(f"amax {sketch.amax:.4g}")
    if sketch.nonfinite:
        facts.append(f"{count(sketch.nonfinite)} not finite")
    return Text.from_markup(f"[bold]{escape(group.name)}[/bold]  " + escape(" · ".join(facts)))


def _table(group: Group, analysis: Analysis) -> Table:
    table = Table(box=None, pad_edge=True, padding=(0, 2, 0, 1), header_style="dim")
    table.add_column("format")
    for scale in analysis.scales:
        at = "" if len(analysis.scales) == 1 and scale == 1.0 else f" × {power(scale)}"
        for outcome in ("flushed", "subnormal", "overflow"):
            table.add_column(f"{outcome}{at}", justify="right")
    table.add_column("usable scales")
    for result in group.formats:
        table.add_row(result.format.name, *_shares(result, analysis.scales), _window(result))
    return table


def _shares(result: FormatResult, scales: tuple[float, ...]) -> Iterator[str]:
    for scale in scales:
        outcomes = result.outcomes[scale]
        for part in (outcomes.flushed, outcomes.subnormal, outcomes.overflowed):
            yield percent(part, outcomes.nonzero)


def _window(result: FormatResult) -> Text:
    text = str(result.window)
    octaves = result.window.octaves
    if result.window and octaves is not None:
        return Text(f"{text}  ({octaves})")
    return Text(text, style="" if result.window else "bold red")


def _binding_notes(group: Group) -> Iterator[Text]:
    """Which tensors leave no window."""
    for result in group.formats:
        window = result.window
        if window or window.nonfinite or window.low is None or window.high is None or len(group.tensors) == 1:
            continue
        if result.largest is not None and result.most_flushed is not None:
            yield Text(
                f"  {result.format.name}: 2^{window.low} or more would keep enough (most is lost of "
                f"{result.most_flushed.name}), 2^{window.high} or less holds {result.largest.name}",
                style="red",
            )


def _notes(analysis: Analysis) -> Iterator[Text]:
    evidence = analysis.evidence
    share = percent(analysis.max_flushed.numerator, analysis.max_flushed.denominator)
    yield Text(
        "Shares are of the finite nonzero elements, rounded to nearest even. Usable scales (and how many powers of two "
        f"they are): at most {share} of these flushed to zero, none overflowed.",
        style="dim",
    )
    seen = f"{count(evidence.tensors)} tensors, {count(evidence.elements)} elements, {count(evidence.files)} files"
    yield Text(f"Seen: {seen}. Every count is exact for these; nothing is said of other steps.", style="dim")
    if evidence.samples:
        yield Text(
            f"{count(evidence.samples)} tensors are samples of larger ones: shares are of the samples.",
            style="dim",
        )
    if evidence.skipped:
        named = ", ".join(evidence.skipped[:4]) + (", …" if len(evidence.skipped) > 4 else "")
        yield Text(
            f"{count(len(evidence.skipped))} tensors are no floats and were left out: {named}", style="dim"
        )
    if any(scale != 1.0 for scale in evidence.loss_scales):
        scales = ", ".join(power(scale) for scale in evidence.loss_scales)
        yield Text(
            f"The files state loss scale {scales}: numbers are taken as stored, not divided by it.",
            style="yellow",
        )
    if evidence.files_without_loss_scale:
        yield Text(
            f"{count(evidence.files_without_loss_scale)} files state no loss scale: if these are gradients that still "
            "carry one, usable scales are on top of it.",
            style="dim",
        )
    if evidence.narrow:
        yield Text(
            f"Captured in {', '.join(evidence.narrow)}: what was flushed or overflowed before that can't be seen.",
            style="yellow",
        )
