"""Fair timing on shared machines: what is compared runs in turn, and medians count."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version


def medians(tasks: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of processor time of each task, which must not use other threads.

    The tasks take turns, so that a change of the machine's speed meets all of them; what other processes take of the
    processor does not count.
    """
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for round_ in range(repeats + 1):
        for name, task in tasks.items():
            begin = time.process_time()
            task()
            if round_:  # the first round warms up
                times[name].append(time.process_time() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def environment() -> dict[str, str]:
    """What the numbers were measured on."""
    from precsim.configuration import configuration

    config = configuration()
    return {
        "python": platform.python_version(),
        "engine": f"{config.engine}, {config.instruction_set}",
        **{name: version(name) for name in ("numpy", "torch", "ml_dtypes")},
    }
