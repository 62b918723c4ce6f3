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
Names = Callable[[], frozenset[str]]


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
    passes_float32 : callable
        Gives the names of the formats to which float64 and integers are cast by way of float32: two roundings.
    caveat : str
        Where the thing departs from the rule given here, exactly; empty where it is not known to.
    """

    name: str
    source: str
    rules: Rules
    passes_float32: Names = frozenset
    caveat: str = ""

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
        return NAMED_FORMATS["fp32"] if self._name_of(fmt) in self.passes_float32() else None

    @staticmethod
    def _name_of(fmt: Format) -> str:
        return next((name for name, named in NAMED_FORMATS.items() if named == fmt), fmt.name)


_OFP8_AND_FNUZ = ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")
_MX_ELEMENTS = ("e3m2", "e2m3", "e2m1")
_WIDE = ("fp32", "fp16", "bf16")
_IEEE_RULE = Rounding()


def _torch(saturates_e4m3: bool) -> Mapping[str, Rounding]:
    e4m3 = Rounding(overflow=Overflow.SATURATE if saturates_e4m3 else Overflow.INFINITY)
    e8m0 = Rounding(Mode.NEAREST_AWAY, out_of_domain=OutOfDomain.MAGNITUDE)
    plain = dict.fromkeys(("fp32", "fp16", "bf16", "e5m2", "e4m3fnuz", "e5m2fnuz"), _IEEE_RULE)
    return {**plain, "e4m3": e4m3, "e8m0": e8m0}


def _is_at_least(package: str, *release: int) -> bool:
    """Whether the installed version is of that release or later; so is one that is not installed."""
    try:
        numbers = re.findall(r"\d+", version(package))
    except PackageNotFoundError:
        return True
    return tuple(map(int, numbers[: len(release)])) >= release


def _installed_torch() -> Mapping[str, Rounding]:
    return _torch(saturates_e4m3=_is_at_least("torch", 2, 12))


def _ml_dtypes_before_0_7() -> Mapping[str, Rounding]:
    ieee = ("fp32", "fp16", "bf16", "e4m3ieee", "e3m4", "e4m3b11fnuz", *_OFP8_AND_FNUZ)
    mx = Rounding(missing_nan=MissingNan.NEGATED_ZERO)
    return {
        **dict.fromkeys(ieee, _IEEE_RULE),
        **dict.fromkeys(_MX_ELEMENTS, mx),
        "e8m0": Rounding(Mode.NEAREST_AWAY),
    }


def _ml_dtypes_since_0_7() -> Mapping[str, Rounding]:
    return {**_ml_dtypes_before_0_7(), "e5m3fnu": _IEEE_RULE}


def _installed_ml_dtypes() -> Mapping[str, Rounding]:
    return _ml_dtypes_since_0_7() if _is_at_least("ml_dtypes", 0, 7) else _ml_dtypes_before_0_7()


def _narrow_in_ml_dtypes_before_0_7() -> frozenset[str]:
    return frozenset(_ml_dtypes_before_0_7()) - {"fp32", "fp16"}


def _narrow_in_installed_ml_dtypes() -> frozenset[str]:
    return frozenset() if _is_at_least("ml_dtypes", 0, 7) else _narrow_in_ml_dtypes_before_0_7()


def _ocp_saturate() -> Mapping[str, Rounding]:
    return dict.fromkeys(("e4m3", "e5m2", *_MX_ELEMENTS, "mxint8"), Rounding(overflow=Overflow.SATURATE))


def _ptx_satfinite() -> Mapping[str, Rounding]:
    ofp8 = Rounding(overflow=Overflow.SATURATE, nan=NanPolicy.CANONICAL)
    mx = Rounding(overflow=Overflow.SATURATE, missing_nan=MissingNan.LARGEST)
    e8m0 = Rounding(Mode.UP, Overflow.SATURATE, out_of_domain=OutOfDomain.MAGNITUDE)
    return {**dict.fromkeys(("e4m3", "e5m2"), ofp8), **dict.fromkeys(_MX_ELEMENTS, mx), "e8m0": e8m0}


def _onnx_19(saturate: bool) -> Mapping[str, Rounding]:
    wide = dict.fromkeys(_WIDE, _IEEE_RULE)
    if not saturate:
        return {**wide, **dict.fromkeys(_OFP8_AND_FNUZ, _IEEE_RULE)}
    return {
        **wide,
        **dict.fromkeys(("e4m3", "e5m2"), Rounding(overflow=Overflow.SATURATE)),
        **dict.fromkeys(("e4m3fnuz", "e5m2fnuz"), Rounding(overflow=Overflow.SATURATE_FINITE)),
    }


def _onnx_24(saturate: bool) -> Mapping[str, Rounding]:
    if not saturate:
        return _onnx_19(saturate=False)
    float8 = dict.fromkeys(_OFP8_AND_FNUZ, Rounding(overflow=Overflow.SATURATE))
    e8m0 = Rounding(Mode.UP, Overflow.SATURATE, out_of_domain=OutOfDomain.CLAMP)
    return {**dict.fromkeys(_WIDE, _IEEE_RULE), **float8, "e8m0": e8m0}


_TORCH_SOURCE = "c10/util/{Half,BFloat16,Float8_*}.h"
_TORCH_CAVEAT = (
    "float8_e8m0fnu from float32 or bfloat16: magnitudes strictly between 2^-127 and 1.5·2^-127 become 2^-126, "
    "where the nearest value is 2^-127 (seen in 2.13)"
)
_OFP8 = "OCP 8-bit Floating Point Specification (OFP8) 1.0, section 5.2.1, table 2"
_ML_DTYPES = "ml_dtypes include/float8.h, ConvertImpl; include/mxfloat.h"


def _narrow_in_torch() -> frozenset[str]:
    return frozenset({"fp16", "bf16", "e8m0", *_OFP8_AND_FNUZ})


_ALL = [
    Profile(
        "torch",
        f"{_TORCH_SOURCE} of the installed version; of the newest known one where torch is not installed",
        _installed_torch,
        _narrow_in_torch,
        _TORCH_CAVEAT,
    ),
    Profile(
        "torch<2.12",
        f"{_TORCH_SOURCE} before pytorch PR 178817: float8_e4m3fn overflows to NaN",
        lambda: _torch(saturates_e4m3=False),
        _narrow_in_torch,
        _TORCH_CAVEAT,
    ),
    Profile(
        "torch>=2.12",
        f"{_TORCH_SOURCE} since pytorch PR 178817: float8_e4m3fn saturates, infinities too",
        lambda: _torch(saturates_e4m3=True),
        _narrow_in_torch,
        _TORCH_CAVEAT,
    ),
    Profile(
        "ml_dtypes",
        f"{_ML_DTYPES}, of the installed version",
        _installed_ml_dtypes,
        _narrow_in_installed_ml_dtypes,
    ),
    Profile(
        "ml_dtypes<0.7",
        f"{_ML_DTYPES}; seen in 0.5.4 and 0.6.0: float64 and integers pass through float32",
        _ml_dtypes_before_0_7,
        _narrow_in_ml_dtypes_before_0_7,
    ),
    Profile("ml_dtypes>=0.7", f"{_ML_DTYPES}; seen in 0.7.0: one rounding", _ml_dtypes_since_0_7),
    Profile(
        "numpy",
        "numpy/_core/src/npymath/halffloat.cpp",
        lambda: dict.fromkeys(("fp32", "fp16"), _IEEE_RULE),
    ),
    Profile(
        "ocp-saturate", f"{_OFP8}, saturating; OCP Microscaling Formats (MX) 1.0, section 5.3", _ocp_saturate
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
        "Micikevicius et al. 2022, FP8 Formats for Deep Learning (arXiv:2209.05433), sections 2 and 3: finite values "
        "saturate; infinities and NaNs stay what they are (NaN in E4M3), so that loss scaling can see them",
        lambda: dict.fromkeys(("e4m3", "e5m2"), Rounding(overflow=Overflow.SATURATE_FINITE)),
    ),
    Profile(
        "onnx-cast-19", "ONNX operator Cast, opset 19, saturate=1 (default)", lambda: _onnx_19(saturate=True)
    ),
    Profile(
        "onnx-cast-19-nonsaturate",
        "ONNX operator Cast, opset 19, saturate=0",
        lambda: _onnx_19(saturate=False),
    ),
    Profile(
        "onnx-cast-24",
        "ONNX operator Cast, opset 24, saturate=1 and round_mode='up' (defaults); E8M0 of negative numbers, which the "
        "operator leaves undefined, is the least value",
        lambda: _onnx_24(saturate=True),
    ),
    Profile(
        "onnx-cast-24-nonsaturate",
        "ONNX operator Cast, opset 24, saturate=0; without E8M0, whose numbers below 2^-127 would become NaN",
        lambda: _onnx_24(saturate=False),
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
