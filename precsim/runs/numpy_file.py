""".npy and .npz files without pickle: headers are parsed here, data are mapped or streamed."""

from __future__ import annotations

import ast
import lzma
import math
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from precsim.errors import InputError
from precsim.runs.entry import DTYPES, TensorEntry, stored_type
from precsim.runs.pieces import Reader, mapped_reader

__all__ = ["read_npy", "read_npz"]

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 1 << 16
_MAX_WHOLE = 1 << 30
"""Bytes of a compressed array that may have to be in memory at once."""
DtypeOf = Callable[[str], str | None]
"""The dtype that the caller states for a tensor, None where he does not."""


class _Header:
    """What the header of an array says."""

    def __init__(self, descr: str, fortran: bool, shape: tuple[int, ...], length: int) -> None:
        self.descr, self.fortran, self.shape, self.length = descr, fortran, shape, length


def _refuse(where: str, what: str) -> NoReturn:
    raise InputError(f"{where}: not a NumPy array file, or a damaged one: it {what}")


def _read_header(where: str, file: IO[bytes]) -> _Header:
    start = file.read(8)
    if start[:6] != _MAGIC or len(start) < 8:
        _refuse(where, "does not start with NumPy's magic bytes")
    wide = start[6] >= 2
    if start[6] not in (1, 2, 3):
        _refuse(where, f"is of version {start[6]}.{start[7]}, known are 1 to 3")
    raw = file.read(4 if wide else 2)
    length = int.from_bytes(raw, "little")
    if length > _MAX_HEADER:
        _refuse(where, f"states a header of {length} bytes")
    text = file.read(length)
    if len(text) < length:
        _refuse(where, "ends within its header")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd syntax in what is no header anyway
            facts = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin1").strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        _refuse(where, "has a header that is no Python literal")
    if not isinstance(facts, dict) or set(facts) != {"descr", "fortran_order", "shape"}:
        _refuse(where, "has a header without exactly descr, fortran_order and shape")
    shape, descr = facts["shape"], facts["descr"]
    if (
        not isinstance(shape, tuple)
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
        or len(shape) > 64
    ):
        _refuse(where, "has a shape that is no tuple of sizes")
    if not isinstance(facts["fortran_order"], bool):
        _refuse(where, "has a fortran_order that is no truth value")
    return _Header(
        descr if isinstance(descr, str) else "structured",
        facts["fortran_order"],
        shape,
        8 + len(raw) + length,
    )


_DESCR = re.compile(r"([<>|=]?)([a-zA-Z])(\d*(?:\[.*\])?)")
_KNOWN = {"f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "b1", "c8", "c16"}
_KINDS = {"O": "Python objects", "U": "text", "S": "text", "a": "text", "M": "dates", "m": "durations"}
_LOST = {"V1": "float8_e4m3fn", "V2": "bfloat16", "f1": "float8_e5m2"}
"""What NumPy writes for ml_dtypes' types, with one that it may have been (e5m2 alone becomes f1)."""


def _resolve(where: str, name: str, descr: str, stated: str | None) -> tuple[str, np.dtype[Any]]:
    """Name of the type and dtype of the stored elements."""
    match = _DESCR.fullmatch(descr)
    order, kind, size = match.groups() if match else ("", "", "")
    code = kind + size
    if code in _KNOWN and (stated is None or kind not in "iu"):
        return _plain(where, name, code, order, stated)
    if stated is not None and (code in _KNOWN or code in _LOST):
        return _as_stated(where, name, size, order, stated)
    if code in _LOST:
        raise InputError(
            f"{where}: {name!r} lost its dtype when NumPy saved it (it says {descr!r}): state it, "
            f"for example --dtype {name}={_LOST[code]} if that is what it was"
        )
    what = _KINDS.get(kind, f"elements of type {descr[:40]!r}")
    raise InputError(f"{where}: {name!r} holds {what}: expected an array of numbers")


def _plain(where: str, name: str, code: str, order: str, stated: str | None) -> tuple[str, np.dtype[Any]]:
    """A type that NumPy knows; what is stated must agree."""
    known = np.dtype(code).name
    if stated is not None and stored_type(stated).name != known:
        raise InputError(
            f"{where}: {name!r} is {known} and was stated to be {stated}: state only types that were lost"
        )
    return known, np.dtype(DTYPES[known].storage).newbyteorder(">" if order == ">" else "<")


def _as_stated(where: str, name: str, size: str, order: str, stated: str) -> tuple[str, np.dtype[Any]]:
    """A type that NumPy lost, or whose codes were stored as integers."""
    stored = stored_type(stated)
    dtype = np.dtype(stored.storage)
    if size != str(dtype.itemsize):
        raise InputError(
            f"{where}: {name!r} stores elements of {size} bytes, and {stated} has {dtype.itemsize}: state another"
        )
    return stored.name, dtype.newbyteorder(">" if order == ">" else "<")


def _entry(
    where: Path, name: str, header: _Header, stated: str | None, read: Callable[[np.dtype[Any]], Reader]
) -> TensorEntry:
    dtype_name, dtype = _resolve(str(where), name, header.descr, stated)
    return TensorEntry(name, where, dtype_name, DTYPES[dtype_name].format, header.shape, {}, read(dtype))


def read_npy(path: Path, dtype_of: DtypeOf) -> list[TensorEntry]:
    """The one array of a file, named by the file.

    Raises
    ------
    InputError
        If it is no array of numbers, or shorter than its header says.
    """
    with path.open("rb") as file:
        header = _read_header(str(path), file)
    size = path.stat().st_size

    def read(dtype: np.dtype[Any]) -> Reader:
        needed = math.prod(header.shape) * dtype.itemsize
        if size - header.length != needed:
            _refuse(str(path), f"describes {needed} bytes of data and holds {size - header.length}")
        return mapped_reader(path, path.stem, header.length, dtype, header.shape, fortran=header.fortran)

    return [_entry(path, path.stem, header, dtype_of(path.stem), read)]


def read_npz(path: Path, dtype_of: DtypeOf) -> list[TensorEntry]:
    """The arrays of a file, streamed from it when they are read.

    Raises
    ------
    InputError
        If it is no zip file, holds anything but arrays of numbers, or is encrypted.
    """
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
                if len({info.filename for info in infos}) < len(infos):
                    raise InputError(f"{path}: not an .npz file, or a damaged one: it names a member twice")
                return [_member(path, archive, info, dtype_of) for info in infos]
        except InputError:
            raise
        except _ZIP_ERRORS as error:
            raise InputError(f"{path}: not an .npz file, or a damaged one: {_one_line(error)}") from error


_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    OverflowError,
)
"""What Python's zip reader raises for damaged, encrypted and unsupported archives."""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, dtype_of: DtypeOf) -> TensorEntry:
    if not info.filename.endswith(".npy"):
        raise InputError(f"{path}: member {info.filename[:80]!r} is no array: expected .npy members alone")
    name = info.filename.removesuffix(".npy")
    where = f"{path}: member {name!r}"
    with archive.open(info) as file:
        header = _read_header(where, file)

    def read(dtype: np.dtype[Any]) -> Reader:
        needed = math.prod(header.shape) * dtype.itemsize
        if info.file_size - header.length != needed:
            _refuse(where, f"describes {needed} bytes of data and holds {info.file_size - header.length}")
        if header.fortran and needed > _MAX_WHOLE:
            raise InputError(
                f"{where} is in Fortran order and of {needed} bytes: save it in C order, or as .npy"
            )
        return _streaming_reader(path, name, info.filename, header, dtype)

    return _entry(path, name, header, dtype_of(name), read)


def _streaming_reader(path: Path, name: str, member: str, header: _Header, dtype: np.dtype[Any]) -> Reader:
    """Reads a member piece by piece; only arrays in Fortran order are taken whole, to give them in C order."""

    def read(max_bytes: int) -> Iterator[np.ndarray[Any, Any]]:
        left = math.prod(header.shape) * dtype.itemsize
        step = left if header.fortran else max(1, max_bytes // dtype.itemsize) * dtype.itemsize
        try:
            with zipfile.ZipFile(path) as archive, archive.open(member) as file:
                file.read(header.length)
                while left:
                    data = file.read(min(step, left))
                    if not data or len(data) % dtype.itemsize:
                        _refuse(f"{path}: member {name!r}", "ends early")
                    left -= len(data)
                    piece = np.frombuffer(data, dtype)
                    yield piece.reshape(header.shape, order="F").reshape(-1) if header.fortran else piece
        except InputError:
            raise
        except _ZIP_ERRORS as error:
            raise InputError(f"{path}: member {name!r} can't be read: {_one_line(error)}") from error

    return read
