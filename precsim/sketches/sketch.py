"""`Sketch`: how many numbers lie where, in integers; enough to say exactly what any named cast does to them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from precsim.cast.operand import operand
from precsim.errors import InputError
from precsim.kernels import CountTable, Engine, MomentTable, Source
from precsim.number import Format, Mode, Rounding, find_format
from precsim.sketches.edges import BIN_COUNT, bin_map, edge_bin, split
from precsim.sketches.error import CastError, cast_error
from precsim.sketches.groups import group_map
from precsim.sketches.moments import Moments, added_moments
from precsim.sketches.outcomes import Outcomes
from precsim.sketches.thresholds import Limit, thresholds
from precsim.wording import html_table, percent, power_range

__all__ = ["Curve", "Sketch", "Window", "first_place", "sketch", "sketch_source"]

Counts = np.ndarray[tuple[int, int, int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Window:
    """The power-of-two scales 2^low … 2^high that serve a tensor.

    Attributes
    ----------
    low : int or None
        Least exponent at which no more than the allowed share is flushed; None if nothing can be: no nonzero numbers.
    high : int or None
        Greatest exponent at which nothing overflows; None if nothing can.
    nonfinite : bool
        Whether the source holds infinities or NaNs, which no scale mends.
    negative : bool
        Whether it holds negative numbers and the format is unsigned: no scale mends that either.
    """

    low: int | None
    high: int | None
    nonfinite: bool = False
    negative: bool = False

    @property
    def octaves(self) -> int | None:
        """Number of powers of two in the window, 0 or less where there is none; None where it is unbounded."""
        if self.low is None or self.high is None:
            return None
        return self.high - self.low + 1

    def __bool__(self) -> bool:
        return not (self.nonfinite or self.negative) and (self.octaves is None or self.octaves > 0)

    def __str__(self) -> str:
        if self.nonfinite:
            return "no window (not finite)"
        if self.negative:
            return "no window (negative numbers)"
        if not self:
            return "no window"
        if self.high is None:
            return "any scale" if self.low is None else f"2^{self.low} or more"
        return f"2^{self.high} or less" if self.low is None else f"2^{self.low} … 2^{self.high}"


@dataclass(frozen=True)
class Curve:
    """Outcomes of casts to a format as functions of the loss scale.

    Attributes
    ----------
    format : Format
    exponents : tuple of int
        k of the scales 2^k, ascending.
    outcomes : tuple of Outcomes
        At these scales.
    """

    format: Format
    exponents: tuple[int, ...]
    outcomes: tuple[Outcomes, ...]

    def counts(self, outcome: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """How many numbers have an outcome (a field of `Outcomes`) at each scale."""
        return np.array([getattr(point, outcome) for point in self.outcomes], np.int64)

    def shares(self, outcome: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Share of the finite nonzero numbers with an outcome at each scale, 0 … 1."""
        return np.array([point.share(outcome) for point in self.outcomes])


@dataclass(frozen=True, eq=False)
class Sketch:
    """Counts of numbers by sign, binade and place in the binade.

    All integers, so sketches add up to the same bits in any order: ``a + b`` is the sketch of both tensors together.
    Made by `precsim.sketch`.

    Attributes
    ----------
    least_exponent : int
        Binade of the first row.
    counts : int64 array, shape (2, rows, bins)
        Finite nonzero numbers by sign (0 positive), binade and bin; see `precsim.sketches.edges` for the bins.
    zeros, positive_infinities, negative_infinities, nans : int
        The other numbers.
    amax, amin : float
        Greatest finite and least nonzero magnitude; 0.0 and inf where there is none.
    moments : Moments or None
        Sums from which errors are read; None where only counts were taken.
    """

    least_exponent: int = 0
    counts: Counts = field(default_factory=lambda: np.zeros((2, 0, BIN_COUNT), np.int64))
    zeros: int = 0
    positive_infinities: int = 0
    negative_infinities: int = 0
    nans: int = 0
    amax: float = 0.0
    amin: float = math.inf
    moments: Moments | None = None

    def __post_init__(self) -> None:
        self.counts.flags.writeable = False

    @classmethod
    def of_table(cls, table: CountTable, moments: MomentTable | None = None) -> Sketch:
        """A sketch of what an engine counted, and summed."""
        return cls(
            table.least_exponent,
            np.asarray(table.counts, np.int64),
            table.zeros,
            table.positive_infinities,
            table.negative_infinities,
            table.nans,
            table.amax,
            table.amin,
            None if moments is None else Moments.of_table(moments),
        )

    # ---- how many ----------------------------------------------------------------------------------------------

    @cached_property
    def nonzero(self) -> int:
        """Number of finite nonzero numbers."""
        return int(self.counts.sum())

    @property
    def nonfinite(self) -> int:
        """Number of infinities and NaNs."""
        return self.positive_infinities + self.negative_infinities + self.nans

    @property
    def n(self) -> int:
        """Number of numbers in all."""
        return self.nonzero + self.zeros + self.nonfinite

    def binades(self) -> dict[int, int]:
        """Number of finite nonzero numbers by ⌊log2|x|⌋, for those binades that hold any."""
        totals = self.counts.sum(axis=(0, 2))
        return {self.least_exponent + row: int(total) for row, total in enumerate(totals) if total}

    # ---- addition ----------------------------------------------------------------------------------------------

    def __add__(self, other: Sketch) -> Sketch:
        if not isinstance(other, Sketch):
            return NotImplemented
        least, counts, moments = _added(self, other)
        return Sketch(
            least,
            counts,
            self.zeros + other.zeros,
            self.positive_infinities + other.positive_infinities,
            self.negative_infinities + other.negative_infinities,
            self.nans + other.nans,
            max(self.amax, other.amax),
            min(self.amin, other.amin),
            moments,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sketch):
            return NotImplemented
        mine, theirs = self.moments, other.moments
        same = mine is theirs if mine is None or theirs is None else mine.same_as(theirs)
        return same and self._facts() == other._facts() and np.array_equal(self.counts, other.counts)

    def __hash__(self) -> int:
        return hash((self._facts(), self.tobytes()))

    def tobytes(self) -> bytes:
        """All of the sketch's arrays: equal sketches have equal bytes."""
        return self.counts.tobytes() + (b"" if self.moments is None else self.moments.tobytes())

    def _facts(self) -> tuple[float, ...]:
        infinities = (self.positive_infinities, self.negative_infinities)
        return (self.least_exponent, self.zeros, *infinities, self.nans, self.amax, self.amin)

    # ---- other sketches of the same numbers --------------------------------------------------------------------

    def scaled(self, exponent: int) -> Sketch:
        """The sketch of the numbers times 2^exponent: rows move, significands stay."""
        return replace(
            self,
            least_exponent=self.least_exponent + exponent if self.counts.shape[1] else 0,
            amax=math.ldexp(self.amax, exponent),
            amin=math.ldexp(self.amin, exponent) if self.nonzero else math.inf,
        )

    def without_binades_below(self, exponent: int) -> Sketch:
        """The sketch without the finite nonzero numbers of magnitude below 2^exponent; `amin` is then a bound."""
        cut = min(max(exponent - self.least_exponent, 0), self.counts.shape[1])
        if not cut:
            return self
        used = np.flatnonzero(self.counts[:, cut:].any(axis=(0, 2)))
        cut += int(used[0]) if used.size else 0
        kept = self.counts[:, cut:].copy()
        if not used.size:
            return replace(
                self,
                least_exponent=0,
                counts=np.zeros((2, 0, BIN_COUNT), np.int64),
                amax=0.0,
                amin=math.inf,
                moments=None if self.moments is None else Moments.empty(),
            )
        moments = self.moments
        return replace(
            self,
            least_exponent=self.least_exponent + cut,
            counts=kept,
            amin=max(self.amin, math.ldexp(1.0, self.least_exponent + cut)),
            moments=None
            if moments is None
            else Moments(moments.distances[:, cut:].copy(), moments.sums[:, cut:].copy(), moments.rounded),
        )

    # ---- what a cast does --------------------------------------------------------------------------------------

    def outcomes(
        self,
        fmt: object,
        scale: SupportsFloat = 1.0,
        rounding: Rounding | Mode | str = Mode.NEAREST_EVEN,
    ) -> Outcomes:
        """What a cast of x·scale to a format does to the numbers, exactly.

        Parameters
        ----------
        fmt : Format, str or dtype
            Any named format of at most 32 bits.
        scale : float
            A power of two.
        rounding : Rounding, Mode or str
            Any mode but stochastic. Of a `Rounding`, mode and ``flush_results`` matter: an overflow is one whatever it
            then becomes.

        Returns
        -------
        Outcomes

        Raises
        ------
        InputError
            For a scale that is no power of two, stochastic rounding, flushed inputs, or a format whose thresholds
            this table does not resolve; `precsim.outcomes` looks at the numbers themselves and takes all of them.
        """
        target = find_format(fmt)
        rule = rounding if isinstance(rounding, Rounding) else Rounding(Mode.of(rounding))
        exponent = _scale_exponent(scale)
        if rule.mode is Mode.STOCHASTIC or rule.flush_inputs:
            what = "stochastic rounding" if rule.mode is Mode.STOCHASTIC else "flushing of inputs"
            raise InputError(f"a sketch can't tell the outcomes of {what}: use precsim.outcomes(x, …)")
        flushed = subnormal = normal = overflowed = 0
        for negative in (False, True):
            total = int(self._at_or_above[int(negative), 0])
            if negative and not target.signed:
                overflowed += total
                continue
            limits = thresholds(target, rule.mode, negative)
            above = self._above(limits.overflow, exponent, negative, target)
            nonzero = (
                total if limits.nonzero is None else self._above(limits.nonzero, exponent, negative, target)
            )
            at_least_normal = (
                nonzero if limits.normal is None else self._above(limits.normal, exponent, negative, target)
            )
            overflowed += above
            normal += at_least_normal - above
            subnormal += nonzero - at_least_normal
            flushed += total - nonzero
        if rule.flush_results:
            flushed, subnormal = flushed + subnormal, 0
        return Outcomes(self.zeros, flushed, subnormal, normal, overflowed, self.nonfinite)

    def error(
        self,
        fmt: object,
        scale: SupportsFloat = 1.0,
        rounding: Rounding | Mode | str = Mode.NEAREST_EVEN,
        *,
        overflow: str = "exclude",
    ) -> CastError:
        """How far a cast of x·scale to a format, divided by the scale again, is from x: exactly.

        Parameters
        ----------
        fmt : Format, str or dtype
            Any named format of at most 32 bits.
        scale : float
            A power of two.
        rounding : Rounding, Mode or str
            To nearest, or stochastic: then the expected error. Of a `Rounding` the mode alone matters.
        overflow : {"exclude", "saturate"}
            Whether numbers that overflow are left out of the error, or become the greatest value of their sign.

        Returns
        -------
        CastError

        Raises
        ------
        InputError
            For a sketch of counts alone, a scale that is no power of two, other modes, formats that are not resolved,
            and numbers that keep 11 to 22 fraction bits (in fp32's subnormal range).

        Examples
        --------
        >>> import numpy as np, precsim as ps
        >>> s = ps.sketch(np.float32([1.0, 1.0625, 3e-5]))
        >>> f"{s.error(ps.E4M3).mse:.6f}", s.error(ps.E4M3, 2.0**10).overflowed
        ('0.001302', 2)
        """
        target, exponent = find_format(fmt), _scale_exponent(scale)
        mode = rounding.mode if isinstance(rounding, Rounding) else Mode.of(rounding)
        if overflow not in ("exclude", "saturate"):
            raise InputError(f"overflow must be 'exclude' or 'saturate', got {overflow!r}")
        moments = self.moments
        if moments is None:
            if self.n:
                raise InputError("this sketch holds counts alone: make it by precsim.sketch(x, errors=True)")
            moments = Moments.empty()
        return cast_error(self, moments, target, exponent, mode, overflow == "saturate")

    def curve(
        self, fmt: object, low: int = -40, high: int = 40, rounding: Rounding | Mode | str = Mode.NEAREST_EVEN
    ) -> Curve:
        """What becomes of the numbers at every scale 2^low … 2^high: the outcomes as functions of the scale.

        Parameters
        ----------
        fmt, rounding
            As for `outcomes`.
        low, high : int
            Exponents of the first and the last scale.

        Returns
        -------
        Curve
        """
        if high < low:
            raise InputError(f"a curve needs low ≤ high, got {low} and {high}")
        exponents = range(low, high + 1)
        points = [self.outcomes(fmt, _Power(k), rounding) for k in exponents]
        return Curve(find_format(fmt), tuple(exponents), tuple(points))

    def window(
        self,
        fmt: object,
        max_flushed: SupportsFloat | Fraction = 1e-3,
        headroom: SupportsFloat | Fraction = 2.0,
    ) -> Window:
        """The power-of-two scales at which few enough numbers are flushed and none overflows, to nearest even.

        Parameters
        ----------
        fmt : Format, str or dtype
            Any named format of at most 32 bits.
        max_flushed : float
            Greatest share of the finite nonzero numbers that may become zero, 0 … 1.
        headroom : float
            At the high end this multiple of the greatest magnitude must not overflow yet.

        Returns
        -------
        Window

        Raises
        ------
        InputError
            For a share or headroom out of range.
        """
        target = find_format(fmt)
        share, room = _fraction(max_flushed, "max_flushed"), _fraction(headroom, "headroom")
        if not 0 <= share <= 1 or room < 1:
            raise InputError(
                f"max_flushed must be 0 … 1 and headroom at least 1, got {max_flushed}, {headroom}"
            )
        unmended = (self.nonfinite > 0, not target.signed and bool(self.counts[1].any()))
        if not self.nonzero:
            return Window(None, None, *unmended)
        allowed = math.floor(share * self.nonzero)
        return Window(self._low_end(target, allowed), self._high_end(target, room), *unmended)

    def _low_end(self, fmt: Format, allowed: int) -> int | None:
        """Least k with at most `allowed` numbers flushed: their number falls as k grows."""
        if fmt.zero is False or allowed >= self.nonzero:
            return None
        least_nonzero = split(thresholds(fmt, Mode.NEAREST_EVEN, False).present()[0].value)[0]
        rows = self.counts.shape[1]
        fails = least_nonzero - (self.least_exponent + rows) - 1  # everything is below the threshold
        serves = least_nonzero - self.least_exponent + 1  # nothing is
        while serves - fails > 1:
            middle = (serves + fails) // 2
            if self.outcomes(fmt, _Power(middle)).flushed <= allowed:
                serves = middle
            else:
                fails = middle
        return serves

    def _high_end(self, fmt: Format, room: Fraction) -> int:
        limit = thresholds(fmt, Mode.NEAREST_EVEN, False).overflow
        greatest = Fraction(self.amax) * room
        exponent, significand = split(limit.value / greatest)
        fits_exactly = significand == 1
        return exponent - 1 if fits_exactly and limit.inclusive else exponent

    @cached_property
    def _at_or_above(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Numbers of each sign in a bin or above it, bins counted from the lowest row's first; the last entry is 0."""
        flat = self.counts.reshape(2, -1)
        sums = np.zeros((2, flat.shape[1] + 1), np.int64)
        sums[:, :-1] = np.cumsum(flat[:, ::-1], axis=1)[:, ::-1]
        return sums

    def _above(self, limit: Limit, scale_exponent: int, negative: bool, fmt: Format) -> int:
        """Numbers of one sign whose magnitude times 2^scale_exponent is at or above a limit."""
        if limit.value == 0:
            return int(self._at_or_above[int(negative), 0])
        place = first_place(limit)
        if place is None:
            raise InputError(
                f"a sketch does not resolve the thresholds of format {fmt.name}: use precsim.outcomes(x, …)"
            )
        exponent, bin_ = place
        row = exponent - scale_exponent - self.least_exponent
        last = self._at_or_above.shape[1] - 1
        return int(self._at_or_above[int(negative), min(max(row * BIN_COUNT + bin_, 0), last)])

    def __repr__(self) -> str:
        extremes = f"amin={self.amin!r}, amax={self.amax!r}"
        return f"Sketch(n={self.n}, zeros={self.zeros}, {extremes}, nonfinite={self.nonfinite})"

    def _repr_html_(self) -> str:
        rows = []
        for name in ("fp16", "bf16", "e4m3", "e5m2"):
            found = self.outcomes(name)
            parts = (found.flushed, found.subnormal, found.overflowed)
            rows.append(
                [name, *(percent(part, found.nonzero) for part in parts), str(self.window(name, headroom=1))]
            )
        caption = (
            f"{self.n:,} numbers, {self.zeros:,} zeros, |x| {power_range(self.amin, self.amax)}, at scale 1"
        )
        return html_table(caption, ["format", "flushed", "subnormal", "overflow", "usable scales"], rows)


class _Power(float):
    """A power of two by its exponent, which may be beyond float's range."""

    exponent: int

    def __new__(cls, exponent: SupportsIndex) -> _Power:
        self = super().__new__(cls, 1.0)
        self.exponent = int(exponent)
        return self


def _scale_exponent(scale: SupportsFloat) -> int:
    if isinstance(scale, _Power):
        return scale.exponent
    number = float(scale)
    if number > 0.0 and math.isfinite(number):
        significand, exponent = math.frexp(number)
        if significand == 0.5:
            return exponent - 1
    raise InputError(
        f"a sketch answers for power-of-two scales, got {scale!r}: use precsim.outcomes(x, …, scale)"
    )


def _fraction(number: SupportsFloat | Fraction, what: str) -> Fraction:
    """The number as it is written: 0.001 is a thousandth, not the float64 beside it."""
    if isinstance(number, Fraction):
        return number
    value = float(number)
    if not math.isfinite(value):
        raise InputError(f"{what} must be finite, got {number!r}")
    return Fraction(repr(value))


def _added(a: Sketch, b: Sketch) -> tuple[int, Counts, Moments | None]:
    """Both tables on common rows. Moments are lost where one side has none, unless it holds no numbers."""
    if not a.counts.shape[1] or not b.counts.shape[1]:
        full, empty = (a, b) if a.counts.shape[1] else (b, a)
        kept = full.moments is not None and (empty.moments is not None or not empty.n)
        return full.least_exponent, full.counts, full.moments if kept else None
    least = min(a.least_exponent, b.least_exponent)
    rows = max(s.least_exponent + s.counts.shape[1] for s in (a, b)) - least
    starts = a.least_exponent - least, b.least_exponent - least
    total = np.zeros((2, rows, BIN_COUNT), np.int64)
    for part, start in zip((a, b), starts, strict=True):
        total[:, start : start + part.counts.shape[1]] += part.counts
    if a.moments is None or b.moments is None:
        return least, total, None
    return least, total, added_moments(a.moments, b.moments, *starts, rows)


@lru_cache(maxsize=4096)
def first_place(limit: Limit) -> tuple[int, int] | None:
    """Binade and bin of the least magnitudes at or above a limit; None if a bin holds both its sides."""
    exponent, significand = split(limit.value)
    at_limit = edge_bin(significand)
    return None if at_limit is None else (exponent, at_limit + (not limit.inclusive))


def sketch(x: Any, *, errors: bool = True) -> Sketch:
    """Count a tensor's numbers by sign, binade and place in the binade, and sum their rounding distances, in one pass.

    Parameters
    ----------
    x : array_like or torch.Tensor
        Floats of any width up to 64 bits, or integers (taken as numbers); any shape. float64 is counted in its own
        range; for errors its significands are first rounded to odd to float32's 24 bits.
    errors : bool
        False for counts alone: several times as fast, and `Sketch.error` is not answered.

    Returns
    -------
    Sketch

    Raises
    ------
    InputError
        For dtypes that are no real numbers.

    Examples
    --------
    >>> import numpy as np, precsim as ps
    >>> s = ps.sketch(np.float32([0.0, 1e-8, 1e-5, 1.0, 70000.0]))
    >>> s.outcomes(ps.FP16)
    Outcomes(zero=1, flushed=1, subnormal=1, normal=1, overflowed=1, nonfinite=0)
    >>> s.outcomes(ps.FP16, scale=2.0**-2).overflowed
    0
    """
    source = operand(x)
    total = Sketch(moments=Moments.empty() if errors else None)
    for chunk, _ in source.chunks():
        total = total + sketch_source(chunk, source.engine, errors=errors)
    return total


def sketch_source(source: Source, engine: Engine, *, errors: bool = True) -> Sketch:
    """The sketch of one flat chunk."""
    if errors:
        return Sketch.of_table(*engine.moments(source, bin_map(), group_map()))
    return Sketch.of_table(engine.count(source, bin_map()))
