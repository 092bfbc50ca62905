"""Many workers on one topic: 1, 2, 4 and 8 processes of four threads, with handlers that take 0, 1, 10 and 100 ms.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it.

A handler sleeps, so that it takes no core from others. The efficiency is the ideal time (items x seconds / threads) next to the time
from the first handler's begin to the last one's end. Without work it is the rate next to the rate of one process. All processes have
joined before the items are put. A share group does the same: a consumer for each thread, explicit, a commit a poll.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import ShareConsumer

import kqlib as kq
from bench.broker import broker, filled, fresh, set_group
from bench.process import SPAWN, Caller, Process
from kqlib.kafka import Kafka

PROCESSES, THREADS, PARTITIONS = (1, 2, 4, 8), 4, 16
SETTLED = 6.0  # seconds: a heartbeat of the last one that joined, and its partitions are its own
HANDLERS = (0, 1, 10, 100)  # ms
LASTS, MOST = 2.0, 20_000  # seconds that all items should take, and items at most


def measured() -> dict[str, float]:
    """One round: both ways, each handler, each number of processes."""
    row: dict[str, float] = {}
    for ms in HANDLERS:
        for way in ("kqlib", "share group"):
            rates = {processes: _rate(way, processes, ms) for processes in PROCESSES}
            for processes, rate in rates.items():
                ideal = processes * THREADS / ms * 1e3 if ms else rates[1]
                row[f"{way}, {ms} ms, {processes} processes, items a second"] = rate
                row[f"{way}, {ms} ms, {processes} processes: efficiency"] = rate / ideal
    return row


def _rate(way: str, processes: int, ms: int) -> float:
    """Items a second."""
    items = min(MOST, int(processes * THREADS * LASTS / ms * 1e3)) if ms else MOST
    topic, group = fresh("bench-workers"), fresh("workers")
    kq.Plan({topic: kq.QueueTopic(partitions=PARTITIONS)}).apply(broker(), quiet=True)
    set_group(group, "share.auto.offset.reset", "earliest")
    work, done = (working if way == "kqlib" else sharing), SPAWN.RawArray("l", processes)
    workers = [Process(work, broker().bootstrap, topic, group, ms / 1e3, done, at) for at in range(processes)]
    for each in workers:
        each.hear()
    time.sleep(SETTLED)
    filled(topic, items, PARTITIONS)
    deadline = time.monotonic() + 120
    while sum(done) < items and time.monotonic() < deadline:
        time.sleep(0.02)
    for each in workers:
        each.stop()
    times = [moments for each in workers for moments in each.hear()]
    for each in workers:
        each.end()
    return len(times) / (max(end for _, end in times) - min(begin for begin, _ in times))


class Handler:
    """Sleeps, and notes when it began and ended."""

    def __init__(self, seconds: float, done: Any, at: int) -> None:
        self.seconds, self.done, self.at = seconds, done, at
        self.times: list[tuple[float, float]] = []

    def __call__(self, _: Any) -> None:
        begun = time.monotonic()
        if self.seconds:
            time.sleep(self.seconds)
        self.times.append((begun, time.monotonic()))
        self.done[self.at] = len(self.times)


def working(caller: Caller, bootstrap: str, topic: str, group: str, *how: Any) -> list[tuple[float, float]]:
    """One process of ours, until it is asked to end."""
    handler = Handler(*how)
    with kq.Site(Kafka(bootstrap), group) as site:
        queue = site.queue(topic)
        queue.claim()
        caller.tell("ready")
        queue.work(handler, threads=THREADS, until=caller.stopped)
    return handler.times


def sharing(caller: Caller, bootstrap: str, topic: str, group: str, *how: Any) -> list[tuple[float, float]]:
    """One process of a share group: each thread has a consumer."""
    handler, over = Handler(*how), threading.Event()
    settings = {"group.id": group, "share.acknowledgement.mode": "explicit", "log_level": 0}

    def work() -> None:
        consumer = ShareConsumer({"bootstrap.servers": bootstrap, "max.poll.records": 100, **settings})
        consumer.subscribe([topic])
        while not over.is_set():
            for record in consumer.poll(0.2) or []:
                handler(record)
                consumer.acknowledge(record)
            consumer.commit_sync()
        consumer.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    caller.tell("ready")
    caller.wait()
    over.set()
    for thread in threads:
        thread.join(20)
    return handler.times
