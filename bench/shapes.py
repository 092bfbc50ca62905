"""Claim and ack next to Kafka's own share group, at topics of several shapes: partitions × records that a producer sent together.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it.

One worker, items of 100 bytes with 97 keys. Each contestant reads the topic from its beginning; its first items, with the joining, do
not count. Ours claims a batch and acks it: durable, or riding on the next commit (wait=False). The attempts are stored before anybody
sees an item; what that costs is shown by the same code without it, which no user gets. The share group acknowledges each record and
commits each poll, and waits for the answer or not. It takes what a poll gives, up to a batch: it gives out whole record batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

from confluent_kafka import ShareConsumer

import kqlib as kq
from bench.broker import Spent, broker, drawn, filled, fresh, share_group, spent
from kqlib.queue.order import NOTHING, Ahead

# Items of each run. Those that are left: our client reads up to so many ahead, and all that counts shall be read while it counts.
WARM_UP, COUNTED, LEFT = 40_000, 100_000, 100_000
KEYS = tuple(b"game-%d" % number for number in range(97))
SHAPES = [(partitions, sent, 2_000) for partitions in (1, 4, 16) for sent in (1, 100, 2_000)] + [(1, 100, 500)]
SHARE, SHARE_ASYNC = "share group", "share group, async commit"
BESIDE = {
    "durable": (SHARE, " (≥ 1.0)"),
    "riding": (SHARE_ASYNC, " (≥ 1.0)"),
    "attempts not stored before": (SHARE, ""),
}
Batches = Iterator[int]  # the size of each batch, when it is done


def measured() -> dict[str, float]:
    """One round: each shape, each way."""
    ratios, costs = dict[str, float](), dict[str, float]()
    for partitions, sent, batch in SHAPES:
        shape = f"{partitions} × {sent:,}, {batch:,} at once"
        topic = filled(f"bench-shape-{partitions}-{sent}", WARM_UP + COUNTED + LEFT, partitions, sent, KEYS)
        ways = {
            "durable": ours(topic, batch),
            "riding": ours(topic, batch, wait=False),
            "attempts not stored before": unsafe(topic, batch),
            SHARE: share(topic, batch),
            SHARE_ASYNC: share(topic, batch, wait=False),
        }
        took = {way: run(batches, COUNTED) for way, batches in drawn(ways)}
        rates = {way: done / cost.seconds / 1e3 for way, (done, _, cost) in took.items()}
        for way, (other, target) in BESIDE.items():
            ratios[f"{shape}: {way} ÷ {other}{target}"] = rates[way] / rates[other]
        for way in ways:
            done, _, cost = took[way]
            costs[f"{shape}: {way}, k/s"] = rates[way]
            costs[f"{shape}: {way}, CPU an item, here, µs"] = cost.ours / done * 1e6
            costs[f"{shape}: {way}, CPU an item, broker, µs"] = cost.theirs / done * 1e6
    return ratios | costs


def run(batches: Batches, items: int) -> tuple[int, int, Spent]:
    """Batch after batch until so many items are done, after the first ones. Returns the items, the batches, and what they took."""
    warm, done = 0, list[int]()
    while warm < WARM_UP:
        warm += next(batches)

    def rest() -> None:
        left = items
        while left > 0:
            done.append(next(batches))
            left -= done[-1]

    cost = spent(rest)
    batches.close()  # type: ignore[attr-defined]
    return sum(done), len(done), cost


def share(topic: str, batch: int, wait: bool = True) -> Batches:
    """Kafka's share group: poll, acknowledge each, commit."""
    settings = {"group.id": share_group("share"), "share.acknowledgement.mode": "explicit", "max.poll.records": batch}
    consumer = ShareConsumer({"bootstrap.servers": broker().bootstrap, "log_level": 0, **settings})
    consumer.subscribe([topic])
    try:
        while True:
            if records := consumer.poll(10.0):
                for record in records:
                    consumer.acknowledge(record)
                if wait:
                    consumer.commit_sync()
                else:
                    consumer.commit_async()
                yield len(records)
    finally:
        consumer.close()


def ours(topic: str, batch: int, wait: bool = True) -> Batches:
    """Ours: claim, ack."""
    with kq.Site(broker(), fresh("ours")) as site:
        queue = site.queue(topic, lease=300)
        while True:
            if items := queue.claim_many(batch, wait=10):
                queue.ack_many(items, wait=wait)
                yield len(items)


def unsafe(topic: str, batch: int) -> Batches:
    """Ours, and no commit before an item is handed out: after a crash its attempt is not counted."""
    with patch.multiple(Ahead, covers=lambda *_: True, state=lambda self: (self.ledger, NOTHING)):
        yield from ours(topic, batch)
