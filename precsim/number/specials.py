"""Codes that need no arithmetic: what NaN, infinity, overflow, zero and underflow become under a rule."""

from __future__ import annotations

from precsim.errors import InputError
from precsim.number.format import Format, NanEncoding
from precsim.number.rounding import MissingNan, NanPolicy, OutOfDomain, Overflow, Rounding

__all__ = [
    "compose",
    "infinity_result",
    "nan_result",
    "negative_result",
    "overflow_result",
    "underflow_result",
    "zero_result",
]


def compose(magnitude_code: int, negative: bool, fmt: Format) -> int:
    """The code of a finite value from its magnitude's code and its sign."""
    if not negative or not fmt.signed:
        return magnitude_code
    if fmt.twos_complement:
        return -magnitude_code % (1 << fmt.bits)
    return magnitude_code | fmt.sign_bit


def nan_result(negative: bool, fmt: Format, rounding: Rounding) -> int | None:
    """What a NaN becomes; None where that is an error."""
    if fmt.nan_code is not None:
        keeps_sign = rounding.nan is NanPolicy.KEEP_SIGN and fmt.nan is not NanEncoding.NEGATIVE_ZERO
        return fmt.nan_code | (fmt.sign_bit if negative and keeps_sign else 0)
    if rounding.missing_nan is MissingNan.LARGEST:
        return fmt.max_magnitude_code
    if rounding.missing_nan is MissingNan.NEGATED_ZERO and fmt.zero:
        return zero_result(not negative, fmt, rounding)
    return None


def _unbounded(negative: bool, fmt: Format, rounding: Rounding, as_nan: bool) -> int:
    """Infinity, or the next best that the format has: NaN, else the greatest finite value."""
    if fmt.infinity_code is not None and not as_nan:
        return compose(fmt.infinity_code, negative, fmt)
    if fmt.nan_code is not None:
        code = nan_result(negative, fmt, rounding)
        assert code is not None
        return code
    return compose(fmt.max_magnitude_code, negative, fmt)


def infinity_result(negative: bool, fmt: Format, rounding: Rounding) -> int:
    """What an infinite source becomes."""
    if negative and not fmt.signed:
        return negative_result(infinity_result(False, fmt, rounding), fmt, rounding)
    if rounding.overflow is Overflow.SATURATE:
        return compose(fmt.max_magnitude_code, negative, fmt)
    return _unbounded(negative, fmt, rounding, as_nan=False)


def overflow_result(negative: bool, fmt: Format, rounding: Rounding) -> int:
    """What a finite source becomes whose rounded magnitude is beyond the greatest finite value."""
    if rounding.overflows_inward(negative):
        return compose(fmt.max_magnitude_code, negative, fmt)
    return _unbounded(negative, fmt, rounding, as_nan=rounding.overflow is Overflow.NAN)


def zero_result(negative: bool, fmt: Format, rounding: Rounding) -> int:
    """What a zero source becomes."""
    if fmt.zero:
        return fmt.sign_bit if negative and fmt.signed_zero else 0
    if rounding.out_of_domain is not OutOfDomain.NAN:
        return 0
    code = nan_result(False, fmt, rounding)
    if code is None:
        raise InputError(
            f"format {fmt.name} has neither zero nor NaN: choose an out_of_domain rule for zeros"
        )
    return code


def underflow_result(negative: bool, fmt: Format, rounding: Rounding) -> int:
    """What a nonzero source becomes that rounds to zero: zero, or the least value where there is no zero."""
    return zero_result(negative, fmt, rounding) if fmt.zero else 0


def negative_result(magnitude_result: int, fmt: Format, rounding: Rounding) -> int:
    """What a nonzero negative source becomes in an unsigned format, given what its magnitude would become."""
    if rounding.out_of_domain is OutOfDomain.MAGNITUDE:
        return magnitude_result
    if rounding.out_of_domain is OutOfDomain.CLAMP:
        return 0
    code = nan_result(False, fmt, rounding)
    if code is None:
        raise InputError(
            f"format {fmt.name} has neither sign nor NaN: choose an out_of_domain rule for negatives"
        )
    return code
