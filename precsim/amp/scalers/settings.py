"""Settings of scalers: read, checked and written the same way from Python and from the command line."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from precsim.errors import InputError
from precsim.number.explain import parse_real

__all__ = ["checked", "read", "require", "written"]

_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def require(condition: bool, message: str) -> None:
    """An `InputError` with the message unless the condition holds."""
    if not condition:
        raise InputError(message)


def _number(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool | str) or not math.isfinite(number):
        raise ValueError
    return number


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return operator.index(value)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError


def _number_text(text: str) -> float:
    number = parse_real(text)
    if not isinstance(number, int | Fraction):
        raise ValueError
    return float(number)


def _whole_text(text: str) -> int:
    return _whole(_number_text(text))


def _flag_text(text: str) -> bool:
    return _WORDS[text.lower()]


def _or_none(reader: Callable[[Any], Any], nothing: object) -> Callable[[Any], Any]:
    return lambda value: None if value == nothing else reader(value)


_KINDS: Mapping[str, tuple[str, Callable[[Any], Any], Callable[[str], Any]]] = {
    "float": ("a finite number", _number, _number_text),
    "float | None": ("a finite number or None", _or_none(_number, None), _or_none(_number_text, "none")),
    "int": ("a whole number", _whole, _whole_text),
    "bool": ("true or false", _flag, _flag_text),
}
"""By annotation: what a value has to be, how it is taken from Python, how it is read from text."""


def checked(field: dataclasses.Field[Any], value: object) -> Any:
    """A setting's value in its own type.

    Raises
    ------
    InputError
        If it is of another kind.
    """
    kind, take, _ = _KINDS[str(field.type)]
    try:
        return take(value)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{field.name} must be {kind}, got {value!r}") from None


def read(field: dataclasses.Field[Any], text: str) -> Any:
    """A setting's value from text.

    Raises
    ------
    InputError
        If the text is none.
    """
    kind, _, take = _KINDS[str(field.type)]
    try:
        return take(text)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise InputError(f"{field.name} must be {kind}, got {text!r}") from None


def written(value: object) -> str:
    """A setting's value as `read` takes it."""
    if isinstance(value, float):
        mantissa, exponent = math.frexp(value)
        if mantissa == 0.5 and not -10 <= exponent <= 20:
            return f"2^{exponent - 1}"
        return f"{value:.0f}" if value.is_integer() and abs(value) < 2.0**53 else repr(value)
    return str(value).lower()
