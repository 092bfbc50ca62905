"""What waiting and claimed items take in memory: a million wait, 3,000 are out, and the process works through them all.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. 64 MB of records is the queue's own limit.
`KQ_BENCH_MINUTES=60` then puts, claims and acks a thousand items a second for an hour.
"""

from __future__ import annotations

import gc
import os
import time

import psutil

import kqlib as kq
from bench.broker import DATA, broker, filled, fresh

ITEMS, OUT, BATCH = 1_000_000, 3_000, 2_000
MINUTES = float(os.environ.get("KQ_BENCH_MINUTES", "0"))


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
        long, until = list[float](), time.monotonic() + MINUTES * 60
        while time.monotonic() < until:
            queue.put_many([kq.Put(DATA)] * 1_000)
            queue.ack_many(queue.claim_many(BATCH, wait=10))
            long.append(resident())
            time.sleep(1)
        del items
        gc.collect()
        after = resident()
    return {
        f"a million wait, {OUT:,} are out: more memory, MB": (claimed - before) / 1e6,
        "the most while all are done: more memory, MB (≤ 192)": (max(sizes) - before) / 1e6,
        "the last tenth next to the second (≤ 1.1)": flat(sizes),
        **({f"in {MINUTES:g} minutes more: the last tenth next to the second (≤ 1.1)": flat(long)} if MINUTES else {}),
        "for each item that was done, bytes": (after - before) / ITEMS,
    }


def flat(sizes: list[float]) -> float:
    """The last tenth next to the second one."""
    tenth = max(1, len(sizes) // 10)
    return max(sizes[-tenth:]) / max(sizes[tenth : 2 * tenth])


def resident() -> float:
    """Bytes of memory that this process has."""
    return float(psutil.Process().memory_info().rss)
