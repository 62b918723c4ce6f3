""".pt and .pth files, with tensors alone: nothing that they hold is ever executed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from precsim.errors import InputError
from precsim.runs.entry import DTYPES, StoredType, TensorEntry
from precsim.runs.pieces import Reader, array_reader, refusing_reader

if TYPE_CHECKING:
    import torch

__all__ = ["read_torch"]

_MAX_DEPTH = 100
_MAX_VALUES = 1_000_000
"""Values of a file: small files can hold lists of the same lists, which never end."""
_MAX_SHOWN = 1 << 30
"""Bytes that a view may show of a smaller storage, as expanded tensors do."""
_ZIP = b"PK\x03\x04"


def read_torch(path: Path) -> list[TensorEntry]:
    """The tensors of a file; names of nested ones are joined by dots.

    Raises
    ------
    InputError
        If torch is missing, the file is damaged or holds more than tensors and plain values, or no tensor at all.
    """
    try:
        import torch
    except ImportError as error:
        raise InputError(f"{path}: reading .pt files needs torch: pip install 'precsim[torch]'") from error
    with path.open("rb") as file:
        mapped = file.read(len(_ZIP)) == _ZIP  # older files can't be mapped
    content = _load(path, torch, mapped)
    values = enumerate(_values(content, "", 0, path))
    entries = []
    for count, (name, value) in values:
        if count >= _MAX_VALUES:
            raise InputError(f"{path}: holds more than {_MAX_VALUES} values: save its tensors alone")
        if isinstance(value, torch.Tensor):
            entries.append(_entry(path, name, value))
    if not entries:
        raise InputError(f"{path}: holds no tensors")
    return entries


def _load(path: Path, torch: Any, mapped: bool) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old formats; what matters is said in the error
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except MemoryError as error:
        raise InputError(f"{path}: states sizes that do not fit into memory") from error
    except Exception as error:  # torch raises whatever its unpickler and zip reader do
        if "weights_only" in str(error) or "Unsupported" in str(error):
            raise InputError(
                f"{path}: holds more than tensors and plain values, which could be code: refused. "
                "Save a state_dict, or use safetensors"
            ) from error
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{path}: not a torch file, or a damaged one: {reason}") from error


def _values(content: Any, name: str, depth: int, path: Path) -> Iterator[tuple[str, Any]]:
    """Everything in nested dicts and lists, containers included, by dotted names."""
    if depth > _MAX_DEPTH:
        raise InputError(f"{path}: is nested more than {_MAX_DEPTH} deep")
    yield name or path.stem, content
    if isinstance(content, Mapping):
        inner: Iterable[tuple[Any, Any]] = content.items()
    elif isinstance(content, list | tuple):
        inner = enumerate(content)
    else:
        return
    for key, value in inner:
        label = key if isinstance(key, str) else _label(key)
        yield from _values(value, f"{name}.{label}" if name else label, depth + 1, path)


def _label(key: object) -> str:
    return str(key) if isinstance(key, int) and abs(key) < 1 << 64 else type(key).__name__


def _entry(path: Path, name: str, tensor: torch.Tensor) -> TensorEntry:
    dtype = str(tensor.dtype).removeprefix("torch.")
    fault = _fault(tensor, dtype)
    shape = () if tensor.is_nested else tuple(tensor.shape)
    stored = DTYPES.get(dtype)
    if fault is None and stored is not None:
        return TensorEntry(name, path, dtype, stored.format, shape, {}, _reader(tensor, stored))
    reader = refusing_reader(f"{path}: tensor {name!r} {fault}: save it as a dense tensor of floats")
    return TensorEntry(name, path, dtype, stored.format if stored else None, shape, {}, reader)


def _fault(tensor: torch.Tensor, dtype: str) -> str | None:
    """Why the elements can't be had, None if they can."""
    import torch

    if tensor.is_nested:
        return "is nested"
    if tensor.layout is not torch.strided:
        return "is sparse"
    if tensor.is_quantized:
        return "is quantized"
    if tensor.is_meta:
        return "has no data (meta)"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"is a {type(tensor).__name__}"
    if dtype not in DTYPES:
        return f"is of dtype {dtype}"
    size, held = tensor.numel() * tensor.itemsize, tensor.untyped_storage().nbytes()
    return f"shows {size} bytes of a storage of {held}" if size > max(held, _MAX_SHOWN) else None


def _reader(tensor: torch.Tensor, stored: StoredType) -> Reader:
    import torch

    def load() -> np.ndarray[Any, Any]:
        plain = tensor.detach().resolve_neg()
        if stored.format is not None and plain.itemsize <= 2:  # NumPy gets codes
            plain = plain.view(torch.uint8 if plain.itemsize == 1 else torch.uint16)
        array: np.ndarray[Any, Any] = plain.numpy()
        return array

    return array_reader(load)
