"""What thousands of queues cost: 10,000 planned on one broker, then one site that claims from 1,000 of them with fifty threads.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench ONLY=planned` prints it, in some ten minutes. A queue is two
topics of one partition each here: its own and the one of its dead letters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import psutil

import kqlib as kq
from bench.broker import broker, spent

QUEUES, CLAIMED, STEPS, AT_ONCE = 10_000, 1_000, (100, 300, 1_000), 50


def measured() -> dict[str, float]:
    """One round."""
    row: dict[str, float] = {}
    server, plan = (
        psutil.Process(broker().broker(1).pid),
        kq.Plan({f"queue-{n}": kq.QueueTopic(partitions=1) for n in range(QUEUES)}),
    )

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        row[f"{what}, s"] = time.monotonic() - begun
        print(what, f"{row[f'{what}, s']:.1f} s", flush=True)

    row["broker before, MB"] = server.memory_info().rss / 1e6
    with timed(f"{QUEUES:,} queues applied"):
        plan.apply(broker(), quiet=True)
    with timed("applied again, nothing to do"):
        plan.apply(broker(), quiet=True)
    row |= {"broker with all of them, MB": server.memory_info().rss / 1e6, "broker's files, number": server.num_fds()}
    with kq.Site(broker(), "planned") as site, ThreadPoolExecutor(AT_ONCE) as threads:
        with timed(f"{CLAIMED:,} queues opened"):
            queues = [site.queue(f"queue-{n}") for n in range(CLAIMED)]
        for some in STEPS:
            with timed(f"first claim of {some:,} queues, {AT_ONCE} threads"):
                list(threads.map(partial(once, wait=0.0), queues[:some]))
            for _ in range(2):  # the second is kept: subscriptions are as they stay
                cost = spent(partial(all_of, threads.map, queues[:some]))
            row[f"an item of each of {some:,} queues, {AT_ONCE} threads: ms each"] = cost.seconds / some * 1e3
            row[f"{some:,} queues: CPU here, ms each"] = cost.ours / some * 1e3
            row[f"{some:,} queues: CPU of the broker, ms each"] = cost.theirs / some * 1e3
        row["this process, MB"] = psutil.Process().memory_info().rss / 1e6
    return row


def all_of(each: Callable[..., Iterator[int]], queues: Sequence[kq.Queue]) -> None:
    """One item of each."""
    assert sum(each(once, queues)) == len(queues)


def once(queue: kq.Queue, wait: float = 30.0) -> int:
    """Put an item if one is waited for, claim it and ack it: how many."""
    if wait:
        queue.put(b"x")
    item = queue.claim(wait=wait)
    if item:
        queue.ack(item)
    return bool(item)
