"""A deployment: eight processes of four threads work, and each is replaced by a new one in turn. How many items are late?

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. A late item reached its handler more than a
second after it should have been put. The new process has joined before the old one is asked to end, as rolling deployments do.
"""

from __future__ import annotations

import time

import kqlib as kq
from bench.broker import broker, fresh
from bench.latency import MOMENT, at, putting
from bench.process import Caller, Process
from kqlib.kafka import Kafka

PROCESSES, THREADS, PARTITIONS, RATE, LATE = 8, 4, 16, 200, 1.0
LASTS = 40.0  # seconds in which items are put


def measured() -> dict[str, float]:
    """One round."""
    topic = fresh("bench-deploy")
    kq.Plan({topic: kq.QueueTopic(partitions=PARTITIONS)}).apply(broker(), quiet=True)
    many = int(RATE * LASTS)
    old = [_begun(topic) for _ in range(PROCESSES)]
    putter = Process(putting, broker().bootstrap, topic, many, (RATE, 6.0))
    putter.hear()
    putter.stop()
    time.sleep(8.0)
    times, begun, new = list[float](), time.monotonic(), list[Process]()
    for each in old:
        new.append(_begun(topic))
        times += _ended(each)
    took = time.monotonic() - begun
    putter.hear()
    putter.end()
    time.sleep(3.0)
    times += [each for worker in new for each in _ended(worker)]
    times.sort()
    return {
        f"items later than {LATE:g} s": sum(each > LATE for each in times),
        "items": len(times),
        "items that were put": many,
        "ms p50": at(times, 0.5),
        "ms p99": at(times, 0.99),
        "ms of the slowest": times[-1] * 1e3,
        "the deployment, s": took,
    }


def _begun(topic: str) -> Process:
    worker = Process(working, broker().bootstrap, topic)
    worker.hear()
    return worker


def _ended(worker: Process) -> list[float]:
    worker.stop()
    times: list[float] = worker.hear()
    worker.end()
    return times


def working(caller: Caller, bootstrap: str, topic: str) -> list[float]:
    """Handle items until it is asked to end. Returns how long each took."""
    times: list[float] = []
    with kq.Site(Kafka(bootstrap), "deploy") as site:
        queue = site.queue(topic)
        if (item := queue.claim()) is not None:  # it has joined
            queue.release(item)
        caller.tell("ready")
        work = lambda item: times.append(time.monotonic() - MOMENT.unpack(item.data)[0])  # noqa: E731
        queue.work(work, threads=THREADS, until=caller.stopped)
    return times
