"""``python -m benchmarks.sweeping``: settings × steps per second of a sweep, beside stepping torch's own operator."""

from __future__ import annotations

import time

import numpy as np
import torch

from precsim.amp.scalers import Scaler, parse_scaler, sweep

STEPS, SETTINGS, SHORT = 100_000, 1000, 5000


def grid() -> list[Scaler]:
    """1,000 settings: first scales, intervals, and four systems."""
    systems = ("torch:", "megatron:", "deepspeed:raise_at_min=False,", "apex:")
    return [
        parse_scaler(f"{system}init=2^{init},growth_interval={interval}")
        for system in systems
        for init in range(8, 18)
        for interval in np.unique(np.geomspace(100, 4000, 25).astype(int)).tolist()
    ]


def limits() -> np.ndarray:
    """A window that wanders by octaves, with rare bad steps, as long runs have."""
    random = np.random.default_rng(0)
    octaves = 14 + 3 * np.sin(np.arange(STEPS) / 20_000) + random.gumbel(0, 0.4, STEPS) * -1
    return 2.0**octaves


def torch_loop(limit: np.ndarray, interval: int) -> int:
    """The same machine by torch's operator; returns the steps skipped."""
    scale, tracker = torch.tensor([2.0**16]), torch.tensor([0], dtype=torch.int32)
    skipped = 0
    for most in limit.tolist():
        found = torch.tensor([float(scale.item() > most)])
        skipped += int(found.item())
        torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, interval)
    return skipped


def torch_alone() -> float:
    """Calls of the operator a second, without deciding whether there was overflow."""
    scale, tracker = torch.tensor([2.0**16]), torch.tensor([0], dtype=torch.int32)
    found = torch.zeros(1)
    begin = time.process_time()
    for _ in range(SHORT):
        torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, SHORT + 1)
    return SHORT / (time.process_time() - begin)


def main() -> None:
    torch.set_num_threads(1)
    limit, scalers = limits(), grid()
    begin = time.process_time()
    alone = torch_loop(limit[:SHORT], 200)
    by_torch = SHORT / (time.process_time() - begin)
    assert alone == sweep([parse_scaler("torch:growth_interval=200")], limit[:SHORT]).skipped[0]
    sweep(scalers[:2], limit[:100])
    begin = time.process_time()
    result = sweep(scalers, limit)
    seconds = time.process_time() - begin
    by_sweep = len(scalers) * STEPS / seconds
    print(
        f"{len(scalers)} settings over {STEPS:,} steps: {seconds:.2f} s, {by_sweep:.3g} settings × steps a second"
    )
    bare = torch_alone()
    print(f"torch._amp_update_scale_ in a loop: {by_torch:.3g} a second; the operator alone: {bare:.3g}")
    print(f"ratio {by_sweep / by_torch:,.0f} (bar 1,000), to the operator alone {by_sweep / bare:,.0f}")
    print(f"steps skipped: {result.skipped.min()} … {result.skipped.max()}")


if __name__ == "__main__":
    main()
