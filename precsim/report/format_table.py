"""Formats in the terminal."""

from __future__ import annotations

import math

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table

from precsim.number import NAMED_FORMATS, Format

__all__ = ["render_format", "render_formats"]

_MOST_VALUES = 1 << 8


def render_formats() -> RenderableType:
    """All named formats, a row each."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in (
        "format",
        "bits",
        "exponent",
        "stored",
        "bias",
        "greatest",
        "least normal",
        "least",
        "special",
    ):
        table.add_column(column, justify="left" if column in ("format", "special") else "right")
    for fmt in NAMED_FORMATS.values():
        table.add_row(
            fmt.name,
            str(fmt.bits),
            str(fmt.exponent_bits),
            str(fmt.significand_bits),
            str(fmt.bias),
            f"{fmt.max:.6g}",
            _power(fmt.smallest_normal),
            _power(fmt.smallest_subnormal),
            _specials(fmt),
        )
    return table


def _power(value: float) -> str:
    fraction, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if fraction == 0.5 else f"{value:.6g}"


def _specials(fmt: Format) -> str:
    parts = ["inf"] if fmt.infinities else []
    parts += ["NaN"] if fmt.nan_code is not None else []
    parts += ["−0"] if fmt.signed_zero else []
    parts += [] if fmt.zero else ["no zero"]
    parts += [] if fmt.signed else ["unsigned"]
    return ", ".join(parts)


def render_format(fmt: Format, *, values: bool = False) -> RenderableType:
    """One format's properties, and its values if asked for."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, value in _properties(fmt):
        table.add_row(name, value)
    return Lines(table, "", _values(fmt)) if values else table


def _properties(fmt: Format) -> list[tuple[str, str]]:
    digits = 2 + (fmt.bits + 3) // 4
    nan = "none" if fmt.nan_code is None else f"{fmt.nan_code:#0{digits}x} ({fmt.nan.value})"
    infinity = "none" if fmt.infinity_code is None else f"{fmt.infinity_code:#0{digits}x}"
    sign = "two's complement" if fmt.twos_complement else "1 sign" if fmt.signed else "no sign"
    return [
        ("format", fmt.name),
        (
            "bits",
            f"{fmt.bits}: {sign}, {fmt.exponent_bits} exponent, {fmt.significand_bits} stored significand",
        ),
        ("precision", f"{fmt.precision} bits, eps {fmt.eps!r}"),
        ("bias", str(fmt.bias)),
        ("greatest", f"{fmt.max!r} (code {fmt.max_magnitude_code:#0{digits}x})"),
        ("least normal", f"{fmt.smallest_normal!r} = {_power(fmt.smallest_normal)}"),
        (
            "least",
            f"{fmt.smallest_subnormal!r} = {_power(fmt.smallest_subnormal)}"
            + ("" if fmt.subnormals else " (no subnormals)"),
        ),
        ("infinity", infinity),
        ("NaN", nan),
        ("zero", "none" if not fmt.zero else "+0 and −0" if fmt.signed_zero else "one"),
        ("source", fmt.source),
    ]


def _values(fmt: Format) -> Table:
    """All codes with their values, sixteen to a row."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    columns = min(8, 1 << fmt.bits)
    digits = (fmt.bits + 3) // 4
    table.add_column("code")
    for column in range(columns):
        table.add_column(f"+{column}", justify="right")
    for start in range(0, 1 << fmt.bits, columns):
        cells = [f"{fmt.decode(code):.6g}" for code in range(start, start + columns)]
        table.add_row(f"{start:0{digits}x}", *cells)
    return table
