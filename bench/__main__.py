"""Prints what things cost: what `make bench` calls.

    python -m bench [ROUNDS] [ROOM…]    # 9 rounds of every room

In: a number of rounds, rooms. Out: a table for each, of medians with the smallest and largest, and how many times the first row a
row took. The rows of a room are measured in turn, round after round, so that a noisy neighbour disturbs all of them alike:
the ratios are what to look at, the seconds are this machine's.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

from bench import keys, schemas, starts

ROOMS: dict[str, Callable[[], dict[str, float]]] = {
    "starts": starts.measured,
    "keys": keys.measured,
    "schemas": schemas.measured,
}


def table(room: str, rows: list[dict[str, float]]) -> list[str]:
    """The room's lines: names end with their unit; only what has the first row's unit is a multiple of it."""
    names = list(rows[0])
    wide = max(map(len, names))
    first, unit = statistics.median(row[names[0]] for row in rows), names[0].rpartition(" ")[2]
    lines = [f"{f'{room}, {len(rows)} rounds':<{wide}}{'median':>10}{'min':>9}{'max':>9}{'× first':>9}"]
    for name in names:
        values = sorted(row[name] for row in rows)
        middle = statistics.median(values)
        ratio = f"{middle / first:>9.2f}" if name.endswith(f" {unit}") else ""
        lines.append(f"{name:<{wide}}{middle:>10.2f}{values[0]:>9.2f}{values[-1]:>9.2f}{ratio}")
    return lines


def main(*words: str) -> None:
    """Run the rounds and print the tables."""
    rounds = next((int(word) for word in words if word.isdigit()), 9)
    rooms = [word for word in words if not word.isdigit()] or list(ROOMS)
    if unknown := [word for word in rooms if word not in ROOMS]:
        sys.exit(f"there is no room {unknown[0]!r} to measure; there are {', '.join(ROOMS)}")
    for room in rooms:
        print(*table(room, [ROOMS[room]() for _ in range(max(1, rounds))]), "", sep="\n", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
