"""Prints what things cost: what `make bench` calls.

    python -m bench [ROUNDS] [ROOM…]    # 9 rounds, fewer where nothing is compared; audit, spark and virtual only when named

In: a number of rounds, rooms. Out: a table for each, of medians with the smallest and largest, and how many times the first row a
row took. The rows of a room are measured in turn, round after round, so that a noisy neighbour disturbs all of them alike:
the ratios are what to look at, the seconds are this machine's. A name that ends in '(≥ 0.8)' has a target, and its row says whether
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

ROOMS = (
    "starts",
    "keys",
    "schemas",
    "ledger",
    "scale",
    "queue",
    "shapes",
    "puts",
    "pace",
    "threads",
    "jobs",
    "audit",
    "spark",
    "virtual",
)
ROUNDS, FEWER = 9, {"starts": 4, "keys": 5, "ledger": 5, "audit": 1, "spark": 1, "virtual": 3}
NAMED = {"audit", "spark", "virtual"}  # minutes each: only when they are asked for
WARM = {
    "queue",
    "shapes",
    "puts",
    "pace",
    "threads",
    "jobs",
}  # one round before is not counted: the broker's JVM compiles what it does often
TARGET = re.compile(r" \(([≥≤]) ([\d.]+)\)$")


def table(room: str, rows: list[dict[str, float]]) -> list[str]:
    """The room's lines: names end with their unit; only what has the first row's unit is a multiple of it."""
    names = list(rows[0])
    wide = max(len(TARGET.sub("", name)) for name in names)
    first, unit = statistics.median(row[names[0]] for row in rows), _unit(names[0])
    head = f"{'median':>10}{'min':>9}{'max':>9}{'× first':>9}"
    lines = [f"{f'{room}, {len(rows)} rounds':<{wide}}{head}" + "  target" * any(map(TARGET.search, names))]
    for name in names:
        values = sorted(row[name] for row in rows)
        middle = statistics.median(values)
        ratio = f"{middle / first:>9.2f}" if _unit(name) == unit else " " * 9
        numbers = f"{middle:>10.2f}{values[0]:>9.2f}{values[-1]:>9.2f}{ratio}{said(name, middle)}"
        lines.append(f"{TARGET.sub('', name):<{wide}}{numbers}".rstrip())
    return lines


def loaded(room: str) -> Callable[[], dict[str, float]]:
    """The room's round; what other rooms need is not loaded, since Python's collector walks over everything that is."""
    measured: Callable[[], dict[str, float]] = importlib.import_module(f"bench.{room}").measured
    return measured


def said(name: str, value: float) -> str:
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
    rooms = [word for word in words if not word.isdigit()] or [room for room in ROOMS if room not in NAMED]
    if unknown := [word for word in rooms if word not in ROOMS]:
        sys.exit(f"there is no room {unknown[0]!r} to measure; there are {', '.join(ROOMS)}")
    begun = time.monotonic()
    try:
        for room in rooms:
            measured = loaded(room)
            for _ in range(room in WARM):
                measured()
            many = FEWER.get(room, ROUNDS) if rounds is None else max(1, rounds)
            print(*table(room, [measured() for _ in range(many)]), "", sep="\n", flush=True)
    finally:
        broker.close()
    busy = " ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"{time.monotonic() - begun:.0f} s, {os.cpu_count()} cores, load {busy} (1, 5 and 15 minutes)")


if __name__ == "__main__":
    main(*sys.argv[1:])
