"""precsim: what low precision does to a training run, bit for bit.

Names are loaded when they are first used, so that ``import precsim`` is quick and loads nothing but NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from precsim.errors import InputError
from precsim.number import (
    NAMED_FORMATS,
    Format,
    MissingNan,
    Mode,
    NanEncoding,
    NanPolicy,
    OutOfDomain,
    Overflow,
    Rounding,
)
from precsim.number import find_format as format

if TYPE_CHECKING:
    from precsim.advice import advise
    from precsim.amp import scalers
    from precsim.cast import decode, encode, quantize
    from precsim.configuration import show_config
    from precsim.kernels import available_engines, use_engine
    from precsim.number.explain import explain
    from precsim.number.profiles import PROFILES
    from precsim.recording import record
    from precsim.runs import open_run
    from precsim.sketches import Sketch, outcomes, sketch

__version__ = "0.1.0"

FP64 = NAMED_FORMATS["fp64"]
FP32 = NAMED_FORMATS["fp32"]
TF32 = NAMED_FORMATS["tf32"]
FP16 = NAMED_FORMATS["fp16"]
BF16 = NAMED_FORMATS["bf16"]
E4M3 = NAMED_FORMATS["e4m3"]
E5M2 = NAMED_FORMATS["e5m2"]
E4M3FNUZ = NAMED_FORMATS["e4m3fnuz"]
E5M2FNUZ = NAMED_FORMATS["e5m2fnuz"]
E4M3B11FNUZ = NAMED_FORMATS["e4m3b11fnuz"]
E4M3IEEE = NAMED_FORMATS["e4m3ieee"]
E3M4 = NAMED_FORMATS["e3m4"]
E3M2 = NAMED_FORMATS["e3m2"]
E2M3 = NAMED_FORMATS["e2m3"]
E2M1 = NAMED_FORMATS["e2m1"]
E8M0 = NAMED_FORMATS["e8m0"]
INT8 = NAMED_FORMATS["int8"]
MXINT8 = NAMED_FORMATS["mxint8"]

_LAZY = {
    "PROFILES": "precsim.number.profiles",
    "Sketch": "precsim.sketches",
    "advise": "precsim.advice",
    "available_engines": "precsim.kernels",
    "decode": "precsim.cast",
    "encode": "precsim.cast",
    "explain": "precsim.number.explain",
    "open_run": "precsim.runs",
    "outcomes": "precsim.sketches",
    "quantize": "precsim.cast",
    "record": "precsim.recording",
    "scalers": "precsim.amp",
    "show_config": "precsim.configuration",
    "sketch": "precsim.sketches",
    "use_engine": "precsim.kernels",
}
"""Public names by the module that they are loaded from."""

__all__ = [
    "BF16",
    "E2M1",
    "E2M3",
    "E3M2",
    "E3M4",
    "E4M3",
    "E4M3B11FNUZ",
    "E4M3FNUZ",
    "E4M3IEEE",
    "E5M2",
    "E5M2FNUZ",
    "E8M0",
    "FP16",
    "FP32",
    "FP64",
    "INT8",
    "MXINT8",
    "NAMED_FORMATS",
    "PROFILES",
    "TF32",
    "Format",
    "InputError",
    "MissingNan",
    "Mode",
    "NanEncoding",
    "NanPolicy",
    "OutOfDomain",
    "Overflow",
    "Rounding",
    "Sketch",
    "advise",
    "available_engines",
    "decode",
    "encode",
    "explain",
    "format",
    "open_run",
    "outcomes",
    "quantize",
    "record",
    "scalers",
    "show_config",
    "sketch",
    "use_engine",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'precsim' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY))
