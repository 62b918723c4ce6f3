"""`Rounding`: how a real number becomes a value of a format."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum
from typing import Self

from precsim.errors import InputError

__all__ = ["MissingNan", "Mode", "NanPolicy", "OutOfDomain", "Overflow", "Rounding"]


class _Choice(Enum):
    """An enum whose members can be given by their value, with a helpful error."""

    @classmethod
    def of(cls, choice: Self | str) -> Self:
        """The member itself, or the one of that value.

        Raises
        ------
        InputError
            For anything else; the message lists the values.
        """
        if isinstance(choice, cls):
            return choice
        values = [member.value for member in cls]
        if isinstance(choice, str):
            text = choice.strip().lower().replace("_", "-")
            if text in values:
                return cls(text)
            near = difflib.get_close_matches(text, values, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
        else:
            hint = ""
        raise InputError(f"{cls.__name__} {choice!r} is unknown{hint} Known: {', '.join(values)}")


class Mode(_Choice):
    """Which neighbour a real between two values goes to.

    "Even" and "odd" are the code's parity, which for a format with a stored significand bit is the significand's
    (IEEE 754-2019, 4.3.1) and without one the exponent field's (IEEE P3109).
    """

    NEAREST_EVEN = "nearest-even"
    NEAREST_AWAY = "nearest-away"
    NEAREST_ZERO = "nearest-zero"
    TOWARD_ZERO = "toward-zero"
    UP = "up"
    DOWN = "down"
    AWAY = "away"
    TO_ODD = "to-odd"
    STOCHASTIC = "stochastic"


class Overflow(_Choice):
    """What a result beyond the greatest finite value becomes.

    Under INFINITY and NAN a mode that rounds that sign toward zero delivers the greatest finite value instead
    (IEEE 754-2019, 7.4), and so does to-odd. An infinity or NaN that the format does not have becomes a NaN, or the
    greatest finite value where it has neither.
    """

    INFINITY = "infinity"
    """Infinity."""
    SATURATE = "saturate"
    """The greatest finite value, also for an infinite source."""
    SATURATE_FINITE = "saturate-finite"
    """The greatest finite value; an infinite source stays infinite (NaN where the format has no infinity)."""
    NAN = "nan"
    """NaN; an infinite source stays infinite where the format has infinities."""


class NanPolicy(_Choice):
    """Which NaN a NaN becomes. The payload is never kept."""

    KEEP_SIGN = "keep-sign"
    """The quiet NaN with the sign of the source."""
    CANONICAL = "canonical"
    """The one canonical NaN, sign dropped."""


class MissingNan(_Choice):
    """What a NaN becomes in a format without NaN."""

    ERROR = "error"
    """An `InputError`: no number may silently stand for NaN."""
    LARGEST = "largest"
    """The greatest positive value (PTX `cvt.satfinite` to E2M1, E2M3, E3M2)."""
    NEGATED_ZERO = "negated-zero"
    """Zero with the NaN's sign inverted (ml_dtypes 0.5 to 0.7)."""


class OutOfDomain(_Choice):
    """What an unsigned format makes of negative numbers, and one without zero of zero."""

    NAN = "nan"
    """NaN."""
    MAGNITUDE = "magnitude"
    """The sign is dropped; zero becomes the least value (torch's float8_e8m0fnu)."""
    CLAMP = "clamp"
    """The least value of the format."""


@dataclass(frozen=True)
class Rounding:
    """A complete rounding rule.

    The rule rounds as if the exponent range had no upper end, then looks for overflow. Spacing below the least
    normal value is that of the subnormals.

    Parameters
    ----------
    mode : Mode or str
        Direction. By default nearest, ties to even.
    overflow : Overflow or str
        What becomes of results beyond the greatest finite value.
    random_bits : int, optional
        Random bits r per element of stochastic rounding, 1 to 32 (32 by default): the magnitude rounds up where
        ⌊f·2^r⌋ + R ≥ 2^r, with f the exact distance to the lower neighbour in units of the spacing and R uniform in
        0 … 2^r − 1 (P3109's StochasticA). Values on the grid never move.
    flush_results : bool
        A nonzero result of less than the least normal value becomes zero, sign kept. Judged after rounding: a value
        that gradual underflow rounds up to the least normal one is kept.
    flush_inputs : bool
        Source values that are subnormal in the source's own format are taken as zero, sign kept.
    nan : NanPolicy or str
        Which NaN a NaN becomes.
    missing_nan : MissingNan or str
        What becomes of a NaN in a format that has none.
    out_of_domain : OutOfDomain or str
        What unsigned formats make of negative numbers and zero-less ones of zero.

    Raises
    ------
    InputError
        For an unknown choice, or random bits without stochastic rounding.

    Examples
    --------
    >>> from precsim import Rounding
    >>> Rounding("stochastic", "saturate", random_bits=8).mode
    <Mode.STOCHASTIC: 'stochastic'>
    """

    mode: Mode = Mode.NEAREST_EVEN
    overflow: Overflow = Overflow.INFINITY
    random_bits: int | None = None
    flush_results: bool = False
    flush_inputs: bool = False
    nan: NanPolicy = NanPolicy.KEEP_SIGN
    missing_nan: MissingNan = MissingNan.ERROR
    out_of_domain: OutOfDomain = OutOfDomain.NAN

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("mode", Mode.of(self.mode))
        put("overflow", Overflow.of(self.overflow))
        put("nan", NanPolicy.of(self.nan))
        put("missing_nan", MissingNan.of(self.missing_nan))
        put("out_of_domain", OutOfDomain.of(self.out_of_domain))
        if self.mode is Mode.STOCHASTIC:
            put("random_bits", 32 if self.random_bits is None else self.random_bits)
            if not 1 <= self.random_bits <= 32:  # type: ignore[operator]  # not None since the line before
                raise InputError(f"random_bits must be 1 to 32, got {self.random_bits}")
        elif self.random_bits is not None:
            raise InputError(f"random_bits needs mode 'stochastic', got mode {self.mode.value!r}")

    def overflows_inward(self, negative: bool) -> bool:
        """Whether a finite value of this sign beyond the range rounds toward zero, to the greatest finite one."""
        inward = {Mode.TOWARD_ZERO, Mode.TO_ODD, Mode.UP if negative else Mode.DOWN}
        saturates = self.overflow in (Overflow.SATURATE, Overflow.SATURATE_FINITE)
        return saturates or self.mode in inward
