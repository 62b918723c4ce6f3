"""safetensors files by their header alone: all dtypes, memory-mapped, nothing trusted.

The format: 8 bytes little-endian header length, a JSON object, then the data, which the tensors' byte ranges cover
without holes (huggingface/safetensors, README).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from precsim.errors import InputError
from precsim.runs.entry import DTYPES, TensorEntry
from precsim.runs.pieces import mapped_reader, refusing_reader

__all__ = ["read_safetensors"]

_MAX_HEADER = 100_000_000

_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
}
_PACKED = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Types whose elements share bytes, by bits per element."""


def read_safetensors(path: Path) -> list[TensorEntry]:
    """The tensors of a file, in the order of their data.

    Raises
    ------
    InputError
        If the header is not what the format says, or does not fit the file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8 or length > _MAX_HEADER:
            _refuse(path, f"states a header of {length} bytes in a file of {size}")
        raw = file.read(length)
    header = _parse(path, raw)
    metadata = header.pop("__metadata__", {})
    if not _is_text_map(metadata):
        _refuse(path, "has a __metadata__ that is not a map of strings to strings")
    records = [_record(path, name, facts) for name, facts in header.items()]
    records.sort(key=lambda record: record[3])
    _check_cover(path, [record[3] for record in records], size - 8 - length)
    start = 8 + length
    return [
        _entry(path, name, dtype, shape, start + span[0], metadata) for name, dtype, shape, span in records
    ]


def _entry(
    path: Path, name: str, dtype: str, shape: tuple[int, ...], offset: int, metadata: Mapping[str, str]
) -> TensorEntry:
    if dtype in _PACKED:
        what = f"{path}: tensor {name!r} packs several {dtype} elements in a byte: unpack them to one code a byte"
        return TensorEntry(name, path, dtype, None, shape, metadata, refusing_reader(what))
    stored = DTYPES[_NAMES[dtype]]
    read = mapped_reader(path, name, offset, np.dtype(stored.storage), shape)
    return TensorEntry(name, path, stored.name, stored.format, shape, metadata, read)


def _refuse(path: Path, what: str) -> NoReturn:
    raise InputError(f"{path}: not a safetensors file, or a damaged one: it {what}")


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(pairs)
        if len(names) != len(pairs):
            _refuse(path, "names a tensor or field twice")
        return names

    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except InputError:
        raise
    except (ValueError, RecursionError):  # also of no UTF-8, of nesting, of an integer of thousands of digits
        _refuse(path, "has a header that is not JSON")
    if not isinstance(header, dict):
        _refuse(path, "has a header that is not a JSON object")
    result: dict[str, Any] = header
    return result


def _is_text_map(thing: object) -> bool:
    return isinstance(thing, dict) and all(isinstance(value, str) for value in thing.values())


def _record(path: Path, name: str, facts: object) -> tuple[str, str, tuple[int, ...], tuple[int, int]]:
    """Name, dtype as the file has it, shape, and byte range."""
    where = f"has a tensor {name[:80]!r}"
    if not isinstance(facts, dict) or set(facts) != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"{where} without exactly dtype, shape and data_offsets")
    dtype, shape, offsets = facts["dtype"], facts["shape"], facts["data_offsets"]
    if not isinstance(dtype, str) or (dtype not in _NAMES and dtype not in _PACKED):
        _refuse(path, f"{where} of unknown dtype" + (f" {dtype[:40]!r}" if isinstance(dtype, str) else ""))
    if not isinstance(shape, list) or not all(_is_size(extent) for extent in shape) or len(shape) > 64:
        _refuse(path, f"{where} whose shape is no list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(offset) for offset in offsets):
        _refuse(path, f"{where} whose data_offsets are no pair of sizes")
    bits = _PACKED.get(dtype) or np.dtype(DTYPES[_NAMES[dtype]].storage).itemsize * 8
    count = math.prod(shape)
    if offsets[1] - offsets[0] != (count * bits + 7) // 8 or (count * bits) % 8:
        _refuse(path, f"{where} whose bytes are not as many as its shape and dtype need")
    return name, dtype, tuple(shape), (offsets[0], offsets[1])


def _is_size(thing: object) -> bool:
    return isinstance(thing, int) and not isinstance(thing, bool) and 0 <= thing < 1 << 62


def _check_cover(path: Path, spans: list[tuple[int, int]], data_bytes: int) -> None:
    end = 0
    for first, last in spans:
        if first != end:
            _refuse(path, f"leaves a hole or an overlap at byte {min(first, end)} of its data")
        end = last
    if end != data_bytes:
        _refuse(path, f"describes {end} bytes of data and holds {data_bytes}")
