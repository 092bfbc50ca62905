"""What thousands of queues cost: planned on one broker in three steps, then one site that claims from 1,000 with fifty threads.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench ONLY=planned` prints it, in some ten minutes. A queue is two
topics of one partition each here: its own and the one of its dead letters. A broker has a file open for each partition, and two memory
maps: `ulimit -n` and vm.max_map_count say how many it can have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psutil

import kqlib as kq
from bench.broker import broker, spent

PLANNED, CLAIMED, AT_ONCE = (1_000, 5_000, 9_000), (100, 300, 1_000), 50


def measured() -> dict[str, float]:
    """One round."""
    row = {"broker, MB": server().memory_info().rss / 1e6}
    for many in PLANNED:
        row |= planned(many)
    with ThreadPoolExecutor(AT_ONCE) as threads, kq.Site(broker(), "planned") as site:
        for many in CLAIMED:
            row |= claimed(site, threads.map, many)
    with kq.Site(broker(), "one-thread") as site:
        row |= {f"one thread: {name}": value for name, value in claimed(site, map, CLAIMED[1]).items()}
    return row


def server() -> psutil.Process:
    """The broker."""
    return psutil.Process(broker().broker(1).pid)


def planned(many: int) -> dict[str, float]:
    """So many queues, those that are there already included."""
    plan, begun = kq.Plan({f"queue-{n}": kq.QueueTopic(partitions=1) for n in range(many)}), time.monotonic()
    plan.apply(broker(), quiet=True)
    applied = time.monotonic()
    plan.apply(broker(), quiet=True)
    row = {
        f"{many:,} queues: apply, s": applied - begun,
        f"{many:,} queues: apply again, nothing to do, s": time.monotonic() - applied,
        f"{many:,} queues: broker, MB": server().memory_info().rss / 1e6,
        f"{many:,} queues: broker, files": server().num_fds(),
        f"{many:,} queues: broker, maps": len(server().memory_maps(grouped=False)),
    }
    print(row, flush=True)
    return row


def claimed(site: kq.Site, each: Callable[..., Iterator[int]], many: int) -> dict[str, float]:
    """One item of each of so many queues: first while the site joins them, then when it has them."""
    queues = list(each(site.queue, [f"queue-{n}" for n in range(many)]))
    first, then = (spent(partial(all_of, each, queues)) for _ in range(2))
    row = {
        f"an item of each of {many:,} queues, the first: s": first.seconds,
        f"an item of each of {many:,} queues, then: s": then.seconds,
        f"an item of each of {many:,} queues: CPU here for each, ms": then.ours / many * 1e3,
        f"an item of each of {many:,} queues: CPU of the broker for each, ms": then.theirs / many * 1e3,
        f"an item of each of {many:,} queues: this process, MB": psutil.Process().memory_info().rss / 1e6,
    }
    print(row, flush=True)
    return row


def all_of(each: Callable[..., Iterator[int]], queues: Sequence[kq.Queue]) -> None:
    """One item of each."""
    assert sum(each(once, queues)) == len(queues)


def once(queue: kq.Queue) -> int:
    """Put an item, claim it and ack it: how many."""
    queue.put(b"x")
    if item := queue.claim(wait=60.0):
        queue.ack(item)
    return bool(item)
