""".pt and .pth files, with tensors alone: nothing that they hold is ever executed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
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
_MAX_SHOWN = 1 << 30
"""Bytes that a view may show of a smaller storage, as expanded tensors do."""
_SIGNS_OF_CODE = ("GLOBAL", "TorchScript", "allowlisted", "Trying to")
"""What torch says of a file that asks for functions or classes."""
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
    entries = [_entry(path, name, tensor) for name, tensor in _Tensors(path).within(content)]
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
        if any(sign in str(error) for sign in _SIGNS_OF_CODE):
            raise InputError(
                f"{path}: holds more than tensors and plain values, which could be code: refused. "
                "Save a state_dict, or use safetensors"
            ) from error
        raise InputError(f"{path}: not a torch file, or a damaged one: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first sentence of what torch says, without its advice on how to read files that it refuses."""
    text = str(error)
    sentence = (text.partition("WeightsUnpickler error:")[2] or text).strip().partition("\n")[0]
    return sentence.partition(". ")[0][:120] or type(error).__name__


class _Tensors:
    """The tensors in nested dicts and lists, by dotted names.

    Each dict and list is looked into once: small files can hold lists of the same lists, in numbers that never end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: set[int] = set()

    def within(self, content: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
        import torch

        if isinstance(content, torch.Tensor):
            yield name or self.path.stem, content
        if not isinstance(content, Mapping | list | tuple) or id(content) in self.seen:
            return
        if depth > _MAX_DEPTH:
            raise InputError(f"{self.path}: is nested more than {_MAX_DEPTH} deep: save its tensors alone")
        self.seen.add(id(content))
        for key, value in content.items() if isinstance(content, Mapping) else enumerate(content):
            label = key if isinstance(key, str) else _label(key)
            yield from self.within(value, f"{name}.{label}" if name else label, depth + 1)


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
