"""Reading arrays in flat pieces: from memory, from a mapped file, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from precsim.errors import InputError

__all__ = ["Reader", "array_reader", "mapped_reader", "refusing_reader"]

Array = np.ndarray[Any, Any]
Reader = Callable[[int], Iterator[Array]]


def array_reader(load: Callable[[], Array]) -> Reader:
    """Reads the array that `load` gives, in C order."""

    def read(max_bytes: int) -> Iterator[Array]:
        array = load()
        step = max(1, max_bytes // array.dtype.itemsize)
        if array.flags.c_contiguous:
            flat = array.reshape(-1)
            for start in range(0, flat.size, step):
                yield flat[start : start + step]
            return
        contiguous: Any = ["readonly", "contig"]  # NumPy's own stubs do not know "contig"
        flags: Any = ["external_loop", "buffered", "zerosize_ok"]
        for piece in np.nditer(array, flags, [contiguous], order="C", buffersize=min(step, 1 << 20)):
            yield np.array(piece)  # a copy: the iterator fills the same buffer again

    return read


def mapped_reader(
    path: Path, name: str, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], *, fortran: bool = False
) -> Reader:
    """Reads an array that lies in a file: pages come and go, the file is never in memory as a whole."""

    def load() -> Array:
        count = math.prod(shape)
        if count == 0:  # an empty file can't be mapped
            return np.empty(0, dtype)
        try:
            flat: Array = np.memmap(path, dtype, "r", offset, count)
            return flat.reshape(shape, order="F") if fortran else flat
        except (OSError, ValueError, OverflowError) as error:
            raise InputError(f"{path}: tensor {name!r} can't be read: {error}") from error

    return array_reader(load)


def refusing_reader(message: str) -> Reader:
    """Refuses a tensor when it is asked for, so that the others of its file can be read."""

    def load() -> Array:
        raise InputError(message)

    return array_reader(load)
