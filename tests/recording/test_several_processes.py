"""Two gloo ranks on one machine record at once; each has its own gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import precsim as ps
from precsim.runs.folder import read_scalars


@pytest.mark.parametrize("mode", ["ddp", "fsdp2"])
def test_two_ranks_record_what_each_has(tmp_path, mode):
    program = Path(__file__).with_name("two_ranks.py")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, str(program), mode, str(rank), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in (0, 1)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [output.strip().splitlines()[-1:] for output in outputs] == [["OK"], ["OK"]], "\n".join(outputs)
    rows = read_scalars(tmp_path / "run")
    assert [(row["step"], row["rank"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(ps.open_run(tmp_path / "run").files) == 4
