"""Nothing recorded is lost: kills, full disks, and odd tensors."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import precsim as ps
from precsim.runs.folder import read_scalars


def kill(folder: Path, times: int) -> None:
    program = Path(__file__).with_name("killed.py")
    done = subprocess.run(
        [sys.executable, str(program), str(folder), str(times)], capture_output=True, text=True, timeout=500
    )
    assert done.stdout.endswith("OK\n"), done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 0, "no child came to record a step: the test shows nothing"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kills_at_random_moments(tmp_path):
    kill(tmp_path, 12)


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_hundred_kills_at_random_moments(tmp_path):
    kill(tmp_path, 100)


def train(
    recorder: ps.recording.Recorder, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int
) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).square().mean().backward()
        optimizer.step()


def test_a_full_disk_stops_the_record_and_not_the_training(tmp_path, monkeypatch):
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = ps.record(model, optimizer, tmp_path / "run")
    train(recorder, model, optimizer, 2)
    plain, writes = os.replace, []

    def full(*args: object) -> None:
        writes.append(args)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(
        UserWarning, match="No space left on device; nothing is recorded from step 2 on"
    ) as said:
        train(recorder, model, optimizer, 3)
    assert len(said) == 1
    assert len(writes) == 1, "it tried again"
    monkeypatch.setattr(os, "replace", plain)
    recorder.close()
    assert recorder.step == 5
    assert recorder.recorded == [0, 1]
    assert [row["step"] for row in read_scalars(tmp_path / "run")] == [0, 1]
    assert '"incomplete_from": 2' in (tmp_path / "run" / "status.rank-0.json").read_text()
    assert list((tmp_path / "run").rglob(".*.part")) == []


def test_a_full_file_system(tmp_path):
    """A real one of 256 kB, where one can be mounted."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small file system can't be mounted here")
    try:
        model = nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            recorder = ps.record(model, optimizer, small / "run")
            train(recorder, model, optimizer, 60)
            recorder.close()
        assert len([w for w in said if "No space left" in str(w.message)]) == 1
        assert recorder.step == 60
        end = recorder.incomplete_from
        assert end is not None
        assert 0 < end < 60
        assert [row["step"] for row in read_scalars(small / "run")] == list(range(end))
        assert f'"incomplete_from": {end}' in (small / "run" / "status.rank-0.json").read_text()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_d25_no_gradient_is_not_a_zero_one(tmp_path):
    """Every gradient None: a step with nothing recorded, and the parameters named."""
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ps.record(model, optimizer, tmp_path / "run"):
        optimizer.step()
    (scalars,) = read_scalars(tmp_path / "run")
    assert scalars["unused"] == ["weight", "bias"]
    assert list(ps.open_run(tmp_path / "run")) == []


def test_d31_skipped_steps_are_visible(tmp_path):
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with ps.record(model, optimizer, tmp_path / "run", scaler=scaler):
        for factor in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(2, 8)).square().mean() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
    rows = read_scalars(tmp_path / "run")
    assert [(row["skipped"], row["loss_scale"]) for row in rows] == [(False, 4.0), (True, 4.0), (False, 2.0)]


def test_d56_odd_tensors_are_kept_in_their_shape(tmp_path):
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turned = nn.Parameter(torch.arange(6.0).reshape(2, 3).T)
            self.empty, self.none = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.zeros(0, 3))
            self.scalar = nn.Parameter(torch.tensor(2.0))

        def forward(self) -> torch.Tensor:
            return (self.turned * self.scalar).square().sum() + self.empty.sum() + self.none.sum()

    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ps.record(model, optimizer, tmp_path / "run", tensors="*"):
        model().backward()
        wanted = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
    found = {entry.name: entry for entry in ps.open_run(tmp_path / "run" / "tensors")}
    for name, gradient in wanted.items():
        entry = found[f"grad/{name}"]
        assert entry.shape == tuple(gradient.shape)
        assert entry.array().tolist() == gradient.tolist()


def test_d57_a_sample_takes_the_room_of_a_sample(tmp_path):
    model = nn.Linear(1000, 1000, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ps.record(model, optimizer, tmp_path / "run", tensors="*", sample=10):
        model(torch.ones(2, 1000)).square().mean().backward()
        optimizer.step()
    (file,) = (tmp_path / "run" / "tensors").glob("*.safetensors")
    assert file.stat().st_size < 1000


def test_d59_fp8_tensors_are_sketched():
    x = torch.linspace(-400, 400, 100).to(torch.float8_e4m3fn)
    from precsim.recording.sketching import sketch_tensor

    assert sketch_tensor(x, errors=True) == ps.sketch(x.to(torch.float32))
