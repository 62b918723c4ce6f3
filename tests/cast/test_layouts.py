"""Any layout, byte order and container gives the bits that the plain array gives."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import precsim as ps
from precsim.number.reference import encode as reference_encode

pytestmark = pytest.mark.usefixtures("engine")

VALUES = np.float32([[0.1, -2.5, 1e-8, 70000.0], [3e-5, -0.0, 464.0, 1e30], [1.0, -1e-3, 6e-8, 2.0**-130]])
"""Twelve float32 values that meet every path of a cast."""


def expected(values: np.ndarray, fmt: ps.Format) -> np.ndarray:
    codes = [reference_encode(float(value), fmt) for value in values.reshape(-1)]
    return np.array(codes).reshape(values.shape)


def fortran(x):
    return np.asfortranarray(x)


def strided(x):
    wide = np.zeros((x.shape[0], x.shape[1] * 3), x.dtype)
    wide[:, ::3] = x
    return wide[:, ::3]


def reversed_twice(x):
    return x[::-1, ::-1].copy()[::-1, ::-1]


def swapped(x):
    return x.astype(x.dtype.newbyteorder(">"))


def read_only(x):
    copy = x.copy()
    copy.flags.writeable = False
    return copy


def unaligned(x):
    raw = np.zeros(x.nbytes + 1, np.uint8)
    view = raw[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def broadcast(x):
    return np.broadcast_to(x[:1], (3, 4))


LAYOUTS = [fortran, strided, reversed_twice, swapped, read_only, unaligned, broadcast]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("fmt", [ps.FP16, ps.E4M3, ps.TF32], ids=str)
def test_every_layout_encodes_as_its_values_do(layout, dtype, fmt):
    with np.errstate(over="ignore"):
        x = layout(VALUES.astype(dtype))
    codes = ps.encode(x, fmt)
    assert codes.shape == x.shape
    assert codes.flags.c_contiguous
    np.testing.assert_array_equal(codes, expected(np.asarray(x, np.float64), fmt))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_every_layout_quantizes_in_its_own_dtype(layout, dtype):
    if layout is swapped and dtype is ml_dtypes.bfloat16:
        pytest.skip("ml_dtypes has no byte-swapped bfloat16")
    with np.errstate(over="ignore"):
        x = layout(VALUES.astype(dtype))
    result = ps.quantize(x, ps.E5M2)
    assert result.shape == x.shape
    assert result.dtype == np.dtype(dtype)
    values = np.array([ps.E5M2.decode(code) for code in expected(np.asarray(x, np.float64), ps.E5M2).flat])
    assert result.tobytes() == values.reshape(x.shape).astype(dtype).tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1, 1)])
def test_small_shapes(shape):
    x = np.full(shape, 464.0, np.float32)
    codes = ps.encode(x, ps.E4M3)
    assert codes.shape == shape
    assert codes.dtype == np.uint8
    assert np.all(np.asarray(codes) == 0x7E)
    assert ps.decode(codes, ps.E4M3).shape == shape
    assert ps.quantize(x, ps.E4M3).shape == shape


def test_python_numbers_and_lists():
    assert ps.encode(0.1, ps.FP16) == 0x2E66
    assert ps.encode(2101, ps.FP16) == 0x681A
    assert ps.encode([1.0, 2], ps.FP16).tolist() == [0x3C00, 0x4000]
    assert ps.decode(0x7E, ps.E4M3) == 448.0
    assert ps.quantize(0.1, ps.FP16) == 0.0999755859375


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
)
def test_integers_of_every_width_round_once(dtype):
    info = np.iinfo(dtype)
    candidates = [
        0,
        1,
        3,
        17,
        19,
        127,
        2101,
        2103,
        65519,
        65520,
        (1 << 24) + 1,
        (1 << 53) + 1,
        info.max,
        info.min,
    ]
    x = np.array([value for value in candidates if info.min <= value <= info.max], dtype)
    for fmt in (ps.FP16, ps.BF16, ps.E4M3, ps.FP32):
        codes = ps.encode(x, fmt)
        assert codes.tolist() == [reference_encode(int(value), fmt) for value in x]
        swapped_codes = ps.encode(x.astype(np.dtype(dtype).newbyteorder(">")), fmt)
        assert swapped_codes.tolist() == codes.tolist()


def test_wide_integers_near_ties_do_not_pass_through_float64():
    # One above a half-way point of FP32 that float64 can't tell from the point itself.
    x = np.array([(1 << 62) + (1 << 38) + 1, (1 << 62) + (1 << 38), -((1 << 62) + (1 << 38) + 1)], np.int64)
    assert ps.encode(x, ps.FP32).tolist() == [reference_encode(int(value), ps.FP32) for value in x]
    assert ps.encode(x, ps.FP32)[0] != ps.encode(x, ps.FP32)[1]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
def test_narrow_sources_cast_from_their_values(name):
    dtype = np.dtype(getattr(ml_dtypes, name) if name != "float16" else np.float16)
    codes = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    x = codes.view(dtype)
    source = ps.format(name)
    for fmt in (ps.E5M2, ps.FP16, ps.BF16):
        got = ps.encode(x, fmt)
        # NaN bits are not compared: fmt has more than one.
        for code, result in zip(codes[::97].tolist(), got[::97].tolist(), strict=True):
            value = source.decode(code)
            want = reference_encode(value, fmt)
            assert result == want, f"{name} {code:#x} = {value} to {fmt}: {result:#x}, reference {want:#x}"


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int64,
        torch.int8,
    ],
    ids=str,
)
def test_torch_tensors_give_the_bits_of_their_numpy_twins(dtype):
    tensor = torch.from_numpy(VALUES).clamp(-100, 100).to(dtype)
    codes = ps.encode(tensor, ps.FP16)
    assert codes.dtype == torch.uint16
    twin = tensor.to(torch.float64).numpy()
    assert codes.numpy().tolist() == ps.encode(twin, ps.FP16).tolist()
    values = ps.decode(codes, ps.FP16)
    assert values.dtype == torch.float32
    assert torch.equal(values, torch.from_numpy(ps.decode(codes.numpy(), ps.FP16)))


def test_torch_views():
    tensor = torch.from_numpy(VALUES)
    twin = ps.encode(VALUES, ps.E5M2)
    assert ps.encode(tensor.t(), ps.E5M2).numpy().tolist() == twin.T.tolist()
    assert ps.encode(tensor[:, ::2], ps.E5M2).numpy().tolist() == twin[:, ::2].tolist()
    assert ps.encode(tensor.expand(2, 3, 4), ps.E5M2).numpy()[1].tolist() == twin.tolist()
    assert ps.encode(tensor.clone().requires_grad_(), ps.E5M2).numpy().tolist() == twin.tolist()
    negated = torch._neg_view(tensor)
    assert ps.encode(negated, ps.E5M2).numpy().tolist() == ps.encode(-VALUES, ps.E5M2).tolist()


def test_the_input_is_left_alone():
    x = VALUES.copy()
    for layout in LAYOUTS:
        ps.quantize(layout(x), ps.E4M3)
        ps.encode(layout(x), ps.E4M3, scale=3.0)
    assert x.tobytes() == VALUES.tobytes()


@pytest.mark.parametrize("fmt", [fmt for fmt in ps.NAMED_FORMATS.values() if fmt.bits <= 16], ids=str)
def test_decode_is_the_format_s_own_for_every_code(fmt):
    codes = np.arange(1 << fmt.bits)
    want = np.array([fmt.decode(code) for code in codes.tolist()])
    assert np.array_equal(want.astype(np.float32).astype(np.float64), want, equal_nan=True)
    for dtype in (np.uint8 if fmt.bits <= 8 else np.uint16, np.int64):
        got = ps.decode(codes.astype(dtype), fmt)
        assert got.dtype == np.float32
        number = ~np.isnan(want)
        assert got[number].tobytes() == want[number].astype(np.float32).tobytes()
        assert np.array_equal(np.isnan(got), ~number)
        assert np.array_equal(np.signbit(got[~number]), np.signbit(want[~number]))


def test_formats_beyond_float32_decode_to_float64():
    wide = ps.Format(9, 6, name="e9m6")
    x = np.array([1e60, -3e-70, 1.5, 0.0])
    codes = ps.encode(x, wide)
    values = ps.decode(codes, wide)
    assert values.dtype == np.float64
    assert values.tolist() == [wide.decode(reference_encode(v, wide)) for v in x.tolist()]
    assert ps.quantize(x, wide).tolist() == values.tolist()
    narrow = np.float32([1e38, 1e-40, 1.2345])
    want = np.float32([wide.decode(reference_encode(float(v), wide)) for v in narrow])
    assert ps.quantize(narrow, wide).tobytes() == want.tobytes()
