"""`precsim cast`."""

from __future__ import annotations

import click

__all__ = ["command"]


@click.command(name="cast", context_settings={"ignore_unknown_options": True})
@click.argument("value")
@click.argument("fmt", metavar="FORMAT")
@click.option("--rounding", default="nearest-even", show_default=True, metavar="MODE", help="Rounding mode.")
@click.option("--overflow", metavar="RULE", help="infinity, saturate, saturate-finite or nan.")
@click.option(
    "--profile", metavar="NAME", help="Rule of some software or hardware, such as torch or ptx-satfinite."
)
@click.option("--random", type=int, metavar="R", help="Random bits of stochastic rounding.")
def command(
    value: str, fmt: str, rounding: str, overflow: str | None, profile: str | None, random: int | None
) -> None:
    """Cast the number VALUE to FORMAT and say why the result is what it is.

    VALUE is taken exactly: 0.1 is a tenth. Also 1/3, 2^-25, 1.5*2^10, 0x1.8p-3, inf, nan.
    """
    from precsim.number.explain import explain

    click.echo(explain(value, fmt, rounding, overflow, profile=profile, random=random))
