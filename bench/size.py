"""The constants of `kq size` that depend on this code: bytes that a record needs beside its data, CPU of the broker for an item.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. Items are put, claimed and acked one at a
time by 16 threads, each durable before its thread goes on: what waits meanwhile shares a request, as in a busy program.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import kqlib as kq
from bench.broker import DATA, KEYS, broker, fresh, spent

THREADS, ITEMS, WARM_UP = 16, 10_000, 10_000  # before that the JVM still compiles, and that is most of its work


def measured() -> dict[str, float]:
    """One round: every item is put, then every item is worked on."""
    topic = fresh("bench-size")
    kq.Plan({topic: kq.QueueTopic(partitions=1)}).apply(broker(), quiet=True)
    with kq.Site(broker(), fresh("size")) as site:
        queue = site.queue(topic)

        def put(at: int) -> None:
            queue.put(DATA, KEYS[at % len(KEYS)])

        def work(_: int) -> None:
            item = queue.claim(wait=10)
            assert item is not None
            queue.ack(item)

        _all(put, WARM_UP)
        _all(work, WARM_UP)
        before = _stored(topic)
        putting = spent(lambda: _all(put, ITEMS))
        more = (_stored(topic) - before) / ITEMS - len(DATA)
        working = spent(lambda: _all(work, ITEMS))
    return {
        "a record beside its data, bytes": more,
        "an item put: CPU of the broker, ms": putting.theirs / ITEMS * 1e3,
        "an item claimed and acked: CPU of the broker, ms": working.theirs / ITEMS * 1e3,
    }


def _all(what: Callable[[int], None], items: int) -> None:
    """Each of these items, by the threads."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(what, range(items)))


def _stored(topic: str) -> int:
    """The bytes of the topic's first file."""
    return (broker().broker(1).node.data / f"{topic}-0" / f"{0:020}.log").stat().st_size
