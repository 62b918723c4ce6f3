"""Trainings that are killed at random moments: ``python killed.py FOLDER TIMES``; prints OK if nothing was lost.

Each child goes on in the same folder and says after every optimizer step which ones are recorded. Its gradients are
known: a linear layer's, for one input row, is that row.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - else each child would spend its short life on importing these
import torch
import torch._dynamo
from torch import nn

import precsim as ps
from precsim.runs import read_sketches
from precsim.runs.folder import read_scalars


def row(step: int) -> torch.Tensor:
    return torch.randn(1, 64, generator=torch.Generator().manual_seed(step))


def train(folder: Path, told: int) -> None:
    model = nn.Linear(64, 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    recorder = ps.record(model, optimizer, folder)
    while True:
        optimizer.zero_grad()
        model(row(recorder.step)).sum().backward()
        optimizer.step()
        os.write(told, f"{recorder.recorded[-1]}\n".encode())


def main(folder: Path, times: int) -> None:
    run, reported = folder / "run", set[int]()
    bystander = folder / "bystander.txt"
    bystander.write_text("untouched")
    randomness = random.Random(0)
    for _ in range(times):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            train(run, writing)
        os.close(writing)
        time.sleep(randomness.uniform(0.0, 0.5))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            reported |= {int(line) for line in pipe.read().split(b"\n")[:-1]}
    found = {scalars["step"] for scalars in read_scalars(run)}
    assert reported <= found, sorted(reported - found)[:5]
    assert found == set(range(len(found))), "steps are missing in between"
    for step in found:
        (grad,) = (
            r for r in read_sketches(run / "sketches" / f"step-{step:010}.rank-0.parquet") if r.kind == "grad"
        )
        assert grad.sketch == ps.sketch(row(step).expand(3, 64), errors=False), step
    assert len(ps.open_run(run).files) == len(found)
    assert {path.name for path in folder.iterdir()} == {"run", "bystander.txt"}
    assert bystander.read_text() == "untouched"
    print(f"{len(reported)} reported, {len(found)} recorded\nOK")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
