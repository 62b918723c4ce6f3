"""Files written by hand, right or wrong, and how tests read them."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import precsim as ps


def safetensors_bytes(tensors, data=b"", *, header=None, length=None):
    """A safetensors file by hand, right or wrong."""
    text = json.dumps(tensors).encode() if header is None else header
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def npy_bytes(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """A .npy file by hand, right or wrong."""
    text = header.encode("latin1")
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


class Malicious:
    """Unpickling this would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def read_all(path: Path) -> int:
    """Read everything that the file offers; how many bytes that was."""
    return sum(source.data.nbytes for entry in ps.open_run(path) for source in entry.chunks())
