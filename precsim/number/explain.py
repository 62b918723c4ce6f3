"""`explain`: the reference's own account of one cast, for people."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from dataclasses import dataclass
from fractions import Fraction

from precsim.errors import InputError
from precsim.number.catalogue import find_format
from precsim.number.format import Format
from precsim.number.profiles import Profile, find_profile
from precsim.number.reference import Real, encode, floor_log2
from precsim.number.rounding import Mode, Overflow, Rounding

__all__ = ["Explanation", "explain", "parse_real"]


@dataclass(frozen=True)
class Explanation:
    """Why a number becomes the code that it becomes.

    Attributes
    ----------
    value : int, float or Fraction
        The exact number that was cast.
    format : Format
    rounding : Rounding
    code : int
    result : float
        The value of the code.
    lower, upper : float or None
        The format's neighbours of the number, the same where it is one of its values; None beyond its range or for
        infinities and NaNs.
    position : Fraction or None
        Where between them the number lies: 0 at the lower one, 1/2 at the tie.
    reason : str
        One sentence.
    first : float or None
        What the number was rounded to before, where a profile goes through another format; neighbours, position and
        reason are those of this number then.
    """

    value: Real
    format: Format
    rounding: Rounding
    code: int
    result: float
    lower: float | None
    upper: float | None
    position: Fraction | None
    reason: str
    first: float | None = None

    @property
    def is_tie(self) -> bool:
        """Whether the number lies half-way between its neighbours."""
        return self.position == Fraction(1, 2)

    @property
    def bits(self) -> str:
        """The code in binary: sign, exponent field, stored significand, separated by spaces."""
        fmt = self.format
        digits = f"{self.code:0{fmt.bits}b}"
        if fmt.twos_complement:
            return digits
        sign = 1 if fmt.signed else 0
        parts = digits[:sign], digits[sign : sign + fmt.exponent_bits], digits[sign + fmt.exponent_bits :]
        return " ".join(part for part in parts if part)

    def __str__(self) -> str:
        fmt = self.format
        lines = [
            f"{_show(self.value)} to {fmt.name}, {self.rounding.mode.value}, overflow {self.rounding.overflow.value}",
            f"  result     {_show(self.result)}",
            f"  code       {self.code:#0{2 + (fmt.bits + 3) // 4}x}  ({self.bits})",
        ]
        if self.first is not None and self.first != self.value and not math.isnan(self.first):
            lines.append(f"  first      rounded to {_show(self.first)}, as this profile has it")
        if self.lower is not None and self.upper is not None and self.position is not None:
            lines.append(f"  neighbours {_show(self.lower)} and {_show(self.upper)}")
            lines.append(f"  position   {_show_share(self.position)} of the way from the lower to the upper")
        lines.append(f"  why        {self.reason}")
        if math.isfinite(self.result) and not (
            isinstance(self.value, float) and not math.isfinite(self.value)
        ):
            error = Fraction(self.result) - Fraction(self.value)
            relative = f", {_short(abs(error / Fraction(self.value)), 3)} of it" if self.value else ""
            lines.append(f"  error      {f'{_short(error, 6)}{relative}' if error else 'none'}")
        return "\n".join(lines)


def _show(value: Real) -> str:
    """A number in decimal, and in binary where that says more."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    exact = Fraction(value)
    if isinstance(value, float) and value == 0.0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    nearest = _nearest(exact)
    if nearest is None:
        power = floor_log2(abs(exact))
        about = "" if abs(exact) == Fraction(2) ** power else "about "
        return f"{about}{'-' if exact < 0 else ''}2^{power}"
    text = (
        repr(nearest)
        if Fraction(nearest) == exact
        else str(exact)
        if len(str(exact)) < 30
        else f"about {nearest!r}"
    )
    if exact.denominator & (exact.denominator - 1) == 0 and exact and not 1e-3 <= abs(nearest) < 1e6:
        odd, exponent = exact.numerator, 1 - exact.denominator.bit_length()
        while odd % 2 == 0:
            odd, exponent = odd // 2, exponent + 1
        if abs(odd) < 1 << 16:
            return f"{text} = {'' if odd == 1 else '-' if odd == -1 else f'{odd}·'}2^{exponent}"
    return text


def _nearest(exact: Fraction) -> float | None:
    """The float64 next to it, None where that doesn't say how large it is."""
    try:
        nearest = float(exact)
    except OverflowError:
        return None
    return nearest if Fraction(nearest) == exact or abs(nearest) >= sys.float_info.min else None


def _short(exact: Fraction, digits: int) -> str:
    nearest = _nearest(exact)
    return _show(exact) if nearest is None else f"{nearest:.{digits}g}"


def _show_share(position: Fraction) -> str:
    """A share of 1; what is next to 0, 1/2 or 1 does not print as one of these."""
    if position == Fraction(1, 2):
        return "exactly half"
    if position.denominator < 1000:
        return str(position)
    for mark in (Fraction(1, 2), Fraction(1)):
        beyond = position - mark
        if abs(beyond) < Fraction(1, 10**6):
            return f"{mark} {'+' if beyond > 0 else '−'} {_short(abs(beyond), 3)}"
    return _short(position, 9)


def explain(
    value: Real | str,
    fmt: object,
    rounding: Rounding | Mode | str = Mode.NEAREST_EVEN,
    overflow: Overflow | str | None = None,
    *,
    profile: str | Profile | None = None,
    random: int | None = None,
) -> Explanation:
    """Cast one number by the reference and say why the result is what it is.

    Parameters
    ----------
    value : int, float, Fraction or str
        Text is taken exactly: ``"0.1"`` is a tenth, not the float64 beside it. See `parse_real`.
    fmt : Format, str or dtype
        Any format, float64 included.
    rounding, overflow, profile
        As for `precsim.encode`; the number is taken to come as a float64 or an integer.
    random : int, optional
        The random bits of stochastic rounding.

    Returns
    -------
    Explanation
        Prints as a short account.

    Raises
    ------
    InputError
        If the text is no number, a name is unknown, or a NaN meets a format without NaN.

    Examples
    --------
    >>> import precsim as ps
    >>> ps.explain(2049, ps.FP16).is_tie
    True
    """
    target = find_format(fmt)
    rule, through = _rule(target, rounding, profile)
    if overflow is not None:
        rule = dataclasses.replace(rule, overflow=Overflow.of(overflow))
    value = parse_real(value) if isinstance(value, str) else value
    first = None if through is None else through.decode(encode(value, through))
    number = value if first is None else first
    code = encode(number, target, rule, random=random)
    lower, upper = _neighbours(number, target)
    position = None
    if lower is not None and upper is not None and lower != upper:
        gap = Fraction(upper) - Fraction(lower)
        position = (Fraction(number) - Fraction(lower)) / gap
    result = target.decode(code)
    reason = _reason(number, target, rule, position, result)
    return Explanation(value, target, rule, code, result, lower, upper, position, reason, first)


def _rule(
    target: Format, rounding: Rounding | Mode | str, profile: str | Profile | None
) -> tuple[Rounding, Format | None]:
    """The complete rule, and the format that the number is rounded to first."""
    if profile is None:
        return (rounding if isinstance(rounding, Rounding) else Rounding(Mode.of(rounding))), None
    if isinstance(rounding, Rounding):
        raise InputError("profile= and a Rounding both state the whole rule: give one of them")
    named = find_profile(profile)
    return named.rounding(target, Mode.of(rounding)), named.through(target)


def _neighbours(value: Real, fmt: Format) -> tuple[float | None, float | None]:
    """The format's values next to a number from below and above; None beyond its range."""
    if isinstance(value, float) and not math.isfinite(value):
        return None, None
    exact = Fraction(value)
    if not Fraction(fmt.min) <= exact <= Fraction(fmt.max):
        return None, None
    down, up = (fmt.decode(encode(abs(exact), fmt, Rounding(mode))) for mode in (Mode.TOWARD_ZERO, Mode.AWAY))
    return (down, up) if exact >= 0 else (-up, -down)


def _reason(value: Real, fmt: Format, rule: Rounding, position: Fraction | None, result: float) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "the source is NaN"
    if isinstance(value, float) and math.isinf(value):
        return f"the source is infinite and overflow is {rule.overflow.value}"
    if value < 0 and not fmt.signed:
        return f"{fmt.name} has no sign: negative numbers become {result!r} ({rule.out_of_domain.value})"
    if value == 0:
        return "the source is zero" if fmt.zero else f"{fmt.name} has no zero ({rule.out_of_domain.value})"
    if position is None and Fraction(fmt.min) <= Fraction(value) <= Fraction(fmt.max):
        return "the number is a value of the format: nothing to round"
    if position is None:
        limit = Fraction(fmt.max) if value > 0 else Fraction(fmt.min)
        if math.isfinite(result) and Fraction(result) == limit:
            return f"beyond the greatest finite value {fmt.max!r}, where this rule ends at it"
        return f"rounds beyond the greatest finite value {fmt.max!r}: it overflows ({rule.overflow.value})"
    chosen = "upper" if Fraction(result) > Fraction(value) else "lower"
    if rule.mode in (Mode.NEAREST_EVEN, Mode.NEAREST_AWAY, Mode.NEAREST_ZERO):
        if position != Fraction(1, 2):
            return f"the {chosen} neighbour is nearer"
        which = {
            Mode.NEAREST_EVEN: "whose code is even",
            Mode.NEAREST_AWAY: "away from zero",
            Mode.NEAREST_ZERO: "nearer to zero",
        }[rule.mode]
        return f"a tie: it goes to the neighbour {which}, the {chosen} one"
    if rule.mode is Mode.TO_ODD:
        return f"not a value of the format: it goes to the neighbour whose code is odd, the {chosen} one"
    return f"mode {rule.mode.value} chooses the {chosen} neighbour"


_DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e(?P<power>[-+]?\d+))?", re.ASCII)
_BINARY = re.compile(
    r"(?:(?P<factor>[^*·]+?)\s*[*·]\s*)?(?P<sign>-?)2\s*(?:\^|\*\*)\s*(?P<power>[-+]?\d+)", re.ASCII
)
_HEXADECIMAL = re.compile(
    r"(?P<sign>[-+]?)0x(?=\.?[0-9a-f])(?P<whole>[0-9a-f]*)\.?(?P<part>[0-9a-f]*)(?:p(?P<power>[-+]?\d+))?",
    re.ASCII,
)
_RATIO = re.compile(r"(?P<above>[-+]?\d+)\s*/\s*(?P<below>0*[1-9]\d*)", re.ASCII)
_MOST_DIGITS = 4000
_MOST_POWER = 4999


def parse_real(text: str) -> Real:
    """Read a number exactly.

    Parameters
    ----------
    text : str
        Decimal (``0.1``, ``-3e-5``), a fraction (``1/3``), a power of two (``2^-25``, ``1.5*2^127``), a hexadecimal
        float (``0x1.8p-3``), ``inf``, ``nan`` or ``-0``.

    Returns
    -------
    int, float or Fraction
        A float for infinities, NaNs and negative zero alone.

    Raises
    ------
    InputError
        If it is none of these, or an exponent is beyond ±4999.
    """
    word = text.strip().lower().replace("−", "-")
    if word.lstrip("+-") in ("inf", "infinity", "nan"):
        return float(word)
    number = _exact(word)
    if number is None:
        raise InputError(
            f"{text!r} is not a number: give one like 0.1, -3e-5, 1/3, 2^-25, 1.5*2^10, 0x1.8p-3, inf or nan"
        )
    return -0.0 if number == 0 and word.startswith("-") else number


def _exact(word: str) -> Fraction | None:
    if len(word) > _MOST_DIGITS:
        return None
    if _DECIMAL.fullmatch(word):
        return _decimal(word)
    if ratio := _RATIO.fullmatch(word):
        return Fraction(int(ratio["above"]), int(ratio["below"]))
    if hexadecimal := _HEXADECIMAL.fullmatch(word):
        digits = int(hexadecimal["sign"] + hexadecimal["whole"] + hexadecimal["part"], 16)
        power = _power(2, hexadecimal["power"])
        return None if power is None else digits * power / 16 ** len(hexadecimal["part"])
    if binary := _BINARY.fullmatch(word):
        factor, power = _decimal(binary["factor"] or "1"), _power(2, binary["power"])
        if factor is not None and power is not None:
            return (-factor if binary["sign"] else factor) * power
    return None


def _decimal(word: str) -> Fraction | None:
    decimal = _DECIMAL.fullmatch(word)
    return None if decimal is None or _power(10, decimal["power"]) is None else Fraction(word)


def _power(base: int, exponent: str | None) -> Fraction | None:
    """The power, 1 without an exponent; None where it would fill the memory."""
    digits = (exponent or "0").lstrip("+-").lstrip("0")
    if len(digits) > 4 or int(digits or "0") > _MOST_POWER:
        return None
    return Fraction(base) ** int(exponent or "0")
