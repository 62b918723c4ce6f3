"""`--fail-if`: conditions on an analysis, in a grammar of one line.

``flushed(fp16)>0.1%`` · ``overflowed(e4m3, scale=2^10)>=10`` · ``window(fp16)<4`` — an outcome of a format against a
share of the nonzero numbers (with %) or a count, or a window's octaves against a number.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from precsim.analyze.analysis import Analysis, Group
from precsim.analyze.scale import is_power_of_two, parse_scale
from precsim.errors import InputError
from precsim.number import Format, find_format

__all__ = ["Condition", "parse_condition"]

_PATTERN = re.compile(
    r"\s*(?P<what>flushed|subnormal|overflowed|window)\s*\(\s*(?P<format>[\w.-]+)\s*"
    r"(?:,\s*scale\s*=\s*(?P<scale>[^\s,()]{1,40})\s*)?\)\s*"
    r"(?P<sign>>=|<=|>|<)\s*(?P<number>\d+(?:\.\d*)?(?:e[-+]?\d{1,3})?)\s*(?P<percent>%?)\s*",
    re.IGNORECASE,
)
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass(frozen=True)
class Condition:
    """One condition.

    Attributes
    ----------
    text : str
        As it was written.
    what : str
        ``flushed``, ``subnormal``, ``overflowed`` or ``window``.
    format : Format
    sign : str
    number : Fraction
    is_share : bool
        Whether the number is a share of the nonzero numbers, 0 … 1.
    scale : float or None
        A power of two; None for the last of the analysis' scales, the one that the user asked for, or 1.
    """

    text: str
    what: str
    format: Format
    sign: str
    number: Fraction
    is_share: bool
    scale: float | None = None

    def failures(self, analysis: Analysis) -> list[str]:
        """The groups (all tensors together among them) for which the condition holds."""
        groups = [analysis.total, *analysis.groups] if len(analysis.groups) > 1 else [analysis.total]
        return [group.name for group in groups if self._holds(group, analysis.scales[-1])]

    def _holds(self, group: Group, scale: float) -> bool:
        result = next(result for result in group.formats if result.format == self.format)
        compare = _SIGNS[self.sign]
        if self.what == "window":
            window = result.window
            octaves = window.octaves if window else 0
            return octaves is not None and compare(octaves, self.number)
        outcomes = (
            result.outcomes[scale] if self.scale is None else group.sketch.outcomes(self.format, self.scale)
        )
        count: int = getattr(outcomes, self.what)
        if not self.is_share:
            return compare(count, self.number)
        return bool(outcomes.nonzero) and compare(Fraction(count, outcomes.nonzero), self.number)


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises
    ------
    InputError
        If it is not of the grammar; the message shows one that is.
    """
    match = _PATTERN.fullmatch(text)
    if match is None or (match["what"].lower() == "window" and (match["percent"] or match["scale"])):
        raise InputError(
            f"condition {text!r} is not understood: write e.g. "
            "'flushed(fp16)>0.1%', 'overflowed(e4m3, scale=2^10)>0' or 'window(fp16)<4'"
        )
    number = Fraction(match["number"])
    is_share = bool(match["percent"])
    scale = None if match["scale"] is None else parse_scale(match["scale"])
    if scale is not None and not is_power_of_two(scale):
        raise InputError(f"condition {text!r}: its scale must be a power of two; give others by --scale")
    return Condition(
        text,
        match["what"].lower(),
        find_format(match["format"]),
        match["sign"],
        number / 100 if is_share else number,
        is_share,
        scale,
    )
