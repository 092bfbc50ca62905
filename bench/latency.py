"""How long an item takes from the moment at which it should be put until it is acked, at fixed rates.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it.

There is no coordinated omission: each item has its moment, and its time counts from there, even if the put before it took long. The
items are put by one process and claimed and acked by another one, both by kqlib. With three brokers: three replicas, two in sync.
The first item after a silence is measured apart; `KQ_BENCH_SILENCE` sets its seconds (20).
"""

from __future__ import annotations

import os
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kqlib as kq
from bench.broker import broker, fresh
from bench.process import PATIENCE, Caller, Process
from kqlib.kafka import Kafka

RATES, PARTITIONS, BROKERS = (10, 100, 1_000), (1, 16), (1, 3)
LASTS, WARM, PUTTERS = 8.0, 1.0, 8  # seconds, seconds that do not count, threads that put
MOMENT = struct.Struct("d")


def measured() -> dict[str, float]:
    """One round: each rate, on one partition and on sixteen, on one broker and on three."""
    row: dict[str, float] = {}
    for brokers in BROKERS:
        for partitions in PARTITIONS:
            for rate in RATES:
                times = sorted(_paced(brokers, partitions, rate))
                for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
                    row[f"{brokers} brokers, {partitions} partitions, {rate} a second, ms {name}"] = at(times, part)
    silence = float(os.environ.get("KQ_BENCH_SILENCE", "20"))
    row[f"the first item after {silence:g} s of silence, ms"] = at(_paced(1, 1, 1 / silence, first=silence), 1)
    return row


def at(times: list[float], part: float) -> float:
    """The time that so large a part of these sorted times does not exceed, in ms."""
    return times[min(len(times) - 1, int(len(times) * part))] * 1e3


def _paced(brokers: int, partitions: int, rate: float, first: float = 1.0) -> list[float]:
    cluster, topic = broker(brokers), fresh("bench-latency")
    kq.Plan({topic: kq.QueueTopic(partitions=partitions)}).apply(cluster, quiet=True)
    many = max(1, int(rate * LASTS))
    worker = Process(working, cluster.bootstrap, topic, many)
    putter = Process(putting, cluster.bootstrap, topic, many, (rate, first))
    worker.hear()
    putter.hear()
    putter.stop()  # both are ready: begin
    begun, times = putter.hear(first + PATIENCE), worker.hear()
    for each in (putter, worker):
        each.end()
    return [took for moment, took in times if moment >= begun + WARM or many == 1]


def putting(caller: Caller, bootstrap: str, topic: str, many: int, pace: tuple[float, float]) -> float:
    """Put each item at its moment, which is its data. Returns when the first one was to be put."""
    rate, first = pace
    with kq.Site(Kafka(bootstrap), "putting") as site, ThreadPoolExecutor(PUTTERS) as pool:
        queue = site.queue(topic)
        caller.tell("ready")
        caller.wait()
        begun = time.monotonic() + first

        def put(number: int) -> None:
            moment = begun + number / rate
            time.sleep(max(0.0, moment - time.monotonic()))
            queue.put(MOMENT.pack(moment), b"game-%d" % (number % 97))

        list(pool.map(put, range(many)))
    return begun


def working(caller: Caller, bootstrap: str, topic: str, many: int) -> list[tuple[float, float]]:
    """Claim and ack. Returns the moment and the time of each."""
    times: list[tuple[float, float]] = []
    with kq.Site(Kafka(bootstrap), "working") as site:
        queue: Any = site.queue(topic)
        queue.claim()
        caller.tell("ready")
        while len(times) < many:
            items = queue.claim_many(100, wait=1)
            queue.ack_many(items)
            now = time.monotonic()
            moments = [MOMENT.unpack(item.data)[0] for item in items]
            times += [(moment, now - moment) for moment in moments]
    return times
