"""`Run`: the tensors of one or many files, read when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from precsim.errors import InputError
from precsim.runs.entry import TensorEntry
from precsim.runs.files import expand_paths, read_file

__all__ = ["Run", "open_run"]


@dataclass(frozen=True)
class Run:
    """Recorded tensors, in files.

    Attributes
    ----------
    files : tuple of Path
        In natural order.
    others : int
        How many files in the folders are of kinds that precsim does not read.
    """

    files: tuple[Path, ...]
    others: int = 0
    dtypes: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __iter__(self) -> Iterator[TensorEntry]:
        for path in self.files:
            yield from read_file(path, self.dtypes)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def names(self) -> list[str]:
        """Names of the tensors, one per file that holds it."""
        return [entry.name for entry in self]

    def __getitem__(self, name: str) -> TensorEntry:
        """The tensor of this name.

        Raises
        ------
        InputError
            If there is none, or more than one file has it.
        """
        found = [entry for entry in self if entry.name == name]
        if len(found) != 1:
            files = ", ".join(str(entry.path) for entry in found)
            raise InputError(
                f"tensor {name!r} is in {files or 'none of the files'}: open the one file that is meant"
            )
        return found[0]


def open_run(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    dtypes: Mapping[str, str] | None = None,
) -> Run:
    """Open recorded tensors.

    Parameters
    ----------
    path : path_like or iterable of path_like
        .safetensors, .npy, .npz, .pt and .pth files, folders of them (in depth), globs.
    dtypes : mapping of str to str, optional
        Types of tensors that lost theirs in a NumPy file, by name or glob: ``{"*": "bfloat16"}``.

    Returns
    -------
    Run
        Lazy: headers are read when it is iterated, data when a tensor's chunks are.

    Raises
    ------
    InputError
        If a path does not exist or holds no file of a known kind.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    found = expand_paths(paths)
    return Run(tuple(found.files), found.others, dict(dtypes or {}))
