"""What processes cost that only wait for an item: CPU of each, CPU of the broker, requests a second, with 1 and with 50 of them.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. The requests are what librdkafka's own statistics
say of all clients of a process; fifty processes wait on as many partitions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

import kqlib as kq
from bench.broker import broker, fresh, spent
from bench.process import Caller, Process
from kqlib.kafka import Kafka
from kqlib.queue import session

PROCESSES, CALM, LASTS = (
    (1, 50),
    8.0,
    20.0,
)  # seconds until all have joined and nothing moves; seconds that are measured
SENT = [0]  # requests of this process's consumer


def measured() -> dict[str, float]:
    """One round: one process, then fifty."""
    row: dict[str, float] = {}
    for many in PROCESSES:
        topic = fresh("bench-waiting")
        kq.Plan({topic: kq.QueueTopic(partitions=many)}).apply(broker(), quiet=True)
        workers = [Process(waiting, broker().bootstrap, topic) for _ in range(many)]
        for each in workers:
            each.hear()
        time.sleep(CALM)
        cost = spent(lambda: time.sleep(LASTS))
        for each in workers:
            each.stop()
        shares, requests = zip(*[each.hear() for each in workers], strict=True)
        for each in workers:
            each.end()
        target = " (≤ 0.5)" if many == 1 else ""
        row[f"{many} processes: CPU of each, %{target}"] = sum(shares) / many * 100
        row[f"{many} processes: CPU of the broker, %"] = cost.theirs / cost.seconds * 100
        row[f"{many} processes: requests a second"] = sum(requests)
    return row


class Counted(session.Consumer):  # type: ignore[misc]
    """The site's consumer; it notes how many requests were sent."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings | {"statistics.interval.ms": 1_000, "stats_cb": self._note})

    @staticmethod
    def _note(text: str) -> None:
        SENT[0] = sum(each["tx"] for each in json.loads(text)["brokers"].values())


@contextmanager
def _joined(bootstrap: str, topic: str) -> Iterator[Any]:
    session.Consumer = Counted
    with kq.Site(Kafka(bootstrap), "waiting") as site:
        queue = site.queue(topic)
        queue.claim()
        yield queue


def waiting(caller: Caller, bootstrap: str, topic: str) -> tuple[float, float]:
    """Wait for an item until it is asked to end. Returns the share of a core and the requests a second, without the joining."""
    with _joined(bootstrap, topic) as queue:
        caller.tell("ready")
        queue.claim(wait=CALM)
        own = psutil.Process()
        begun, used, sent = time.monotonic(), own.cpu_times(), SENT[0]
        while not caller.stopped():
            queue.claim(wait=5.0)
        seconds, after = time.monotonic() - begun, own.cpu_times()
    cpu = after.user + after.system - used.user - used.system
    return cpu / seconds, (SENT[0] - sent) / seconds
