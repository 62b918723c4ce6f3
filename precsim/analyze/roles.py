"""What a tensor is, as its name tells."""

from __future__ import annotations

import re

__all__ = ["role_of"]

_ACTIVATION = re.compile(r"^(act|activation)")
_NORM = re.compile(
    r"(^|[._/])(ln|bn|gn|rms|norm|layernorm|batchnorm|groupnorm|rmsnorm|ln_f)[0-9_a-z]*([._]|$)|norm", re.I
)
_EMBEDDING = re.compile(r"emb|(^|[._/])(wte|wpe|word|pos|typ|tok)([._]|$)", re.I)


def role_of(name: str) -> str:
    """One of activation gradient, norm, embedding, bias, weight: read from usual names, so a guess for unusual ones."""
    kind, slash, rest = name.partition("/")
    if slash and _ACTIVATION.match(kind):
        return "activation gradient"
    path = rest if slash else name
    if _NORM.search(path):
        return "norm"
    if _EMBEDDING.search(path):
        return "embedding"
    if re.search(r"(^|[._])(b|bias)$", path):
        return "bias"
    return "weight"
