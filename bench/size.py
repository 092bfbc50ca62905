"""The constants of `kq size` that depend on this code: bytes that a record needs beside its data, CPU of the broker for an item.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. Items are put, claimed and acked one at a
time, each durable before the next: no other way costs the broker more.
"""

from __future__ import annotations

import kqlib as kq
from bench.broker import DATA, KEYS, broker, fresh, spent

ITEMS, WARM_UP = 5_000, 10_000  # before that the JVM still compiles, and that is most of its work


def measured() -> dict[str, float]:
    """One round: every item is put, then every item is worked on."""
    topic = fresh("bench-size")
    kq.Plan({topic: kq.QueueTopic(partitions=1)}).apply(broker(), quiet=True)
    with kq.Site(broker(), fresh("size")) as site:
        queue = site.queue(topic)

        def put(items: int) -> None:
            for at in range(items):
                queue.put(DATA, KEYS[at % len(KEYS)])

        def work(items: int) -> None:
            for _ in range(items):
                item = queue.claim(wait=10)
                assert item is not None
                queue.ack(item)

        put(WARM_UP)
        work(WARM_UP)
        before = _stored(topic)
        putting = spent(lambda: put(ITEMS))
        more = (_stored(topic) - before) / ITEMS - len(DATA)
        working = spent(lambda: work(ITEMS))
    return {
        "a record beside its data, bytes": more,
        "an item put: CPU of the broker, ms": putting.theirs / ITEMS * 1e3,
        "an item claimed and acked: CPU of the broker, ms": working.theirs / ITEMS * 1e3,
    }


def _stored(topic: str) -> int:
    """The bytes of the topic's first file."""
    return (broker().broker(1).node.data / f"{topic}-0" / f"{0:020}.log").stat().st_size
