"""Casts of arrays and tensors: `encode`, `decode`, `quantize`."""

from precsim.cast.convert import encode, quantize
from precsim.cast.decode import decode

__all__ = ["decode", "encode", "quantize"]
