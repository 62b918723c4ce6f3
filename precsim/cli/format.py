"""`precsim format`."""

from __future__ import annotations

import click

from precsim.errors import InputError

__all__ = ["command"]


@click.command(name="format")
@click.argument("name", required=False)
@click.option("--values", is_flag=True, help="List the value of every code (formats of at most 8 bits).")
def command(name: str | None, values: bool) -> None:
    """Show the number format NAME, or all of them.

    NAME is a name or alias such as e4m3, float8_e4m3fn or binary8p3.
    """
    from rich.console import Console

    from precsim.number import find_format
    from precsim.report.format_table import render_format, render_formats

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    if name is None:
        console.print(render_formats())
        return
    fmt = find_format(name)
    if values and fmt.bits > 8:
        raise InputError(
            f"format {fmt.name} has 2^{fmt.bits} codes: --values lists formats of at most 8 bits"
        )
    console.print(render_format(fmt, values=values))
