"""Sketches of what a training step holds: dense, sparse, complex and narrow tensors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from precsim.sketches import Sketch, sketch

if TYPE_CHECKING:
    import torch

__all__ = ["local_tensor", "sketch_tensor", "stored_dtype", "unscaled"]


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a sharded tensor that this process holds; any other tensor itself."""
    local = getattr(tensor, "to_local", None)
    found: torch.Tensor = tensor if local is None else local()
    return found.detach()


def sketch_tensor(tensor: torch.Tensor, *, errors: bool) -> Sketch:
    """The sketch of a tensor, zeros of a sparse one among its numbers; complex ones as their two parts."""
    import torch

    dense = local_tensor(tensor)
    missing = 0
    if dense.layout != torch.strided:
        size = dense.numel()
        dense = dense.coalesce().values() if dense.is_sparse else dense.values()
        missing = size - dense.numel()
    if dense.is_complex():
        dense = torch.view_as_real(dense)
        missing *= 2
    found = sketch(dense, errors=errors)
    return replace(found, zeros=found.zeros + missing) if missing else found


def stored_dtype(tensor: torch.Tensor) -> str:
    """The name of a tensor's type, of its parts where it is complex."""
    name = str(tensor.dtype).removeprefix("torch.")
    return {"complex64": "float32", "complex128": "float64", "complex32": "float16"}.get(name, name)


def unscaled(found: Sketch, loss_scale: float | None) -> tuple[Sketch, float | None]:
    """The sketch of numbers divided by a loss scale, and the scale that they still carry.

    Powers of two divide exactly; by others nothing is divided. An unknown scale stays unknown.
    """
    if loss_scale is None:
        return found, None
    if loss_scale <= 0 or math.frexp(loss_scale)[0] != 0.5:
        return found, loss_scale
    return found.scaled(1 - math.frexp(loss_scale)[1]), 1.0
