""".pt and .pth files, with tensors alone: nothing that they hold is ever executed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from precsim.errors import InputError
from precsim.runs.entry import DTYPES, TensorEntry
from precsim.runs.pieces import Reader, array_reader, refusing_reader

if TYPE_CHECKING:
    import torch

__all__ = ["read_torch"]

_MAX_DEPTH = 100


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
    content = _load(path, torch)
    entries = [_entry(path, name, tensor) for name, tensor in _tensors(content, "", 0, path)]
    if not entries:
        raise InputError(f"{path}: holds no tensors")
    return entries


def _load(path: Path, torch: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old formats; what matters is said in the error
        error: Exception | None = None
        for mapped in (True, False):
            try:
                return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
            except MemoryError as problem:
                raise InputError(f"{path}: states sizes that do not fit into memory") from problem
            except Exception as problem:  # torch raises whatever its unpickler and zip reader do
                error = error if error is not None and mapped is False and _says_unsafe(error) else problem
    assert error is not None
    if _says_unsafe(error):
        raise InputError(
            f"{path}: holds more than tensors and plain values, which could be code: refused. "
            "Save a state_dict, or use safetensors"
        ) from error
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    raise InputError(f"{path}: not a torch file, or a damaged one: {reason}") from error


def _says_unsafe(error: Exception) -> bool:
    return "weights_only" in str(error) or "Unsupported" in str(error)


def _tensors(content: Any, name: str, depth: int, path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    import torch

    if depth > _MAX_DEPTH:
        raise InputError(f"{path}: is nested more than {_MAX_DEPTH} deep")
    if isinstance(content, torch.Tensor):
        yield name or path.stem, content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from _tensors(value, f"{name}.{key}" if name else str(key), depth + 1, path)
    elif isinstance(content, list | tuple):
        for index, value in enumerate(content):
            yield from _tensors(value, f"{name}.{index}" if name else str(index), depth + 1, path)


def _entry(path: Path, name: str, tensor: torch.Tensor) -> TensorEntry:
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    reader, fmt = _reader(path, name, tensor, dtype)
    return TensorEntry(name, path, dtype, fmt, shape, {}, reader)


def _reader(path: Path, name: str, tensor: torch.Tensor, dtype: str) -> tuple[Reader, Any]:
    import torch

    kind = (
        "sparse"
        if tensor.layout is not torch.strided
        else "a quantized"
        if tensor.is_quantized
        else "without data (meta)"
        if tensor.is_meta
        else f"of dtype {dtype}"
        if dtype not in DTYPES
        else None
    )
    if kind is not None:
        message = f"{path}: tensor {name!r} is {kind}: save it as a dense tensor of floats"
        return refusing_reader(message), DTYPES[dtype].format if dtype in DTYPES else None
    stored = DTYPES[dtype]

    def load() -> np.ndarray[Any, Any]:
        plain = tensor.detach().resolve_conj().resolve_neg()
        if stored.format is not None and plain.dtype.itemsize <= 2:
            plain = plain.view(torch.uint8 if plain.dtype.itemsize == 1 else torch.int16)
        array: np.ndarray[Any, Any] = plain.numpy()
        return array.view(np.uint16) if stored.storage == "<u2" and array.dtype == np.int16 else array

    return array_reader(load), stored.format
