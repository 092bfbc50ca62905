"""What the queue's promises share: topics of their own, records of another client, everything that comes out.

In:  a cluster, a queue. Out: names, items. The fixtures to it (`name`, `here`, `start`) are in `conftest`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from kqlib.broker import Kafka
from kqlib.queue import Queue
from kqlib.topics import Plan, QueueTopic
from tests.promises.queue_worker import Worker

SESSION = 2  # seconds until a process that is gone is noticed
Start = Callable[..., Worker]


def topic(cluster: Kafka, partitions: int = 1, **config: Any) -> str:
    """A new queue's topic."""
    name = f"queue-{uuid.uuid4().hex[:8]}"
    Plan({name: QueueTopic(partitions=partitions, config=config)}).apply(cluster, quiet=True)
    return name


def put(cluster: Kafka, name: str, *values: bytes, partition: int = 0) -> None:
    """As a client would that knows nothing of queues."""
    producer = Producer(cluster.client(acks="all"))
    for value in values:
        producer.produce(name, value, partition=partition)
    assert producer.flush(20) == 0


def data(items: Any) -> list[bytes]:
    """What was put."""
    return [item.data for item in items]


def drained(queue: Queue, wait: float = 8) -> list[tuple[bytes | None, int]]:
    """Everything that comes out, with its attempt; acked."""
    found: list[tuple[bytes | None, int]] = []
    while items := queue.claim_many(100, wait=wait):
        found += [(item.data, item.attempt) for item in items]
        queue.ack_many(items)
        wait = 0.5
    return sorted(found)
