"""NumPy files: lost types are asked for, damaged archives refused, large arrays read in pieces."""

from __future__ import annotations

import io
import warnings
import zipfile

import ml_dtypes
import numpy as np
import pytest

import precsim as ps

HEADER = "{'descr': %s, 'fortran_order': %s, 'shape': %s}"


def npy(descr: str, shape: str, data: bytes, fortran: bool = False) -> bytes:
    text = (HEADER % (repr(descr), fortran, shape)).encode()
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + data


def npz(path, *members: tuple[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("dtype", "example"),
    [
        (ml_dtypes.bfloat16, "bfloat16"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
        (ml_dtypes.float8_e5m2, "float8_e5m2"),
        (ml_dtypes.float8_e4m3fnuz, "float8_e4m3fn"),
        (ml_dtypes.float8_e8m0fnu, "float8_e4m3fn"),
        (ml_dtypes.float4_e2m1fn, "float8_e4m3fn"),
    ],
)
def test_d54_lost_types_are_asked_for(tmp_path, dtype, example):
    # ml_dtypes#41, #148, #216: np.save writes '<V2', '<V1' and, for e5m2, '<f1', which np.load refuses.
    x = np.array([0.5, 1.0, 2.0]).astype(dtype)
    np.save(tmp_path / "g.npy", x)
    with pytest.raises(ps.InputError, match=rf"g\.npy: 'g' lost its dtype .*--dtype g={example} ") as caught:
        list(ps.open_run(tmp_path / "g.npy"))
    assert "\n" not in str(caught.value)
    (entry,) = ps.open_run(tmp_path / "g.npy", dtypes={"g": np.dtype(dtype).name})
    assert entry.format == ps.format(dtype)
    assert entry.array().tobytes() == x.tobytes()


def test_d54_codes_saved_as_integers_take_a_stated_type(tmp_path):
    # TensorLib PR#97: uint16 beside the name of the type is the way to keep bfloat16.
    x = np.array([0.5, -3.0]).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "x.npz", g=x.view(np.uint16), count=np.array([1, 2]))
    run = ps.open_run(tmp_path / "x.npz", dtypes={"g*": "bf16"})
    assert [(entry.dtype, entry.is_real) for entry in run] == [("bfloat16", True), ("int64", False)]
    assert run["g"].array().tobytes() == x.tobytes()


def test_a_known_type_can_not_be_stated_away(tmp_path):
    np.save(tmp_path / "x.npy", np.float16([1.0]))
    with pytest.raises(ps.InputError, match="'x' is float16 and was stated to be bfloat16"):
        list(ps.open_run(tmp_path / "x.npy", dtypes={"*": "bfloat16"}))
    assert ps.open_run(tmp_path / "x.npy", dtypes={"*": "fp16"})["x"].array().tolist() == [0x3C00]


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("shape", [(1500, 1501), (3, 7, 100_003)])
def test_large_arrays_in_fortran_order_come_in_c_order(tmp_path, suffix, shape):
    x = np.asfortranarray(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    path = tmp_path / f"x{suffix}"
    np.save(path, x) if suffix == ".npy" else np.savez(path, x=x)
    (entry,) = ps.open_run(path)
    assert np.array_equal(entry.array(), x)


@pytest.mark.parametrize("descr", ["<f4", ">f4"])
def test_pieces_are_as_small_as_asked(tmp_path, descr):
    x = np.arange(1000).astype(descr)
    np.save(tmp_path / "x.npy", x)
    np.savez_compressed(tmp_path / "x.npz", x=x)
    for entry in ps.open_run(tmp_path):
        pieces = [source.data for source in entry.chunks(64)]
        assert {len(piece) for piece in pieces[:-1]} == {16}
        assert np.array_equal(np.concatenate(pieces), x)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (npy("<f4", "(0xffffffffffffffffffffffffff,)", b""), "has a shape that is no tuple of sizes"),
        (npy("<f4", "(0x" + "f" * 9000 + ",)", b""), "has a shape that is no tuple of sizes"),
        (npy("<f4", "[1]", bytes(4)), "has a shape that is no tuple of sizes"),
        (npy("<f4", "(True,)", bytes(4)), "has a shape that is no tuple of sizes"),
        (npy("<f4", "(1,), 'shape': {}", bytes(4)), "has a shape that is no tuple of sizes"),
        (npy("<f4", "('\\d' is 1,)", bytes(4)), "has a header that is no Python literal"),
        (npy("<f4", "(1,), [1]: 2", bytes(4)), "has a header that is no Python literal"),
        (npy("<f4", "(1,), 'more': 2", bytes(4)), "without exactly descr, fortran_order and shape"),
        (npy("<f4[3]", "(1,)", bytes(4)), r"'x' holds elements of type '<f4\[3\]'"),
        (npy("<f16", "(1,)", bytes(16)), "'x' holds elements of type '<f16'"),
        (npy("<V3", "(1,)", bytes(3)), "'x' holds elements of type '<V3'"),
        (npy("<M8[ns]", "(1,)", bytes(8)), "'x' holds dates"),
        (npy("<U3", "(1,)", bytes(12)), "'x' holds text"),
        (npy("|O", "(1,)", b"."), "'x' holds Python objects"),
    ],
)
def test_headers_that_lie(tmp_path, content, what):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ps.InputError, match=rf"x\.npy: .*{what}") as caught:
        list(ps.open_run(tmp_path / "x.npy"))
    assert len(str(caught.value)) < 250 + len(str(tmp_path))


def test_odd_syntax_in_a_header_is_no_warning(tmp_path):
    (tmp_path / "x.npy").write_bytes(npy("<f4", "('\\d',)", bytes(4)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(ps.InputError, match="has a shape that is no tuple of sizes"):
            list(ps.open_run(tmp_path / "x.npy"))
    assert said == []


@pytest.mark.parametrize("dtype", ["f4", "f2", "i2", "u8"])
def test_empty_arrays_have_the_type_of_full_ones(tmp_path, dtype):
    np.savez(tmp_path / "x.npz", full=np.ones(2, dtype), empty=np.ones((0, 2), dtype))
    full, empty = (entry.array() for entry in ps.open_run(tmp_path / "x.npz"))
    assert (full.dtype, full.shape, empty.shape) == (empty.dtype, (2,), (0, 2))


def test_a_shape_that_numpy_can_not_make_is_read_by_pieces(tmp_path):
    (tmp_path / "x.npy").write_bytes(npy("<f4", f"(0, {1 << 61}, {1 << 61})", b""))
    (entry,) = ps.open_run(tmp_path / "x.npy")
    assert list(entry.chunks()) == []
    with pytest.raises(ps.InputError, match="tensor 'x' has a shape beyond NumPy's"):
        entry.array()


def test_a_member_that_is_named_twice_is_refused(tmp_path):
    # The reader looks at one header and would read the other's data.
    with pytest.warns(UserWarning, match="Duplicate name"):
        npz(
            tmp_path / "x.npz",
            ("a.npy", npy("<f4", "(1,)", bytes(4))),
            ("a.npy", npy("<f8", "(1,)", bytes(8))),
        )
    with pytest.raises(ps.InputError, match=r"x\.npz: .*names a member twice"):
        list(ps.open_run(tmp_path / "x.npz"))


def test_a_bomb_is_read_piece_by_piece_or_refused(tmp_path):
    # 2 GiB of zeros would be 2 MB in the file; here the directory of the archive says so and the data don't.
    size = 1 << 31
    for order in (False, True):
        head = npy("<f4", f"({size // 8}, 2)", b"", order)
        npz(tmp_path / "x.npz", ("a.npy", head + bytes(1 << 22)))
        data = (tmp_path / "x.npz").read_bytes()
        lie = (len(head) + size).to_bytes(4, "little")
        (tmp_path / "x.npz").write_bytes(data.replace((len(head) + (1 << 22)).to_bytes(4, "little"), lie))
        with pytest.raises(ps.InputError, match="Fortran order and of 2147483648" if order else "ends early"):
            largest_piece(tmp_path / "x.npz")


def largest_piece(path) -> int:
    return max(source.data.nbytes for entry in ps.open_run(path) for source in entry.chunks())


def test_every_compression_that_zip_files_know(tmp_path):
    x = np.arange(300, dtype=np.float32)
    file = io.BytesIO()
    np.save(file, x)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as archive:
            archive.writestr("a.npy", file.getvalue())
        (entry,) = ps.open_run(tmp_path / "x.npz")
        assert np.array_equal(entry.array(), x)
        data = bytearray((tmp_path / "x.npz").read_bytes())
        data[len(data) // 2] ^= 0x10
        (tmp_path / "x.npz").write_bytes(data)
        with pytest.raises(ps.InputError, match=r"x\.npz"):
            entry.array()
