"""Many workers on one topic: 1, 2, 4 and 8 processes of four threads, with handlers that take 0, 1, 10 and 100 ms.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it.

A handler sleeps, so that it takes no core from others. The efficiency is the ideal time (items x seconds / threads) next to the time
from the first handler's begin to the last one's end. Without work it is the rate next to the rate of one process. All processes have
joined before the items are put. A share group does the same: a consumer for each thread, explicit, a commit a poll, and as many
records a poll as are about 100 ms of work. pyrallel-consumer has as many items in flight as the others have threads, in an environment
of its own. Five sites are five processes that each work on all items.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import Producer, ShareConsumer

import kqlib as kq
from bench.broker import Spent, broker, drawn, filled, fresh, share_group, spent
from bench.peers import Peer
from bench.process import SPAWN, Caller, Process
from kqlib.kafka import Kafka

PROCESSES, THREADS, PARTITIONS = (1, 2, 4, 8), 4, 16
SETTLED = 6.0  # seconds: a heartbeat of the last one that joined, and its partitions are its own
HANDLERS = {0: 2_000, 1: 100, 10: 10, 100: 1}  # ms: records of a share group's poll
LASTS, MOST = 2.0, 20_000  # seconds that all items should take, and items at most
KEYS = tuple(b"%d" % number for number in range(1_000))  # so many that each partition has its share of the items


def measured() -> dict[str, float]:
    """One round: each handler, each number of processes, the ways in an order that is drawn; and five sites of kqlib."""
    row: dict[str, float] = {}
    ways = {way: partial(_rate, way) for way in ("kqlib", "share group")} | {"pyrallel-consumer": _foreign}
    for ms in HANDLERS:
        rates = {(way, many): rate_of(many, ms) for many in PROCESSES for way, rate_of in drawn(ways)}
        for way in ways:
            for many in PROCESSES:
                ideal = many * THREADS / ms * 1e3 if ms else rates[way, 1]
                row[f"{way}, {ms} ms, {many} processes, items a second"] = rates[way, many]
                row[f"{way}, {ms} ms, {many} processes: efficiency"] = rates[way, many] / ideal
        row[f"kqlib, {ms} ms, five sites, items a second"] = _rate("kqlib", 5, ms, apart=True)
    return row


def _many(processes: int, ms: int) -> int:
    """Items that last for two seconds."""
    return min(MOST, int(processes * THREADS * LASTS / ms * 1e3)) if ms else MOST


def _rate(*what: Any, **how: Any) -> float:
    return worked(*what, **how)[0]


def worked(way: str, processes: int, ms: int, apart: bool = False) -> tuple[float, Spent]:
    """Items a second, and what they took, of which ours is the processes'. apart: each of them is a site that does every item."""
    items = _many(1 if apart else processes, ms)
    topic, group = fresh("bench-workers"), share_group("workers")
    kq.Plan({topic: kq.QueueTopic(partitions=PARTITIONS)}).apply(broker(), quiet=True)
    work, done = (working if way == "kqlib" else sharing), SPAWN.RawArray("l", processes)
    groups = [f"{group}-{at}" if apart else group for at in range(processes)]
    workers = [Process(work, broker().bootstrap, topic, groups[at], ms, done, at) for at in range(processes)]
    for each in workers:
        each.hear()
    time.sleep(SETTLED)

    def all_done() -> None:
        filled(topic, items, PARTITIONS, keys=KEYS)
        deadline = time.monotonic() + 120
        while sum(done) < items * (processes if apart else 1) and time.monotonic() < deadline:
            time.sleep(0.02)

    before = sum(each.cpu() for each in workers)
    cost = spent(all_done)
    cost = replace(cost, ours=sum(each.cpu() for each in workers) - before)
    for each in workers:
        each.stop()
    times = [moments for each in workers for moments in each.hear()]
    for each in workers:
        each.end()
    return len(times) / (max(end for _, end in times) - min(begin for begin, _ in times)), cost


def _foreign(processes: int, ms: int) -> float:
    """Items a second of pyrallel-consumer."""
    peer, items = Peer("pyrallel-consumer"), _many(processes, ms)
    peer.begin(PARTITIONS)
    workers = [peer.start("work", threads=THREADS) for _ in range(processes)]
    time.sleep(SETTLED)
    producer = Producer({"bootstrap.servers": broker().bootstrap, "linger.ms": 5, "queue.buffering.max.messages": MOST})
    for number in range(items):
        producer.produce(peer.name, json.dumps([number, ms, 0]), KEYS[number % len(KEYS)])
    producer.flush()
    ended = sorted(ended for *_, ended in peer.all_results(items))
    for each in workers:
        peer.kill(each)
    return (len(ended) - 1) / (ended[-1] - ended[0])


class Handler:
    """Sleeps, and notes when it began and ended."""

    def __init__(self, ms: int, done: Any, at: int) -> None:
        self.ms, self.done, self.at = ms, done, at
        self.times: list[tuple[float, float]] = []

    def __call__(self, _: Any) -> None:
        begun = time.monotonic()
        if self.ms:
            time.sleep(self.ms / 1e3)
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
    settings = {"group.id": group, "share.acknowledgement.mode": "explicit", "max.poll.records": HANDLERS[handler.ms]}

    def work() -> None:
        consumer = ShareConsumer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
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
