"""Programs that know nothing of precsim are recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import precsim as ps
from precsim.runs.folder import read_scalars

TRAINING = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.randn(5, 8)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print("step", step, flush=True)
"""


def record(
    folder: Path, program: str, *arguments: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(program))
    line = [
        sys.executable,
        "-m",
        "precsim",
        "record",
        "--to",
        str(folder / "run"),
        *options,
        "--",
        "python",
        str(script),
    ]
    return subprocess.run(
        [*line, *arguments], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def test_a_plain_loop_with_a_scaler(tmp_path):
    done = record(tmp_path, TRAINING, "4", options=("--every", "2"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"step {i}\n" for i in range(4))
    assert "recorded 2 steps (0 … 2)" in done.stderr
    assert "next: precsim advise" in done.stderr
    rows = read_scalars(tmp_path / "run")
    assert [(row["step"], row["loss_scale"], row["autocast"]) for row in rows] == [
        (0, 1024.0, "bfloat16"),
        (2, 1024.0, "bfloat16"),
    ]
    names = {entry.name for entry in ps.open_run(tmp_path / "run")}
    assert {"grad/0.weight", "grad/2.bias", "act_grad/0", "act_grad/2"} <= names
    assert {entry.dtype for entry in ps.open_run(tmp_path / "run") if entry.name.startswith("grad/")} == {
        "bfloat16"
    }


def test_the_exit_code_and_a_crash(tmp_path):
    done = record(tmp_path, TRAINING + "raise SystemExit(7)\n", "1")
    assert done.returncode == 7
    crashed = record(tmp_path, TRAINING + "raise ValueError('mine')\n", "2")
    assert crashed.returncode == 1
    assert "ValueError: mine" in crashed.stderr
    assert [row["step"] for row in read_scalars(tmp_path / "run")] == [0, 1, 2]  # went on after the first one


def test_ctrl_c_leaves_a_readable_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    line = [
        sys.executable,
        "-m",
        "precsim",
        "record",
        "--to",
        str(tmp_path / "run"),
        "--",
        str(script),
        "100000",
    ]
    running = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert running.stdout is not None
    for text in running.stdout:
        if text == "step 5\n":
            break
    time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode != 0
    assert "precsim: recorded" in said
    rows = read_scalars(tmp_path / "run")
    assert [row["step"] for row in rows] == list(range(len(rows)))
    assert len(rows) >= 5


def test_a_program_without_training(tmp_path):
    done = record(tmp_path, "import torch\nprint('nothing')\n")
    assert (done.returncode, done.stdout) == (0, "nothing\n")
    assert "nothing was recorded" in done.stderr


def test_a_folder_that_is_no_run(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    done = record(tmp_path, TRAINING, "1")
    assert done.returncode == 0
    assert "is no run folder" in done.stderr
    assert "step 0" in done.stdout
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kinds", "gradient", "--", "python", "x.py"], "unknown kind 'gradient'"),
        (["--", "no-such-program"], "no such program"),
        ([], "Missing argument"),
    ],
)
def test_unusable_arguments(arguments, message, capsys):
    from precsim.cli import main

    assert main(["record", *arguments]) == 2
    assert message in capsys.readouterr().err
