"""Files with a few bytes wrong: read within their bounds or refused in one line, never anything else."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from handmade import Malicious, read_all, safetensors_bytes

import precsim as ps


def originals(proof: Path) -> dict[str, bytes]:
    """A good file of each kind, by its name, and one that would make the file `proof`."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    header = {
        "a": {"dtype": "F32", "shape": [20, 30], "data_offsets": [0, 2400]},
        "b": {"dtype": "BF16", "shape": [2], "data_offsets": [2400, 2404]},
        "c": {"dtype": "F8_E4M3", "shape": [], "data_offsets": [2404, 2405]},
        "__metadata__": {"step": "3", "loss_scale": "1", "numel_full": '{"a": 100}'},
    }
    tensors = {
        "a": torch.from_numpy(x),
        "view": torch.arange(100.0)[10:40:3].reshape(2, 5).t(),
        "list": [torch.ones(2, dtype=torch.bfloat16), {"p": torch.nn.Parameter(torch.ones(3))}],
        "expanded": torch.ones(1).expand(3, 2),
        "count": torch.arange(3),
    }
    return {
        "x.safetensors": safetensors_bytes(header, bytes(2405)),
        "c.npy": _written(np.save, x.astype(">f8")),
        "fortran.npy": _written(np.save, np.asfortranarray(x)),
        "x.npz": _written(np.savez_compressed, a=x, b=np.asfortranarray(x), c=x[0]),
        "new.pt": _written(lambda file: torch.save(tensors, file)),
        "old.pt": _written(lambda file: torch.save(tensors, file, _use_new_zipfile_serialization=False)),
        "code.pt": _written(lambda file: torch.save([tensors["a"], Malicious(proof)], file)),
    }


def _written(write, *content, **named) -> bytes:
    file = io.BytesIO()
    write(file, *content, **named)
    return file.getvalue()


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a few things wrong, half of them near the start, where headers are."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(min(200, len(damaged)) if rng.random() < 0.5 else len(damaged)) if damaged else 0
        match rng.randrange(6):
            case 0:
                damaged[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del damaged[at : at + rng.choice([1, 3, 9, len(damaged)])]
            case 2:
                damaged[at:at] = rng.randbytes(rng.randint(1, 9))
            case 3:
                damaged[at : at + 1] = bytes([rng.choice(b"0123456789{}[]()\"',:-<>fVO")])
            case 4:
                damaged[at : at + 8] = struct.pack("<Q", rng.choice([0, 1, 1 << 31, 1 << 63, (1 << 64) - 1]))
            case 5:
                damaged[at : at + 4] = damaged[at + 4 : at + 8]
    return bytes(damaged)


def mutated_inside(archive: bytes, rng: random.Random) -> bytes:
    """A zip archive with one member damaged and its checksum right again, so that what reads the member meets it."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(file, "w") as new:
        members = old.infolist()
        chosen = members[0] if rng.random() < 0.6 else rng.choice(members)
        for member in members:
            content = old.read(member)
            new.writestr(member.filename, mutated(content, rng) if member is chosen else content)
    return file.getvalue()


def outcomes(folder: Path, count: int, seed: int) -> Counter[tuple[str, str]]:
    """Read so many mutated files; how many of each kind were read and refused."""
    rng, proof = random.Random(seed), folder / "executed"
    kinds = originals(proof)
    results: Counter[tuple[str, str]] = Counter()
    for i in range(count):
        name = list(kinds)[i % len(kinds)]
        inside = zipfile.is_zipfile(io.BytesIO(kinds[name])) and rng.random() < 0.7
        data = (mutated_inside if inside else mutated)(kinds[name], rng)
        (folder / name).write_bytes(data)
        try:
            size = read_all(folder / name)
        except ps.InputError as error:
            results[name, "refused"] += 1
            message = str(error)
        else:
            results[name, "read"] += 1
            message = name
            assert size <= len(data) or name.endswith((".pt", ".npz")), f"file {i} of seed {seed}, {name}"
        assert name in message, f"file {i} of seed {seed}: {message}"
        assert message.isprintable(), f"file {i} of seed {seed}: {message}"
        assert not proof.exists(), f"file {i} of seed {seed} executed code"
    return results


def check(results: Counter[tuple[str, str]], at_least: int) -> None:
    """Every kind was met both ways: readers that refuse all, or mutations that do nothing, would show here."""
    kinds = {name for name, _ in results}
    assert {name for name in kinds if results[name, "refused"] >= at_least} == kinds
    assert {name for name in kinds if results[name, "read"] >= at_least} == kinds - {"code.pt"}


def test_500_mutated_files(tmp_path):
    check(outcomes(tmp_path, 500, seed=1), at_least=1)


@pytest.mark.exhaustive
def test_20000_mutated_files(tmp_path):
    check(outcomes(tmp_path, 20_000, seed=2), at_least=50)


def test_all_originals_are_good(tmp_path):
    for name, data in originals(tmp_path / "executed").items():
        (tmp_path / name).write_bytes(data)
        if name != "code.pt":
            assert read_all(tmp_path / name) > 0
