"""Casts and counts against their bars."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

import precsim as ps
from benchmarks.timing import medians

FORMATS: dict[str, tuple[ps.Format, torch.dtype, Any]] = {
    "FP16": (ps.FP16, torch.float16, np.float16),
    "BF16": (ps.BF16, torch.bfloat16, ml_dtypes.bfloat16),
    "E4M3": (ps.E4M3, torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
    "E5M2": (ps.E5M2, torch.float8_e5m2, ml_dtypes.float8_e5m2),
}
GRID = range(-20, 21)
MODES = ("nearest-away", "nearest-zero", "toward-zero", "up", "down", "away", "to-odd")


@dataclass(frozen=True)
class Bar:
    """One ratio, and the least one that is aimed at (None for a number to know)."""

    what: str
    ratio: float
    least: float | None = None

    @property
    def holds(self) -> bool | None:
        return None if self.least is None else self.ratio >= self.least

    def __str__(self) -> str:
        verdict = {None: "", True: f"≥ {self.least}", False: f"MISSES {self.least}"}[self.holds]
        return f"  {self.what:<58} {self.ratio:7.2f}  {verdict}"


def data_of(kind: str, n: int) -> np.ndarray:
    """Numbers around 1, or spread over many binades as gradients are."""
    rng = np.random.default_rng(0)
    if kind == "normal":
        return rng.normal(size=n).astype(np.float32)
    return (rng.lognormal(-12, 3, n) * rng.choice([-1, 1], n)).astype(np.float32)


def measure(kind: str, n: int, repeats: int) -> Iterator[Bar]:
    """All ratios for one kind of data."""
    torch.set_num_threads(1)
    x = data_of(kind, n)
    with np.errstate(all="ignore"):
        for name in FORMATS:
            yield from _format_bars(name, x, repeats)
        copy = np.empty_like(x)
        tasks = {
            "copyto": lambda: np.copyto(copy, x),
            "counts": lambda: ps.sketch(x, errors=False),
            "full": lambda: ps.sketch(x),
        }
        times = medians(tasks, repeats)
        yield Bar("sketch of counts / copyto", times["copyto"] / times["counts"], 0.4)
        yield Bar("sketch with errors / copyto", times["copyto"] / times["full"], 0.08)
        yield _grid_bar(x)


def _grid_bar(x: np.ndarray) -> Bar:
    """Counts and mean squared errors of 4 formats at 41 scales: from one sketch, and by torch's casts."""

    def by_sketch() -> list[tuple[int, int, float]]:
        s = ps.sketch(x)
        rows = []
        for fmt, _, _ in FORMATS.values():
            for k in GRID:
                outcomes, error = s.outcomes(fmt, 2.0**k), s.error(fmt, 2.0**k)
                rows.append((outcomes.flushed, outcomes.overflowed, error.mse))
        return rows

    tensor = torch.from_numpy(x)

    def by_casts(scales: Sequence[int]) -> list[tuple[int, int, float]]:
        rows = []
        for fmt, dtype, _ in FORMATS.values():
            for k in scales:
                cast = (tensor * 2.0**k).to(dtype).to(torch.float32)
                flushed = int(((cast == 0) & (tensor != 0)).sum())
                over = ~torch.isfinite(cast) if fmt is not ps.E4M3 else (tensor * 2.0**k).abs() > 464
                error = torch.where(over, 0.0, (cast * 2.0**-k - tensor).to(torch.float64))
                rows.append(
                    (flushed, int(over.sum()), float((error * error).sum() / max(1, int((~over).sum()))))
                )
        return rows

    some = GRID[::8]  # a cast takes as long at any scale
    got = dict(zip(itertools.product(FORMATS, GRID), by_sketch(), strict=True))
    for place, row in zip(itertools.product(FORMATS, some), by_casts(some), strict=True):
        assert got[place][:2] == row[:2], f"{place}: {got[place]} and {row}"
        assert abs(got[place][2] - row[2]) <= 1e-9 * row[2], f"{place}: {got[place]} and {row}"
    times = medians({"sketch": by_sketch, "casts": lambda: by_casts(some)}, 1)
    ratio = times["casts"] * len(GRID) / len(some) / times["sketch"]
    return Bar("4 formats × 41 scales, counts and errors: sketch / torch casts", ratio, 100.0)


def _format_bars(name: str, x: np.ndarray, repeats: int) -> Iterator[Bar]:
    fmt, torch_dtype, numpy_dtype = FORMATS[name]
    tensor, copy = torch.from_numpy(x), np.empty_like(x)
    codes = np.empty(x.shape, f"u{(fmt.bits + 7) // 8}")
    values = np.empty_like(x)

    def into(rounding: str = "nearest-even", **more: Any) -> Callable[[], object]:
        return lambda: ps.encode(x, fmt, rounding, out=codes, **more)

    def array_engine() -> None:
        with ps.use_engine("array"):
            ps.encode(x, fmt, out=codes)

    tasks: dict[str, Callable[[], object]] = {
        "copyto": lambda: np.copyto(copy, x),
        "encode": into(),
        "encode, new array": lambda: ps.encode(x, fmt),
        "torch": lambda: tensor.to(torch_dtype),
        "stochastic": into("stochastic", seed=1),
        "quantize": lambda: ps.quantize(x, fmt),
        "torch there and back": lambda: tensor.to(torch_dtype).to(torch.float32),
        "decode": lambda: np.copyto(values, ps.decode(codes, fmt)),
        **{mode: into(mode) for mode in MODES},
    }
    times = medians(tasks, repeats)
    slow = {"astype": lambda: x.astype(numpy_dtype), "array engine": array_engine}
    times |= medians(slow, max(1, repeats // 3))

    def ratio(of: str, to: str) -> float:
        return times[to] / times[of]

    yield Bar(f"{name} encode / copyto", ratio("encode", "copyto"), 0.8)
    yield Bar(f"{name} encode into a new array / copyto", ratio("encode, new array", "copyto"))
    yield Bar(f"{name} encode into a new array / torch .to()", ratio("encode, new array", "torch"), 1.0)
    least = {"FP16": 10.0, "BF16": 1.0}.get(name, 8.0)
    library = "NumPy" if name == "FP16" else "ml_dtypes"
    yield Bar(f"{name} encode / {library} astype", ratio("encode", "astype"), least)
    slowest = max(MODES, key=times.__getitem__)
    yield Bar(f"{name} slowest other mode ({slowest}) / nearest-even", ratio(slowest, "encode"), 1 / 1.5)
    yield Bar(f"{name} stochastic / copyto", ratio("stochastic", "copyto"), 0.25)
    yield Bar(f"{name} quantize / torch there and back", ratio("quantize", "torch there and back"))
    if name in ("E4M3", "E5M2"):
        yield Bar(f"{name} array engine / ml_dtypes astype", ratio("array engine", "astype"), 1.0)


_PROBE = """
import re, sys
from pathlib import Path
import numpy as np, precsim as ps
def peak():  # of this memory image: getrusage's peak would be that of the process that started this one
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
n = int(sys.argv[1])
x = np.ones(n, np.float32)
out = np.ones(n, np.uint16)
small = x[:1000]
ps.encode(small, ps.FP16); ps.sketch(small)
before = peak()
ps.encode(x, ps.FP16, out=out); ps.encode(x, ps.FP16, "stochastic", seed=1, out=out); ps.sketch(x)
after = peak()
x.copy()
print(after - before, peak() - after)
"""


def peak_memory(n: int) -> list[str]:
    """Growth of a fresh process's peak memory by casts into given memory and a count, and by a copy."""
    if not sys.platform.startswith("linux"):
        return ["peak memory: measured on Linux alone"]
    done = subprocess.run([sys.executable, "-c", _PROBE, str(n)], capture_output=True, text=True, check=True)
    casts, copy = (int(kibibytes) / 1024 for kibibytes in done.stdout.split())
    return [
        f"peak memory of encode (nearest, stochastic) and sketch beyond input and output: {casts:.1f} MiB "
        f"(of a copy of the input: {copy:.1f} MiB)"
    ]
