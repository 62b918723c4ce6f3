"""From paths, folders and globs to the tensors in their files."""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from precsim.errors import InputError
from precsim.runs.entry import TensorEntry
from precsim.runs.folder import is_run_folder, sketch_files
from precsim.runs.numpy_file import read_npy, read_npz
from precsim.runs.safetensors_file import read_safetensors
from precsim.runs.sketch_file import read_sketch_entries
from precsim.runs.torch_file import read_torch

__all__ = ["EXTENSIONS", "Found", "expand_paths", "read_file"]

EXTENSIONS = (".safetensors", ".npy", ".npz", ".pt", ".pth")
"""Files that are read."""

_NAMED_ALONE = (".bin", ".parquet")
"""Files that are read, by torch and as sketches, if they are named: in folders most of them are something else."""

_SKETCHES = "sketches"
"""Folder whose .parquet files are sketches."""


class Found(NamedTuple):
    """What paths led to.

    Attributes
    ----------
    files : list of Path
        Each once.
    others : int
        How many files in folders are of kinds that precsim does not read.
    """

    files: list[Path]
    others: int


def expand_paths(paths: Iterable[str | os.PathLike[str]]) -> Found:
    """Files that the paths name: files themselves, those in folders, and matches of globs.

    Parameters
    ----------
    paths : iterable of path_like
        Folders are searched in depth, hidden files left out; each real folder once, so links that lead in circles do
        not.

    Returns
    -------
    Found
        In the order of the paths; folders' content and globs' matches in natural order (step2 before step10).

    Raises
    ------
    InputError
        If a path does not exist, can't be read, or holds no file of a known kind.
    """
    files: dict[Path, None] = {}
    others = 0
    for given in paths:
        try:
            found = _expand(os.fspath(given))
        except OSError as error:
            where = os.fsdecode(error.filename) if error.filename is not None else given
            raise InputError(f"{where}: can't be read: {_reason(error)}") from error
        files.update(dict.fromkeys(found.files))
        others += found.others
    if not files:
        raise InputError("no path was given: name a file, a folder or a glob")
    return Found(list(files), others)


def _expand(given: str) -> Found:
    path = Path(given)
    if not given or "\0" in given:
        raise InputError(f"{given!r} is no path: name a file, a folder or a glob")
    if path.is_dir():
        return _expand_folder(path)
    if path.exists():
        return Found([_checked(path)], 0)
    if any(sign in given for sign in "*?["):
        return _expand_glob(given)
    raise InputError(f"{given}: no such file or folder{_nearest(path)}")


def _checked(file: Path) -> Path:
    if file.suffix not in EXTENSIONS + _NAMED_ALONE:
        raise InputError(
            f"{file}: unknown kind of file: expected {', '.join(EXTENSIONS)}, or a folder of them"
        )
    if not file.is_file():  # a pipe would never end
        raise InputError(f"{file}: is a device or a pipe: expected a file or a folder")
    return file


def _expand_folder(folder: Path) -> Found:
    if is_run_folder(folder):
        steps = sketch_files(folder)
        if not steps:
            raise InputError(f"{folder}: is a run folder without any recorded step")
        return Found(list(steps), 0)
    content = list(_walk(folder))
    files = sorted((file for file in content if _is_read(file)), key=_natural)
    if not files:
        raise InputError(f"{folder}: holds no file that precsim reads ({', '.join(EXTENSIONS)})")
    return Found(files, len(content) - len(files))


def _is_read(file: Path) -> bool:
    return file.suffix in EXTENSIONS or (file.suffix == ".parquet" and file.parent.name == _SKETCHES)


def _expand_glob(pattern: str) -> Found:
    path = Path(pattern)
    try:
        # pathlib's ** does not follow links to folders: the glob module's does, in circles too.
        matches = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))), key=_natural)
    except (ValueError, IndexError, re.error) as error:
        raise InputError(f"{pattern}: no such file, and no glob: {_reason(error)}") from error
    if not matches:
        raise InputError(f"{pattern}: no such file or folder, and nothing matches it as a glob")
    found = [
        _expand(str(match))
        for match in matches
        if match.is_dir() or match.suffix in EXTENSIONS + _NAMED_ALONE
    ]
    if not found:
        raise InputError(f"{pattern}: matches no file that precsim reads ({', '.join(EXTENSIONS)})")
    return Found([file for part in found for file in part.files], sum(part.others for part in found))


def _nearest(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, names, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(str(path.parent / name) for name in near)}?" if near else ""


def _natural(path: Path) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key that takes runs of digits as numbers."""
    text = str(path)
    parts = re.split(r"(\d+)", text)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts], text


def _walk(top: Path) -> Iterator[Path]:
    """Files in a folder and those in it, hidden ones left out, each real folder once."""
    waiting, seen = [top], set()
    while waiting:
        folder = waiting.pop()
        status = folder.stat()
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in sorted(folder.iterdir(), key=_natural, reverse=True):
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                waiting.append(entry)
            elif entry.is_file():
                yield entry


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:160]


def read_file(path: Path, dtypes: Mapping[str, str] | None = None) -> list[TensorEntry]:
    """The tensors of one file.

    Parameters
    ----------
    path : Path
    dtypes : mapping of str to str, optional
        Types of tensors that lost theirs in a NumPy file, by name or glob.

    Raises
    ------
    InputError
        If the file can't be read, is damaged, or holds what is no tensor of numbers.
    """

    def stated(name: str) -> str | None:
        return next(
            (dtype for pattern, dtype in (dtypes or {}).items() if fnmatch.fnmatchcase(name, pattern)), None
        )

    try:
        match path.suffix:
            case ".safetensors":
                return read_safetensors(path)
            case ".npy":
                return read_npy(path, stated)
            case ".npz":
                return read_npz(path, stated)
            case ".pt" | ".pth" | ".bin":
                return read_torch(path)
            case ".parquet":
                return list(read_sketch_entries(path))
    except OSError as error:
        raise InputError(f"{path}: can't be read: {_reason(error)}") from error
    raise InputError(f"{path}: unknown kind of file: expected {', '.join(EXTENSIONS)}")
