"""Formats and rounding rules as plain values, and the exact reference. No arrays here."""

from precsim.number.catalogue import NAMED_FORMATS, find_format
from precsim.number.format import Format, NanEncoding
from precsim.number.plan import CastPlan, plan_cast
from precsim.number.rounding import MissingNan, Mode, NanPolicy, OutOfDomain, Overflow, Rounding

__all__ = [
    "NAMED_FORMATS",
    "CastPlan",
    "Format",
    "MissingNan",
    "Mode",
    "NanEncoding",
    "NanPolicy",
    "OutOfDomain",
    "Overflow",
    "Rounding",
    "find_format",
    "plan_cast",
]
