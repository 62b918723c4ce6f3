"""Advice in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from precsim.advice import Advice, Option, TensorScale
from precsim.wording import count, counted, percent, printable

__all__ = ["advice_sections", "render_advice"]

_SIGNS = {
    "serves": ("✓ serves", "bold green"),
    "serves with care": ("~ serves with care", "bold yellow"),
    "does not serve": ("✗ does not serve", "bold red"),
}
_MOST_ROWS = 6


def render_advice(advice: Advice, *, all_tensors: bool = False) -> RenderableType:
    """Options, best first; what was set apart; what was seen."""
    blocks: list[RenderableType] = []
    if advice.refused:
        blocks.append(Text("No verdict: the recording does not prove what is flushed.", style="bold red"))
        blocks += [_bullet(line) for line in advice.refused]
        blocks.append("")
    for rank, option in enumerate(advice.options, start=1):
        blocks += [*_option(rank, option, all_tensors), ""]
    for title, lines in _closing(advice):
        blocks += [Text(title, style="bold"), *(_bullet(line) for line in lines), ""]
    return Lines(*blocks)


def advice_sections(advice: Advice) -> list[tuple[str, list[str]]]:
    """The same as headings with lines, for a page."""
    sections = []
    if advice.refused:
        sections.append(("No verdict: the recording does not prove what is flushed", list(advice.refused)))
    for rank, option in enumerate(advice.options, start=1):
        title = f"{rank}. {option.title}: {option.verdict}"
        sections.append((title, [f"{label[0].upper()}{label[1:]}: {line}" for label, line in _lines(option)]))
    return [*sections, *((title, list(lines)) for title, lines in _closing(advice))]


def _closing(advice: Advice) -> Iterator[tuple[str, list[str]]]:
    if advice.movement:
        yield "How usable scales move", list(advice.movement)
    if advice.apart:
        yield (
            "Set apart: they drive none of this",
            [f"{printable(item.name)} ({_steps(item.steps)}): {item.reason}" for item in advice.apart],
        )
    yield "What this rests on", [*advice.notes, *advice.evidence]


def _steps(steps: tuple[int, ...]) -> str:
    if not steps:
        return "step unknown"
    shown = ", ".join(map(str, steps[:4])) + (f", … {steps[-1]}" if len(steps) > 4 else "")
    return f"step {shown}" if len(steps) == 1 else f"steps {shown}"


def _option(rank: int, option: Option, all_tensors: bool) -> Iterator[RenderableType]:
    sign, style = _SIGNS[option.verdict]
    quality = f"   {option.sqnr_db:.1f} dB signal to noise" if option.sqnr_db is not None else ""
    yield Text.assemble((f"{rank}. {option.title}", "bold"), "   ", (sign, style), (quality, "dim"))
    for label, line in _lines(option):
        yield _bullet(line, label)
    rows = option.tensors if all_tensors else option.tensors[:_MOST_ROWS]
    if rows:
        yield Padding(_tensor_table(rows), (0, 0, 0, 4))
        left = len(option.tensors) - len(rows)
        if left:
            yield _bullet(f"{counted(left, 'tensor')} more, all less flushed: --tensors shows them.")


def _lines(option: Option) -> Iterator[tuple[str, str]]:
    for line in option.why:
        yield "why", printable(line)
    for line in option.sure:
        yield "how sure", printable(line)
    for line in option.changes:
        yield "what would change it", printable(line)
    if option.keep:
        shown = ", ".join(map(printable, option.keep[:_MOST_ROWS]))
        more = f" and {len(option.keep) - _MOST_ROWS} more" if len(option.keep) > _MOST_ROWS else ""
        yield "keep in 16 bits", f"{shown}{more}"


def _tensor_table(rows: tuple[TensorScale, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("tensor", overflow="fold")
    table.add_column("own scale", no_wrap=True)
    table.add_column("flushed", justify="right", no_wrap=True)
    table.add_column("of", justify="right", no_wrap=True)
    table.add_column("dB", justify="right", no_wrap=True)
    for row in rows:
        outcomes = row.outcomes
        table.add_row(
            Text(printable(row.name)),
            _range(row),
            percent(outcomes.flushed, outcomes.nonzero),
            count(outcomes.nonzero),
            "" if row.sqnr_db is None else f"{row.sqnr_db:.1f}",
        )
    return table


def _range(row: TensorScale) -> str:
    if row.low is None or row.high is None:
        return "by block"
    return f"2^{row.low}" if row.low == row.high else f"2^{row.low} … 2^{row.high}"


def _bullet(line: str, label: str = "") -> RenderableType:
    text = Text.assemble((f"{label}: ", "dim") if label else "", line)
    return Padding(text, (0, 0, 0, 4), expand=False)
