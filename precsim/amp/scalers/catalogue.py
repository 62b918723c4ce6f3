"""Every scaler by name, and `parse_scaler`."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from precsim.amp.scalers.consecutive import Apex, Jmp, Keras, ShardedTorch, TensorFlow, Torch
from precsim.amp.scalers.hysteresis import DeepSpeed, ExponentialUpdate, Megatron, Paddle
from precsim.amp.scalers.layerwise import LayerWise
from precsim.amp.scalers.machine import Scaler
from precsim.amp.scalers.settings import read
from precsim.amp.scalers.static import Static
from precsim.amp.scalers.statistical import LogNormal
from precsim.amp.scalers.windowed import Backoff, Fairseq, Metaseq
from precsim.errors import InputError

__all__ = ["SCALERS", "parse_scaler"]

_CLASSES: tuple[type[Scaler[Any]], ...] = (
    Static,
    Torch,
    ShardedTorch,
    Apex,
    Megatron,
    DeepSpeed,
    Fairseq,
    Metaseq,
    Backoff,
    LogNormal,
    TensorFlow,
    Keras,
    ExponentialUpdate,
    Paddle,
    Jmp,
    LayerWise,
)

SCALERS: dict[str, type[Scaler[Any]]] = {scaler.name: scaler for scaler in _CLASSES}
"""Every scaler by its name."""


_EXAMPLES = {"growth_interval": "2000", "init": "2^15", "scale": "1024"}
"""Values of the settings that have no default, for messages."""


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")


_BY_NAME = {_plain(name): scaler for scaler in _CLASSES for name in (scaler.name, *scaler.other_names)}


def parse_scaler(text: str) -> Scaler[Any]:
    """Read a scaler from one line.

    Parameters
    ----------
    text : str
        A name, then settings: ``torch``, ``torch:init=65536,growth_interval=2000``, ``deepspeed:hysteresis=1``.
        Numbers may be written as powers of two (``2^16``), switches as true and false. The original's names of settings
        are understood too: ``fairseq:scale_window=256``.

    Returns
    -------
    Scaler

    Raises
    ------
    InputError
        For an unknown name, an unknown, missing or doubled setting, and a value that can't work.

    Examples
    --------
    >>> parse_scaler("torch:init=2^10,growth_interval=100")
    Torch(init=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=100, finite_check=True)
    """
    name, _, rest = text.partition(":")
    scaler = _BY_NAME.get(_plain(name))
    if scaler is None:
        raise InputError(
            f"unknown scaler {name.strip()!r}{_hint(name, list(SCALERS))}; known: {', '.join(SCALERS)}"
        )
    fields = {field.name: field for field in scaler.settings()}
    values: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        written = key.lower().replace("-", "_")
        setting = scaler.originals.get(written, written)
        if setting not in fields or not equals:
            problem = f"unknown setting {key!r}{_hint(key, list(fields))}" if equals else f"{part!r} has no ="
            raise InputError(f"scaler {scaler.name}: {problem}; settings: {', '.join(fields)}")
        if setting in values:
            raise InputError(f"scaler {scaler.name}: {setting} is given twice")
        try:
            values[setting] = read(fields[setting], value)
        except InputError as error:
            raise InputError(f"scaler {scaler.name}: {error}") from None
    return _built(scaler, values)


def _built(scaler: type[Scaler[Any]], values: dict[str, Any]) -> Scaler[Any]:
    needed = [field.name for field in scaler.settings() if field.default is dataclasses.MISSING]
    missing = [name for name in needed if name not in values]
    if missing:
        example = f"{scaler.name}:" + ",".join(f"{name}={_EXAMPLES[name]}" for name in needed)
        raise InputError(f"scaler {scaler.name} needs {' and '.join(missing)}, as in {example}")
    try:
        return scaler(**values)
    except InputError as error:
        raise InputError(f"scaler {scaler.name}: {error}") from None


def _hint(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word.strip().lower(), known, n=1, cutoff=0.5)
    return f", did you mean {near[0]!r}?" if near else ""
