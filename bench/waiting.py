"""What processes cost that only wait for an item: CPU of each, CPU of the broker, requests a second, with 1 and with 50 of them.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. The requests are what the broker's own metrics
count, of all clients of these processes; fifty processes wait on as many partitions.
"""

from __future__ import annotations

import time

import kqlib as kq
from bench.broker import KINDS, broker, fresh, requests, spent
from bench.process import Caller, Process
from kqlib.kafka import Kafka

PROCESSES = (1, 50)
CALM, LASTS = 8.0, 20.0  # seconds until all have joined and nothing moves; seconds that are measured


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
        asked, used = requests(), sum(each.cpu() for each in workers)
        cost = spent(lambda: time.sleep(LASTS))
        share = (sum(each.cpu() for each in workers) - used) / many / cost.seconds
        sent = requests() - asked
        for each in workers:
            each.stop()
        for each in workers:
            each.end()
        target = " (≤ 0.5)" if many == 1 else ""
        row[f"{many} processes: CPU of each, %{target}"] = share * 100
        row[f"{many} processes: CPU of the broker, %"] = cost.theirs / cost.seconds * 100
        for kind in ("all", *KINDS):
            row[f"{many} processes: requests a second, {kind}"] = sent[kind] / sent["ms"] * 1e3
    return row


def waiting(caller: Caller, bootstrap: str, topic: str) -> None:
    """Wait for an item until it is asked to end."""
    with kq.Site(Kafka(bootstrap), "waiting") as site:
        queue = site.queue(topic)
        queue.claim()
        caller.tell("ready")
        while not caller.stopped():
            queue.claim(wait=5.0)
