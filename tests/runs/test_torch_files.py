"""Odd tensors in .pt files: read right, or refused by name; files made to last for ever end."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import precsim as ps


def saved(tmp_path, content, name="x.pt", **options):
    path = tmp_path / name
    torch.save(content, path, **options)
    return path


def only(path) -> np.ndarray:
    (entry,) = ps.open_run(path)
    return entry.array()


@pytest.mark.parametrize("old_format", [False, True])
def test_d56_views_are_read_as_what_they_show(tmp_path, old_format):
    # safetensors PR#17: non-contiguous and shared tensors are refused there.
    whole = torch.arange(6.0).reshape(2, 3)
    content = {
        "transposed": whole.t(),
        "shared": whole[:1],
        "flipped": whole.flip(0)[:, ::2],
        "expanded": whole[:1, :1].expand(3, 2),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "also empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(whole.clone()),
        "narrow": whole.to(torch.bfloat16).t(),
        "negated": torch.complex(whole, whole).conj().imag,
    }
    path = saved(tmp_path, content, _use_new_zipfile_serialization=not old_format)
    entries = {entry.name: entry for entry in ps.open_run(path)}
    assert list(entries) == list(content)
    for name, tensor in content.items():
        expected = tensor.detach().resolve_neg()
        if name == "narrow":
            expected = expected.contiguous().view(torch.uint16)
        assert entries[name].shape == tuple(tensor.shape)
        assert entries[name].array().tobytes() == expected.contiguous().numpy().tobytes(), name


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: torch.empty(3, device="meta"), r"has no data \(meta\)"),
        (lambda: torch.eye(2).to_sparse(), "is sparse"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "is nested"),
        (
            lambda: torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
            "is of dtype float4_e2m1fn_x2",
        ),
    ],
    ids=["meta", "sparse", "nested", "packed"],
)
def test_d56_what_has_no_plain_memory_is_named(tmp_path, make, fault):
    # safetensors#469: meta, sparse and wrapped tensors.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype, says torch
        tensor = make()
    entries = {
        entry.name: entry for entry in ps.open_run(saved(tmp_path, {"odd": tensor, "w": torch.ones(2)}))
    }
    assert entries["w"].array().tolist() == [1.0, 1.0]
    assert entries["odd"].is_real
    with pytest.raises(ps.InputError, match=rf"x\.pt: tensor 'odd' {fault}: save it as a dense tensor"):
        entries["odd"].array()


def test_quantized_tensors_are_named(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them deprecated
        path = saved(tmp_path, {"q": torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8)})
    (entry,) = ps.open_run(path)
    with pytest.raises(ps.InputError, match="tensor 'q' is quantized"):
        entry.array()


def test_complex_tensors_are_named(tmp_path):
    (entry,) = ps.open_run(saved(tmp_path, {"z": torch.ones(2, dtype=torch.complex64).conj()}))
    with pytest.raises(ps.InputError, match="tensor 'z' is complex"):
        entry.array()


def test_d57_a_slice_of_many_is_read_without_the_many(tmp_path):
    # pytorch#33101: torch.save of a slice writes the whole storage. Reading it gives the slice.
    path = saved(tmp_path, torch.arange(1_000_000.0)[500_000:500_010])
    assert path.stat().st_size > 4_000_000
    assert only(path).tolist() == list(map(float, range(500_000, 500_010)))


def test_names_come_from_where_the_tensor_is(tmp_path):
    one = torch.ones(1)
    content = {
        "state": {0: {"exp_avg": one}, (1, 2): one},
        "list": [one, (one, "text")],
        "step": 3,
        "none": None,
    }
    assert ps.open_run(saved(tmp_path, content)).names == [
        "state.0.exp_avg",
        "state.tuple",
        "list.0",
        "list.1.0",
    ]
    assert ps.open_run(saved(tmp_path, one, "alone.pt")).names == ["alone"]
    with pytest.raises(ps.InputError, match=r"bad\.pt: the tensor name '\\+udc00' is no Unicode text"):
        list(ps.open_run(saved(tmp_path, {"\udc00": one}, "bad.pt")))
    assert ps.open_run(saved(tmp_path, {10**40: one}, "long.pt")).names == ["int"]


def test_lists_of_the_same_lists_end(tmp_path):
    content = [torch.ones(1)]
    for _ in range(40):
        content = [content] * 10  # 10^40 ways to the tensor
    assert ps.open_run(saved(tmp_path, content)).names == [".".join("0" * 41)]


def test_a_list_that_holds_itself_ends(tmp_path):
    content: list = [None, torch.ones(1)]
    content[0] = content
    assert ps.open_run(saved(tmp_path, content)).names == ["1"]


def test_what_is_nested_too_deep_is_refused(tmp_path):
    content = torch.ones(1)
    for _ in range(200):
        content = {"a": content}
    with pytest.raises(ps.InputError, match=r"x\.pt: is nested more than 100 deep"):
        list(ps.open_run(saved(tmp_path, content)))


def test_a_view_that_shows_a_thousand_times_its_storage_is_refused(tmp_path):
    entries = {
        entry.name: entry
        for entry in ps.open_run(
            saved(tmp_path, {"small": torch.ones(1).expand(1000), "large": torch.ones(1).expand(1 << 40)})
        )
    }
    assert entries["small"].array().tolist() == [1.0] * 1000
    with pytest.raises(ps.InputError, match="tensor 'large' shows 4398046511104 bytes of a storage of 4"):
        entries["large"].array()


def test_bin_files_are_read_if_they_are_named(tmp_path):
    path = saved(tmp_path, torch.ones(2), "pytorch_model.bin")
    assert only(path).tolist() == [1.0, 1.0]
    assert only(str(tmp_path / "*.bin")).tolist() == [1.0, 1.0]
    with pytest.raises(ps.InputError, match="holds no file that precsim reads"):
        ps.open_run(tmp_path)


def test_torchscript_is_refused(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it deprecated
        torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "x.pt")
    with pytest.raises(ps.InputError, match=r"x\.pt: holds more than tensors and plain values"):
        list(ps.open_run(tmp_path / "x.pt"))


def test_torch_is_asked_for_where_it_is_missing(tmp_path):
    path = saved(tmp_path, torch.ones(2))
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import precsim as ps\n"
        "try:\n    list(ps.open_run(sys.argv[1]))\n"
        "except ps.InputError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{path}: reading .pt files needs torch: pip install 'precsim[torch]'"
