"""Recorded tensors: files of many kinds, read lazily and trusted in nothing."""

from precsim.runs.entry import TensorEntry
from precsim.runs.files import expand_paths, read_file
from precsim.runs.metadata import loss_scale, numel_full, step
from precsim.runs.run import Run, open_run
from precsim.runs.sketch_file import SketchRow, read_sketches, write_sketches

__all__ = [
    "Run",
    "SketchRow",
    "TensorEntry",
    "expand_paths",
    "loss_scale",
    "numel_full",
    "open_run",
    "read_file",
    "read_sketches",
    "step",
    "write_sketches",
]
