"""`quantize` on torch tensors: an operator that autograd and torch.compile know, and can't optimise away.

torch.compile deletes a rounding that is written as ``x.to(float16).to(float32)``; a custom operator is opaque to it.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from functools import lru_cache
from typing import Any

import torch

from precsim.cast.convert import given_bits, quantize_by_rule
from precsim.cast.operand import operand
from precsim.cast.overflow import overflows_by_rule
from precsim.cast.rule import CastRule, randomness, resolve_rule
from precsim.errors import InputError
from precsim.number import NAMED_FORMATS, Format, Mode, NanEncoding, Rounding

__all__ = ["quantize_tensor"]


def quantize_tensor(
    x: torch.Tensor, arguments: tuple[Any, ...], seed: int | None, zero_saturated: bool
) -> torch.Tensor:
    """`precsim.quantize` for a tensor; ``arguments`` are those of `resolve_rule`, in order."""
    fmt, rounding, overflow, profile, random_bits, scale = arguments
    rule = resolve_rule(fmt, rounding, overflow, profile=profile, random_bits=random_bits, scale=scale)
    if not x.is_floating_point():
        raise InputError(
            f"x has dtype {x.dtype}: quantize keeps the dtype, so convert it to real floats first"
        )
    bits = _bits_tensor(random_bits, x) if rule.rounding.mode is Mode.STOCHASTIC else None
    random = randomness(rule, seed, bits)
    number = 0 if random is None else random.seed
    signed = number - (1 << 64) if number >= 1 << 63 else number  # operators take signed 64-bit integers
    result: torch.Tensor = torch.ops.precsim.quantize(x, bits, signed, _to_text(rule), zero_saturated)
    return result


def _bits_tensor(random_bits: Any, x: torch.Tensor) -> torch.Tensor | None:
    if not getattr(random_bits, "shape", ()):
        return None
    return torch.as_tensor(random_bits).to(device=x.device)


def _to_text(rule: CastRule) -> str:
    """The rule as text, complete in itself: operators take no objects, and compiled graphs outlive the process.

    Plain string operations: torch.compile traces this function.
    """
    through = "" if rule.through is None else _fields_to_text(rule.through)
    scale: str = rule.scale.hex()
    return "|".join([_fields_to_text(rule.format), _fields_to_text(rule.rounding), scale, through])


def _fields_to_text(thing: Format | Rounding) -> str:
    names = _FORMAT_FIELDS if isinstance(thing, Format) else _ROUNDING_FIELDS
    values = [getattr(thing, name) for name in names]
    return ";".join([str(value.value) if isinstance(value, Enum) else str(value) for value in values])


_FORMAT_FIELDS = tuple(item.name for item in dataclasses.fields(Format) if item.compare)
_ROUNDING_FIELDS = tuple(item.name for item in dataclasses.fields(Rounding))
_WORDS = {"None": None, "True": True, "False": False}


@lru_cache(maxsize=1024)
def _from_text(text: str) -> CastRule:
    fmt, rounding, scale, through = text.split("|")
    rule = Rounding(**_fields_of_text(rounding, _ROUNDING_FIELDS))
    return CastRule(_to_format(fmt), rule, float.fromhex(scale), _to_format(through) if through else None)


def _fields_of_text(text: str, names: tuple[str, ...]) -> dict[str, Any]:
    def plain(word: str) -> Any:
        return _WORDS[word] if word in _WORDS else int(word) if word.lstrip("-").isdigit() else word

    return {name: plain(word) for name, word in zip(names, text.split(";"), strict=True)}


def _to_format(text: str) -> Format:
    values = _fields_of_text(text, _FORMAT_FIELDS)
    fmt = Format(**{**values, "nan": NanEncoding(values["nan"])})
    return next((named for named in NAMED_FORMATS.values() if named == fmt), fmt)


@torch.library.custom_op("precsim::quantize", mutates_args=())
def _quantize(
    x: torch.Tensor, random_bits: torch.Tensor | None, seed: int, rule: str, zero_saturated: bool
) -> torch.Tensor:
    source, cast_rule = operand(x), _from_text(rule)
    random = randomness(cast_rule, seed % (1 << 64), given_bits(random_bits, cast_rule, source))
    result: torch.Tensor = quantize_by_rule(source, cast_rule, random)
    return result


@_quantize.register_fake
def _(
    x: torch.Tensor, random_bits: torch.Tensor | None, seed: int, rule: str, zero_saturated: bool
) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@torch.library.custom_op("precsim::overflows", mutates_args=())
def _overflows(x: torch.Tensor, random_bits: torch.Tensor | None, seed: int, rule: str) -> torch.Tensor:
    source, cast_rule = operand(x), _from_text(rule)
    random = randomness(cast_rule, seed % (1 << 64), given_bits(random_bits, cast_rule, source))
    result: torch.Tensor = overflows_by_rule(source, cast_rule, random)
    return result


@_overflows.register_fake
def _(x: torch.Tensor, random_bits: torch.Tensor | None, seed: int, rule: str) -> torch.Tensor:
    return torch.empty(x.shape, dtype=torch.bool, device=x.device)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, random_bits, ctx.seed, ctx.rule, ctx.zero_saturated = inputs
    if ctx.zero_saturated:
        ctx.save_for_backward(x, random_bits)


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    if ctx.zero_saturated:
        x, random_bits = ctx.saved_tensors
        saturated = torch.ops.precsim.overflows(x, random_bits, ctx.seed, ctx.rule)
        gradient = torch.where(saturated, torch.zeros_like(gradient), gradient)
    return gradient, None, None, None, None


_quantize.register_autograd(_backward, setup_context=_save)
