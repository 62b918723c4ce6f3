"""Sketches as Parquet: one row for each run, step, rank, tensor and kind, for precsim and for any query engine.

The layout is described in docs/sketch-files.md; `SCHEMA` is its name and version.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from precsim.errors import InputError
from precsim.kernels import PRECISIONS
from precsim.runs.entry import TensorEntry, stored_type
from precsim.sketches import Sketch
from precsim.sketches.edges import BIN_COUNT, EDGES
from precsim.sketches.groups import GROUP_EDGES
from precsim.sketches.moments import Moments

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "SCHEMA",
    "SketchRow",
    "read_metadata",
    "read_sketch_entries",
    "read_sketches",
    "write_sketches",
    "write_whole",
]

SCHEMA = "precsim.sketches/1"
"""Name and version of the layout; a change that readers could notice gets a new number."""

_INTEGERS = ("zeros", "positive_infinities", "negative_infinities", "nans")


@dataclass(frozen=True)
class SketchRow:
    """A sketch and what it is of.

    Attributes
    ----------
    tensor : str
        Name of the parameter or module.
    sketch : Sketch
    run : str
    step : int or None
        Training step.
    rank : int
        Process that recorded it.
    kind : str
        What of the tensor it is: ``grad``, ``act_grad``, ``weight``, … Empty if that is part of its name.
    dtype : str
        Type that the numbers were captured in.
    loss_scale : float or None
        Loss scale that the numbers still carry; 1.0 for true gradients, None if it is not known.
    numel_full : int or None
        True number of elements where the sketch is of a sample.
    """

    tensor: str
    sketch: Sketch
    run: str = ""
    step: int | None = None
    rank: int = 0
    kind: str = ""
    dtype: str = "float32"
    loss_scale: float | None = None
    numel_full: int | None = None


def write_sketches(
    path: str | os.PathLike[str], rows: Iterable[SketchRow], *, more: Mapping[str, str] | None = None
) -> None:
    """Write a Parquet file of sketches.

    The file is there in whole or not at all: it is written under another name, synced, and renamed.

    Parameters
    ----------
    path : path_like
        Replaced if it is there.
    rows : iterable of SketchRow
    more : mapping of str to str, optional
        Further metadata of the file.

    Raises
    ------
    InputError
        If pyarrow is not installed or the file can't be written.
    """
    arrow, parquet = _pyarrow()
    table = _table(arrow, list(rows), more or {})
    target = Path(path)
    write_whole(target, lambda file: parquet.write_table(table, file, compression="zstd"))


def write_whole(target: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file that is there in whole or not at all: under another name, synced, renamed.

    Raises
    ------
    InputError
        If it can't be written; what was there before stays.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{target}: can't be written: {error.strerror or error}") from error


def read_sketches(path: str | os.PathLike[str]) -> Iterator[SketchRow]:
    """Read the rows of a file that `write_sketches` made.

    Raises
    ------
    InputError
        If it is none, is damaged, or was made by a version of another layout.
    """
    arrow, parquet = _pyarrow()
    source = Path(path)
    try:
        with parquet.ParquetFile(source) as file:
            _check_schema(file.schema_arrow, source, arrow)
            for batch in file.iter_batches(batch_size=256):
                for columns in batch.to_pylist():
                    yield _row(columns, source)
    except (arrow.ArrowException, OSError) as error:
        text = " ".join(str(error).split())
        raise InputError(f"{source}: is no readable Parquet file: {text[:200]}") from error


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file of sketches.

    Raises
    ------
    InputError
        As for `read_sketches`.
    """
    arrow, parquet = _pyarrow()
    try:
        schema = parquet.read_schema(path)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(
            f"{path}: is no readable Parquet file: {' '.join(str(error).split())[:200]}"
        ) from error
    _check_schema(schema, path, arrow)
    return {key.decode(): value.decode("utf-8", "replace") for key, value in schema.metadata.items()}


def read_sketch_entries(path: Path) -> Iterator[TensorEntry]:
    """The sketches of a file as tensors of a run."""
    for row in read_sketches(path):
        metadata = {} if row.step is None else {"step": str(row.step)}
        if row.loss_scale is not None:
            metadata["loss_scale"] = repr(row.loss_scale)
        name = f"{row.kind}/{row.tensor}" if row.kind else row.tensor
        if row.numel_full is not None:
            metadata["numel_full"] = json.dumps({name: row.numel_full})
        yield TensorEntry(
            name=name,
            path=path,
            dtype=row.dtype,
            format=stored_type(row.dtype).format,
            shape=(row.sketch.n,),
            metadata=metadata,
            read=lambda _: iter(()),
            stored=row.sketch,
        )


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'precsim[parquet]'") from error
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any) -> pyarrow.Schema:
    integers = arrow.list_(arrow.int64())
    fields = [
        ("run", arrow.string()),
        ("step", arrow.int64()),
        ("rank", arrow.int32()),
        ("kind", arrow.string()),
        ("tensor", arrow.string()),
        ("dtype", arrow.string()),
        ("loss_scale", arrow.float64()),
        ("numel", arrow.int64()),
        ("numel_full", arrow.int64()),
        *((name, arrow.int64()) for name in _INTEGERS),
        ("amax", arrow.float64()),
        ("amin", arrow.float64()),
        ("least_exponent", arrow.int32()),
        ("binades", integers),
        ("counts", integers),
        ("distances", integers),
        ("sums", integers),
        ("rounded", arrow.int64()),
    ]
    metadata = {
        "precsim.schema": SCHEMA,
        "precsim.bin_edges": json.dumps([str(edge) for edge in EDGES]),
        "precsim.group_edges": json.dumps([str(edge) for edge in GROUP_EDGES]),
    }
    return arrow.schema(fields, metadata=metadata)


def _table(arrow: Any, rows: list[SketchRow], more: Mapping[str, str]) -> Any:
    """Rows as columns; lists by their offsets, without a Python object for each number."""
    sketches = [row.sketch for row in rows]
    moments = [sketch.moments for sketch in sketches]
    columns: dict[str, Any] = {
        "numel": [sketch.n for sketch in sketches],
        **{name: [getattr(sketch, name) for sketch in sketches] for name in _INTEGERS},
        "amax": [sketch.amax if sketch.nonzero else None for sketch in sketches],
        "amin": [sketch.amin if sketch.nonzero else None for sketch in sketches],
        "least_exponent": [sketch.least_exponent for sketch in sketches],
        "binades": _lists(arrow, [sketch.counts.sum(axis=(0, 2)) for sketch in sketches]),
        "counts": _lists(arrow, [sketch.counts for sketch in sketches]),
        "distances": _lists(arrow, [None if m is None else m.distances for m in moments]),
        "sums": _lists(arrow, [None if m is None else m.sums for m in moments]),
        "rounded": [None if m is None else m.rounded for m in moments],
    }
    schema = _schema(arrow)
    columns |= {name: [getattr(row, name) for row in rows] for name in schema.names if name not in columns}
    arrays = [
        column if isinstance(column, arrow.Array) else arrow.array(column, schema.field(name).type)
        for name, column in ((name, columns[name]) for name in schema.names)
    ]
    return arrow.Table.from_arrays(arrays, schema=schema.with_metadata({**schema.metadata, **more}))


def _lists(arrow: Any, arrays: list[Any]) -> Any:
    lengths = [0 if array is None else array.size for array in arrays]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    parts = [array.ravel() for array in arrays if array is not None]
    flat = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    mask = arrow.array([array is None for array in arrays], arrow.bool_())
    return arrow.ListArray.from_arrays(arrow.array(offsets), arrow.array(flat), mask=mask)


def _check_schema(found: Any, path: Path, arrow: Any) -> None:
    wanted = _schema(arrow)
    said = {key.decode(): value.decode("utf-8", "replace") for key, value in (found.metadata or {}).items()}
    name = said.get("precsim.schema")
    if name is None:
        raise InputError(
            f"{path}: is a Parquet file, but not of precsim's sketches: it has no precsim.schema"
        )
    edges_agree = all(
        said.get(key.decode()) == value.decode() for key, value in (wanted.metadata or {}).items()
    )
    if name != SCHEMA or not edges_agree or not found.equals(wanted):
        raise InputError(
            f"{path}: holds sketches of layout {name[:40]}, which is not this version's ({SCHEMA}): record again, or "
            "use the version of precsim that made it"
        )


def _row(columns: dict[str, Any], path: Path) -> SketchRow:
    try:
        return SketchRow(
            tensor=columns["tensor"],
            sketch=_sketch(columns),
            run=columns["run"],
            step=columns["step"],
            rank=columns["rank"],
            kind=columns["kind"],
            dtype=columns["dtype"],
            loss_scale=columns["loss_scale"],
            numel_full=columns["numel_full"],
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{path}: tensor {columns.get('tensor')!r}: its sketch is damaged: {error}"
        ) from error


def _sketch(columns: dict[str, Any]) -> Sketch:
    counts = np.array(columns["counts"], np.int64).reshape(2, -1, BIN_COUNT)
    rows = counts.shape[1]
    if columns["binades"] != counts.sum(axis=(0, 2)).tolist():
        raise ValueError("its counts do not add up to its binades")
    moments = None
    if columns["distances"] is not None:
        moments = Moments(
            np.array(columns["distances"], np.int64).reshape(2, rows, len(PRECISIONS), 2, 2),
            np.array(columns["sums"], np.int64).reshape(2, rows, len(GROUP_EDGES), 3, 2),
            int(columns["rounded"]),
        )
    amax, amin = columns["amax"], columns["amin"]
    sketch = Sketch(
        least_exponent=columns["least_exponent"],
        counts=counts,
        **{name: columns[name] for name in _INTEGERS},
        amax=0.0 if amax is None else amax,
        amin=math.inf if amin is None else amin,
        moments=moments,
    )
    if sketch.n != columns["numel"]:
        raise ValueError("its counts do not add up to its number of elements")
    return sketch
