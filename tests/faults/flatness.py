"""The soak's figures: rate, p99, memory, threads and files by the minute, whether they are flat, and their part of docs/faults.md.

In:  calls of histories, samples of a process, what a soak has stored. Out: numbers, complaints, text and a picture. Pure.
Flat: the median of the last third beside that of the second one. The first third warms up.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kqlib.text import count
from kqlib.workshop.view.curve import curve
from kqlib.workshop.view.picture import Picture
from tests.faults.history import Did, Verdict, judge

WINDOW = 10.0  # seconds
ALLOWED = ("put", "doubled", "dead")
PER_ITEM = ("values", "attempts", "ids")
SLICE = 250_000  # items that the judge holds at a time: millions are some gigabytes
RUN = 1000  # numbers that stay together: those of a call follow each other, so few calls are cut
EDGE = 300  # percent, of the picture
LEAST = 0.9  # × the rate of the second third
MOST = {
    "p99": (1.5, 0.0),
    "memory": (1.05, 0.0),
    "threads": (1.0, 6.0),
    "files": (1.0, 10.0),
}  # × the second third, and so much more: a site makes some clients at their first use, and each has 5 threads and 8 files
UNITS = {"rate": "items a second", "p99": "ms", "memory": "MB"}
HEAD = """
## A soak: load with a fault every minute

Made by `python -m tests.faults.soak`. Memory, threads and files are those of a worker that lives from the first minute to the last;
it has what the broker and the wire suffer. p99 is of the time from an item's put to its first claim.

"""
Series = Mapping[str, Sequence[float]]


def thirds(values: Sequence[float]) -> list[float]:
    """The median of each third."""
    ends = [0, len(values) // 3, 2 * len(values) // 3, len(values)]
    return [statistics.median(values[begin:end]) for begin, end in itertools.pairwise(ends)]


def drifts(series: Series) -> dict[str, str]:
    """What is not flat, and why."""
    found = {}
    for name, values in series.items():
        _, second, last = thirds(values)
        factor, more = MOST.get(name, (1.0, 0.0))
        if (last < LEAST * second) if name == "rate" else (last > factor * second + more):
            found[name] = f"{second:,.0f}, then {last:,.0f}"
    return found


def by_window(history: Iterable[Did], begun: float, windows: int) -> dict[str, list[float]]:
    """Items done a second, and the 99th percentile of the milliseconds from a put to the item's first claim, in each window."""
    put, claimed = dict[int, float](), dict[int, float]()
    done, waited = [0] * windows, defaultdict[int, list[float]](list)
    for did in history:
        if did.verb == "put":
            put.update(dict.fromkeys(did.values, did.began))
        elif did.verb == "claim":
            for value in did.values:
                claimed[value] = min(did.began, claimed.get(value, did.began))
        elif did.verb == "ack" and did.ended is not None and 0 <= (at := int((did.ended - begun) / WINDOW)) < windows:
            done[at] += len(did.values) - len(did.bad)
    for value in claimed.keys() & put.keys():
        waited[int((claimed[value] - begun) // WINDOW)].append(claimed[value] - put[value])
    return {
        "rate": [each / WINDOW for each in done],
        "p99": [1000 * percentile(waited[at], 0.99) for at in range(windows)],
    }


def percentile(values: list[float], part: float) -> float:
    """0 of nothing."""
    return sorted(values)[int(part * len(values))] if values else 0.0


def judged(history: Sequence[Did], most: int = SLICE) -> dict[str, int]:
    """The judge's counts, a slice of all numbers after the other."""
    slices = [list[Did]() for _ in range(1 + sum(len(did.values) for did in history if did.verb == "put") // most)]
    for did in history:
        for number, part in _cut(did, len(slices)).items():
            slices[number].append(part)
    total: defaultdict[str, int] = defaultdict(int)
    while slices:
        verdict = judge(slices.pop())
        for name in (*ALLOWED, *verdict.wrong):
            total[name] += getattr(verdict, name)
    return {name: total[name] for name in Verdict.__dataclass_fields__ if name in total}


def _cut(did: Did, slices: int) -> dict[int, Did]:
    """The call's part in each slice; most calls are in one."""
    places = defaultdict[int, list[int]](list)
    for place, value in enumerate(did.values):
        places[value // RUN % slices].append(place)
    return {number: _part(did, some) if len(places) > 1 else did for number, some in places.items()}


def _part(did: Did, places: Sequence[int]) -> Did:
    bad = {new: did.bad[old] for new, old in enumerate(places) if old in did.bad}
    cut = {name: tuple(some[at] for at in places) if (some := getattr(did, name)) else () for name in PER_ITEM}
    return replace(did, bad=bad, **cut)


def picture(found: Mapping[str, Any]) -> Picture:
    """Each line in percent of its median in the second third, by the minute. What is above the edge is drawn at the edge."""
    lines = {}
    for name, values in found["series"].items():
        middle = thirds(values)[1] or 1
        lines[name] = [min(EDGE, round(100 * statistics.median(some) / middle)) for some in _minutes(values)]
    return curve(lines, f"soak, in percent of the second third's median, {EDGE} at most", step="minute")


def _minutes(values: Sequence[float]) -> list[Sequence[float]]:
    each = int(60 / WINDOW)
    return [values[at : at + each] for at in range(0, len(values), each)]


def section(found: Mapping[str, Any] | None) -> str:
    """The soak's part of docs/faults.md."""
    if found is None:
        return f"{HEAD}Not measured.\n"
    faults = "; ".join(f"{name} {', '.join(map(str, at))}" for name, at in sorted(_at(found["faults"]).items()))
    rows = []
    for name, values in found["series"].items():
        unit = f", {UNITS[name]}" if name in UNITS else ""
        first, second, last = (f"{each:,.0f}" for each in thirds(values))
        rows.append(f"| {name}{unit} | {first} | {second} | {last} | {found['drifts'].get(name, 'flat')} |\n")
    counts = found["counts"]
    names = {"lost": "lost", "unexpected": "unexpected", "shared": "two leases", "twice": "twice"}
    names |= {name: name for name in counts if name not in {*names, *ALLOWED}}
    wrong = ", ".join(f"{shown} {counts.get(name, 0):,}" for name, shown in names.items())
    return (
        f"{HEAD}{found['day']}, seed {found['seed']}: {count(found['minutes'], 'minute')} at {found['asked']:,.0f} items a second. "
        f"That is 60 % of the {found['most']:,.0f} that the same processes did without a pause.\n{counts['put']:,} items, "
        f"{count(found['histories'], 'history', 'histories')}: {wrong}; {counts['doubled']:,} leases after an item's first.\n\n"
        f"![{picture(found).title}](soak.svg)\n\n| median of each | first third | second | last | |\n|---|---|---|---|---|\n"
        f"{''.join(rows)}\nFaults, by the minute: {faults}.\n"
    )


def _at(faults: Sequence[str]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for minute, name in enumerate(faults, 1):
        found[name].append(minute)
    return found
