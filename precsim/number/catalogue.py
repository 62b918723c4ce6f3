"""The named formats, each with the document that defines it, and how to find one by name or dtype."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from precsim.errors import InputError
from precsim.number.format import Format, NanEncoding

__all__ = ["NAMED_FORMATS", "find_format"]

_IEEE = "IEEE 754-2019, table 3.5"
_OFP8 = "OCP 8-bit Floating Point Specification (OFP8) 1.0, table 1"
_MX = "OCP Microscaling Formats (MX) 1.0"
_FNUZ = "Noune et al. 2022, 8-bit Numerical Formats for Deep Neural Networks (arXiv:2206.02915)"
_ML_DTYPES = "ml_dtypes README, section Specifications of implemented floating point formats"
_P3109 = "IEEE P3109 interim report, binary8 formats (signed, extended domain)"

_TOP, _FNUZ_NAN, _NO_NAN = NanEncoding.TOP_CODE, NanEncoding.NEGATIVE_ZERO, NanEncoding.NONE


def _p3109(precision: int) -> Format:
    """Precision p of 8 bits: bias 2^(7−p), one NaN at the −0 code, the infinities at the top codes."""
    return Format(
        8 - precision,
        precision - 1,
        bias=1 << (7 - precision),
        nan=_FNUZ_NAN,
        name=f"binary8p{precision}",
        source=_P3109,
    )


def _finite(exponent_bits: int, significand_bits: int, name: str, source: str) -> Format:
    return Format(exponent_bits, significand_bits, infinities=False, nan=_NO_NAN, name=name, source=source)


def _fnuz(exponent_bits: int, significand_bits: int, bias: int, name: str, source: str) -> Format:
    return Format(
        exponent_bits, significand_bits, bias, infinities=False, nan=_FNUZ_NAN, name=name, source=source
    )


def _fixed_point(unit_exponent: int, name: str, source: str) -> Format:
    """Multiples of 2^unit_exponent from −127 to 127: one exponent bit makes the first two binades one even grid."""
    return Format(
        1,
        6,
        bias=-5 - unit_exponent,
        infinities=False,
        nan=_NO_NAN,
        twos_complement=True,
        name=name,
        source=source,
    )


_FORMATS_AND_ALIASES: list[tuple[Format, tuple[str, ...]]] = [
    (Format(11, 52, name="fp64", source=_IEEE), ("float64", "double", "binary64", "f64")),
    (Format(8, 23, name="fp32", source=_IEEE), ("float32", "single", "binary32", "f32")),
    (
        Format(8, 10, name="tf32", source="NVIDIA A100 Tensor Core GPU Architecture whitepaper (2020), TF32"),
        ("tensorfloat32", "tensorfloat-32"),
    ),
    (Format(5, 10, name="fp16", source=_IEEE), ("float16", "half", "binary16", "f16")),
    (
        Format(
            8, 7, name="bf16", source="Intel, BFLOAT16 Hardware Numerics Definition 1.0 (2018), table 1-1"
        ),
        ("bfloat16",),
    ),
    (
        Format(4, 3, infinities=False, nan=_TOP, name="e4m3", source=_OFP8),
        ("float8_e4m3fn", "e4m3fn", "f8_e4m3", "f8e4m3fn"),
    ),
    (Format(5, 2, name="e5m2", source=_OFP8), ("float8_e5m2", "f8_e5m2", "f8e5m2")),
    (_fnuz(4, 3, 8, "e4m3fnuz", _FNUZ), ("float8_e4m3fnuz", "f8_e4m3fnuz", "f8e4m3fnuz")),
    (_fnuz(5, 2, 16, "e5m2fnuz", _FNUZ), ("float8_e5m2fnuz", "f8_e5m2fnuz", "f8e5m2fnuz")),
    (
        _fnuz(
            4, 3, 11, "e4m3b11fnuz", "Sun et al. 2019, Hybrid 8-bit Floating Point (NeurIPS); " + _ML_DTYPES
        ),
        ("float8_e4m3b11fnuz", "e4m3b11"),
    ),
    (Format(4, 3, name="e4m3ieee", source=_ML_DTYPES), ("float8_e4m3",)),
    (Format(3, 4, name="e3m4", source=_ML_DTYPES), ("float8_e3m4",)),
    (_finite(3, 2, "e3m2", _MX + ", table 3"), ("float6_e3m2fn", "e3m2fn", "f6_e3m2")),
    (_finite(2, 3, "e2m3", _MX + ", table 4"), ("float6_e2m3fn", "e2m3fn", "f6_e2m3")),
    (_finite(2, 1, "e2m1", _MX + ", table 5"), ("float4_e2m1fn", "e2m1fn", "f4", "f4_e2m1", "fp4")),
    (
        Format(
            8,
            0,
            bias=127,
            signed=False,
            subnormals=False,
            infinities=False,
            nan=_TOP,
            zero=False,
            name="e8m0",
            source=_MX + ", table 7",
        ),
        ("float8_e8m0fnu", "e8m0fnu", "f8_e8m0"),
    ),
    (
        Format(5, 3, signed=False, infinities=False, nan=_TOP, name="e5m3fnu", source=_ML_DTYPES),
        ("float8_e5m3fnu",),
    ),
    *((_p3109(precision), (f"p3109_k8p{precision}se",)) for precision in range(1, 8)),
    (_fixed_point(0, "int8", "8-bit integers, symmetric range; the grid's step is set with scale="), ()),
    (_fixed_point(-6, "mxint8", _MX + ", section 5.3.4"), ()),
]

NAMED_FORMATS: Mapping[str, Format] = {fmt.name: fmt for fmt, _ in _FORMATS_AND_ALIASES}
"""Every named format by its name."""

_BY_ALIAS = {
    alias.replace("-", "").replace("_", ""): fmt
    for fmt, aliases in _FORMATS_AND_ALIASES
    for alias in (fmt.name, *aliases)
}


def find_format(name: object) -> Format:
    """Look up a format by its name, an alias of it, or a dtype.

    Parameters
    ----------
    name : str, Format, numpy.dtype, type or torch.dtype
        ``"e4m3"``, ``"float8_e4m3fn"``, ``np.float16``, ``np.dtype("float16")``, ``ml_dtypes.bfloat16``,
        ``torch.float8_e5m2``, … Case, hyphens and underscores don't matter. A `Format` is returned as it is.

    Returns
    -------
    Format

    Raises
    ------
    InputError
        If there is none; the message gives the nearest names.

    Examples
    --------
    >>> import precsim as ps
    >>> ps.format("float8_e4m3fn") == ps.E4M3
    True
    """
    if isinstance(name, Format):
        return name
    text = _dtype_name(name)
    found = _BY_ALIAS.get(text.strip().lower().replace("-", "").replace("_", ""))
    if found is not None:
        return found
    known = sorted({alias for fmt, aliases in _FORMATS_AND_ALIASES for alias in (fmt.name, *aliases)})
    near = difflib.get_close_matches(text.lower(), known, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(NAMED_FORMATS)}"
    raise InputError(f"unknown format {text!r}: {hint}")


def _dtype_name(name: object) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, type):
        return name.__name__
    own_name = getattr(name, "name", None)  # numpy.dtype
    return own_name if isinstance(own_name, str) else str(name).removeprefix("torch.")
