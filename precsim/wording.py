"""Numbers for people: nothing small is printed as zero, nothing incomplete as whole."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

__all__ = ["count", "counted", "html_list", "html_table", "percent", "power", "power_range", "printable"]


def count(number: int) -> str:
    """An integer with separators."""
    return f"{number:,}"


def counted(number: int, thing: str) -> str:
    """An integer and the things counted: no tensors, 1 tensor, 2 tensors; the plural is formed with an s."""
    return f"{count(number) if number else 'no'} {thing}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """A name from a file, with escapes for what would move the cursor, colour the terminal or not encode."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def percent(part: int, whole: int) -> str:
    """A share in per cent: 0 only for none, 100 % only for all."""
    if not part or not whole:
        return "0"
    if part == whole:
        return "100 %"
    share = 100 * part / whole
    if share >= 99.95:
        return "> 99.9 %"
    return f"{share:.3g} %" if share >= 0.01 else f"{share:.1e} %"


def power(value: float) -> str:
    """A power of two as 2^k, any other number as it is."""
    fraction, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if fraction == 0.5 else f"{value:g}"


def power_range(amin: float, amax: float) -> str:
    """The binades that magnitudes lie in."""
    if amax == 0.0:
        return "no nonzero numbers"
    low, high = (math.frexp(value)[1] - 1 for value in (amin, amax))
    return f"2^{low} … 2^{high}"


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for notebooks; all of it is text."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><caption>{html.escape(caption)}</caption><tr>{head}</tr>{body}</table>"


def html_list(caption: str, lines: Iterable[str]) -> str:
    """A list for notebooks; all of it is text."""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<p><b>{html.escape(caption)}</b></p><ul>{items}</ul>"
