"""What a file says of the tensors in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

__all__ = ["loss_scale", "numel_full"]


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
    """The loss scale that the gradients still carry (metadata key ``loss_scale``), None if it is not said."""
    try:
        return float(metadata["loss_scale"])
    except (KeyError, ValueError):
        return None
