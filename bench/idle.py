"""What fifty sites on one broker cost while nothing happens: requests a second at the broker, CPU of the broker and of their process.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. All sites are in one process and go through a wire,
which counts what crosses. First they have only put, as a web server does; then each waits for an item.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import psutil

import kqlib as kq
from bench.broker import THREADS
from bench.process import Caller, Process
from kqlib.kafka import Kafka

SITES, CALM, LASTS = 50, 10.0, 20.0  # seconds until nothing moves; seconds that are measured


def measured() -> dict[str, float]:
    """One round."""
    row: dict[str, float] = {}
    with kq.Cluster(wire=True, config=THREADS) as cluster:
        kq.Plan({"idle": kq.QueueTopic(partitions=1)}).apply(cluster, quiet=True)
        for work in (only_put, wait):
            row |= {
                f"{SITES} sites that {work.__name__.replace('_', ' ')}: {name}": value
                for name, value in cost(cluster, work)
            }
    return row


def cost(cluster: kq.Cluster, work: Callable[..., None]) -> Iterator[tuple[str, float]]:
    """What they take, when all of them are there."""
    process = Process(work, cluster.wire.bootstrap)
    process.hear()
    time.sleep(CALM)
    here, there = psutil.Process(process.child.pid), psutil.Process(cluster.broker(1).pid)
    cluster.wire.clear()
    begun, used = time.monotonic(), [sum(each.cpu_times()[:2]) for each in (here, there)]
    time.sleep(LASTS)
    seconds, kinds = time.monotonic() - begun, cluster.wire.state()[0]
    ours, theirs = (
        100 * (sum(each.cpu_times()[:2]) - before) / seconds for each, before in zip((here, there), used, strict=True)
    )
    yield "requests a second", sum(kinds.values()) / seconds
    for kind, number in kinds.items():
        if number / seconds >= 1:
            yield f"{kind} a second", number / seconds
    yield from {"CPU of their process, %": ours, "CPU of the broker, %": theirs}.items()
    yield from {"memory, MB": here.memory_info().rss / 1e6, "threads, number": here.num_threads()}.items()
    process.stop()
    process.hear()
    process.end()


@contextmanager
def sites(bootstrap: str) -> Iterator[list[kq.Queue]]:
    """A queue of each."""
    with ExitStack() as stack:
        yield [stack.enter_context(kq.Site(Kafka(bootstrap), f"idle-{n}")).queue("idle") for n in range(SITES)]


def only_put(caller: Caller, bootstrap: str) -> None:
    """Each has put an item, as a web server does."""
    with sites(bootstrap) as queues:
        for queue in queues:
            queue.put(b"x")
        caller.tell("ready")
        caller.wait()


def wait(caller: Caller, bootstrap: str) -> None:
    """Each has done all items, and a thread of it waits for the next one."""
    with sites(bootstrap) as queues, ThreadPoolExecutor(SITES) as threads:
        over = threading.Event()

        def until_over(queue: kq.Queue) -> None:
            while not over.is_set():
                if item := queue.claim(wait=2.0):
                    queue.ack(item)

        ended = [threads.submit(until_over, queue) for queue in queues]
        while any(queue.depth() for queue in queues):
            time.sleep(0.1)
        caller.tell("ready")
        caller.wait()
        over.set()
        for each in ended:
            each.result()
