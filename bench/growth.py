"""How the cost of an item grows: with partitions, open items, the size of an item, sites, and processes.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it.

Each row is the cost at the last size next to the cost at the first, as a factor per doubling. 1 does not grow, and 2 is linear.
Measured is the CPU of this process (or of those that work) and of the broker, for the same number of items each time. One round before
is not counted, since the broker's JVM still compiles.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from math import log2

import kqlib as kq
from bench.broker import Spent, broker, filled, fresh, spent
from bench.workers import worked

ITEMS = 6_000
Work = Callable[[int], Spent]


def measured() -> dict[str, float]:
    """One round."""
    rows: dict[str, tuple[Work, int, int]] = {
        "partitions, claim and ack of 500": (_partitions, 1, 100),
        "open items of one partition, one claimed and one acked": (_open, 10, 3_000),
        "bytes of an item, claim and ack of 20": (_bytes, 100, 900_000),
        "sites that all do everything": (_sites, 1, 20),
        "processes of four threads": (lambda many: worked("kqlib", many, 0)[1], 1, 8),
    }
    found: dict[str, float] = {}
    for name, (work, low, high) in rows.items():
        took = {size: work(size) for size in random.sample([low, high], 2)}
        few, many = took[low], took[high]
        for whose in ("ours", "theirs"):
            ratio = max(getattr(many, whose), 0.01) / max(getattr(few, whose), 0.01)
            who = "here" if whose == "ours" else "broker"
            target = " (≤ 2.1)" if whose == "ours" else ""
            found[f"{low:,} to {high:,} {name}: CPU {who}, per doubling{target}"] = ratio ** (1 / log2(high / low))
    return found


def _done(topic: str, items: int, batch: int) -> None:
    with kq.Site(broker(), fresh("growth")) as site:
        queue, done = site.queue(topic, lease=300), 0
        while done < items:
            found = queue.claim_many(batch, wait=10)
            queue.ack_many(found)
            done += len(found)


def _partitions(many: int) -> Spent:
    topic = filled(f"bench-growth-{many}", ITEMS, many)
    return spent(lambda: _done(topic, ITEMS, 500))


def _open(many: int) -> Spent:
    topic = filled("bench-growth-1", ITEMS, 1)
    with kq.Site(broker(), fresh("growth")) as site:
        queue = site.queue(topic, lease=300)
        out = deque(queue.claim_many(many, wait=10))
        while len(out) < many:
            out += queue.claim_many(many - len(out), wait=10)

        def work() -> None:
            for _ in range(1_000):
                queue.ack(out.pop() if len(out) % 2 else out.popleft())
                out.append(queue.claim(wait=10))

        return spent(work)


def _bytes(size: int) -> Spent:
    topic, many = f"bench-growth-bytes-{size}", 100
    with kq.Site(broker(), fresh("growth")) as site:
        kq.Plan({topic: kq.QueueTopic(partitions=1)}).apply(broker(), quiet=True)
        queue = site.queue(topic)
        for _ in range(many // 10):
            queue.put_many([kq.Put(b"x" * size)] * 10)
    return spent(lambda: _done(topic, many, 20))


def _sites(many: int) -> Spent:
    topic = filled("bench-growth-1", ITEMS, 1)
    return spent(lambda: [_done(topic, ITEMS, 500) for _ in range(many)])
