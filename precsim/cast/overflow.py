"""Which elements overflow in a cast."""

from __future__ import annotations

import dataclasses
from typing import Any

from precsim.cast.convert import encode_by_plan
from precsim.cast.operand import Operand
from precsim.cast.rule import CastRule
from precsim.errors import InputError
from precsim.kernels import Randomness
from precsim.number import Format, NanEncoding

__all__ = ["overflows_by_rule"]


def overflows_by_rule(source: Operand, rule: CastRule, random: Randomness | None) -> Any:
    """Whether each element's rounded magnitude exceeds the greatest finite value, infinite sources included.

    Returns
    -------
    bool array or torch.Tensor
        In the shape of the source.
    """
    marker = _marker(rule.format)
    plan = dataclasses.replace(
        rule.plan,
        storage_bits=16 if rule.format.bits <= 8 else 32,
        overflow=(marker, marker),
        infinity=(marker, marker),
    )
    return source.finish(encode_by_plan(source, rule, plan, random) == marker)


def _marker(fmt: Format) -> int:
    """A code that no cast gives: one bit too long, or in 32 bits a NaN other than the canonical ones."""
    if fmt.bits < 32:
        return 1 << fmt.bits
    if fmt.nan is not NanEncoding.IEEE or fmt.significand_bits < 2:
        raise InputError(f"format {fmt.name} leaves no code in 32 bits to mark overflow with")
    assert fmt.nan_code is not None
    return fmt.nan_code + 1
