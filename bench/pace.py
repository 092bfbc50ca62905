"""How long one item takes: put, claim, ack, one after the other, a hundred items a second; ours, and the source mapping's third rung.
And what waiting costs: the CPU of a claim that waits for an item.

In: nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. The mapping is the ladder's `deleted list`, which
notebook 07 builds; its author's own figure was 80 ms at low load.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import kqlib as kq
from bench.broker import DATA, KEYS, broker, filled, fresh, spent
from kqlib.workshop.ladder import LADDER

ITEMS, PACE, WARM = 150, 100, 15
CALM, IDLE = 1.5, 5.0  # seconds until nothing moves any more, and for which it is measured


def measured() -> dict[str, float]:
    """One round: a hundred and fifty items each way."""
    ours: dict[str, list[float]] = {}
    with kq.Site(broker(), fresh("pace")) as site:
        queue = site.queue(filled(fresh("bench-pace"), 0))
        cost = spent(lambda: ours.update(_paced(queue)))
        queue.claim(wait=CALM)
        idle = spent(lambda: queue.claim(wait=IDLE))
    with tempfile.TemporaryDirectory() as home:
        mapping: Any = LADDER["deleted list"]
        rung = mapping(broker(), filled(fresh("bench-mapping"), 0), database=Path(home) / "deleted.db")
        mapped = _paced(rung)
        rung.close()
    steps = {f"{step} alone, ms p50": _at(times, 0.5) for step, times in ours.items() if step != "all"}
    return {
        "put, claim and ack one, ms p50 (≤ 5)": _at(ours["all"], 0.5),
        "put, claim and ack one, ms p99": _at(ours["all"], 0.99),
        **steps,
        "the source mapping, ms p50": _at(mapped["all"], 0.5),
        "the source mapping, ms p99": _at(mapped["all"], 0.99),
        "CPU an item, here, µs": cost.ours / (WARM + ITEMS) * 1e6,
        "CPU an item, broker, µs": cost.theirs / (WARM + ITEMS) * 1e6,
        "CPU of a claim that waits, % (≤ 1)": idle.ours / idle.seconds * 100,
    }


def _paced(queue: Any) -> dict[str, list[float]]:
    """Seconds of each step, for each item."""
    times = dict[str, list[float]](all=[], put=[], claim=[], ack=[])
    begun = time.perf_counter()
    for at in range(WARM + ITEMS):
        time.sleep(max(0.0, begun + at / PACE - time.perf_counter()))  # here time is the point
        start = time.perf_counter()
        queue.put(DATA, KEYS[at % len(KEYS)])
        stored = time.perf_counter()
        while (item := queue.claim(wait=1.0)) is None:
            pass
        claimed = time.perf_counter()
        queue.ack(item)
        done = time.perf_counter()
        if at >= WARM:
            for step, took in (
                ("all", done - start),
                ("put", stored - start),
                ("claim", claimed - stored),
                ("ack", done - claimed),
            ):
                times[step].append(took)
    return times


def _at(times: list[float], part: float) -> float:
    """The time that so large a part does not exceed, in ms."""
    return sorted(times)[int(len(times) * part)] * 1e3
