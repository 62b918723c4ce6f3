"""`precsim analyze`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from precsim.errors import InputError

if TYPE_CHECKING:
    from precsim.analyze import Analysis
    from precsim.runs import Run, TensorEntry

__all__ = [
    "DEFAULT_FORMATS",
    "command",
    "given_dtypes",
    "given_share",
    "output_file",
    "print_analysis",
    "reading_progress",
]

DEFAULT_FORMATS = ("fp16", "bf16", "e4m3", "e5m2")


@click.command(name="analyze")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    help=f"Format to cast to; repeat it or use commas. [{','.join(DEFAULT_FORMATS)}]",
)
@click.option("--scale", metavar="S", help="Look at this scale too: a number such as 1024 or 2^10.")
@click.option(
    "--max-flushed",
    default="0.001",
    show_default=True,
    metavar="SHARE",
    help="Share of the nonzero elements that usable scales may lose; 0.001 or 0.1%.",
)
@click.option(
    "--group-by",
    type=click.Choice(["kind", "role", "file", "module", "tensor"]),
    default="kind",
    show_default=True,
    help="How tensors are put together. The kind is what stands before a name's first slash; the role is weight, bias, "
    "norm, embedding or activation gradient, as names tell.",
)
@click.option("--tensors", is_flag=True, help="One group for each tensor: --group-by tensor.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="NAME=TYPE",
    help="Type of tensors that lost theirs in a NumPy file; NAME may be a glob.",
)
@click.option("--json", "json_path", metavar="FILE", help="Write all of it as JSON; - for standard output.")
@click.option(
    "--csv",
    "csv_path",
    metavar="FILE",
    help="Write a table of groups, formats and scales; - for standard output.",
)
@click.option("--html", "html_path", metavar="FILE", help="Write a page to look at, in one file.")
@click.option("--plot", "plot_path", metavar="FILE", help="Draw histogram and S-curves: .png or .svg.")
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 1 if it holds for any group: 'flushed(fp16)>0.1%', 'overflowed(e4m3)>0', 'window(fp16)<4'.",
)
@click.option("--quiet", is_flag=True, help="Print no table.")
def command(
    paths: tuple[str, ...],
    formats: tuple[str, ...],
    scale: str | None,
    max_flushed: str,
    group_by: str,
    tensors: bool,
    dtypes: tuple[str, ...],
    json_path: str | None,
    csv_path: str | None,
    html_path: str | None,
    plot_path: str | None,
    conditions: tuple[str, ...],
    quiet: bool,
) -> int:
    """Show what formats and loss scales do to recorded tensors.

    PATH is a .safetensors, .npy, .npz, .pt or .pth file, a folder of them, or a glob. Tensors are read one by one, in
    pieces; files may be larger than memory.
    """
    from precsim.analyze import analyze, parse_condition, parse_scale
    from precsim.number import find_format
    from precsim.runs import open_run
    from precsim.wording import printable

    if json_path == csv_path == "-":
        raise InputError("--json - and --csv -: only one of them can go to standard output")
    names = [name for given in formats or DEFAULT_FORMATS for name in given.split(",") if name]
    checks = [parse_condition(text) for text in conditions]
    targets = list(dict.fromkeys([find_format(name) for name in names] + [check.format for check in checks]))
    scales = tuple(dict.fromkeys([1.0] if scale is None else [1.0, parse_scale(scale)]))
    share = given_share(max_flushed)
    run = open_run(paths, dtypes=given_dtypes(dtypes))
    with reading_progress(run) as progress:
        analysis = analyze(
            run,
            targets,
            scales=scales,
            max_flushed=share,
            group_by="tensor" if tensors else group_by,
            progress=progress,
        )
    if not quiet and "-" not in (json_path, csv_path):
        print_analysis(analysis)
    _write(analysis, json_path, csv_path)
    _draw(analysis, paths, html_path, plot_path)
    failed = [(check, groups) for check in checks if (groups := check.failures(analysis))]
    for check, groups in failed:
        shown = ", ".join(map(printable, groups[:5])) + (
            f" and {len(groups) - 5} more" if len(groups) > 5 else ""
        )
        click.echo(f"precsim: {check.text} holds for {shown}", err=True)
    return 1 if failed else 0


def print_analysis(analysis: Analysis) -> None:
    """The table, as wide as the terminal, or as it needs to be in a pipe."""
    from rich.console import Console

    from precsim.report.analysis_table import render_analysis

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    console.print(render_analysis(analysis))


def given_share(text: str) -> Fraction:
    """A share as people write it."""
    from precsim.number.explain import parse_real

    number = parse_real(text.rstrip("% "))
    share = Fraction(number) if isinstance(number, Fraction) else Fraction(-1)
    share = share / 100 if text.rstrip().endswith("%") else share
    if not 0 <= share <= 1:
        raise InputError(f"--max-flushed {text}: must be a share from 0 to 1, or a percentage")
    return share


def given_dtypes(given: tuple[str, ...]) -> dict[str, str]:
    """Types by tensor name, as people write them."""
    from precsim.runs.entry import stored_type

    pairs = [text.rpartition("=") for text in given]
    for name, equals, dtype in pairs:
        if not equals or not name:
            raise InputError(
                f"--dtype {name or dtype}: write NAME=TYPE, for example --dtype 'grad*=bfloat16'"
            )
        stored_type(dtype)
    return {name: dtype for name, _, dtype in pairs}


@contextmanager
def reading_progress(run: Run) -> Iterator[Callable[[TensorEntry], None]]:
    """A bar on a terminal, nothing in a pipe."""
    import sys

    if not sys.stderr.isatty():
        yield lambda entry: None
        return
    from itertools import accumulate

    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    from precsim.wording import printable

    ends = list(accumulate(_bytes(path) for path in run.files))
    starts = dict(zip(run.files, [0, *ends], strict=False))
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=ends[-1])

        def show(entry: TensorEntry) -> None:
            done = starts[entry.path]
            starts[entry.path] += entry.nbytes
            label = escape(printable(f"{entry.path.name}: {entry.name}")[:60])
            bar.update(task, completed=done, description=label)

        yield show


def _bytes(path: Path) -> int:
    """Size of a file; of one that has gone, 0: its reader says so."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _write(analysis: Analysis, json_path: str | None, csv_path: str | None) -> None:
    import json

    from precsim.report.analysis_data import analysis_to_dict, write_analysis_csv

    if json_path is not None:
        with output_file(json_path) as file:
            json.dump(analysis_to_dict(analysis), file, indent=1, allow_nan=False)
            file.write("\n")
    if csv_path is not None:
        with output_file(csv_path) as file:
            write_analysis_csv(analysis, file)


def _draw(analysis: Analysis, paths: tuple[str, ...], html_path: str | None, plot_path: str | None) -> None:
    if html_path is not None:
        from precsim.report.page import render_page

        page = render_page(analysis, title=", ".join(Path(path).name or path for path in paths[:3]))
        with output_file(html_path) as file:
            file.write(page)
    if plot_path is not None:
        from precsim.report.plot import plot_curves

        plot_curves(analysis, plot_path)


@contextmanager
def output_file(path: str) -> Iterator[IO[str]]:
    """A file to write, or standard output."""
    try:
        # A name may hold what UTF-8 does not, such as half of a surrogate pair.
        with click.open_file(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{path}: can't be written: {error.strerror}") from error
