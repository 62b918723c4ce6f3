"""What a file says of the tensors in it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache

__all__ = ["loss_scale", "numel_full", "step", "step_of_name"]


def numel_full(metadata: Mapping[str, str]) -> Mapping[str, int]:
    """True sizes of tensors that were recorded as samples (metadata key ``numel_full``, a JSON object)."""
    return _parsed_sizes(metadata.get("numel_full", ""))


@lru_cache(maxsize=64)
def _parsed_sizes(text: str) -> Mapping[str, int]:
    try:
        sizes = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(sizes, dict):
        return {}
    return {str(name): size for name, size in sizes.items() if isinstance(size, int) and size >= 0}


def loss_scale(metadata: Mapping[str, str]) -> float | None:
    """The loss scale that the gradients still carry (metadata key ``loss_scale``), None if it is not said.

    What is no positive number says nothing.
    """
    try:
        scale = float(metadata["loss_scale"])
    except (KeyError, ValueError):
        return None
    return scale if 0 < scale < math.inf else None


def step(metadata: Mapping[str, str]) -> int | None:
    """The training step that the tensors are of (metadata key ``step``), None if it is not said."""
    text = metadata.get("step", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def step_of_name(stem: str) -> int | None:
    """The training step that a file is named after: ``step0500``, ``run_step-12``, ``step3.rank0``; None for others."""
    found = re.search(r"(?:^|[^a-z])step[-_.=]?(\d{1,18})(?!\d)", stem.lower())
    return int(found[1]) if found else None
