"""Where a cast's outcome changes: exact thresholds on the magnitude, from the format and the mode."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from precsim.number import Format, Mode

__all__ = ["Limit", "Thresholds", "thresholds"]


@dataclass(frozen=True)
class Limit:
    """A magnitude and whether it belongs to what lies above it.

    Attributes
    ----------
    value : Fraction
        Positive.
    inclusive : bool
        Whether the value itself counts as above.
    """

    value: Fraction
    inclusive: bool


@dataclass(frozen=True)
class Thresholds:
    """The limits from which on a magnitude becomes nonzero, normal, and too large.

    Attributes
    ----------
    nonzero : Limit or None
        None for formats without zero: nothing becomes zero.
    normal : Limit or None
        None where every nonzero result is normal.
    overflow : Limit
        From here on the result, rounded without an upper end of the range, exceeds the greatest finite value.
    """

    nonzero: Limit | None
    normal: Limit | None
    overflow: Limit

    def present(self) -> list[Limit]:
        """Those limits that there are."""
        return [limit for limit in (self.nonzero, self.normal, self.overflow) if limit is not None]


@lru_cache(maxsize=4096)
def thresholds(fmt: Format, mode: Mode, negative: bool) -> Thresholds:
    """Limits on the magnitude of numbers of one sign, for any mode but stochastic."""
    spacing = Fraction(fmt.smallest_subnormal)
    least_normal = Fraction(fmt.smallest_normal)
    greatest = Fraction(fmt.max)
    exponent = max(fmt.greatest_exponent, fmt.least_exponent)
    beyond = greatest + Fraction(2) ** (exponent - fmt.significand_bits)
    has_subnormals = fmt.subnormals and fmt.significand_bits > 0
    return Thresholds(
        nonzero=_crossing(Fraction(0), spacing, False, mode, negative) if fmt.zero else None,
        normal=_crossing(least_normal - spacing, least_normal, True, mode, negative)
        if has_subnormals
        else None,
        overflow=_crossing(greatest, beyond, fmt.max_magnitude_code % 2 == 1, mode, negative),
    )


def _crossing(lower: Fraction, upper: Fraction, lower_is_odd: bool, mode: Mode, negative: bool) -> Limit:
    """From where on a magnitude goes to the upper of two neighbours."""
    half_way = (lower + upper) / 2
    outward = Mode.DOWN if negative else Mode.UP
    match mode:
        case Mode.NEAREST_EVEN:
            return Limit(half_way, inclusive=lower_is_odd)
        case Mode.NEAREST_AWAY:
            return Limit(half_way, inclusive=True)
        case Mode.NEAREST_ZERO:
            return Limit(half_way, inclusive=False)
        case Mode.TO_ODD:
            goes_up = not lower_is_odd
        case _:
            goes_up = mode in (Mode.AWAY, outward)
    # A lower neighbour of zero is no limit that a magnitude could equal: any nonzero one goes up.
    return Limit(lower, inclusive=False) if goes_up else Limit(upper, inclusive=True)
