"""Files written by hand, right or wrong."""

from __future__ import annotations

import json
import struct


def safetensors_bytes(tensors, data=b"", *, header=None, length=None):
    """A safetensors file by hand, right or wrong."""
    text = json.dumps(tensors).encode() if header is None else header
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def npy_bytes(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """A .npy file by hand, right or wrong."""
    text = header.encode("latin1")
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data
