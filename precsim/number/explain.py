"""`explain`: the reference's own account of one cast, for people."""

from __future__ import annotations

import math
import re
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
        if self.lower is not None and self.upper is not None and self.lower != self.upper:
            lines.append(f"  neighbours {_show(self.lower)} and {_show(self.upper)}")
            lines.append(f"  position   {_show_share(self.position)} of the way from the lower to the upper")
        lines.append(f"  why        {self.reason}")
        if math.isfinite(self.result) and not (
            isinstance(self.value, float) and not math.isfinite(self.value)
        ):
            error = Fraction(self.result) - Fraction(self.value)
            relative = f", {float(abs(error / Fraction(self.value))):.3g} of it" if self.value else ""
            lines.append(f"  error      {'none' if not error else f'{float(error):.6g}{relative}'}")
        return "\n".join(lines)


def _show(value: Real) -> str:
    """A number in decimal, and in binary where that says more."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    exact = Fraction(value)
    if isinstance(value, float) and value == 0.0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    try:
        nearest = float(exact)
    except OverflowError:
        return f"about 2^{floor_log2(abs(exact))}"
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


def _show_share(position: Fraction | None) -> str:
    if position is None:
        return "unknown"
    if position == Fraction(1, 2):
        return "exactly half"
    return str(position) if position.denominator < 1000 else f"{float(position):.9g}"


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
        As for `precsim.encode`.
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
    if profile is not None:
        mode = rounding.mode if isinstance(rounding, Rounding) else Mode.of(rounding)
        rule = find_profile(profile).rounding(target, mode)
    else:
        rule = rounding if isinstance(rounding, Rounding) else Rounding(Mode.of(rounding))
    if overflow is not None:
        rule = Rounding(**{**vars(rule), "overflow": Overflow.of(overflow)})
    number = parse_real(value) if isinstance(value, str) else value
    code = encode(number, target, rule, random=random)
    lower, upper = _neighbours(number, target)
    position = None
    if lower is not None and upper is not None and lower != upper:
        gap = Fraction(upper) - Fraction(lower)
        position = (Fraction(number) - Fraction(lower)) / gap
    result = target.decode(code)
    return Explanation(
        number,
        target,
        rule,
        code,
        result,
        lower,
        upper,
        position,
        _reason(number, target, rule, position, result),
    )


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


_BINARY = re.compile(
    r"(?:(?P<factor>[-+]?[\d.]+(?:e[-+]?\d+)?)\s*[*·]\s*)?(?P<sign>-?)2\s*(?:\^|\*\*)\s*(?P<power>[-+]?\d+)"
)
_DECIMAL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")
_HEXADECIMAL = re.compile(r"[-+]?0x[0-9a-f]*\.?[0-9a-f]*(?:p[-+]?\d+)?")
_RATIO = re.compile(r"[-+]?\d+\s*/\s*\d+")
_MOST_DIGITS = 5000


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
    if len(word) > _MOST_DIGITS or any(
        len(digits) > 4 for digits in re.findall(r"(?:[ep^]|\*\*)[-+]?0*(\d+)", word)
    ):
        return None
    if binary := _BINARY.fullmatch(word):
        factor = Fraction(binary["factor"]) if binary["factor"] else Fraction(1)
        return (-factor if binary["sign"] else factor) * Fraction(2) ** int(binary["power"])
    if _DECIMAL.fullmatch(word):
        return Fraction(word)
    if _RATIO.fullmatch(word):
        above, below = word.split("/")
        return Fraction(int(above), int(below)) if int(below) else None
    if _HEXADECIMAL.fullmatch(word):
        try:
            return Fraction(float.fromhex(word))
        except (OverflowError, ValueError):
            return None
    return None
