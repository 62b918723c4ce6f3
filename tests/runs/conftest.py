"""Files to read: one good one of each kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from handmade import safetensors_bytes


@pytest.fixture
def good_files(tmp_path: Path) -> dict[str, Path]:
    """A small valid file of each kind, by extension."""
    import torch

    x = np.float32([[1.0, -2.0, 3e-5], [0.0, 1e30, 5.0]])
    folder = tmp_path / "good"
    folder.mkdir()
    tensors = {
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [2], "data_offsets": [24, 28]},
        "__metadata__": {"step": "3", "loss_scale": "1"},
    }
    (folder / "x.safetensors").write_bytes(safetensors_bytes(tensors, x.tobytes() + b"\x80\x3f\x00\x40"))
    np.save(folder / "x.npy", x)
    np.savez(folder / "x.npz", a=x, b=x[0])
    torch.save({"a": torch.from_numpy(x), "nested": [torch.ones(2, dtype=torch.bfloat16)]}, folder / "x.pt")
    return {path.suffix: path for path in folder.iterdir()}
