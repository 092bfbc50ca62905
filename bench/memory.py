"""What waiting and claimed items take in memory: a million wait, 3,000 are out, and the process works through them all.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. 64 MB of records is the queue's own limit.
"""

from __future__ import annotations

import gc

import psutil

import kqlib as kq
from bench.broker import broker, filled, fresh

ITEMS, OUT, BATCH = 1_000_000, 3_000, 2_000


def measured() -> dict[str, float]:
    """One round, in this process: the figures are what it grew by."""
    topic, sizes = filled("bench-memory", ITEMS, 1), list[float]()
    before = resident()
    with kq.Site(broker(), fresh("memory")) as site:
        queue = site.queue(topic, lease=600)
        out = queue.claim_many(OUT, wait=10)
        while len(out) < OUT:
            out += queue.claim_many(OUT - len(out), wait=10)
        claimed = resident()
        queue.ack_many(out)
        out, done = [], OUT
        while done < ITEMS:
            items = queue.claim_many(BATCH, wait=10)
            queue.ack_many(items)
            done += len(items)
            sizes.append(resident())
        del items
        gc.collect()
        after = resident()
    tenth = len(sizes) // 10
    return {
        f"a million wait, {OUT:,} are out: more memory, MB": (claimed - before) / 1e6,
        "the most while all are done: more memory, MB (≤ 192)": (max(sizes) - before) / 1e6,
        "the last tenth next to the second (≤ 1.1)": max(sizes[-tenth:]) / max(sizes[tenth : 2 * tenth]),
        "for each item that was done, bytes": (after - before) / ITEMS,
    }


def resident() -> float:
    """Bytes of memory that this process has."""
    return float(psutil.Process().memory_info().rss)
