"""`Ops` and memory for NumPy arrays and for torch tensors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from precsim.kernels.array.bits import FLOAT32_LANE, Lane
from precsim.number.format import Format

__all__ = ["NumpySpace", "Space", "TorchSpace", "settle_heap", "space_of", "to_numpy", "value_table"]


@lru_cache(maxsize=64)
def value_table(fmt: Format, dtype: str) -> np.ndarray[Any, Any]:
    """The value of each code of a format of at most 16 bits, shape (2^bits,)."""
    with np.errstate(over="ignore", under="ignore"):
        table = np.array([fmt.decode(code) for code in fmt.codes()]).astype(dtype)
    table.flags.writeable = False
    return table


def settle_heap() -> None:
    """Keep a block's temporaries in the process.

    glibc hands memory that is freed at the top of its heap back to the system, to be taken again page by page, until a
    larger block has been freed once (mallopt(3), M_TRIM_THRESHOLD). That makes blockwise casts three times slower.
    """
    np.empty(1 << 23, np.uint8)


class NumpySpace:
    """NumPy arrays of one lane's integers."""

    block = 1 << 14
    """Elements at a time: a dozen 32-bit temporaries of this size stay in the second-level cache."""

    def __init__(self, lane: Lane) -> None:
        self.dtype = np.dtype(f"i{lane.bits // 8}")

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """See `Ops`. The memory of `no` is used for the result."""
        np.copyto(no, yes, where=condition)
        return no

    def maximum(self, x: Any, least: int) -> Any:
        """See `Ops`."""
        return np.maximum(x, least)

    def minimum(self, x: Any, greatest: int) -> Any:
        """See `Ops`."""
        return np.minimum(x, greatest)

    def as_integer(self, condition: Any) -> Any:
        """See `Ops`."""
        return condition.astype(self.dtype)

    def power_of_two(self, exponent: Any) -> Any:
        """See `Ops`."""
        return np.left_shift(self.dtype.type(1), exponent)

    def table(self, fmt: Format, dtype: str) -> Any:
        """Values of a format's codes."""
        return value_table(fmt, dtype)

    def take(self, table: Any, index: Any) -> Any:
        """table[index]."""
        return table.take(index)

    def convert(self, x: Any, dtype: str) -> Any:
        """x in another dtype, copied only if it has to be."""
        return x.astype(dtype, copy=False)

    def view(self, x: Any, dtype: str) -> Any:
        """The same bits as another dtype."""
        return x.view(dtype)

    def count_up(self, first: int, length: int) -> Any:
        """first, first + 1, … as int64."""
        return np.arange(first, first + length, dtype=np.int64)

    def interleave(self, words: tuple[Any, ...]) -> Any:
        """Interleave: the first of each, the second of each and so on."""
        return np.stack(words, axis=1).reshape(-1)

    def multiply(self, x: Any, factor: float) -> Any:
        """x·factor in x's type."""
        with np.errstate(all="ignore"):
            return x * x.dtype.type(factor)

    def divide(self, x: Any, divisor: float) -> Any:
        """x/divisor in x's type."""
        with np.errstate(all="ignore"):
            return x / x.dtype.type(divisor)


class TorchSpace:
    """torch tensors of one lane's integers, on any device."""

    block = 1 << 24
    """Elements at a time: enough to keep a GPU busy, few enough to keep the temporaries to a few GiB."""

    def __init__(self, lane: Lane, device: Any) -> None:
        import torch

        self.torch = torch
        self.device = device
        self.dtype = torch.int32 if lane is FLOAT32_LANE else torch.int64

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """See `Ops`."""
        return self.torch.where(condition, yes, no)

    def maximum(self, x: Any, least: int) -> Any:
        """See `Ops`."""
        return x.clamp(min=least)

    def minimum(self, x: Any, greatest: int) -> Any:
        """See `Ops`."""
        return x.clamp(max=greatest)

    def as_integer(self, condition: Any) -> Any:
        """See `Ops`."""
        return condition.to(self.dtype)

    def power_of_two(self, exponent: Any) -> Any:
        """See `Ops`."""
        return self.torch.ones_like(exponent) << exponent

    def table(self, fmt: Format, dtype: str) -> Any:
        """Values of a format's codes."""
        return self.torch.from_numpy(value_table(fmt, dtype).copy()).to(self.device)

    def take(self, table: Any, index: Any) -> Any:
        """table[index]; 16-bit codes travel as int16, so the index is taken modulo the table's length."""
        return table[index.to(self.torch.int64) & (len(table) - 1)]

    def convert(self, x: Any, dtype: str) -> Any:
        """x in another dtype; integers are cut to its width."""
        return x.to(getattr(self.torch, {"uint16": "int16", "uint32": "int32"}.get(dtype, dtype)))

    def view(self, x: Any, dtype: str) -> Any:
        """The same bits as another dtype."""
        return x.view(getattr(self.torch, dtype))

    def count_up(self, first: int, length: int) -> Any:
        """first, first + 1, … as int64."""
        return self.torch.arange(first, first + length, dtype=self.torch.int64, device=self.device)

    def interleave(self, words: tuple[Any, ...]) -> Any:
        """Interleave: the first of each, the second of each and so on."""
        return self.torch.stack(words, dim=1).reshape(-1)

    def multiply(self, x: Any, factor: float) -> Any:
        """x·factor in x's type."""
        return x * self.torch.tensor(factor, dtype=x.dtype, device=x.device)

    def divide(self, x: Any, divisor: float) -> Any:
        """x/divisor in x's type."""
        return x / self.torch.tensor(divisor, dtype=x.dtype, device=x.device)


Space = NumpySpace | TorchSpace


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    """An array or a tensor of any device as a NumPy array."""
    array: np.ndarray[Any, Any] = x if isinstance(x, np.ndarray) else x.cpu().numpy()
    return array


def space_of(data: Any, lane: Lane) -> Space:
    """The space that an array belongs to."""
    return NumpySpace(lane) if isinstance(data, np.ndarray) else TorchSpace(lane, data.device)
