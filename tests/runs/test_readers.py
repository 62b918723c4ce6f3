"""Every kind of file and dtype is read bit for bit; cases named D… are public bug reports on capture files."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch
from handmade import safetensors_bytes

import precsim as ps
from precsim.runs.metadata import step_of_name

TORCH_DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def random_tensor(dtype: torch.dtype, shape=(3, 5)) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (*shape, dtype.itemsize), generator=generator)
    return raw.to(torch.uint8).view(dtype).reshape(shape)


def stored_bytes(entry: ps.Sketch) -> bytes:
    return b"".join(piece.tobytes() for piece in entry.read(1 << 20))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_every_dtype_keeps_its_bits(tmp_path, dtype, suffix):
    # D53 (safetensors#598, PR#683): NumPy can't read BF16 or F8 tensors; here their codes come out as they are.
    tensor = random_tensor(dtype)
    path = tmp_path / f"x{suffix}"
    if suffix == ".pt":
        torch.save({"w": tensor}, path)
    else:
        safetensors.torch.save_file({"w": tensor}, path)
    (entry,) = ps.open_run(path)
    assert (entry.name, entry.shape, entry.dtype) == ("w", (3, 5), str(dtype).removeprefix("torch."))
    assert stored_bytes(entry) == tensor.contiguous().view(torch.uint8).numpy().tobytes()
    assert (entry.format is not None) == dtype.is_floating_point
    if dtype.is_floating_point:
        assert entry.format == ps.format(dtype)
        total = sum((ps.sketch(tensor[i : i + 1]) for i in range(3)), ps.Sketch())
        assert sketch_of(entry) == total


def sketch_of(entry) -> ps.Sketch:
    from precsim.kernels import engine
    from precsim.sketches import sketch_source

    return sum((sketch_source(source, engine()) for source in entry.chunks(16)), ps.Sketch())


@pytest.mark.parametrize(
    "dtype", ["<f4", ">f4", "<f8", ">f8", "<f2", ">f2", "<i4", ">u2", "|b1", "|i1", "<u8"]
)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_numpy_files_of_every_order(tmp_path, dtype, order, suffix):
    x = np.asarray(np.arange(24).reshape(2, 3, 4) % 7, dtype=dtype, order=order)
    path = tmp_path / f"x{suffix}"
    np.save(path, x) if suffix == ".npy" else np.savez_compressed(path, x=x)
    (entry,) = ps.open_run(path)
    assert (entry.name, entry.shape) == ("x", (2, 3, 4))
    for max_bytes in (8, 1 << 20):
        values = np.concatenate([source.data for source in entry.chunks(max_bytes)]).reshape(2, 3, 4)
        if x.dtype.kind == "f" and x.dtype.itemsize == 2:
            values = values.view(np.float16)
        assert np.array_equal(values, x)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1, 1, 1)])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt", ".safetensors"])
def test_odd_shapes(tmp_path, shape, suffix):
    # D56 (safetensors PR#17, #469): 0-d and empty tensors keep their shapes.
    x = np.full(shape, 2.5, np.float32)
    path = tmp_path / f"x{suffix}"
    match suffix:
        case ".npy":
            np.save(path, x)
        case ".npz":
            np.savez(path, x=x)
        case ".pt":
            torch.save(torch.from_numpy(x), path)
        case _:
            safetensors.torch.save_file({"x": torch.from_numpy(x)}, path)
    (entry,) = ps.open_run(path)
    assert entry.shape == shape
    assert entry.numel == x.size
    assert entry.array().shape == shape
    assert np.array_equal(entry.array(), x)


def test_d54_types_that_numpy_loses_are_asked_for(tmp_path):
    # ml_dtypes#41, #148, #216: np.save writes bfloat16 as '|V2' and float8_e5m2 as '<f1'.
    x = np.array([1.0, -0.5, 3.0], ml_dtypes.bfloat16)
    np.save(tmp_path / "w.npy", x)
    with pytest.raises(ps.InputError, match=r"w\.npy: 'w' lost its dtype .* --dtype w=bfloat16"):
        list(ps.open_run(tmp_path / "w.npy"))
    (entry,) = ps.open_run(tmp_path / "w.npy", dtypes={"w": "bfloat16"})
    assert entry.array().tolist() == x.view(np.uint16).tolist()
    y = np.array([1.0, -0.5], ml_dtypes.float8_e5m2)
    np.savez(tmp_path / "w.npz", g=y)
    with pytest.raises(ps.InputError, match="lost its dtype"):
        list(ps.open_run(tmp_path / "w.npz"))
    (entry,) = ps.open_run(tmp_path / "w.npz", dtypes={"g*": "e5m2"})
    assert entry.dtype == "float8_e5m2"
    assert entry.array().tolist() == y.view(np.uint8).tolist()
    with pytest.raises(ps.InputError, match="stores elements of 1 bytes, and float32 has 4"):
        list(ps.open_run(tmp_path / "w.npz", dtypes={"g": "float32"}))


def test_d57_a_saved_slice_is_read_as_the_slice(tmp_path):
    # pytorch#1995, #40157: torch.save of a slice writes the whole storage; only the slice is the tensor.
    torch.save(torch.arange(1_000_00.0)[10:20:3], tmp_path / "x.pt")
    (entry,) = ps.open_run(tmp_path / "x.pt")
    assert entry.array().tolist() == [10.0, 13.0, 16.0, 19.0]


def test_d59_fp8_tensors_are_analyzed_though_torch_has_no_operators_for_them(tmp_path):
    # pytorch#149002, #107256: isinf, max, equal and sum raise for float8 on the CPU.
    torch.save(torch.tensor([448.0, -0.5, float("nan")]).to(torch.float8_e4m3fn), tmp_path / "x.pt")
    (entry,) = ps.open_run(tmp_path / "x.pt")
    total = sketch_of(entry)
    assert (total.n, total.nans, total.amax, total.amin) == (3, 1, 448.0, 0.5)


def test_d56_tensors_without_plain_memory_are_named(tmp_path):
    content = {"w": torch.ones(2), "s": torch.eye(3).to_sparse()}
    torch.save(content, tmp_path / "x.pt")
    entries = {entry.name: entry for entry in ps.open_run(tmp_path / "x.pt")}
    assert entries["w"].array().tolist() == [1.0, 1.0]
    with pytest.raises(ps.InputError, match="tensor 's' is sparse"):
        entries["s"].array()


def test_packed_types_are_listed_and_refused_when_read(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(
        safetensors_bytes({"q": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}, b"\x12\x34")
    )
    (entry,) = ps.open_run(path)
    with pytest.raises(ps.InputError, match="tensor 'q' packs several F4 elements in a byte"):
        entry.array()


def test_complex_numbers_are_refused_when_read(tmp_path):
    np.save(tmp_path / "x.npy", np.array([1j]))
    (entry,) = ps.open_run(tmp_path / "x.npy")
    with pytest.raises(ps.InputError, match="tensor 'x' is complex"):
        entry.array()


def test_nothing_is_loaded_whole(tmp_path):
    import resource

    path = tmp_path / "large.npy"
    with path.open("wb") as file:  # a sparse file: 2 GiB of zeros that take no disk
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 29,)}
        )
        file.truncate(file.tell() + (1 << 31))
    (entry,) = ps.open_run(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pieces = entry.chunks()
    sizes = [len(next(pieces).data) for _ in range(3)]
    assert max(sizes) * 4 <= 1 << 24
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_folders_globs_and_order(good_files, tmp_path, monkeypatch):
    folder = tmp_path / "steps"
    folder.mkdir()
    for step in (10, 2, 1):
        (folder / f"step{step}.npy").write_bytes(good_files[".npy"].read_bytes())
    (folder / "notes.txt").write_text("not a tensor")
    (folder / "sub").mkdir()
    (folder / "sub" / "x.npz").write_bytes(good_files[".npz"].read_bytes())
    assert [path.name for path in ps.open_run(folder).files] == [
        "step1.npy",
        "step2.npy",
        "step10.npy",
        "x.npz",
    ]
    monkeypatch.chdir(folder)
    assert [str(path) for path in ps.open_run("step*.npy").files] == ["step1.npy", "step2.npy", "step10.npy"]
    assert [str(path) for path in ps.open_run(["step2.npy", "step2.npy", "step1.npy"]).files] == [
        "step2.npy",
        "step1.npy",
    ]


def test_a_run_by_name(good_files):
    run = ps.open_run(good_files[".safetensors"])
    assert (len(run), run.names) == (2, ["a", "b"])
    assert run["b"].metadata == {"step": "3", "loss_scale": "1"}
    with pytest.raises(ps.InputError, match="tensor 'c' is in none of the files"):
        run["c"]


@pytest.mark.parametrize(
    ("stem", "step"),
    [
        ("step0500", 500),
        ("run_step-12", 12),
        ("step3.rank0", 3),
        ("Step7", 7),
        ("footstep3", None),
        ("steps", None),
        ("500", None),
    ],
)
def test_a_step_in_the_file_name(stem, step):
    assert step_of_name(stem) == step
