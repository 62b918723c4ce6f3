"""Unusable input: one line on standard error that names it, exit 2, nothing else."""

from __future__ import annotations

import os
import pickle
import struct

import numpy as np
import pytest


def header(text: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text + data


class Code:
    """Would make a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def objects() -> bytes:
    text = "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + pickle.dumps([{}])


FILES = {
    "truncated.safetensors": header(b'{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', b"\0" * 8),
    "lying.safetensors": header(b'{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,8]}}', b"\0" * 8),
    "huge.safetensors": header(b"{}", length=1 << 62),
    "text.safetensors": b"these are no tensors, this is text\n",
    "empty.safetensors": b"",
    "objects.npy": objects(),
    "text.npy": b"1 2 3\n",
    "text.npz": b"1 2 3\n",
    "text.pt": b"1 2 3\n",
    "unknown.txt": b"1 2 3\n",
}


def is_one_line(result) -> bool:
    line = result.err
    return (
        result.code == 2
        and result.out == ""
        and line.startswith("precsim: error: ")
        and line.endswith("\n")
        and line.count("\n") == 1
        and "Traceback" not in line
    )


@pytest.mark.parametrize("name", FILES)
def test_files(precsim, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(FILES[name])
    result = precsim("analyze", path)
    assert is_one_line(result), result
    assert name in result.err


def test_a_bad_file_among_good_ones_is_named(precsim, gradients):
    (gradients / "step3.safetensors").write_bytes(b"no")
    result = precsim("analyze", gradients)
    assert is_one_line(result), result
    assert "step3.safetensors" in result.err


def test_code_in_a_pt_file_is_refused_not_run(precsim, tmp_path):
    import torch

    path = tmp_path / "model.pt"
    torch.save({"x": torch.ones(2), "y": Code(tmp_path / "was-run")}, path)
    result = precsim("analyze", path)
    assert is_one_line(result), result
    assert "could be code" in result.err
    assert not (tmp_path / "was-run").exists()


def test_an_array_of_strings(precsim, tmp_path):
    np.save(tmp_path / "s.npy", np.array(["a", "b"]))
    result = precsim("analyze", tmp_path)
    assert is_one_line(result), result
    assert "s.npy" in result.err


def test_folders(precsim, tmp_path):
    assert is_one_line(precsim("analyze", tmp_path))
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    result = precsim("analyze", tmp_path)
    assert is_one_line(result), result
    assert "holds no file that precsim reads" in result.err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_no_permission_to_read(precsim, gradients):
    (gradients / "step1.safetensors").chmod(0)
    assert is_one_line(precsim("analyze", gradients))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "e4m4"], "did you mean e4m3"),
        (["--format", "fp64"], "at most 32"),
        (["--scale", "0"], "2^-300 to 2^300"),
        (["--scale", "-1"], "scale -1: must be a number"),
        (["--scale", "2^4999"], "scale 2^4999: must be a number"),
        (["--scale", "2^1000000000"], "is not a number"),
        (["--scale", "big"], "is not a number"),
        (["--max-flushed", "200%"], "--max-flushed 200%: must be a share from 0 to 1"),
        (["--max-flushed", "nan"], "must be a share from 0 to 1"),
        (["--max-flushed", "few"], "is not a number"),
        (["--group-by", "colour"], "'colour' is not one of"),
        (["--dtype", "bfloat16"], "write NAME=TYPE"),
        (["--dtype", "x=bfloat17"], "did you mean"),
        (["--fail-if", "fp16 > 3"], "is not understood"),
        (["--fail-if", "flushed(e4m4)>1"], "unknown format 'e4m4'"),
        (["--json", "-", "--csv", "-"], "only one of them"),
        (["--json", "/dev/null/x.json", "--quiet"], "/dev/null/x.json: can't be written"),
        (["--no-such-option"], "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options(precsim, gradients, arguments, says):
    result = precsim("analyze", gradients, *arguments)
    assert is_one_line(result), result
    assert says in result.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["analyze"], "Missing argument"),
        (["analyze", "no-such-folder"], "no-such-folder: no such file or folder"),
        (["analyze", ""], "is no path"),
        (["format", "fp17"], "did you mean"),
        (["format", "fp16", "--values"], "--values lists formats of at most 8 bits"),
        (["cast", "zero", "fp16"], "is not a number"),
        (["cast", "1e99999", "fp16"], "is not a number"),
        (["cast", "nan", "e2m1"], "e2m1 has no NaN"),
        (["cast", "1", "fp17"], "did you mean"),
        (["cast", "1", "fp16", "--rounding", "sideways"], "sideways"),
        (["cast", "1", "fp16", "--overflow", "sideways"], "sideways"),
        (["cast", "1", "fp16", "--profile", "abacus"], "abacus"),
        (["cast", "1", "fp16", "--profile", "ocp-saturate"], "profile ocp-saturate has no cast to fp16"),
        (["cast", "0.1", "fp16", "--rounding", "stochastic"], "needs random"),
        (["guess"], "No such command 'guess'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_arguments(precsim, arguments, says):
    result = precsim(*arguments)
    assert is_one_line(result), result
    assert says in result.err


def test_nearest_path(precsim, gradients):
    assert f"did you mean {gradients}?" in precsim("analyze", f"{gradients}s").err
