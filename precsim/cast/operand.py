"""`Operand`: any array or tensor taken apart into flat, contiguous chunks that an engine can read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from precsim.errors import InputError
from precsim.kernels import Engine, Source, engine
from precsim.number import NAMED_FORMATS, Format, find_format

if TYPE_CHECKING:
    import torch

__all__ = ["Operand", "as_signed", "is_tensor", "operand"]

_FP32, _FP64 = NAMED_FORMATS["fp32"], NAMED_FORMATS["fp64"]
_CHUNK_ELEMENTS = 1 << 16
"""Elements per chunk of an array that is not flat already: a chunk stays in the second-level cache."""


@dataclass(frozen=True)
class Operand:
    """An array-like in C order.

    Attributes
    ----------
    array : numpy.ndarray or torch.Tensor
        The data, uncopied: float32, float64, integers, or the codes of a narrower format as uint8 or uint16. A tensor
        only where it lies on another device than the CPU.
    format : Format or None
        Of the elements; None for integers.
    shape : tuple of int
    dtype : object
        The dtype that the caller gave: numpy.dtype or torch.dtype.
    tensor : torch.Tensor or None
        What the caller gave, if it was a tensor: results become tensors too.
    """

    array: Any
    format: Format | None
    shape: tuple[int, ...]
    dtype: Any
    tensor: Any

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def native_dtype(self) -> Any:
        """The dtype that the caller gave, in native byte order."""
        return self.dtype.newbyteorder("=") if isinstance(self.dtype, np.dtype) else self.dtype

    @property
    def in_cpu_memory(self) -> bool:
        """Whether the data are a NumPy array."""
        return isinstance(self.array, np.ndarray)

    @property
    def engine(self) -> Engine:
        """The engine that serves this memory."""
        return engine(for_cpu_memory=self.in_cpu_memory)

    @property
    def is_wide(self) -> bool:
        """Whether it is computed in float64: float64 and integers."""
        return self.format is None or self.format == _FP64

    def chunks(self) -> Iterator[tuple[Source, int]]:
        """Flat chunks in C order, each with the index of its first element. A chunk is valid until the next one."""
        if not self.in_cpu_memory:
            if self.size:
                yield Source(self.array.reshape(-1), self.format), 0
            return
        first = 0
        for data in _flat_chunks(self.array, self._working_dtype()):
            yield Source(data, self.format), first
            first += data.size

    def _working_dtype(self) -> np.dtype[Any]:
        native: np.dtype[Any] = self.array.dtype.newbyteorder("=")
        if self.format is not None or native == np.uint64:
            return native
        return np.dtype(np.int64)

    def empty(self, dtype: str) -> tuple[Any, Any]:
        """An uninitialised result of this shape and its flat view.

        Parameters
        ----------
        dtype : str
            NumPy name of the dtype; on another device unsigned 16- and 32-bit codes are signed.
        """
        if self.in_cpu_memory:
            result = np.empty(self.shape, dtype)
            return result, result.reshape(-1)
        import torch

        named = getattr(torch, {"uint16": "int16", "uint32": "int32"}.get(dtype, dtype))
        tensor = torch.empty(self.shape, dtype=named, device=self.array.device)
        return tensor, tensor.reshape(-1)

    def finish(self, result: Any, dtype: Any = None) -> Any:
        """Hand a result back as the kind of thing that the caller gave.

        Parameters
        ----------
        result : array from `empty`
        dtype : numpy.dtype or torch.dtype, optional
            Dtype of the same width to view it as.
        """
        if self.tensor is None:
            viewed = result if dtype is None else result.view(dtype)
            return viewed[()]  # a scalar for 0-d, as NumPy's own functions give
        import torch

        tensor = torch.from_numpy(result) if isinstance(result, np.ndarray) else result
        unsigned = {torch.int16: torch.uint16, torch.int32: torch.uint32}.get(tensor.dtype)
        dtype = dtype if dtype is not None else unsigned
        return tensor if dtype is None else tensor.view(dtype)


def _flat_chunks(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> Iterator[np.ndarray[Any, Any]]:
    if array.flags.c_contiguous and array.dtype == dtype:
        if array.size:
            yield array.reshape(-1)
        return
    contiguous: Any = ["readonly", "contig", "aligned"]  # NumPy's own stubs do not know "contig"
    iterator = np.nditer(
        array,
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_flags=[contiguous],
        op_dtypes=[dtype],
        order="C",
        casting="safe",
        buffersize=_CHUNK_ELEMENTS,
    )
    with iterator:
        for chunk in iterator:
            values = np.asarray(chunk)
            if values.size:
                yield values


def as_signed(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory with 16- and 32-bit codes as signed integers: torch has no unsigned arithmetic on devices."""
    import torch

    signed = {torch.uint16: torch.int16, torch.uint32: torch.int32}.get(tensor.dtype)
    return tensor if signed is None else tensor.view(signed)


def is_tensor(x: object) -> bool:
    """Whether x is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def operand(x: Any, *, what: str = "x") -> Operand:
    """Take an array-like apart.

    Parameters
    ----------
    x : array_like or torch.Tensor
        Floats of any width up to 64 bits (ml_dtypes included) or integers.
    what : str
        Its name in error messages.

    Raises
    ------
    InputError
        For complex, boolean, string, object and other dtypes, and for tensors without plain memory.
    """
    if is_tensor(x):
        return _tensor_operand(x, what)
    array = np.asarray(x)
    viewed, fmt = _with_format(array, what)
    return Operand(viewed, fmt, array.shape, array.dtype, None)


def _with_format(array: np.ndarray[Any, Any], what: str) -> tuple[np.ndarray[Any, Any], Format | None]:
    """The array as numbers or codes that engines read, and the format of its elements."""
    dtype = array.dtype
    if dtype.newbyteorder("=") == np.float32:
        return array, _FP32
    if dtype.newbyteorder("=") == np.float64:
        return array, _FP64
    if dtype.kind in "iu":
        return array, None
    if dtype.newbyteorder("=") == np.float16 or _is_ml_dtypes(dtype):
        code = np.dtype(f"u{dtype.itemsize}").newbyteorder(dtype.byteorder)
        return array.view(code), find_format(dtype)
    raise InputError(f"{what} has dtype {dtype}: expected real floats of at most 64 bits or integers")


def _is_ml_dtypes(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "Vf" and dtype.type.__module__.startswith("ml_dtypes") and "float" in dtype.name


def _tensor_operand(tensor: torch.Tensor, what: str) -> Operand:
    import torch

    plain = tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type != "meta"
    if not plain:
        kind = "quantized" if tensor.is_quantized else f"{tensor.layout} on {tensor.device.type}"
        raise InputError(f"{what} is a {kind} tensor: expected a dense tensor with data")
    detached = tensor.detach().resolve_neg()
    dtype = detached.dtype
    if dtype.is_floating_point and dtype.itemsize <= 2:
        fmt: Format | None = find_format(dtype)
        codes = torch.uint8 if dtype.itemsize == 1 else torch.int16
        detached = detached.view(codes)
    elif dtype in (torch.float32, torch.float64):
        fmt = _FP32 if dtype == torch.float32 else _FP64
    elif not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool:
        fmt = None
    else:
        raise InputError(f"{what} has dtype {dtype}: expected real floats of at most 64 bits or integers")
    if detached.device.type != "cpu":
        return Operand(_on_device(detached, fmt), fmt, tuple(tensor.shape), dtype, tensor)
    array = detached.numpy()
    if fmt is not None and array.dtype == np.int16:
        array = array.view(np.uint16)
    return Operand(array, fmt, tuple(tensor.shape), dtype, tensor)


def _on_device(tensor: torch.Tensor, fmt: Format | None) -> torch.Tensor:
    import torch

    if fmt is None:
        if tensor.dtype == torch.uint64:
            raise InputError(
                "uint64 tensors are supported on the CPU only: move it there, or convert it to int64"
            )
        tensor = tensor.to(torch.int64)
    return tensor.contiguous()
