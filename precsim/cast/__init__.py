"""Casts of arrays and tensors: `encode`, `decode`, `quantize`."""

from precsim.cast.convert import decode, encode, quantize

__all__ = ["decode", "encode", "quantize"]
