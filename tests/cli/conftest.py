"""The command line, called as `main` in this process or as a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from precsim.cli import main


@dataclass(frozen=True)
class Result:
    """What a call said and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def precsim(capsys) -> Callable[..., Result]:
    """Call the command line in this process."""

    def call(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def program() -> Callable[..., Result]:
    """Call it as a program; standard output is a pipe."""

    def call(*arguments: object, **environment: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "precsim", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **environment},
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def gradients(tmp_path: Path) -> Path:
    """Two steps of made-up gradients, with something for each line of the table."""
    folder = tmp_path / "run"
    folder.mkdir()
    rng = np.random.default_rng(7)
    for step in (1, 2):
        noise = np.float32(rng.normal(size=(40, 25)))
        tensors = {
            "grad/fc.weight": noise * np.float32(2.0**-14),
            "grad/fc.bias": np.float32([0.0, 2.0**-40, 3.0, step]),
            "act_grad/fc": noise * np.float32(2.0**-30),
            "ids": np.arange(3),
        }
        save_file(tensors, folder / f"step{step}.safetensors", {"loss_scale": "1.0", "step": str(step)})
    return folder
