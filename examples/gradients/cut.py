"""Cut small examples from whole captures of gradients: every tensor stays, its elements are sampled.

    python examples/gradients/cut.py CAPTURES [OUT]

CAPTURES has the folders cnn, gpt and minilm, each with one safetensors file a step. Same input, same bytes.
"""

import json
import math
import sys
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

ELEMENTS = 1000
"""At most so many elements of a tensor are kept; a tensor that has no more is kept whole, with its shape."""

STEPS = {
    "cnn": ("step0000", "step0500"),
    "gpt": ("step0000", "step0500"),
    "minilm": ("step1", "step5"),
}

GPT_TOKENS = 24 * 96
GPT_ACTIVATION_SIZES = {
    "out": GPT_TOKENS * 128,
    "up": GPT_TOKENS * 512,
    "scores": GPT_TOKENS * 4 * 96,
    "probs": GPT_TOKENS * 4 * 96,
    "logits": GPT_TOKENS * 103,
}
"""The captures of gpt hold a sample of each activation gradient and don't say of how many elements."""


def sample(values: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Elements drawn without replacement, in their order, the largest and the smallest nonzero magnitude among them."""
    if values.size <= ELEMENTS:
        return values
    flat = values.ravel()
    magnitude = np.abs(flat)
    extremes = [int(magnitude.argmax()), int(np.where(magnitude > 0, magnitude, np.inf).argmin())]
    others = np.setdiff1d(np.arange(flat.size), extremes)
    count = ELEMENTS - len(set(extremes))
    drawn = np.random.default_rng(seed).choice(others, count, replace=False)
    return flat[np.union1d(drawn, extremes)]


def full_sizes(
    model: str, tensors: dict[str, NDArray[np.float32]], metadata: dict[str, str]
) -> dict[str, int]:
    """How many elements each gradient had in the run, which a capture that is itself a sample may know better."""
    known = json.loads(metadata.get("numel_full", "{}"))
    if model == "gpt":
        known = {
            name: GPT_ACTIVATION_SIZES[name.rpartition("/")[2].rpartition(".")[2]]
            for name in tensors
            if name.startswith("act_grad/")
        }
    return {name: known.get(name, values.size) for name, values in tensors.items()}


def write_safetensors(path: Path, tensors: dict[str, NDArray[np.float32]], metadata: dict[str, str]) -> None:
    """Write float32 tensors with a sorted header: the library's own writer orders the metadata by chance."""
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
    offset = 0
    for name, values in tensors.items():
        end = offset + values.nbytes
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (math.ceil(len(text) / 8) * 8 - len(text))
    body = b"".join(values.astype("<f4").tobytes() for values in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def cut(source: Path, target: Path, model: str) -> None:
    """Cut one file."""
    with safe_open(source, framework="numpy") as file:
        metadata = file.metadata()
        whole = {name: file.get_tensor(name) for name in sorted(file.keys())}
    kept = {
        name: sample(values, zlib.crc32(f"{source.stem}/{name}".encode())) for name, values in whole.items()
    }
    metadata["numel_full"] = json.dumps(full_sizes(model, whole, metadata), separators=(",", ":"))
    metadata["subsample"] = (
        f"at most {ELEMENTS} elements of each tensor, drawn at random, "
        "the largest and the smallest nonzero magnitude kept"
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_safetensors(target, kept, metadata)


def main() -> None:
    """Cut all files."""
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: cut.py CAPTURES [OUT]")
    captures = Path(sys.argv[1])
    out = Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).parent
    for model, steps in STEPS.items():
        for step in steps:
            cut(captures / model / f"{step}.safetensors", out / model / f"{step}.safetensors", model)


if __name__ == "__main__":
    main()
