"""`Format`: which values a small binary floating-point number can hold, and under which codes.

The value set only; how a real number becomes one of these values is `precsim.number.rounding`.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from precsim.errors import InputError

__all__ = ["Format", "NanEncoding"]


class NanEncoding(Enum):
    """Which codes of a format are NaN."""

    IEEE = "ieee"
    """All codes of the greatest exponent field, but for the infinities (IEEE 754-2019, 3.4)."""
    TOP_CODE = "top-code"
    """The greatest magnitude code only, of either sign (OCP E4M3's S.1111.111, E8M0's 0xFF)."""
    NEGATIVE_ZERO = "negative-zero"
    """The code that would be −0, one NaN in all (the FNUZ formats, IEEE P3109)."""
    NONE = "none"
    """No code (OCP MX E2M1, E2M3, E3M2)."""


@dataclass(frozen=True)
class Format:
    """A radix-2 number format of at most 64 bits: its values and their codes.

    A code is laid out as sign (if signed), exponent field, stored significand bits. A nonzero exponent field E
    stands for (1 + f·2^-m)·2^(E−bias), field 0 for f·2^(1−bias−m). Two formats are equal when they hold the same
    values under the same codes, whatever their names.

    Parameters
    ----------
    exponent_bits : int
        Width of the exponent field, 1 to 11.
    significand_bits : int
        Stored significand bits m, 0 to 52. The precision is m + 1.
    bias : int, optional
        Exponent bias. By default 2^(exponent_bits − 1) − 1.
    signed : bool
        Whether codes have a sign bit.
    subnormals : bool
        Without subnormals, exponent field 0 holds zero alone; its other codes are never produced and decode to zero.
    infinities : bool
        Whether the format has infinities.
    nan : NanEncoding
        Which codes are NaN.
    signed_zero : bool, optional
        Whether −0 is a value. By default true for signed formats whose NaN is not the negative-zero code.
    zero : bool
        Without zero (OCP E8M0), exponent field 0 is an ordinary binade. Needs ``subnormals=False``.
    twos_complement : bool
        Negative codes are two's complements of the positive ones (fixed-point grids such as INT8) instead of
        sign and magnitude. The range is symmetric: the most negative code decodes, and is never produced.
    name : str
        What to call it. Not part of its meaning.
    source : str
        Document and table that define it. Not part of its meaning.

    Raises
    ------
    InputError
        If the parameters contradict each other, or a value would not be a float64.

    Examples
    --------
    >>> from precsim import Format
    >>> e6m9 = Format(6, 9, name="e6m9")
    >>> e6m9.bits, e6m9.max, e6m9.eps
    (16, 4290772992.0, 0.001953125)
    """

    exponent_bits: int
    significand_bits: int
    bias: int = cast("int", None)
    signed: bool = True
    subnormals: bool = True
    infinities: bool = True
    nan: NanEncoding = NanEncoding.IEEE
    signed_zero: bool = cast("bool", None)
    zero: bool = True
    twos_complement: bool = False
    name: str = field(default="", compare=False)
    source: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        if cast("int | None", self.bias) is None:
            put(self, "bias", (1 << max(self.exponent_bits - 1, 0)) - 1)
        if cast("bool | None", self.signed_zero) is None:
            put(self, "signed_zero", self._can_sign_zero)
        if not self.name:
            put(self, "name", f"e{self.exponent_bits}m{self.significand_bits}")
        self._validate()

    @property
    def _can_sign_zero(self) -> bool:
        return (
            self.signed
            and self.zero
            and not self.twos_complement
            and self.nan is not NanEncoding.NEGATIVE_ZERO
        )

    def _validate(self) -> None:
        def require(holds: bool, what: str) -> None:
            if not holds:
                raise InputError(f"format {self.name}: {what}")

        require(1 <= self.exponent_bits <= 11, f"exponent_bits must be 1 to 11, got {self.exponent_bits}")
        require(
            0 <= self.significand_bits <= 52, f"significand_bits must be 0 to 52, got {self.significand_bits}"
        )
        require(self._can_sign_zero or not self.signed_zero, "signed_zero needs a code for −0")
        require(self.signed or self.nan is not NanEncoding.NEGATIVE_ZERO, "an unsigned format has no −0 code")
        require(
            self.nan is not NanEncoding.IEEE or self.significand_bits >= 1 or not self.infinities,
            "with no stored significand bit, an IEEE exponent field can't hold both infinity and NaN",
        )
        require(self.zero or not self.subnormals, "a format without zero has no subnormals")
        plain = self.signed and self.zero and self.nan is NanEncoding.NONE and not self.infinities
        require(
            not self.twos_complement or plain,
            "two's complement codes need a signed format with zero, no NaN and no infinities",
        )
        require(
            self.max_magnitude_code > self.least_magnitude_code,
            "no finite value is left beside the special codes",
        )
        require(
            self.least_exponent - self.significand_bits >= -1074 and self.greatest_exponent <= 1023,
            "its values must be float64 values",
        )

    # ---- layout of the codes -----------------------------------------------------------------------------------

    @property
    def bits(self) -> int:
        """Width of a code in bits."""
        return int(self.signed) + self.exponent_bits + self.significand_bits

    @property
    def precision(self) -> int:
        """Significand bits with the hidden one (p of IEEE 754)."""
        return self.significand_bits + 1

    @property
    def sign_bit(self) -> int:
        """The sign bit's place value in a code; 0 for unsigned formats."""
        return 1 << (self.bits - 1) if self.signed else 0

    @property
    def _top_code(self) -> int:
        return (1 << (self.exponent_bits + self.significand_bits)) - 1

    @property
    def _ieee_special_field(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.significand_bits

    @property
    def infinity_code(self) -> int | None:
        """Code of +infinity, or None."""
        if not self.infinities:
            return None
        if self.nan is NanEncoding.IEEE:
            return self._ieee_special_field
        return self._top_code - (self.nan is NanEncoding.TOP_CODE)

    @property
    def nan_code(self) -> int | None:
        """Code of the canonical (quiet, positive where there is a choice) NaN, or None."""
        if self.nan is NanEncoding.IEEE:
            quiet_bit = (1 << self.significand_bits) >> 1
            return self._ieee_special_field | quiet_bit
        if self.nan is NanEncoding.TOP_CODE:
            return self._top_code
        if self.nan is NanEncoding.NEGATIVE_ZERO:
            return self.sign_bit
        return None

    @property
    def max_magnitude_code(self) -> int:
        """Code of the greatest finite value."""
        if self.nan is NanEncoding.IEEE:
            return self._ieee_special_field - 1
        return self._top_code - (self.nan is NanEncoding.TOP_CODE) - self.infinities

    @property
    def least_magnitude_code(self) -> int:
        """Code of the least positive value."""
        if not self.zero:
            return 0
        return 1 if self.subnormals else 1 << self.significand_bits

    @property
    def least_normal_code(self) -> int:
        """Code of the least normal value."""
        return (1 << self.significand_bits) if self.zero else 0

    # ---- values ------------------------------------------------------------------------------------------------

    @property
    def least_exponent(self) -> int:
        """Exponent of the least normal binade (emin of IEEE 754)."""
        return 1 - self.bias if self.zero else -self.bias

    @property
    def greatest_exponent(self) -> int:
        """Exponent of the binade that holds the greatest finite value (emax of IEEE 754)."""
        exponent_field = self.max_magnitude_code >> self.significand_bits
        return max(exponent_field - self.bias, self.least_exponent)

    @property
    def max(self) -> float:
        """Greatest finite value."""
        return self.decode(self.max_magnitude_code)

    @property
    def min(self) -> float:
        """Least finite value: −max for signed formats, the least value for unsigned ones."""
        if self.signed:
            return -self.max
        return 0.0 if self.zero else self.smallest_normal

    @property
    def smallest_normal(self) -> float:
        """Least positive normal value."""
        return math.ldexp(1.0, self.least_exponent)

    @property
    def smallest_subnormal(self) -> float:
        """Least positive value; the least normal one where there are no subnormals (as `numpy.finfo` has it)."""
        return self.decode(self.least_magnitude_code)

    @property
    def eps(self) -> float:
        """Distance from 1 to the next greater value of the same precision: 2^-significand_bits."""
        return math.ldexp(1.0, -self.significand_bits)

    def decode(self, code: int) -> float:
        """The value of one code, exactly.

        Parameters
        ----------
        code : int
            0 to 2^bits − 1.

        Returns
        -------
        float
            The value; ±inf, NaN and −0.0 included.

        Raises
        ------
        InputError
            If the code has more bits than the format.
        """
        code = operator.index(code)
        if not 0 <= code < 1 << self.bits:
            raise InputError(f"format {self.name}: code {code:#x} has more than {self.bits} bits")
        negative = bool(code & self.sign_bit)
        if self.twos_complement:
            magnitude = (1 << self.bits) - code if negative else code
            return (-1.0 if negative else 1.0) * self._magnitude(magnitude)
        magnitude = code & ~self.sign_bit
        if self._is_nan(code, magnitude):
            return math.copysign(math.nan, -1.0 if negative and magnitude else 1.0)
        value = math.inf if magnitude == self.infinity_code else self._magnitude(magnitude)
        if value == 0.0 and not self.signed_zero:
            return 0.0
        return -value if negative else value

    def _is_nan(self, code: int, magnitude: int) -> bool:
        if self.nan is NanEncoding.NEGATIVE_ZERO:
            return code == self.sign_bit
        if self.nan is NanEncoding.NONE:
            return False
        return magnitude > self.max_magnitude_code and magnitude != self.infinity_code

    def _magnitude(self, code: int) -> float:
        exponent_field, fraction = divmod(code, 1 << self.significand_bits)
        if exponent_field == 0 and self.zero:
            fraction = fraction if self.subnormals else 0
            return math.ldexp(fraction, self.least_exponent - self.significand_bits)
        significand = fraction + (1 << self.significand_bits)
        return math.ldexp(significand, exponent_field - self.bias - self.significand_bits)

    def codes(self) -> range:
        """All codes, special ones included."""
        return range(1 << self.bits)

    def values(self) -> list[float]:
        """All finite values in ascending order, each once (zero as +0.0).

        Raises
        ------
        InputError
            If the format has more than 16 bits: there are too many to list.
        """
        if self.bits > 16:
            raise InputError(
                f"format {self.name}: values() lists at most 2^16 values, this has 2^{self.bits} codes"
            )
        finite = {value + 0.0 for value in map(self.decode, self.codes()) if math.isfinite(value)}
        return sorted(finite)

    def __str__(self) -> str:
        return self.name
