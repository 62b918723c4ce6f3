"""`precsim advise`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from precsim.cli.analyze import DEFAULT_FORMATS, given_dtypes, given_share, output_file, reading_progress

if TYPE_CHECKING:
    from precsim.advice import Advice

__all__ = ["command", "print_advice", "write_page", "write_plot"]


@click.command(name="advise")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Planned length of the run, in steps.")
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    help=f"Format to look at; repeat it or use commas. [{','.join(DEFAULT_FORMATS)}]",
)
@click.option(
    "--max-flushed",
    default="0.001",
    show_default=True,
    metavar="SHARE",
    help="Share of the nonzero elements that may be flushed; 0.001 or 0.1%.",
)
@click.option(
    "--captured-scale",
    metavar="S",
    help="Loss scale that the gradients carry where the files do not say, a power of two; 1 for unscaled ones.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="NAME=TYPE",
    help="Type of tensors that lost theirs in a NumPy file; NAME may be a glob.",
)
@click.option("--tensors", is_flag=True, help="Show all tensors of options with a scale per tensor.")
@click.option("--html", "html_path", metavar="FILE", help="Write a page to look at, in one file.")
@click.option("--plot", "plot_path", metavar="FILE", help="Draw histogram and S-curves: .png or .svg.")
@click.option("--json", "json_path", metavar="FILE", help="Write all of it as JSON; - for standard output.")
def command(
    paths: tuple[str, ...],
    steps: int | None,
    formats: tuple[str, ...],
    max_flushed: str,
    captured_scale: str | None,
    dtypes: tuple[str, ...],
    tensors: bool,
    html_path: str | None,
    plot_path: str | None,
    json_path: str | None,
) -> int:
    """Say which format and which loss scale to train with, why, and how sure that is.

    PATH is what precsim analyze takes: files or folders of recorded gradients. Exits with 1 if the recording proves
    nothing of underflow, so that no verdict is given.
    """
    import json

    from precsim.advice import advise
    from precsim.analyze import parse_scale
    from precsim.runs import open_run

    names = [name for given in formats or DEFAULT_FORMATS for name in given.split(",") if name]
    share = given_share(max_flushed)
    scale = None if captured_scale is None else parse_scale(captured_scale)
    run = open_run(paths, dtypes=given_dtypes(dtypes))
    with reading_progress(run) as progress:
        advice = advise(run, names, steps=steps, max_flushed=share, captured_scale=scale, progress=progress)
    if json_path != "-":
        print_advice(advice, all_tensors=tensors)
    if json_path is not None:
        from precsim.report.advice_data import advice_to_dict

        with output_file(json_path) as file:
            json.dump(advice_to_dict(advice), file, indent=1, allow_nan=False)
            file.write("\n")
    if html_path is not None:
        write_page(advice, html_path, _title(paths))
    if plot_path is not None:
        write_plot(advice, plot_path)
    return 1 if advice.refused else 0


def print_advice(advice: Advice, *, all_tensors: bool = False) -> None:
    """The advice, as wide as the terminal, or 120 columns in a pipe."""
    from rich.console import Console

    from precsim.report.advice_text import render_advice

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    console.print(render_advice(advice, all_tensors=all_tensors))


def marks(advice: Advice) -> dict[str, int]:
    """The scale exponents that are advised, by format."""
    import math

    found: dict[str, int] = {}
    for option in advice.options:
        scale = option.settings.get("scale", option.settings.get("init_scale"))
        if scale is not None and option.verdict != "does not serve":
            found.setdefault(option.format.name, math.frexp(scale)[1] - 1)
    return found


def write_page(advice: Advice, path: str, title: str) -> None:
    """The page, with the advice on top."""
    from precsim.report.advice_text import advice_sections
    from precsim.report.page import render_page

    sections = advice_sections(advice)
    page = render_page(
        advice.analysis, title=title, advice=sections[:-1], evidence=sections[-1][1], marks=marks(advice)
    )
    with output_file(path) as file:
        file.write(page)


def write_plot(advice: Advice, path: str) -> None:
    """The static picture."""
    from precsim.report.plot import plot_curves

    plot_curves(advice.analysis, path, marks=marks(advice))


def _title(paths: Sequence[str]) -> str:
    names = [Path(path).name or str(path) for path in paths]
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
