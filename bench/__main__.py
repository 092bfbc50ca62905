"""Prints what things cost: what `make bench` calls.

    python -m bench [ROUNDS] [PART…]    # 9 rounds, fewer where nothing is compared
    python -m bench all                 # those of NAMED too

In: a number of rounds, parts. Out: a table for each, of medians with the smallest and largest, and how many times the first row a
row took. The rows of a part are measured in turn, round after round. A noisy neighbour disturbs all of them alike: look at the
ratios, since the seconds are this machine's. A name that ends in '(≥ 0.8)' has a target, and its row says whether
the median meets it. Nothing is asserted.
"""

from __future__ import annotations

import importlib
import os
import re
import statistics
import sys
import time
from collections.abc import Callable

from bench import broker

# Their rounds: fewer where nothing is compared.
PARTS = {
    "starts": 4,
    "shapes": 9,
    "puts": 9,
    "pace": 9,
    "threads": 9,
    "latency": 1,
    "workers": 1,
    "deploy": 1,
    "waiting": 1,
    "idle": 1,
    "growth": 1,
    "memory": 1,
    "peers": 1,
    "planned": 1,
    "profile": 1,
    "size": 3,
    "audit": 1,
    "spark": 1,
    "virtual": 3,
    "outbox": 5,
}
# Only when they are asked for: nearly all take minutes.
NAMED = {"audit", "outbox", "peers", "planned", "profile", "size", "spark", "virtual", "workers"}
# One round before is not counted: the broker's JVM compiles what it does often.
WARM = {"shapes", "puts", "pace", "threads", "growth", "virtual"}
TARGET = re.compile(r" \(([≥≤]) ([\d.]+)\)$")


def table(part: str, rows: list[dict[str, float]]) -> list[str]:
    """The part's lines: names end with their unit; only what has the first row's unit is a multiple of it."""
    names = list(rows[0])
    wide = max(len(TARGET.sub("", name)) for name in names)
    first, unit = statistics.median(row[names[0]] for row in rows), _unit(names[0])
    head = f"{'median':>10}{'min':>9}{'max':>9}{'× first':>9}"
    lines = [f"{f'{part}, {len(rows)} rounds':<{wide}}{head}" + "  target" * any(map(TARGET.search, names))]
    for name in names:
        values = sorted(row[name] for row in rows)
        middle = statistics.median(values)
        ratio = f"{middle / first:>9.2f}" if first and _unit(name) == unit else " " * 9
        numbers = f"{middle:>10.2f}{values[0]:>9.2f}{values[-1]:>9.2f}{ratio}{verdict(name, middle)}"
        lines.append(f"{TARGET.sub('', name):<{wide}}{numbers}".rstrip())
    return lines


def loaded(part: str) -> Callable[[], dict[str, float]]:
    """The part's round; what other parts need is not loaded, since Python's collector walks over everything that is."""
    measured: Callable[[], dict[str, float]] = importlib.import_module(f"bench.{part}").measured
    return measured


def verdict(name: str, value: float) -> str:
    """'≥ 0.8 ✓', if the name has a target."""
    found = TARGET.search(name)
    if not found:
        return ""
    sign, target = found[1], float(found[2])
    met = value >= target if sign == "≥" else value <= target
    return f"  {sign} {found[2]} {'✓' if met else '✗'}"


def _unit(name: str) -> str:
    return TARGET.sub("", name).rpartition(" ")[2]


def main(*words: str) -> None:
    """Run the rounds and print the tables."""
    rounds = next((int(word) for word in words if word.isdigit()), None)
    parts = [word for word in words if not word.isdigit()] or [part for part in PARTS if part not in NAMED]
    parts = list(PARTS) if parts == ["all"] else parts
    if unknown := [word for word in parts if word not in PARTS]:
        sys.exit(f"there is no part {unknown[0]!r} to measure; there are {', '.join(PARTS)}")
    begun = time.monotonic()
    try:
        for part in parts:
            measured = loaded(part)
            for _ in range(part in WARM):
                measured()
            many = PARTS[part] if rounds is None else max(1, rounds)
            print(*table(part, [measured() for _ in range(many)]), "", sep="\n", flush=True)
    finally:
        broker.close()
    busy = " ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"{time.monotonic() - begun:.0f} s, {os.cpu_count()} cores, load {busy} (1, 5 and 15 minutes)")


if __name__ == "__main__":
    main(*sys.argv[1:])
