"""What precsim runs on here."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version

__all__ = ["Config", "configuration", "show_config"]

_PACKAGES = ("numpy", "ml_dtypes", "scipy", "torch", "safetensors")


@dataclass(frozen=True)
class Config:
    """Versions and engines.

    Attributes
    ----------
    precsim, python, platform : str
    engine : str
        Engine that serves arrays in CPU memory now: ``native`` or ``array``.
    engines : tuple of str
        Engines that work here.
    instruction_set : str
        What the native kernels use on this processor; ``-`` without them.
    threads : int
        Threads that a native call may use.
    flush_to_zero : bool or None
        Whether this thread flushes subnormal floats to zero. precsim's results do not depend on it; other libraries'
        do. None where it can't be told.
    packages : dict of str to str
        Versions of the packages that results may be compared with.
    """

    precsim: str
    python: str
    platform: str
    engine: str
    engines: tuple[str, ...]
    instruction_set: str
    threads: int
    flush_to_zero: bool | None
    packages: dict[str, str]

    def __str__(self) -> str:
        lines = []
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, dict):
                value = ", ".join(f"{name} {number}" for name, number in value.items())
            elif isinstance(value, tuple):
                value = ", ".join(value)
            lines.append(f"{item.name.replace('_', ' '):<16} {value}")
        return "\n".join(lines)


def configuration() -> Config:
    """Find out what precsim runs on here.

    Returns
    -------
    Config
    """
    from precsim.kernels import available_engines, engine

    engines = available_engines()
    if "native" in engines:
        from precsim.kernels import _native
        from precsim.kernels.native_engine import default_threads

        instruction_set, threads = _native.instruction_set(), default_threads()
        flush: bool | None = _native.flush_to_zero()
    else:
        instruction_set, threads, flush = "-", 1, _flushes_to_zero()
    return Config(
        precsim=_version("precsim"),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        engine=engine().name,
        engines=engines,
        instruction_set=instruction_set,
        threads=threads,
        flush_to_zero=flush,
        packages={name: _version(name) for name in _PACKAGES},
    )


def show_config() -> None:
    """Print what precsim runs on here: versions, engine, instruction set, threads, flush-to-zero state."""
    print(configuration())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _flushes_to_zero() -> bool:
    """Whether half of the least normal float64 is taken as zero."""
    least_normal = 2.0**-1022
    return least_normal * 0.5 == 0.0
