"""safetensors files: every dtype by the header alone, equal to what the library and torch read."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from handmade import safetensors_bytes

import precsim as ps

NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
}


@pytest.fixture
def every_dtype(tmp_path):
    """A file that the library wrote with one tensor of each dtype, and its tensors."""
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for name, dtype in NAMES.items():
        size = getattr(torch, dtype).itemsize
        raw = torch.randint(0, 2 if name == "BOOL" else 256, (16 * size,), generator=generator)
        tensors[name] = raw.to(torch.uint8).view(getattr(torch, dtype)).reshape(2, 8)
    safetensors.torch.save_file(tensors, tmp_path / "all.safetensors", {"step": "7"})
    return tmp_path / "all.safetensors", tensors


def test_every_dtype_as_the_library_writes_it(every_dtype):
    path, tensors = every_dtype
    entries = {entry.name: entry for entry in ps.open_run(path)}
    assert {name: entry.dtype for name, entry in entries.items()} == NAMES
    for name, tensor in tensors.items():
        entry = entries[name]
        assert (entry.shape, entry.metadata) == ((2, 8), {"step": "7"})
        stored = b"".join(piece.tobytes() for piece in entry.read(1 << 20))
        assert stored == tensor.view(torch.uint8).numpy().tobytes(), name
        assert entry.is_real == (name[0] in "FBC" and name != "BOOL")
        if not entry.is_real:
            assert (
                entry.array().tolist() == tensor.to(torch.uint8 if name == "BOOL" else tensor.dtype).tolist()
            )


def test_d53_every_dtype_without_torch_ml_dtypes_and_the_library(every_dtype):
    # safetensors#598, #436, PR#683, PR#382: there NumPy can't read BF16 and F8 tensors.
    path, tensors = every_dtype
    code = (
        "import json, sys\n"
        "for name in ('torch', 'ml_dtypes', 'safetensors'): sys.modules[name] = None\n"
        "import precsim as ps\n"
        "run = ps.open_run(sys.argv[1])\n"
        "codes = {e.name: e.array().view('u1').tolist() for e in run if e.is_real and e.dtype != 'complex64'}\n"
        "sums = {e.name: ps.sketch(ps.decode(e.array(), e.format)).nonzero for e in run if 'F8' in e.name}\n"
        "print(json.dumps([codes, sums]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    codes, sums = json.loads(done.stdout)
    assert len(codes) == 9
    for name, given in codes.items():
        assert given == tensors[name].view(torch.uint8).numpy().tolist()
    for name, count in sums.items():
        values = tensors[name].to(torch.float32)
        assert count == int((torch.isfinite(values) & (values != 0)).sum()), name


def test_half_a_surrogate_pair_is_no_name(tmp_path):
    header = rb'{"\ud800": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}'
    (tmp_path / "x.safetensors").write_bytes(safetensors_bytes(None, bytes(4), header=header))
    with pytest.raises(
        ps.InputError, match=r"x\.safetensors: the tensor name .* is no Unicode text"
    ) as caught:
        list(ps.open_run(tmp_path / "x.safetensors"))
    assert str(caught.value).isprintable()


def test_several_empty_tensors_share_their_place(tmp_path):
    # D56 (safetensors#280): several empty tensors once were refused.
    tensors = {"a": torch.zeros(0, 3), "b": torch.ones(2), "c": torch.zeros(0), "d": torch.ones(())}
    safetensors.torch.save_file(tensors, tmp_path / "x.safetensors")
    entries = {entry.name: entry for entry in ps.open_run(tmp_path / "x.safetensors")}
    assert {name: entry.shape for name, entry in entries.items()} == {
        "a": (0, 3),
        "b": (2,),
        "c": (0,),
        "d": (),
    }
    for name, tensor in tensors.items():
        assert np.array_equal(entries[name].array(), tensor.numpy())


@pytest.mark.parametrize(("dtype", "size"), [("F4", 2), ("F6_E2M3", 3), ("F6_E3M2", 3)])
def test_packed_types_are_refused_by_name(tmp_path, dtype, size):
    tensor = {"dtype": dtype, "shape": [4], "data_offsets": [0, size]}
    (tmp_path / "x.safetensors").write_bytes(safetensors_bytes({"q": tensor}, bytes(size)))
    (entry,) = ps.open_run(tmp_path / "x.safetensors")
    assert entry.is_real
    with pytest.raises(
        ps.InputError, match=f"tensor 'q' packs several {dtype} elements in a byte: unpack them"
    ):
        entry.array()
    odd = {"dtype": dtype, "shape": [3], "data_offsets": [0, size]}
    (tmp_path / "x.safetensors").write_bytes(safetensors_bytes({"q": odd}, bytes(size)))
    with pytest.raises(ps.InputError, match="not as many as its shape and dtype need"):
        list(ps.open_run(tmp_path / "x.safetensors"))
