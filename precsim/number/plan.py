"""`CastPlan`: a format and a rule boiled down to the integers that an array engine needs.

Engines know no policies. They compute a magnitude code, compare it with a few bounds and pick one of the codes below.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from precsim.errors import InputError
from precsim.number.format import Format
from precsim.number.rounding import Mode, OutOfDomain, Rounding
from precsim.number.specials import (
    infinity_result,
    nan_result,
    negative_result,
    overflow_result,
    underflow_result,
    zero_result,
)

__all__ = ["CastPlan", "plan_cast"]

Pair = tuple[int, int]
"""One code for positive, one for negative sources."""


@dataclass(frozen=True)
class CastPlan:
    """What an engine does to one source number x, with s its sign (0 or 1) and all integers exact.

    0. With ``ignore_sign`` s is 0 for every source.
    1. NaN → ``nan[s]``; ±inf → ``infinity[s]``; a zero → ``zero[s]``, and with ``flush_inputs`` so does a source
       subnormal.
    2. Magnitude code M: with e = ⌊log2|x|⌋, for e ≥ ``least_exponent`` M = ((e − least_exponent) << significand_bits)
       + round(|x| / 2^(e − significand_bits)); below it M = round(|x| / 2^quantum_exponent) << ``low_shift``.
       ``round`` goes by ``mode``; a code is odd where (M + ``parity_flip``) is.
    3. M < ``flush_below`` → ``underflow[s]``; M > ``max_code`` → ``overflow[s]``;
       else ((M − ``code_offset``) ^ ``negative_xor``·s) + ``negative_add``·s, in ``bits`` bits.
    4. Where ``negative_code`` is not None, any nonzero negative number (−inf too) becomes it instead.

    Attributes
    ----------
    bits : int
        Width of the result in bits; it is stored in `storage_bits`.
    storage_bits : int
        8, 16 or 32.
    significand_bits : int
        Stored significand bits m of the target, at most 23.
    least_exponent : int
        Exponent of the least normal binade, the scale's exponent taken off.
    quantum_exponent : int
        Exponent of the spacing below the least normal value.
    low_shift : int
        0 with subnormals, m without.
    mode : Mode
        Direction.
    random_bits : int
        Bits of stochastic rounding; 0 otherwise.
    """

    bits: int
    storage_bits: int
    significand_bits: int
    least_exponent: int
    quantum_exponent: int
    low_shift: int
    mode: Mode
    random_bits: int
    parity_flip: int
    flush_below: int
    max_code: int
    code_offset: int
    negative_xor: int
    negative_add: int
    nan: Pair
    infinity: Pair
    zero: Pair
    underflow: Pair
    overflow: Pair
    negative_code: int | None
    ignore_sign: bool
    flush_inputs: bool
    has_nan: bool
    """False where a NaN in the source is an error: the caller looks for NaN first."""


@lru_cache(maxsize=1024)
def plan_cast(fmt: Format, rounding: Rounding, scale_exponent: int = 0) -> CastPlan:
    """Boil down the cast of x·2^scale_exponent to `fmt` under `rounding`.

    Raises
    ------
    InputError
        If the format is wider than 32 bits or keeps more than 23 significand bits, or if its scaled range begins below
        float64's normal range.
    """
    if fmt.bits > 32 or fmt.significand_bits > 23:
        raise InputError(
            f"format {fmt.name} is too wide to be a cast's target: at most 32 bits, 23 of them stored"
        )
    offset = 0 if fmt.zero else 1 << fmt.significand_bits
    emin = fmt.least_exponent - scale_exponent
    if emin < -1022:  # float64's own subnormals would need to be normalised first
        raise InputError(
            f"format {fmt.name}: with a scale of 2^{scale_exponent} its least normal value is below float64's"
        )
    nan = nan_result(False, fmt, rounding), nan_result(True, fmt, rounding)
    takes_magnitude = fmt.signed or rounding.out_of_domain is OutOfDomain.MAGNITUDE
    return CastPlan(
        bits=fmt.bits,
        storage_bits=next(width for width in (8, 16, 32) if fmt.bits <= width),
        significand_bits=fmt.significand_bits,
        least_exponent=emin,
        quantum_exponent=emin - fmt.significand_bits if fmt.subnormals else emin,
        low_shift=0 if fmt.subnormals else fmt.significand_bits,
        mode=rounding.mode,
        random_bits=rounding.random_bits or 0,
        parity_flip=offset & 1,
        flush_below=max(1, fmt.least_normal_code if rounding.flush_results else 0),
        max_code=fmt.max_magnitude_code + offset,
        code_offset=offset,
        negative_xor=(1 << fmt.bits) - 1 if fmt.twos_complement else 0,
        negative_add=1 if fmt.twos_complement else fmt.sign_bit,
        nan=(nan[0] or 0, nan[1] or 0),
        infinity=(infinity_result(False, fmt, rounding), infinity_result(True, fmt, rounding)),
        zero=(zero_result(False, fmt, rounding), zero_result(True, fmt, rounding)),
        underflow=(underflow_result(False, fmt, rounding), underflow_result(True, fmt, rounding)),
        overflow=(overflow_result(False, fmt, rounding), overflow_result(fmt.signed, fmt, rounding)),
        negative_code=None if takes_magnitude else negative_result(0, fmt, rounding),
        ignore_sign=takes_magnitude and not fmt.signed,
        flush_inputs=rounding.flush_inputs,
        has_nan=nan[0] is not None,
    )
