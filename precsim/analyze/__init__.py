"""What formats and scales do to recorded tensors."""

from precsim.analyze.analysis import (
    GROUPINGS,
    Analysis,
    Evidence,
    FormatResult,
    Group,
    TensorResult,
    analyze,
)
from precsim.analyze.conditions import Condition, parse_condition
from precsim.analyze.scale import parse_scale

__all__ = [
    "GROUPINGS",
    "Analysis",
    "Condition",
    "Evidence",
    "FormatResult",
    "Group",
    "TensorResult",
    "analyze",
    "parse_condition",
    "parse_scale",
]
