"""Profiles: the rounding rules that software and hardware use, by name.

The same number cast by two profiles may give different codes; each profile says where its rule is written down.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from precsim.errors import InputError
from precsim.number.catalogue import NAMED_FORMATS
from precsim.number.format import Format
from precsim.number.rounding import MissingNan, Mode, NanPolicy, OutOfDomain, Overflow, Rounding

__all__ = ["PROFILES", "Profile", "find_profile"]

Rules = Callable[[], Mapping[str, Rounding]]


@dataclass(frozen=True)
class Profile:
    """A named rule of some software or hardware.

    Attributes
    ----------
    name : str
    source : str
        Where the rule is written down, or what it was observed on.
    rules : callable
        Gives the rule of each format that the thing casts to, by the format's name.
    passes_float32 : frozenset of str
        Formats to which float64 and integers are cast by way of float32: two roundings.
    """

    name: str
    source: str
    rules: Rules
    passes_float32: frozenset[str] = frozenset()

    @property
    def formats(self) -> list[Format]:
        """The formats that the thing casts to."""
        return [NAMED_FORMATS[name] for name in self.rules()]

    def rounding(self, fmt: Format, mode: Mode | None = None) -> Rounding:
        """The rule for a cast to a format.

        Parameters
        ----------
        fmt : Format
        mode : Mode, optional
            Another direction than nearest-even, the rest of the rule kept. Nearest-even itself means the profile's own
            direction, which for E8M0 may be another.

        Raises
        ------
        InputError
            If the thing has no such format.
        """
        rule = self.rules().get(self._name_of(fmt))
        if rule is None:
            known = ", ".join(self.rules())
            raise InputError(f"profile {self.name} has no cast to {fmt.name}; it casts to {known}")
        if mode is None or mode is Mode.NEAREST_EVEN:
            return rule
        return dataclasses.replace(rule, mode=mode)

    def through(self, fmt: Format) -> Format | None:
        """The format that float64 and integers are rounded to first, None where they are rounded once."""
        return NAMED_FORMATS["fp32"] if self._name_of(fmt) in self.passes_float32 else None

    @staticmethod
    def _name_of(fmt: Format) -> str:
        return next((name for name, named in NAMED_FORMATS.items() if named == fmt), fmt.name)


_OFP8_AND_FNUZ = ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")
_MX_ELEMENTS = ("e3m2", "e2m3", "e2m1")
_IEEE_RULE = Rounding()


def _torch(saturates_e4m3: bool) -> Mapping[str, Rounding]:
    e4m3 = Rounding(overflow=Overflow.SATURATE if saturates_e4m3 else Overflow.INFINITY)
    e8m0 = Rounding(Mode.NEAREST_AWAY, out_of_domain=OutOfDomain.MAGNITUDE)
    plain = dict.fromkeys(("fp32", "fp16", "bf16", "e5m2", "e4m3fnuz", "e5m2fnuz"), _IEEE_RULE)
    return {**plain, "e4m3": e4m3, "e8m0": e8m0}


def _installed_torch() -> Mapping[str, Rounding]:
    """The rule of the torch that is installed, or of the newest one where none is."""
    try:
        numbers = re.findall(r"\d+", version("torch"))
    except PackageNotFoundError:
        return _torch(saturates_e4m3=True)
    return _torch(saturates_e4m3=tuple(map(int, numbers[:2])) >= (2, 12))


def _ml_dtypes() -> Mapping[str, Rounding]:
    ieee = ("fp32", "fp16", "bf16", "e4m3ieee", "e3m4", "e4m3b11fnuz", *_OFP8_AND_FNUZ)
    mx = Rounding(missing_nan=MissingNan.NEGATED_ZERO)
    return {
        **dict.fromkeys(ieee, _IEEE_RULE),
        **dict.fromkeys(_MX_ELEMENTS, mx),
        "e8m0": Rounding(Mode.NEAREST_AWAY),
    }


def _ocp_saturate() -> Mapping[str, Rounding]:
    return dict.fromkeys(("e4m3", "e5m2", *_MX_ELEMENTS, "mxint8"), Rounding(overflow=Overflow.SATURATE))


def _ptx_satfinite() -> Mapping[str, Rounding]:
    ofp8 = Rounding(overflow=Overflow.SATURATE, nan=NanPolicy.CANONICAL)
    mx = Rounding(overflow=Overflow.SATURATE, missing_nan=MissingNan.LARGEST)
    e8m0 = Rounding(Mode.UP, Overflow.SATURATE, out_of_domain=OutOfDomain.MAGNITUDE)
    return {**dict.fromkeys(("e4m3", "e5m2"), ofp8), **dict.fromkeys(_MX_ELEMENTS, mx), "e8m0": e8m0}


def _onnx_19(saturate: bool) -> Mapping[str, Rounding]:
    if not saturate:
        return dict.fromkeys(_OFP8_AND_FNUZ, _IEEE_RULE)
    return {
        **dict.fromkeys(("e4m3", "e5m2"), Rounding(overflow=Overflow.SATURATE)),
        **dict.fromkeys(("e4m3fnuz", "e5m2fnuz"), Rounding(overflow=Overflow.SATURATE_FINITE)),
    }


def _onnx_24(saturate: bool) -> Mapping[str, Rounding]:
    if not saturate:
        return {**dict.fromkeys(_OFP8_AND_FNUZ, _IEEE_RULE), "e8m0": Rounding(Mode.NEAREST_AWAY)}
    rule = Rounding(overflow=Overflow.SATURATE)
    e8m0 = Rounding(Mode.UP, Overflow.SATURATE, out_of_domain=OutOfDomain.CLAMP)
    return {**dict.fromkeys(_OFP8_AND_FNUZ, rule), "e8m0": e8m0}


_TORCH_SOURCE = "c10/util/{Half,BFloat16,Float8_*}.h"
_TORCH_NARROW = frozenset({"fp16", "bf16", "e8m0", *_OFP8_AND_FNUZ})
_OFP8 = "OCP 8-bit Floating Point Specification (OFP8) 1.0, section 5.2.1, table 2"

_ALL = [
    Profile("torch", f"{_TORCH_SOURCE} of the installed version", _installed_torch, _TORCH_NARROW),
    Profile(
        "torch<2.12",
        f"{_TORCH_SOURCE} before pytorch PR 178817: float8_e4m3fn overflows to NaN",
        lambda: _torch(False),
        _TORCH_NARROW,
    ),
    Profile(
        "torch>=2.12",
        f"{_TORCH_SOURCE} since pytorch PR 178817: float8_e4m3fn saturates, infinities too",
        lambda: _torch(True),
        _TORCH_NARROW,
    ),
    Profile(
        "ml_dtypes",
        "ml_dtypes include/float8.h, ConvertImpl; include/mxfloat.h; 0.6 and 0.7",
        _ml_dtypes,
        frozenset(set(_ml_dtypes()) - {"fp32", "fp16"}),
    ),
    Profile(
        "numpy",
        "numpy/_core/src/npymath/halffloat.cpp",
        lambda: dict.fromkeys(("fp32", "fp16"), _IEEE_RULE),
    ),
    Profile(
        "ocp-saturate", f"{_OFP8}, saturating; {'OCP Microscaling Formats (MX) 1.0'}, 5.3", _ocp_saturate
    ),
    Profile(
        "ocp-nonsaturate", f"{_OFP8}, non-saturating", lambda: dict.fromkeys(("e4m3", "e5m2"), _IEEE_RULE)
    ),
    Profile(
        "ptx-satfinite",
        "PTX ISA 9, cvt.rn.satfinite (E8M0: cvt.rp.satfinite.ue8m0x2); cuda_fp8.hpp, cuda_fp6.hpp, cuda_fp4.hpp",
        _ptx_satfinite,
    ),
    Profile(
        "fp8-paper",
        "Micikevicius et al. 2022, FP8 Formats for Deep Learning (arXiv:2209.05433), sections 3 and 4: finite values "
        "saturate; infinities and NaNs stay what they are (NaN in E4M3), so that loss scaling can see them",
        lambda: dict.fromkeys(("e4m3", "e5m2"), Rounding(overflow=Overflow.SATURATE_FINITE)),
    ),
    Profile("onnx-cast-19", "ONNX operator Cast, opset 19, saturate=1 (default)", lambda: _onnx_19(True)),
    Profile("onnx-cast-19-nonsaturate", "ONNX operator Cast, opset 19, saturate=0", lambda: _onnx_19(False)),
    Profile(
        "onnx-cast-24",
        "ONNX operator Cast, opset 24, saturate=1 and round_mode='up' (defaults)",
        lambda: _onnx_24(True),
    ),
    Profile(
        "onnx-cast-24-nonsaturate",
        "ONNX operator Cast, opset 24, saturate=0; round_mode='nearest' for E8M0",
        lambda: _onnx_24(False),
    ),
]

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in _ALL}
"""Every profile by its name."""


def find_profile(name: str | Profile) -> Profile:
    """Look up a profile.

    Raises
    ------
    InputError
        If there is none; the message gives the nearest names.
    """
    if isinstance(name, Profile):
        return name
    text = str(name).strip().lower().replace("_", "-")
    for known, profile in PROFILES.items():
        if known.replace("_", "-") == text:
            return profile
    near = difflib.get_close_matches(text, PROFILES, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(PROFILES)}"
    raise InputError(f"unknown profile {name!r}: {hint}")
