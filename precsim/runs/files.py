"""From paths, folders and globs to the tensors in their files."""

from __future__ import annotations

import difflib
import fnmatch
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from precsim.errors import InputError
from precsim.runs.entry import TensorEntry
from precsim.runs.numpy_file import read_npy, read_npz
from precsim.runs.safetensors_file import read_safetensors
from precsim.runs.torch_file import read_torch

__all__ = ["EXTENSIONS", "expand_paths", "read_file"]

EXTENSIONS = (".safetensors", ".npy", ".npz", ".pt", ".pth")
"""Files that are read."""


def expand_paths(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files that the paths name: files themselves, those in folders, and matches of globs.

    Parameters
    ----------
    paths : iterable of path_like
        Folders are searched in depth; each real folder once, so links that lead in circles do not.

    Returns
    -------
    list of Path
        Each file once, folders' content in natural order (step2 before step10).

    Raises
    ------
    InputError
        If a path does not exist, can't be read, or holds no file of a known kind.
    """
    found: dict[Path, None] = {}
    for given in paths:
        found.update(dict.fromkeys(_expand(os.fspath(given))))
    return list(found)


def _expand(given: str) -> list[Path]:
    path = Path(given)
    try:
        if path.is_dir():
            files = sorted(_walk(path, set()), key=_natural)
            if not files:
                raise InputError(f"{given}: holds no file that precsim reads ({', '.join(EXTENSIONS)})")
            return files
        if path.exists():
            if path.suffix not in EXTENSIONS:
                raise InputError(
                    f"{given}: unknown kind of file: expected {', '.join(EXTENSIONS)}, or a folder of them"
                )
            return [path]
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{given!r}: can't be looked at: {_reason(error)}") from error
    matches = (
        sorted((Path(match) for match in glob.iglob(given, recursive=True)), key=_natural)
        if _is_glob(given)
        else []
    )
    if matches:
        return [
            file
            for match in matches
            if match.is_dir() or match.suffix in EXTENSIONS
            for file in _expand(str(match))
        ]
    raise InputError(f"{given}: no such file or folder{_nearest(path)}")


def _is_glob(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def _nearest(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, names, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(str(path.parent / name) for name in near)}?" if near else ""


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort key that takes runs of digits as numbers."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", str(path))
    ]


def _walk(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    status = folder.stat()
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return
    seen.add(identity)
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(entry, seen)
        elif entry.suffix in EXTENSIONS and entry.is_file():
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
            case ".pt" | ".pth":
                return read_torch(path)
    except OSError as error:
        raise InputError(f"{path}: can't be read: {_reason(error)}") from error
    raise InputError(f"{path}: unknown kind of file: expected {', '.join(EXTENSIONS)}")
