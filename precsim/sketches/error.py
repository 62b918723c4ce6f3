"""`CastError`: how far casts to a format move numbers, read off a sketch exactly."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from precsim.errors import InputError
from precsim.kernels import PRECISIONS
from precsim.number import Format, Mode
from precsim.sketches.edges import EDGES, split
from precsim.sketches.groups import GROUP_EDGES, resolves
from precsim.sketches.moments import Moments
from precsim.sketches.thresholds import Limit, thresholds

if TYPE_CHECKING:
    from precsim.sketches.sketch import Sketch

__all__ = ["CastError", "cast_error"]

_ONE = 1 << 23
"""The significand 1 as an integer M."""
_FINEST = PRECISIONS[-1]
_NEAREST = (Mode.NEAREST_EVEN, Mode.NEAREST_AWAY, Mode.NEAREST_ZERO)


@dataclass(frozen=True)
class CastError:
    """The error of casting x·scale to a format, in units of x: after the division by the scale.

    Exact, as fractions, for float32 and narrower sources; significands of more than 24 bits (float64) were rounded to
    odd to 24 first, which changes each number by less than 2^-23 of itself and no rounding of it to at most 11 bits.

    Attributes
    ----------
    n : int
        Numbers that the sums are over: the finite ones, zeros among them, without those that overflowed unless these
        are taken as saturated.
    overflowed : int
        Numbers that overflowed. For stochastic rounding those above the greatest finite value, which all might.
    squared : Fraction
        Sum of squared errors; for stochastic rounding its expectation, with as many random bits as the numbers have.
    absolute : Fraction
        Sum of absolute errors, or its expectation.
    signal : Fraction
        Sum of the squares of the numbers themselves.
    """

    n: int
    overflowed: int
    squared: Fraction
    absolute: Fraction
    signal: Fraction

    @property
    def mse(self) -> float:
        """Mean squared error; 0 where there are no numbers."""
        return _quotient(self.squared, self.n)

    @property
    def mae(self) -> float:
        """Mean absolute error; 0 where there are no numbers."""
        return _quotient(self.absolute, self.n)

    @property
    def sqnr_db(self) -> float:
        """Signal to quantization noise, 10·log10(Σx² / Σerror²), in dB; inf without error, NaN without numbers."""
        if not self.signal:
            return math.nan
        if not self.squared:
            return math.inf
        return 10 * (_log10(self.signal) - _log10(self.squared))


def _quotient(total: Fraction, n: int) -> float:
    return float(total / n) if n else 0.0


def _log10(x: Fraction) -> float:
    """Of a positive fraction that float64 may not hold."""
    exponent, significand = split(x)
    return exponent * math.log10(2) + math.log10(significand)


@dataclass(frozen=True)
class _Cast:
    """What of a cast matters here, at scale 1: scales move the sketch's rows."""

    format: Format
    stochastic: bool
    limit: Limit
    """From here on numbers are left out, or saturated."""

    def precision(self, exponent: int) -> int:
        """Fraction bits that significands of a binade are rounded to; below −1 all of it is lost."""
        fmt, least = self.format, self.format.least_exponent
        if exponent >= least:
            return fmt.significand_bits
        if fmt.subnormals:
            return fmt.significand_bits - (least - exponent)
        return exponent - least


def cast_error(
    sketch: Sketch, moments: Moments, fmt: Format, scale_exponent: int, mode: Mode, saturate: bool
) -> CastError:
    """See `Sketch.error`."""
    stochastic = mode is Mode.STOCHASTIC
    if not (stochastic or mode in _NEAREST):
        raise InputError(
            f"a sketch tells the error of nearest and of stochastic rounding, not of {mode.value}"
        )
    if not resolves(fmt):
        raise InputError(
            f"a sketch does not resolve the greatest values of format {fmt.name}: cast the numbers themselves"
        )
    greatest = Fraction(fmt.max)
    limit = Limit(greatest, False) if stochastic else thresholds(fmt, mode, False).overflow
    cast = _Cast(fmt, stochastic, limit)
    total = _Total(sketch, moments, cast, scale_exponent)
    for negative in (False, True):
        if negative and not fmt.signed:
            total.leave_out_all(negative)
        else:
            total.add_rows(negative)
    return total.result(saturate)


class _Total:
    """Adds up binade by binade, in units of the least row's 2^(e − 23)."""

    def __init__(self, sketch: Sketch, moments: Moments, cast: _Cast, scale_exponent: int) -> None:
        self.sketch, self.moments, self.cast, self.k = sketch, moments, cast, scale_exponent
        self.unit = Fraction(2) ** (sketch.least_exponent - 23)
        # Sums over the numbers that are kept: of x², and of absolute and squared errors.
        self.n = self.squares = 0
        self.absolute: int | Fraction = 0
        self.squared: int | Fraction = 0
        # Number, sum, and sum of squares of those that are not; negative numbers of unsigned formats apart.
        self.over = [0, 0, 0]
        self.negative_over = [0, 0, 0]

    def leave_out_all(self, negative: bool) -> None:
        """Take all numbers of a sign as overflowed."""
        for row, sums in enumerate(self.moments.row_integers[negative]):
            _accumulate(self.negative_over, sums, row)

    def add_rows(self, negative: bool) -> None:
        """Add all numbers of a sign."""
        limit_exponent, limit_significand = split(self.cast.limit.value)
        for row, all_sums in enumerate(self.moments.row_integers[negative]):
            if not all_sums[0]:
                continue
            exponent = self.sketch.least_exponent + row + self.k
            if exponent > limit_exponent:
                _accumulate(self.over, all_sums, row)
            elif exponent < limit_exponent:
                self._add_row(negative, row, exponent, all_sums, [])
            else:
                above = self._groups_above(negative, row, limit_significand)
                for _, sums in above:
                    _accumulate(self.over, sums, row)
                self._add_row(negative, row, exponent, all_sums, above)

    def _groups_above(
        self, negative: bool, row: int, significand: Fraction
    ) -> list[tuple[Fraction, tuple[int, int, int]]]:
        """The numbers of a row that the limit excludes, by groups; each with a significand inside it."""
        inclusive = self.cast.limit.inclusive
        groups = self.moments.group_integers[negative][row]
        first = bisect_left(GROUP_EDGES, significand)
        if first == len(GROUP_EDGES) or GROUP_EDGES[first] != significand:
            return self._few_above(negative, row, significand)
        edge = self._number_at(negative, row, significand)
        middles = [
            (low + high) / 2
            for low, high in zip(GROUP_EDGES[first:], [*GROUP_EDGES[first + 1 :], Fraction(2)], strict=True)
        ]
        above = list(zip(middles, groups[first:], strict=True))
        if edge and not inclusive:
            m = int(significand * _ONE)
            n, s, q = above[0][1]
            above[0] = (middles[0], (n - edge, s - edge * m, q - edge * m * m))
        return above

    def _few_above(
        self, negative: bool, row: int, significand: Fraction
    ) -> list[tuple[Fraction, tuple[int, int, int]]]:
        """Of float32's own limits, above all significands of 24 bits but the greatest: what was rounded to it."""
        first = EDGES.index(significand)
        bins = self.sketch.counts[int(negative), row, 2 * first + (not self.cast.limit.inclusive) :]
        n, m = int(bins.sum()), 2 * _ONE - 1
        return [(Fraction(m, _ONE), (n, n * m, n * m * m))]

    def _number_at(self, negative: bool, row: int, significand: Fraction) -> int:
        at = EDGES.index(significand)
        return int(self.sketch.counts[int(negative), row, 2 * at])

    def _add_row(
        self,
        negative: bool,
        row: int,
        exponent: int,
        all_sums: tuple[int, int, int],
        left_out: Sequence[tuple[Fraction, tuple[int, int, int]]],
    ) -> None:
        n, total, squares = all_sums
        for _, (n_out, total_out, squares_out) in left_out:
            n, total, squares = n - n_out, total - total_out, squares - squares_out
        if not n:
            return
        self.n += n
        self.squares += squares << 2 * row
        fmt, precision = self.cast.format, self.cast.precision(exponent)
        absolute: int | Fraction
        squared: int | Fraction
        if exponent < fmt.least_exponent and not fmt.zero:
            absolute, squared = self._to_least(n, total, squares, row)
        elif precision < -1:
            absolute, squared = self._lost(total, squares, row)
        else:
            absolute, squared = self._rounded(negative, row, precision, n, left_out)
        self.absolute += absolute
        self.squared += squared

    def _rounded(
        self,
        negative: bool,
        row: int,
        precision: int,
        n: int,
        left_out: Sequence[tuple[Fraction, tuple[int, int, int]]],
    ) -> tuple[int | Fraction, int | Fraction]:
        """Numbers that keep some fraction bits."""
        absolute, squared = self._distances(negative, row, precision, n)
        for middle, sums in left_out:
            less = _distance_of(middle, sums, precision)
            absolute, squared = absolute - less[0], squared - less[1]
        if not self.cast.stochastic:
            return absolute << row, squared << 2 * row
        # A number that lies r above its lower neighbour goes up with probability r/q. So the expected squared error is
        # r(q − r) = d(q − d), d the distance to the nearest value, and the expected absolute error 2r(q − r)/q.
        spacing = 1 << (23 - precision)
        expected = spacing * absolute - squared
        return Fraction(2 * expected << row, spacing), expected << 2 * row

    def _distances(self, negative: bool, row: int, precision: int, n: int) -> tuple[int, int]:
        if precision <= _FINEST:
            return self.moments.distance_integers[negative][row][precision + 1]
        if precision >= 23 and not self.moments.rounded:
            return 0, 0
        raise InputError(
            f"a sketch tells errors of at most {_FINEST} fraction bits: at this scale {n:,} numbers keep {precision} "
            f"of them in format {self.cast.format.name}; cast the numbers themselves"
        )

    def _lost(self, total: int, squares: int, row: int) -> tuple[int | Fraction, int | Fraction]:
        """Numbers that become 0, or, at random, the least value."""
        if not self.cast.stochastic:
            return total << row, squares << 2 * row
        spacing = self._in_units(Fraction(self.cast.format.smallest_subnormal))
        squared = spacing * (total << row) - (squares << 2 * row)
        return 2 * squared / spacing, squared

    def _to_least(self, n: int, total: int, squares: int, row: int) -> tuple[Fraction, Fraction]:
        """Numbers below the least value of a format without zero, which they become."""
        least = self._in_units(Fraction(self.cast.format.smallest_subnormal))
        x, square = total << row, squares << 2 * row
        return n * least - x, n * least * least - 2 * least * x + square

    def _in_units(self, value: Fraction) -> Fraction:
        """A value of the format as a number before the scale, in units."""
        return value / Fraction(2) ** self.k / self.unit

    def result(self, saturate: bool) -> CastError:
        """All of it, with zeros, in units of x."""
        fmt = self.cast.format
        n, squares, absolute, squared = self.n, self.squares, Fraction(self.absolute), Fraction(self.squared)
        overflowed = self.over[0] + self.negative_over[0]
        if saturate:
            greatest = self._in_units(Fraction(fmt.max))
            m, s, q = self.over
            n, squares = n + m, squares + q
            absolute += s - m * greatest
            squared += q - 2 * greatest * s + m * greatest * greatest
            least = Fraction(0) if fmt.zero else self._in_units(Fraction(fmt.smallest_subnormal))
            m, s, q = self.negative_over  # −|x| becomes the least value that there is
            n, squares = n + m, squares + q
            absolute += s + m * least
            squared += q + 2 * least * s + m * least * least
        zeros = self.sketch.zeros
        if zeros and not fmt.zero:  # a zero becomes the least value, too
            least = self._in_units(Fraction(fmt.smallest_subnormal))
            absolute, squared = absolute + zeros * least, squared + zeros * least * least
        unit = self.unit
        return CastError(
            n + zeros, overflowed, squared * unit * unit, absolute * unit, Fraction(squares) * unit * unit
        )


def _accumulate(total: list[int], sums: tuple[int, int, int], row: int) -> None:
    n, s, q = sums
    total[0] += n
    total[1] += s << row
    total[2] += q << 2 * row


def _distance_of(middle: Fraction, sums: tuple[int, int, int], precision: int) -> tuple[int, int]:
    """Sums of distances and of their squares of the numbers of one group, which have one nearest multiple in common."""
    n, total, squares = sums
    if not n:
        return 0, 0
    if precision > _FINEST:
        return 0, 0  # as `_distances` has it
    spacing = Fraction(1, 1 << precision) if precision >= 0 else Fraction(2)
    target = int(round(middle / spacing) * spacing * _ONE)
    absolute = total - n * target
    if middle * _ONE < target:
        absolute = -absolute
    return absolute, squares - 2 * target * total + n * target * target
