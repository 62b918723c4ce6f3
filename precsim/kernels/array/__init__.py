"""The array engine: NumPy arrays and torch tensors of any device, by integer operations written once."""

from precsim.kernels.array.engine import ArrayEngine

__all__ = ["ArrayEngine"]
