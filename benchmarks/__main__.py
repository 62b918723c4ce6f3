"""``python -m benchmarks``: how fast casts and counts are, beside memcpy, torch, NumPy and ml_dtypes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PRECSIM_NUM_THREADS", "1")

from benchmarks.casting import Bar, measure, peak_memory
from benchmarks.timing import environment


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--elements", type=int, default=1 << 24, help="array length (default 16 Mi)")
    parser.add_argument("--repeats", type=int, default=7, help="repeats, of which the median counts")
    parser.add_argument("--json", metavar="FILE", help="write the numbers too")
    options = parser.parse_args()
    facts = environment()
    print("\n".join(f"{name:<12} {value}" for name, value in facts.items()))
    results: list[Bar] = []
    for data in ("normal", "log-normal"):
        print(
            f"\n{data} data, float32, {options.elements:,} elements, one thread; ratios of elements per second"
        )
        for bar in measure(data, options.elements, options.repeats):
            results.append(bar)
            print(bar)
    print()
    for line in peak_memory(options.elements):
        print(line)
    missed = [bar for bar in results if bar.holds is False]
    print(f"\n{sum(bar.holds is True for bar in results)} bars hold, {len(missed)} do not")
    if options.json:
        rows = [vars(bar) | {"holds": bar.holds} for bar in results]
        Path(options.json).write_text(json.dumps({"environment": facts, "results": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
