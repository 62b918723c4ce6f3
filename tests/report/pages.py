"""Runs to make pages of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import safetensors.numpy

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    "{{ 7*7 }}",
    "a&b\"c'd",
)


def write_run(folder: Path, steps: int = 3, tensors: int = 6, n: int = 400) -> Path:
    """Gradients with the hostile names among them; all magnitudes, both signs, zeros."""
    rng = np.random.default_rng(0)
    names = [*HOSTILE, *(f"grad/layer{i}.weight" for i in range(tensors))]
    for step in range(steps):
        values = {}
        for i, name in enumerate(names):
            magnitudes = rng.lognormal(-12 + i % 8 - step % 5, 4, n)
            values[name] = np.float32(magnitudes * rng.choice([-1, 1, 0], n, p=[0.45, 0.45, 0.1]))
        path = folder / f"step{step:04}.safetensors"
        safetensors.numpy.save_file(values, path, metadata={"loss_scale": "1", "step": str(step)})
    return folder
