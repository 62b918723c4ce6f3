"""What `encode`, `decode` and `quantize` refuse, each in one line, and how their arguments work together."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import precsim as ps

pytestmark = pytest.mark.usefixtures("engine")


@pytest.mark.parametrize(
    ("x", "what"),
    [
        (np.array([1j]), "complex128"),
        (np.array([True]), "bool"),
        (np.array(["1"]), "<U1"),
        (np.array([None]), "object"),
        (np.array([1], dtype="M8[s]"), "datetime64"),
        (np.longdouble([1]), "float128|longdouble"),
        (np.zeros(1, dtype="V2"), r"\|V2"),
        (torch.tensor([1j]), "complex64"),
        (torch.tensor([True]), "bool"),
        (torch.zeros(2, 2).to_sparse(), "sparse"),
        (torch.empty(2, device="meta"), "meta"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_no_real_numbers(x, what):
    with pytest.raises(ps.InputError, match=what) as caught:
        ps.encode(x, ps.FP16)
    assert "\n" not in str(caught.value)


def test_nan_needs_a_nan():
    x = np.float32([[1.0, 2.0], [np.nan, 0.0]])
    with pytest.raises(ps.InputError, match=r"x\[1, 0\] is NaN and e2m1 has no NaN"):
        ps.encode(x, ps.E2M1)
    with pytest.raises(ps.InputError, match=r"x\[1, 0\] is NaN"):
        ps.quantize(torch.from_numpy(x), ps.E2M1)
    with pytest.raises(ps.InputError, match=r"x\[1, 0\] is NaN"):
        ps.encode(x.astype(ml_dtypes.bfloat16), ps.E2M1)
    assert ps.encode(x, ps.E2M1, ps.Rounding(missing_nan="largest"))[1, 0] == 7


def test_unknown_names_give_the_nearest():
    with pytest.raises(ps.InputError, match="unknown format 'e4m4': did you mean .*e4m3"):
        ps.encode(1.0, "e4m4")
    with pytest.raises(ps.InputError, match="Mode 'nearest-evn' is unknown; did you mean 'nearest-even'"):
        ps.encode(1.0, ps.FP16, "nearest-evn")
    with pytest.raises(ps.InputError, match="Overflow 'clamp' is unknown"):
        ps.encode(1.0, ps.FP16, overflow="clamp")
    with pytest.raises(ps.InputError, match="torch"):
        ps.encode(1.0, ps.FP16, profile="toch")


def test_a_rule_is_stated_once():
    with pytest.raises(ps.InputError, match="give one of them"):
        ps.encode(1.0, ps.FP16, ps.Rounding(), profile="torch")
    assert ps.encode(1e6, ps.E4M3, ps.Rounding(overflow="nan"), "saturate") == 0x7E
    assert ps.encode(1e6, ps.E4M3, "toward-zero", profile="ocp-nonsaturate") == 0x7E
    assert ps.encode(1e6, ps.E4M3, profile="ocp-nonsaturate") == 0x7F


def test_formats_wider_than_32_bits_are_no_targets():
    with pytest.raises(ps.InputError, match="fp64 is too wide"):
        ps.encode(1.0, ps.FP64)
    with pytest.raises(ps.InputError, match="fp64 is too wide"):
        ps.decode(np.uint8([1]), ps.FP64)


def test_ranges_below_float64_s_are_refused():
    wide = ps.Format(11, 4, name="wide")
    assert ps.encode(np.array([0.0, 1.0]), wide).tolist() == [0, 1023 << 4]
    with pytest.raises(
        ps.InputError, match="format wide: with a scale of 2\\^1 its least normal value is below"
    ):
        ps.encode(np.array([0.0]), wide, scale=2.0)


def test_formats_that_have_nothing_to_stand_for_nan_or_zero():
    bare = ps.Format(
        3, 3, zero=False, subnormals=False, infinities=False, nan=ps.NanEncoding.NONE, name="bare"
    )
    with pytest.raises(ps.InputError, match="bare has neither zero nor NaN"):
        ps.encode(np.float32([1.0]), bare)
    clamped = ps.Rounding(missing_nan="negated-zero", out_of_domain="clamp")
    assert ps.encode(np.float32([0.0, 1.0]), bare, clamped).tolist() == [0, 3 << 3]
    with pytest.raises(ps.InputError, match="has no NaN"):
        ps.encode(np.float32([np.nan]), bare, clamped)
    with pytest.raises(ps.InputError, match="signed format with zero"):
        ps.Format(
            2,
            3,
            zero=False,
            subnormals=False,
            infinities=False,
            nan=ps.NanEncoding.NONE,
            twos_complement=True,
        )


def test_codes_are_checked():
    with pytest.raises(ps.InputError, match=r"codes of e2m1 lie in 0 … 15, got 3 … 16"):
        ps.decode(np.uint8([3, 16]), ps.E2M1)
    with pytest.raises(ps.InputError, match=r"codes of fp16 lie in 0 … 65535, got -1 … 0"):
        ps.decode([-1, 0], ps.FP16)
    with pytest.raises(ps.InputError, match="codes must be integers, got float32"):
        ps.decode(np.float32([1.0]), ps.FP16)


def test_quantize_keeps_the_dtype_so_it_takes_no_integers():
    with pytest.raises(ps.InputError, match="convert integers to floats"):
        ps.quantize(np.array([1]), ps.FP16)
    with pytest.raises(ps.InputError, match="convert it to real floats"):
        ps.quantize(torch.tensor([1]), ps.FP16)


def test_unsigned_formats_without_zero():
    x = np.float32([0.0, -0.0, -1.0, -np.inf, np.inf, np.nan, 3.0, 2.0**-130])
    assert ps.encode(x, ps.E8M0).tolist() == [255, 255, 255, 255, 255, 255, 128, 0]
    magnitude = ps.Rounding("nearest-away", out_of_domain="magnitude")
    assert ps.encode(x, ps.E8M0, magnitude).tolist() == [0, 0, 127, 255, 255, 255, 129, 0]
    clamp = ps.Rounding("up", "saturate", out_of_domain="clamp")
    assert ps.encode(x, ps.E8M0, clamp).tolist() == [0, 0, 0, 0, 254, 255, 129, 0]


def test_out_receives_the_codes():
    x = np.float32([[0.1, -3.0], [1e6, 0.0]])
    out = np.zeros((2, 2), np.uint16)
    assert ps.encode(x, ps.FP16, out=out) is out
    assert out.tolist() == ps.encode(x, ps.FP16).tolist()
    assert ps.encode(x.T, ps.FP16, out=out).tolist() == ps.encode(x, ps.FP16).T.tolist()
    tensor = torch.zeros(2, 2, dtype=torch.uint16)
    assert ps.encode(torch.from_numpy(x), ps.FP16, out=tensor) is tensor
    assert tensor.numpy().tolist() == ps.encode(x, ps.FP16).tolist()


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((2, 2), np.uint8),
        np.zeros(4, np.uint16),
        np.zeros((2, 4), np.uint16)[:, ::2],
        torch.zeros(2, 2, dtype=torch.uint16),
        [0],
    ],
    ids=["dtype", "shape", "strided", "tensor", "list"],
)
def test_out_must_fit(out):
    with pytest.raises(ps.InputError, match="out must be"):
        ps.encode(np.zeros((2, 2), np.float32), ps.FP16, out=out)
