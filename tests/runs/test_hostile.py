"""Damaged, lying and malicious files: one line that names the file, no other exception, no hang, no code executed."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from handmade import Malicious, npy_bytes, read_all, safetensors_bytes

import precsim as ps

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


NPY = "{'descr': '%s', 'fortran_order': False, 'shape': %s}"

BAD_FILES = {
    "empty.safetensors": b"",
    "text.safetensors": b"just some text, long enough to have a length",
    "truncated-header.safetensors": safetensors_bytes({"a": F32}, bytes(8))[:20],
    "truncated-data.safetensors": safetensors_bytes({"a": F32}, bytes(7)),
    "trailing-data.safetensors": safetensors_bytes({"a": F32}, bytes(9)),
    "huge-header.safetensors": safetensors_bytes({}, length=(1 << 64) - 1),
    "not-json.safetensors": safetensors_bytes(None, header=b"{]"),
    "not-utf8.safetensors": safetensors_bytes(None, header=b"\xff\xfe{}"),
    "array.safetensors": safetensors_bytes([]),
    "nan.safetensors": safetensors_bytes(None, header=b'{"a": NaN}'),
    "deep.safetensors": safetensors_bytes(None, header=b"[" * 200_000),
    "long-number.safetensors": safetensors_bytes(None, header=b'{"a": ' + b"9" * 10_000 + b"}"),
    "twice.safetensors": safetensors_bytes(
        None,
        bytes(8),
        header=b'{"a": {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]}, "a": '
        + json.dumps(F32).encode()
        + b"}",
    ),
    "two-dtypes.safetensors": safetensors_bytes(
        None,
        bytes(8),
        header=b'{"a": {"dtype": "F16", "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}',
    ),
    "negative-shapes.safetensors": safetensors_bytes({"a": {**F32, "shape": [-1, -2]}}, bytes(8)),
    "negative-offsets.safetensors": safetensors_bytes({"a": {**F32, "data_offsets": [-8, 0]}}),
    "overlap.safetensors": safetensors_bytes({"a": F32, "b": F32}, bytes(8)),
    "hole.safetensors": safetensors_bytes({"a": {**F32, "data_offsets": [4, 12]}}, bytes(12)),
    "backwards.safetensors": safetensors_bytes({"a": {**F32, "data_offsets": [8, 0]}}, bytes(8)),
    "shape-lies.safetensors": safetensors_bytes({"a": {**F32, "shape": [3]}}, bytes(8)),
    "shape-overflows.safetensors": safetensors_bytes(
        {"a": {**F32, "shape": [1 << 40, 1 << 40], "data_offsets": [0, 0]}}
    ),
    "negative-shape.safetensors": safetensors_bytes({"a": {**F32, "shape": [-2]}}, bytes(8)),
    "bool-shape.safetensors": safetensors_bytes(
        {"a": {**F32, "shape": [True], "data_offsets": [0, 4]}}, bytes(4)
    ),
    "dtype.safetensors": safetensors_bytes({"a": {**F32, "dtype": "F31"}}, bytes(8)),
    "dtype-list.safetensors": safetensors_bytes({"a": {**F32, "dtype": ["F32"]}}, bytes(8)),
    "extra-field.safetensors": safetensors_bytes({"a": {**F32, "code": "x"}}, bytes(8)),
    "metadata.safetensors": safetensors_bytes({"__metadata__": {"a": 1}}),
    "objects.npy": npy_bytes(NPY % ("|O", "(1,)"), pickle.dumps([None])),
    "strings.npy": npy_bytes(NPY % ("<U4", "(1,)"), bytes(16)),
    "dates.npy": npy_bytes(NPY % ("<M8[s]", "(1,)"), bytes(8)),
    "structured.npy": npy_bytes("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", bytes(4)),
    "short.npy": npy_bytes(NPY % ("<f4", "(3,)"), bytes(8)),
    "long.npy": npy_bytes(NPY % ("<f4", "(1,)"), bytes(8)),
    "shape.npy": npy_bytes(NPY % ("<f4", "(-1,)"), bytes(4)),
    "shapes.npy": npy_bytes(NPY % ("<f4", "(-1, -1)"), bytes(4)),
    "huge.npy": npy_bytes(NPY % ("<f4", "(4611686018427387903, 4611686018427387903)"), bytes(4)),
    "code.npy": npy_bytes("__import__('os').system('true')", bytes(4)),
    "nested.npy": npy_bytes("(" * 9000, bytes(4)),
    "version.npy": npy_bytes(NPY % ("<f4", "(1,)"), bytes(4), version=b"\x09\x00"),
    "magic.npy": b"\x93NUMPX" + bytes(100),
    "stub.npy": b"\x93NUMPY\x01",
    "text.npz": b"no zip",
    "member.npz": zipped(a=b"no array"),
    "objects.npz": zipped(a=npy_bytes(NPY % ("|O", "(1,)"), pickle.dumps([None]))),
    "size-lies.npz": zipped(a=npy_bytes(NPY % ("<f4", "(1000000000000,)"), bytes(4))),
    "truncated.npz": zipped(a=npy_bytes(NPY % ("<f4", "(4,)"), bytes(16)))[:-30],
    "text.pt": b"no torch file",
    "empty.pt": b"",
    "unknown.txt": b"text",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_one_line_that_names_the_file(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(BAD_FILES[name])
    with pytest.raises(ps.InputError) as caught:
        read_all(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))


@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: {"a": torch.ones(2), "b": x}], ids=["alone", "hidden"]
)
@pytest.mark.parametrize("old_format", [False, True])
def test_code_in_a_pt_file_is_not_executed(tmp_path, wrap, old_format):
    proof, path = tmp_path / "executed", tmp_path / "x.pt"
    torch.save(wrap(Malicious(proof)), path, _use_new_zipfile_serialization=not old_format)
    with pytest.raises(ps.InputError, match=r"x\.pt: holds more than tensors and plain values") as caught:
        read_all(path)
    assert "\n" not in str(caught.value)
    assert not proof.exists()
    pickle.loads(pickle.dumps(Malicious(proof)))  # the file would have worked
    assert proof.exists()


def test_text_and_no_tensors_in_a_pt_file(tmp_path):
    torch.save({"a": 1, "b": "text"}, tmp_path / "x.pt")
    with pytest.raises(ps.InputError, match="holds no tensors"):
        read_all(tmp_path / "x.pt")


def test_an_encrypted_member(tmp_path):
    data = bytearray(zipped(a=npy_bytes(NPY % ("<f4", "(1,)"), bytes(4))))
    for magic, flags in (
        (b"PK\x03\x04", 6),
        (b"PK\x01\x02", 8),
    ):  # sets the flag in both of the member's headers
        data[data.index(magic) + flags] |= 1
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(ps.InputError, match=r"x\.npz: .*encrypted"):
        read_all(tmp_path / "x.npz")


def test_a_damaged_member_is_found_when_it_is_read(tmp_path):
    data = bytearray(zipped(a=npy_bytes(NPY % ("<f4", "(400,)"), np.random.default_rng(1).bytes(1600))))
    data[900] ^= 0xFF
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(ps.InputError, match=r"x\.npz"):
        read_all(tmp_path / "x.npz")


def test_paths_that_lead_nowhere(tmp_path):
    (tmp_path / "steps").mkdir()
    with pytest.raises(ps.InputError, match=r"steps: holds no file that precsim reads"):
        ps.open_run(tmp_path / "steps")
    with pytest.raises(ps.InputError, match=r"step: no such file or folder; did you mean .*steps\?"):
        ps.open_run(tmp_path / "step")
    with pytest.raises(ps.InputError, match="no such file or folder"):
        ps.open_run(str(tmp_path / "*.npy"))
    with pytest.raises(ps.InputError):
        ps.open_run("a\0b")
    (tmp_path / "link.npy").symlink_to(tmp_path / "nothing.npy")
    with pytest.raises(ps.InputError, match="no such file"):
        ps.open_run(tmp_path / "link.npy")


def test_a_loop_of_folders_ends(tmp_path, good_files):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "loop").symlink_to(tmp_path / "a")
    (inner / "x.npy").write_bytes(good_files[".npy"].read_bytes())
    assert len(ps.open_run(tmp_path / "a").files) == 1
    (tmp_path / "self").symlink_to(tmp_path / "self")
    with pytest.raises(ps.InputError):
        ps.open_run(tmp_path / "self")


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs users and permissions as POSIX has them")
def test_no_read_permission(tmp_path, good_files):
    path = good_files[".npy"]
    code = """
import os, sys, precsim as ps
list(ps.open_run(sys.argv[1]))  # imports all that is needed while it may
os.chdir(os.path.dirname(sys.argv[1]))
os.chmod("x.npy", 0)
if os.getuid() == 0:
    os.setuid(65534)
try:
    list(ps.open_run("x.npy"))
except ps.InputError as error:
    print(error)
"""
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path.chmod(0o600)
    assert done.stdout.strip() == "x.npy: can't be read: Permission denied", done.stderr
