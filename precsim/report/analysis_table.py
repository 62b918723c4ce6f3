"""An analysis in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from precsim.analyze import Analysis, Evidence, FormatResult, Group, TensorResult
from precsim.wording import count, counted, percent, power, power_range, printable

__all__ = ["render_analysis"]

_MOST_NAMES = 4
"""How many tensors are named where there may be thousands."""


def render_analysis(analysis: Analysis) -> RenderableType:
    """Groups, all of them together, and what the numbers rest on."""
    groups = [*analysis.groups, analysis.total] if len(analysis.groups) > 1 else [analysis.total]
    blocks: list[RenderableType] = []
    for group in groups:
        blocks += [_title(group), _facts(group), _table(group, analysis), *_binding_notes(group), ""]
    return Lines(*blocks, *_notes(analysis))


def _title(group: Group) -> Text:
    size = f"  {counted(len(group.tensors), 'tensor')}, {counted(group.sketch.n, 'element')}"
    return Text.assemble((printable(group.name), "bold"), size)


def _facts(group: Group) -> Text:
    sketch = group.sketch
    zeros = counted(sketch.zeros, "zero") + (f" ({percent(sketch.zeros, sketch.n)})" if sketch.zeros else "")
    facts = [zeros, f"|x| {power_range(sketch.amin, sketch.amax)}"]
    if sketch.amax:
        facts.append(f"amax {sketch.amax:.4g}")
    if sketch.nonfinite:
        facts.append(f"{count(sketch.nonfinite)} infinite or NaN")
    return Text(f" {' · '.join(facts)}")


def _table(group: Group, analysis: Analysis) -> Table:
    """A row for each format and scale."""
    table = Table(box=None, padding=(0, 2, 0, 1), header_style="dim")
    at_scales = analysis.scales != (1.0,)
    table.add_column("format")
    if at_scales:
        table.add_column("scale")
    for outcome in ("flushed", "subnormal", "overflow"):
        table.add_column(outcome, justify="right", no_wrap=True)
    table.add_column("usable scales", no_wrap=True)
    for result in group.formats:
        for scale in analysis.scales:
            first = scale == analysis.scales[0]
            at = [power(scale)] if at_scales else []
            table.add_row(
                result.format.name if first else "",
                *at,
                *_shares(result, scale),
                _window(result) if first else "",
            )
    return table


def _shares(result: FormatResult, scale: float) -> Iterator[str]:
    outcomes = result.outcomes[scale]
    for part in (outcomes.flushed, outcomes.subnormal, outcomes.overflowed):
        yield percent(part, outcomes.nonzero)


def _window(result: FormatResult) -> Text:
    text, octaves = str(result.window), result.window.octaves
    if not result.window:
        return Text(text, style="bold red")
    return Text(text if octaves is None else f"{text}  ({octaves})")


def _binding_notes(group: Group) -> Iterator[Text]:
    """Which tensors leave no window."""
    several = len({tensor.path for tensor in group.tensors}) > 1
    for result in group.formats:
        window, largest, most = result.window, result.largest, result.most_flushed
        ends_cross = window.octaves is not None and window.octaves <= 0
        if ends_cross and largest is not None and most is not None:
            yield Text(
                f" {result.format.name}: nothing overflows up to 2^{window.high} (bound by "
                f"{_named(largest, several)}), enough is kept from 2^{window.low} on (most is lost of "
                f"{_named(most, several)})",
                style="red",
            )


def _named(tensor: TensorResult, with_file: bool) -> str:
    return printable(f"{tensor.name} in {tensor.path.stem}" if with_file else tensor.name)


def _notes(analysis: Analysis) -> Iterator[Text]:
    evidence = analysis.evidence
    share = percent(analysis.max_flushed.numerator, analysis.max_flushed.denominator)
    allowed = f"at most {share} of these" if analysis.max_flushed else "none of these"
    yield _note(
        "Percentages are of the finite nonzero elements, rounded to nearest even. Usable scales (and how many powers "
        f"of two they are): {allowed} flushed to zero, none overflowed."
    )
    seen = ", ".join(
        [
            counted(evidence.tensors, "tensor"),
            counted(evidence.elements, "element"),
            counted(evidence.files, "file"),
        ]
    )
    yield _note(f"Seen: {seen}. Counts are exact for these; nothing is said of other steps.")
    yield from _limits(evidence)


def _limits(evidence: Evidence) -> Iterator[Text]:
    """What the evidence can't show."""
    if evidence.samples:
        yield _note(
            f"{counted(evidence.samples, 'tensor')} of them sampled from larger ones: percentages and amax are of the "
            "samples."
        )
    if evidence.skipped:
        left_out = len(evidence.skipped)
        named = ", ".join(map(printable, evidence.skipped[:_MOST_NAMES]))
        more = ", …" if left_out > _MOST_NAMES else ""
        yield _note(f"Left out, not floats: {counted(left_out, 'tensor')} ({named}{more}).")
    if any(scale != 1.0 for scale in evidence.loss_scales):
        scales = ", ".join(power(scale) for scale in evidence.loss_scales)
        yield _note(
            f"The files state loss scale {scales}: numbers are taken as stored, not divided by it.", "yellow"
        )
    if evidence.files_without_loss_scale:
        yield _note(
            f"{counted(evidence.files_without_loss_scale, 'file')} without a stated loss scale: if the gradients still "
            "carry one, usable scales come on top of it."
        )
    if evidence.narrow:
        yield _note(
            f"Captured in {', '.join(evidence.narrow)}: what was flushed or overflowed before that can't be seen.",
            "yellow",
        )


def _note(text: str, style: str = "dim") -> Text:
    return Text(text, style=style)
