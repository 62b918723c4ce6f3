"""The array engines, and which of them is in use.

`native` (C++) serves arrays in CPU memory where it could be built; `array` (bit operations on NumPy arrays and torch
tensors of any device) serves everywhere else. Both give the same bits. The environment variable ``PRECSIM_ENGINE``
(``native`` or ``array``) chooses for a whole process, `use_engine` for a block of code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from precsim.errors import InputError
from precsim.kernels.engine import (
    LIMB_BITS,
    PRECISIONS,
    BinMap,
    CountTable,
    Engine,
    GroupMap,
    MomentTable,
    Randomness,
    Source,
)

__all__ = [
    "LIMB_BITS",
    "PRECISIONS",
    "BinMap",
    "CountTable",
    "Engine",
    "GroupMap",
    "MomentTable",
    "Randomness",
    "Source",
    "available_engines",
    "engine",
    "use_engine",
]

_chosen: ContextVar[str | None] = ContextVar("precsim_engine", default=None)


@cache
def _load(name: str) -> Engine:
    if name == "native":
        from precsim.kernels.native_engine import NativeEngine

        return NativeEngine()
    from precsim.kernels.array import ArrayEngine

    return ArrayEngine()


@cache
def available_engines() -> tuple[str, ...]:
    """Names of the engines that work here, the preferred one first."""
    try:
        _load("native")
    except ImportError:
        return ("array",)
    return ("native", "array")


def _validated(name: str) -> str:
    if name not in ("native", "array"):
        raise InputError(f"unknown engine {name!r}: choose 'native' or 'array'")
    if name not in available_engines():
        raise InputError(
            "engine 'native' was not built here: install a C++17 compiler and reinstall precsim, or use 'array'"
        )
    return name


def engine(*, for_cpu_memory: bool = True) -> Engine:
    """The engine to use now.

    Parameters
    ----------
    for_cpu_memory : bool
        False for tensors on another device, which the array engine alone can serve.
    """
    if not for_cpu_memory:
        return _load("array")
    name = _chosen.get() or os.environ.get("PRECSIM_ENGINE")
    return _load(_validated(name) if name else available_engines()[0])


@contextmanager
def use_engine(name: str) -> Iterator[Engine]:
    """Use one engine for arrays in CPU memory within a block.

    Parameters
    ----------
    name : {"native", "array"}

    Raises
    ------
    InputError
        For an unknown name, or one that does not work here.
    """
    token = _chosen.set(_validated(name))
    try:
        yield _load(name)
    finally:
        _chosen.reset(token)
