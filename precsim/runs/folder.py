"""The run folder: what a recorder writes step by step, and loses nothing of.

Described in docs/run-folder.md; `SCHEMA` is its name and version.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precsim.errors import InputError
from precsim.runs.sketch_file import SketchRow, read_metadata, write_sketches, write_whole

__all__ = ["SCHEMA", "RunFolder", "is_run_folder", "read_scalars", "sketch_files"]

SCHEMA = "precsim.run/1"
"""Name and version of the layout; a change that readers could notice gets a new number."""

_STEP = re.compile(r"step-(\d+)\.rank-(\d+)\.(parquet|safetensors)")
_BEGUN = re.compile(r"sketches|tensors|status\.rank-\d+\.json|\.run\.json\..*\.part")
_STATUS_BYTES = 4096


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is a recorder's.

    Raises
    ------
    InputError
        If it is one of another version, or its description is damaged.
    """
    path = folder / "run.json"
    if not path.is_file() or not (folder / "sketches").is_dir():
        return False
    schema = _described(path).get("schema")
    if schema is None:
        return False
    if schema != SCHEMA:
        raise InputError(f"{path}: is a run of layout {schema!r}; this version reads {SCHEMA}")
    return True


def _only_begun(folder: Path) -> bool:
    """Whether all that a folder holds is what other ranks make in it before the first one describes it."""
    return all(_BEGUN.fullmatch(path.name) for path in folder.iterdir())


def _described(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: can't be read as JSON: {error}") from error
    return found if isinstance(found, dict) else {}


def sketch_files(folder: Path) -> list[Path]:
    """The files of recorded steps, by step and rank."""
    files = [
        path for path in (folder / "sketches").glob("step-*.rank-*.parquet") if _STEP.fullmatch(path.name)
    ]
    return sorted(files, key=_place)


def _place(path: Path) -> tuple[int, int]:
    found = _STEP.fullmatch(path.name)
    assert found is not None
    return int(found[1]), int(found[2])


def read_scalars(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """What was noted at each recorded step: its number, rank, loss scale, whether it was skipped, and more.

    Returns
    -------
    list of dict
        In order of steps and ranks. None stands for what was not known.

    Raises
    ------
    InputError
        If the folder is no run's, or a file is damaged.
    """
    root = Path(folder)
    if not is_run_folder(root):
        raise InputError(f"{root}: is no run folder of precsim's: it has no run.json")
    rows = []
    for path in sketch_files(root):
        step, rank = _place(path)
        try:
            noted = json.loads(read_metadata(path).get("precsim.scalars", "{}"))
        except ValueError as error:
            raise InputError(f"{path}: its scalars are damaged") from error
        rows.append({"step": step, "rank": rank, **noted})
    return rows


@dataclass
class RunFolder:
    """Writes a run folder, one rank of it.

    Every file is there in whole or not at all. A step is recorded when `write_step` returns.

    Attributes
    ----------
    path : Path
    rank : int
    incomplete_from : int or None
        First step that could not be written.
    """

    path: Path
    rank: int = 0
    incomplete_from: int | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], description: Mapping[str, Any], rank: int = 0) -> RunFolder:
        """Make a folder, or go on in one that is there.

        Raises
        ------
        InputError
            If the folder holds something else, is of another version, or can't be written.
        """
        root = Path(path)
        try:
            if rank == 0 and root.exists() and not is_run_folder(root) and not _only_begun(root):
                raise InputError(f"{root}: holds files and is no run folder: choose an empty or a new folder")
            for name in ("sketches", "tensors"):
                (root / name).mkdir(parents=True, exist_ok=True)
            for left in [*(root / "sketches").glob(".*.part"), *(root / "tensors").glob(".*.part")]:
                if f".rank-{rank}." in left.name:  # of a recorder that was killed
                    left.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{root}: can't be written: {error.strerror or error}") from error
        folder = cls(root, rank)
        if rank == 0:
            text = json.dumps({"schema": SCHEMA, **description}, indent=1) + "\n"
            write_whole(root / "run.json", lambda file: file.write(text.encode()))
        folder._write_status({"complete": True})
        return folder

    @property
    def recorded_steps(self) -> list[int]:
        """Steps that this rank has recorded."""
        return [step for step, rank in map(_place, sketch_files(self.path)) if rank == self.rank]

    def write_step(
        self,
        step: int,
        rows: Sequence[SketchRow],
        scalars: Mapping[str, Any],
        tensors: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Write one step: full tensors first, then sketches with scalars, which make it recorded.

        Raises
        ------
        InputError
            If it can't be written.
        """
        name = f"step-{step:010}.rank-{self.rank}"
        if tensors:
            from safetensors.torch import save

            content = save(dict(tensors), dict(metadata or {}))
            write_whole(self.path / "tensors" / f"{name}.safetensors", lambda file: file.write(content))
        noted = json.dumps(dict(scalars))
        write_sketches(self.path / "sketches" / f"{name}.parquet", rows, more={"precsim.scalars": noted})

    def give_up(self, step: int) -> None:
        """Note that steps from this one on are missing."""
        self.incomplete_from = step
        self._write_status({"complete": False, "incomplete_from": step})

    def close(self) -> None:
        """Gather the scalars of all steps in one table, for other programs; the steps' own files keep them too."""
        if self.rank != 0 or self.incomplete_from is not None:
            return
        rows = read_scalars(self.path)
        if rows:
            import pyarrow
            import pyarrow.parquet

            table = pyarrow.Table.from_pylist(rows)
            write_whole(self.path / "scalars.parquet", lambda file: pyarrow.parquet.write_table(table, file))

    def _write_status(self, status: Mapping[str, Any]) -> None:
        """In place, in a file whose space is taken from the beginning: it can be written on a full disk."""
        path = self.path / f"status.rank-{self.rank}.json"
        text = json.dumps(dict(status)).ljust(_STATUS_BYTES - 1) + "\n"
        try:
            with open(path, "r+b" if path.exists() else "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if status.get("complete"):
                raise InputError(f"{path}: can't be written: {error.strerror or error}") from error
