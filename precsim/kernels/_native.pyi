from collections.abc import Sequence
from typing import Any

class Plan:
    def __init__(self, values: Sequence[int], /) -> None: ...

def encode(
    kind: int,
    data: Any,
    table: Any,
    flush_below: float,
    multiplier: float,
    plan: Plan,
    out: Any,
    seed: int,
    first: int,
    given: Any,
    threads: int,
) -> None: ...
def quantize32(
    kind: int,
    data: Any,
    table: Any,
    flush_below: float,
    multiplier: float,
    plan: Plan,
    values: Any,
    out: Any,
    divisor: float,
    seed: int,
    first: int,
    given: Any,
    threads: int,
) -> None: ...
def quantize64(
    kind: int,
    data: Any,
    table: Any,
    flush_below: float,
    multiplier: float,
    plan: Plan,
    values: Any,
    out: Any,
    divisor: float,
    seed: int,
    first: int,
    given: Any,
    threads: int,
) -> None: ...
def decode32(codes: Any, values: Any, out: Any, threads: int) -> None: ...
def decode64(codes: Any, values: Any, out: Any, threads: int) -> None: ...
def count(
    kind: int, data: Any, values: Any, bin_count: int, coarse: Any, fine: Any, threads: int
) -> tuple[int, Any, int, int, int, int, float, float]: ...
def moments(
    kind: int,
    data: Any,
    values: Any,
    bin_count: int,
    coarse: Any,
    fine: Any,
    group_count: int,
    groups: Any,
    threads: int,
) -> tuple[tuple[int, Any, int, int, int, int, float, float], Any, Any, int]: ...
def instruction_set() -> str: ...
def flush_to_zero() -> bool: ...
