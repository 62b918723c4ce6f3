"""What a tensor is, as its name tells."""

from __future__ import annotations

import re

__all__ = ["is_forward", "role_of"]

_ACTIVATION = re.compile(r"^(act|activation)")
_FORWARD = re.compile(r"^(act|activation|input|output|weight|param)s?$", re.I)
_NORM = re.compile(r"(^|[._/])(ln|bn|gn)[0-9_a-z]*([._]|$)|norm", re.I)
_EMBEDDING = re.compile(r"emb|(^|[._/])(wte|wpe|word|pos|typ|tok)([._]|$)", re.I)


def role_of(name: str) -> str:
    """One of activation, activation gradient, norm, embedding, bias, weight: a guess where names are unusual."""
    kind, slash, rest = name.partition("/")
    if slash and _ACTIVATION.match(kind):
        return "activation" if is_forward(name) else "activation gradient"
    path = rest if slash else name
    if _NORM.search(path):
        return "norm"
    if _EMBEDDING.search(path):
        return "embedding"
    if re.search(r"(^|[._])(b|bias)$", path):
        return "bias"
    return "weight"


def is_forward(name: str) -> bool:
    """Whether a tensor is none of the backward pass (an activation, a weight), which no loss scale moves."""
    kind, slash, _ = name.partition("/")
    return bool(slash and _FORWARD.match(kind))
