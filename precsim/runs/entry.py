"""`TensorEntry`: one tensor of a file, known by its header and read in pieces."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from precsim.errors import InputError
from precsim.kernels import Engine, Source
from precsim.number import Format, find_format
from precsim.sketches import Sketch, sketch_source

__all__ = ["CHUNK_BYTES", "DTYPES", "StoredType", "TensorEntry", "stored_type"]

CHUNK_BYTES = 1 << 24
"""How much of a tensor is in memory at a time."""


@dataclass(frozen=True)
class StoredType:
    """How the elements of a tensor are stored.

    Attributes
    ----------
    name : str
        NumPy's, ml_dtypes' or torch's name of it: float32, bfloat16, float8_e4m3fn, int64, bool, …
    storage : str
        NumPy dtype of the stored elements, little-endian: a float, an integer, or codes (unsigned).
    format : Format or None
        Format of floats.
    """

    name: str
    storage: str
    format: Format | None = None


def _stored(name: str, storage: str) -> StoredType:
    is_float = "float" in name
    return StoredType(name, storage, find_format(name) if is_float else None)


DTYPES: Mapping[str, StoredType] = {
    name: _stored(name, storage)
    for name, storage in {
        "float64": "<f8",
        "float32": "<f4",
        "float16": "<u2",
        "bfloat16": "<u2",
        "float8_e4m3fn": "|u1",
        "float8_e5m2": "|u1",
        "float8_e4m3fnuz": "|u1",
        "float8_e5m2fnuz": "|u1",
        "float8_e4m3b11fnuz": "|u1",
        "float8_e4m3": "|u1",
        "float8_e3m4": "|u1",
        "float8_e8m0fnu": "|u1",
        "float6_e3m2fn": "|u1",
        "float6_e2m3fn": "|u1",
        "float4_e2m1fn": "|u1",
        "int64": "<i8",
        "int32": "<i4",
        "int16": "<i2",
        "int8": "|i1",
        "uint64": "<u8",
        "uint32": "<u4",
        "uint16": "<u2",
        "uint8": "|u1",
        "bool": "|u1",
        "complex64": "<c8",
        "complex128": "<c16",
    }.items()
}
"""Every type that a file may hold, by its name."""

_COUNTS = frozenset(name for name in DTYPES if "int" in name or name == "bool")


def stored_type(name: str) -> StoredType:
    """Look up a type by its name, or by a format's.

    Raises
    ------
    InputError
        If there is none.
    """
    if name in DTYPES:
        return DTYPES[name]
    wanted = find_format(name)
    for known in DTYPES.values():
        if known.format == wanted:
            return known
    raise InputError(f"dtype {name!r} can't be stored in a file: known are {', '.join(DTYPES)}")


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file, not read yet.

    Attributes
    ----------
    name : str
        Its name in the file.
    path : Path
        The file.
    dtype : str
        Name of its type.
    format : Format or None
        Format of its elements; None for integers and booleans, and for what can't be analyzed (complex numbers).
    shape : tuple of int
    metadata : mapping of str to str
        The file's metadata.
    """

    name: str
    path: Path
    dtype: str
    format: Format | None
    shape: tuple[int, ...]
    metadata: Mapping[str, str] = field(repr=False)
    read: Callable[[int], Iterator[np.ndarray[Any, Any]]] = field(repr=False, compare=False)
    """Gives the stored elements in flat pieces of at most so many bytes, in C order."""
    stored: Sketch | None = field(default=None, repr=False)
    """The sketch of a tensor of which nothing else was kept."""

    def __post_init__(self) -> None:
        try:
            self.name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"{self.path}: the tensor name {self.name[:80]!r} is no Unicode text: rename it"
            ) from error

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes that the elements take in memory."""
        return self.numel * np.dtype(DTYPES[self.dtype].storage).itemsize if self.dtype in DTYPES else 0

    @property
    def is_real(self) -> bool:
        """Whether the elements stand for real numbers, not for indices, counts or flags (integers, booleans)."""
        return self.dtype not in _COUNTS

    def chunks(self, max_bytes: int = CHUNK_BYTES) -> Iterator[Source]:
        """The elements in flat, contiguous pieces of at most so many bytes, in C order.

        Yields
        ------
        Source
            float32 or float64 values, codes of narrower formats, or int64 (uint64) values.

        Raises
        ------
        InputError
            For complex numbers, or if the file turns out to be damaged.
        """
        if self.dtype.startswith("complex"):
            raise InputError(
                f"{self.path}: tensor {self.name!r} is complex: store its real and imaginary part"
            )
        if self.stored is not None and self.numel:
            raise InputError(
                f"{self.path}: of tensor {self.name!r} only the sketch was kept, not its elements"
            )
        for piece in self.read(max_bytes):
            native = piece.astype(piece.dtype.newbyteorder("="), copy=False)
            if self.format is None and native.dtype != np.uint64:
                native = native.astype(np.int64, copy=False)
            yield Source(np.ascontiguousarray(native), self.format)

    def sketch(self, engine: Engine, *, errors: bool = True) -> Sketch:
        """The sketch of the whole tensor: the stored one as it is, or from its elements.

        Raises
        ------
        InputError
            For what `chunks` refuses.
        """
        if self.stored is not None:
            return self.stored
        total = Sketch()
        for source in self.chunks():
            total = total + sketch_source(source, engine, errors=errors)
        return total

    def array(self) -> np.ndarray[Any, Any]:
        """The whole tensor in its shape: numbers, or codes of formats narrower than float32.

        Raises
        ------
        InputError
            For what `chunks` refuses, and for a shape that NumPy can't make.
        """
        pieces = [source.data for source in self.chunks()]
        try:
            return (np.concatenate(pieces) if pieces else self._nothing()).reshape(self.shape)
        except ValueError as error:
            raise InputError(
                f"{self.path}: tensor {self.name!r} has a shape beyond NumPy's: read it by chunks()"
            ) from error

    def _nothing(self) -> np.ndarray[Any, Any]:
        """No elements, of the type that chunks have."""
        stored = np.dtype(DTYPES[self.dtype].storage).newbyteorder("=")
        return np.empty(0, stored if self.format is not None or stored == np.uint64 else np.int64)

    @property
    def step(self) -> int | None:
        """Training step that the tensor is of: as the file says, or its name such as step0500; or None."""
        from precsim.runs.metadata import step, step_of_name

        said = step(self.metadata)
        return step_of_name(self.path.stem) if said is None else said

    @property
    def numel_full(self) -> int | None:
        """True number of elements of a tensor that was recorded as a sample; None if it is whole, or not said."""
        from precsim.runs.metadata import numel_full

        return numel_full(self.metadata).get(self.name)
