"""`precsim record`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from precsim.errors import InputError

__all__ = ["command"]


@click.command(
    name="record", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option(
    "--to", "path", default="run", show_default=True, metavar="FOLDER", help="Run folder: made, or continued."
)
@click.option(
    "--every", type=click.IntRange(min=1), default=1, show_default=True, help="Record each so many steps."
)
@click.option(
    "--kinds",
    default="grad,act_grad",
    show_default=True,
    help="Of grad (parameters' gradients), act_grad (modules' output gradients), act (outputs), weight.",
)
@click.option(
    "--names", multiple=True, metavar="GLOB", help="Parameters and modules to record; all by default."
)
@click.option(
    "--tensors", multiple=True, metavar="GLOB", help="Keep whole gradients of these parameters too."
)
@click.option(
    "--tensors-every",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="At each so many steps.",
)
@click.option("--sample", type=click.IntRange(min=1), help="Keep at most so many elements of each.")
@click.option("--errors", is_flag=True, help="Sketches that tell errors too: more time, ten times the size.")
@click.argument("program", nargs=-1, required=True, metavar="-- PROGRAM [ARGS]...")
def command(
    path: str,
    every: int,
    kinds: str,
    names: tuple[str, ...],
    tensors: tuple[str, ...],
    tensors_every: int,
    sample: int | None,
    errors: bool,
    program: tuple[str, ...],
) -> int:
    """Run a training script and record its gradients, without touching it.

    PROGRAM is what you would type: python train.py ARGS, torchrun train.py, or train.py. Its torch optimizers and loss
    scalers are watched as they are made. Exits with the program's own exit code.
    """
    from precsim.recording.automatic import VARIABLE
    from precsim.recording.recorder import KINDS

    chosen = [kind.strip() for kind in kinds.split(",") if kind.strip()]
    for kind in chosen:
        if kind not in KINDS:
            raise InputError(f"--kinds {kinds}: unknown kind {kind!r}: choose {', '.join(KINDS)}")
    line = list(program)
    if line[0].endswith(".py"):
        line.insert(0, sys.executable)
    elif line[0] in ("python", "python3"):
        line[0] = sys.executable  # the Python that has precsim
    if shutil.which(line[0]) is None:
        raise InputError(f"{line[0]}: no such program")
    options = {
        "path": os.path.abspath(path),
        "every": every,
        "kinds": chosen,
        "names": list(names) or "*",
        "tensors": list(tensors),
        "tensors_every": tensors_every,
        "sample": sample,
        "errors": errors,
    }
    hook = Path(__file__).parents[1] / "recording" / "hook"
    package = Path(__file__).parents[2]
    paths = [str(hook), *([str(package)] if _needs_path() else []), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        VARIABLE: json.dumps(options),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    try:
        return subprocess.run(line, env=environment).returncode
    except KeyboardInterrupt:  # the program got it too, and has finished its folder
        return 130


def _needs_path() -> bool:
    """Whether precsim is found by this process alone, not installed where its Python looks."""
    return str(Path(__file__).parents[2]) in sys.path
