"""What claiming and acking costs, next to Kafka's own share group: one worker, one partition, the same items, the same broker.

In: nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it, with the target in brackets beside a ratio.

The share group acknowledges each record explicitly and commits a poll (`ShareConsumer`). Ours is durable twice a batch, since the
attempts are committed before anybody sees an item and the acks before `ack_many` returns; with riding acks (wait=False) the second
commit is shared. Each reads the topic from its beginning, and its first batch, with the joining, is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from confluent_kafka import ShareConsumer

import kqlib as kq
from bench.broker import Spent, broker, filled, fresh, set_group, spent

ITEMS = {500: 60_000, 2_000: 200_000}
Batches = Iterator[int]  # the size of each batch, when it is done


def measured() -> dict[str, float]:
    """One round: three ways, two sizes of a batch."""
    row: dict[str, float] = {}
    costs: dict[str, float] = {}
    for batch, items in ITEMS.items():
        topic = filled("bench-claims", max(ITEMS.values()))
        ways = {
            "share group": share(topic, batch),
            "durable acks": ours(topic, batch, True),
            "riding acks": ours(topic, batch, False),
        }
        rates = {}
        for way, batches in ways.items():
            done, times, cost = run(batches, items)
            rates[way] = row[f"{way}, {batch:,}, k/s"] = done / cost.seconds / 1e3
            costs |= _costs(f"{way}, {batch:,}", done, times, cost)
        row |= _ratios(rates, batch)
    ratios = {name: value for name, value in row.items() if "÷" in name}
    return {**{name: value for name, value in row.items() if name not in ratios}, **ratios, **costs}


def _ratios(rates: dict[str, float], batch: int) -> dict[str, float]:
    """Ours to theirs; riding acks have a target at 500 only."""
    durable, riding = ("≥ 0.8", "≥ 1.0") if batch == 500 else ("≥ 1.0", "")
    names = {"durable acks": durable, "riding acks": riding}
    return {
        f"{way} ÷ share group, {batch:,}" + f" ({target})" * bool(target): rates[way] / rates["share group"]
        for way, target in names.items()
    }


def _costs(way: str, items: int, times: list[float], cost: Spent) -> dict[str, float]:
    """How long a batch takes, and the CPU of an item."""
    return {
        f"{way}: a batch, ms p50": statistics.median(times) * 1e3,
        f"{way}: a batch, ms p99": sorted(times)[int(len(times) * 0.99)] * 1e3,
        f"{way}: CPU an item, here, µs": cost.ours / items * 1e6,
        f"{way}: CPU an item, broker, µs": cost.theirs / items * 1e6,
    }


def run(batches: Batches, items: int) -> tuple[int, list[float], Spent]:
    """Batch after batch until so many items are done; the first one has the joining in it."""
    first, times, done = next(batches), list[float](), 0

    def rest() -> None:
        nonlocal done
        while first + done < items:
            start = time.perf_counter()
            done += next(batches)
            times.append(time.perf_counter() - start)

    cost = spent(rest)
    batches.close()  # type: ignore[attr-defined]
    return done, times, cost


def share(topic: str, batch: int) -> Batches:
    """Kafka's share group: poll, acknowledge each, commit."""
    group = fresh("share")
    set_group(group, "share.auto.offset.reset", "earliest")
    settings = {"group.id": group, "share.acknowledgement.mode": "explicit", "max.poll.records": batch}
    consumer = ShareConsumer({"bootstrap.servers": broker().bootstrap, "log_level": 0, **settings})
    consumer.subscribe([topic])
    try:
        while True:
            if records := consumer.poll(10.0):
                for record in records:
                    consumer.acknowledge(record)
                consumer.commit_sync()
                yield len(records)
    finally:
        consumer.close()


def ours(topic: str, batch: int, wait: bool) -> Batches:
    """Ours: claim, ack."""
    with kq.Site(broker(), fresh("ours")) as site:
        queue = site.queue(topic, lease=300)
        while True:
            if items := queue.claim_many(batch, wait=10):
                queue.ack_many(items, wait=wait)
                yield len(items)
