"""The command line: one module per verb, each loaded when it is called."""

from __future__ import annotations

import importlib
import os
import sys

import click

from precsim import __version__
from precsim.errors import InputError

__all__ = ["cli", "main"]

_VERBS = {
    "advise": "Which format and which loss scale to train with, why, and how sure that is.",
    "analyze": "What formats and scales do to recorded tensors.",
    "cast": "Cast one number and say why the result is what it is.",
    "demo": "Analyze the recorded gradients that come with precsim.",
    "format": "Show a number format, or all of them.",
    "record": "Run a training script and record its gradients, without touching it.",
}


class _Verbs(click.Group):
    """Knows its commands by name and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        command: click.Command = importlib.import_module(f"precsim.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.option("--version", is_flag=True, help="Print the version; with -v what precsim runs on here.")
@click.option("-v", "--verbose", is_flag=True, help="Say more.")
@click.pass_context
def cli(ctx: click.Context, version: bool, verbose: bool) -> None:
    """What low precision does to a training run, bit for bit.

    Start with: precsim analyze FOLDER-OF-GRADIENTS
    """
    if version:
        click.echo(f"precsim {__version__}")
        if verbose:
            from precsim.configuration import show_config

            show_config()
        ctx.exit()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        0 done, 1 a check that was asked for failed, 2 unusable input, 130 interrupted.
    """
    if hasattr(sys.stdout, "reconfigure"):  # a terminal's encoding may lack a sign: no reason to fail
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        result = cli.main(arguments, prog_name="precsim", standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        return _fail(str(error))
    except click.ClickException as error:
        return _fail(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):
        # Whoever read the output has gone; click and rich make that an exit with 1, which means something else here.
        # Without the null device Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return result if isinstance(result, int) else 0


def _fail(message: str) -> int:
    print(f"precsim: error: {' '.join(message.split())}", file=sys.stderr)
    return 2
