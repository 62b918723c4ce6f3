"""Paths, folders and globs: everything found once and in order, nothing that never ends."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import precsim as ps
from precsim.runs import loss_scale, numel_full, step


def tensors(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / name, np.float32([1.0]))


def found(path) -> list[str]:
    return [file.name for file in ps.open_run(path).files]


def test_natural_order_and_what_is_left_out(tmp_path):
    tensors(tmp_path, "s10/g.npy", "s2/g.npy", "s02/g.npy", "a.npy", ".hidden/x.npy", ".x.npy")
    (tmp_path / "notes.txt").write_text("text")
    (tmp_path / "s2" / "log.json").write_text("{}")
    run = ps.open_run(tmp_path)
    assert [str(file.relative_to(tmp_path)) for file in run.files] == [
        "a.npy",
        "s02/g.npy",
        "s2/g.npy",
        "s10/g.npy",
    ]
    assert run.others == 2
    assert run.names == ["a", "g", "g", "g"]
    with pytest.raises(ps.InputError, match="tensor 'g' is in .*: open the one file that is meant"):
        run["g"]


def test_linked_folders_are_visited_once(tmp_path):
    tensors(tmp_path, "real/x.npy")
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    assert found(tmp_path) == ["x.npy"]


@pytest.mark.parametrize("pattern", ["**/*.npy", "**/x.npy", "a/**", "*/*/../*/*.npy"])
def test_globs_in_a_maze_of_loops_end(tmp_path, pattern):
    # Two links back make 2^40 paths of forty steps.
    tensors(tmp_path, "a/b/x.npy")
    for name in ("one", "two"):
        (tmp_path / "a" / "b" / name).symlink_to(tmp_path / "a")
    assert set(found(str(tmp_path / pattern))) == {"x.npy"}


def test_names_with_glob_signs_are_names_first(tmp_path):
    tensors(tmp_path, "w[0].npy", "w0.npy")
    assert found(tmp_path / "w[0].npy") == ["w[0].npy"]
    assert found(str(tmp_path / "w[01].npy")) == ["w0.npy"]


@pytest.mark.parametrize("given", ["", "a\0b", "**a/[", "x" * 5000, "no/such/*.npy", "/no/such"])
def test_paths_that_are_none(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ps.InputError) as caught:
        ps.open_run(given)
    assert "\n" not in str(caught.value)


def test_no_paths_at_all():
    with pytest.raises(ps.InputError, match="no path was given"):
        ps.open_run([])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(ps.InputError, match=r"x\.npy: is a device or a pipe"):
        ps.open_run(tmp_path / "x.npy")
    tensors(tmp_path, "y.npy")
    assert found(tmp_path) == ["y.npy"]


def test_a_folder_that_can_not_be_listed_is_named(tmp_path, monkeypatch):
    tensors(tmp_path, "a/x.npy", "locked/y.npy")
    # Whoever runs the tests may be allowed everything: the system's answer is given by hand.
    listing = Path.iterdir

    def refuse(folder):
        if folder.name == "locked":
            raise PermissionError(13, "Permission denied", str(folder))
        return listing(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ps.InputError, match=r"/locked: can't be read: Permission denied$"):
        ps.open_run(tmp_path)


@pytest.mark.parametrize("suffix", [".safetensors", ".npy", ".npz", ".pt"])
def test_a_file_that_can_not_be_opened_is_named(good_files, monkeypatch, suffix):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    run = ps.open_run(good_files[suffix])
    monkeypatch.setattr("io.open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(ps.InputError, match=rf"x{suffix}: .*Permission denied") as caught:
        list(run)
    assert "damaged" not in str(caught.value)


def test_a_file_that_goes_away_between_header_and_data(good_files):
    for suffix in (".safetensors", ".npy", ".npz"):
        entry = next(iter(ps.open_run(good_files[suffix])))
        good_files[suffix].unlink()
        with pytest.raises(ps.InputError, match=rf"x{suffix}: .*can't be read"):
            entry.array()


def test_messages_are_one_line_whatever_the_names(tmp_path):
    (tmp_path / "a\n\x1b[31mb.npy").write_bytes(b"no array")
    with pytest.raises(ps.InputError) as caught:
        list(ps.open_run(tmp_path))
    assert str(caught.value).isprintable()
    assert r"a\n\x1b[31mb.npy" in str(caught.value)


def test_a_file_name_that_is_no_text(tmp_path):
    name = os.fsdecode(b"x\xff.npy")
    tensors(tmp_path, name)
    with pytest.raises(ps.InputError, match="is no Unicode text: rename it") as caught:
        list(ps.open_run(tmp_path))
    assert str(caught.value).isprintable()


def test_facts_in_metadata():
    assert step({"step": "30"}) == 30
    assert [step({"step": text}) for text in ("", "-1", "x", "9" * 5000, "³")] == [None] * 5
    assert loss_scale({"loss_scale": "65536"}) == 65536.0
    assert [loss_scale({"loss_scale": text}) for text in ("nan", "inf", "0", "-2", "x")] == [None] * 5
    assert numel_full({"numel_full": '{"w": 9, "v": -1, "u": "x"}'}) == {"w": 9}
    assert [numel_full({"numel_full": text}) for text in ("", "[", "3", "[" * 100_000)] == [{}] * 4
