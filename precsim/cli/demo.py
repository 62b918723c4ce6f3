"""`precsim demo`."""

from __future__ import annotations

from pathlib import Path

import click

from precsim.errors import InputError

__all__ = ["command"]


@click.command(name="demo")
def command() -> None:
    """Analyze the recorded gradients that come with precsim.

    They were captured from three trainings: a ResNet on digits, a small GPT and a sentence transformer.
    """
    from precsim.analyze import analyze
    from precsim.cli.analyze import DEFAULT_FORMATS, print_analysis
    from precsim.number import find_format
    from precsim.runs import open_run

    folder = _examples()
    formats = [find_format(name) for name in DEFAULT_FORMATS]
    runs = sorted(path for path in folder.iterdir() if path.is_dir())
    for run in runs:
        click.secho(f"$ precsim analyze {_shown(run)}", bold=True)
        print_analysis(analyze(open_run(run), formats))
        click.echo()
    click.echo(
        "Now your own: precsim analyze FOLDER, with .safetensors, .npy, .npz or .pt files of gradients."
    )
    click.echo("One number explained: precsim cast 1e-8 fp16. All formats: precsim format.")


def _examples() -> Path:
    """The folder of examples in the checkout that precsim runs from."""
    folder = Path(__file__).parents[2] / "examples" / "gradients"
    if not folder.is_dir():
        raise InputError(
            f"{folder}: the recorded gradients come with the source: run ./dev demo in a checkout of precsim"
        )
    return folder


def _shown(path: Path) -> str:
    """The path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
