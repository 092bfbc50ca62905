"""What the queue's promises share: topics of their own, records of another client, everything that comes out.

In:  a cluster, a queue. Out: names, items. The fixtures to it (`name`, `here`, `start`) are in `conftest`.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import cimpl

from kqlib.kafka import Kafka
from kqlib.queue import Item, Queue, Site
from kqlib.topics import Plan, QueueTopic
from tests.patience import PATIENCE, WAIT
from tests.promises import play
from tests.promises.queue_worker import Worker

SESSION = min(
    2.0 * PATIENCE, 30.0
)  # seconds until a process that is gone is noticed; one that only stands still is not gone
Start = Callable[..., Worker]
NOWHERE = Kafka("127.0.0.1:1")  # a client of it hears nobody, as one that was once given no broker (librdkafka 5301)


MADE: list[tuple[Kafka, str]] = []  # the fixture `given_back` deletes them after the test


def topic(cluster: Kafka, partitions: int = 1, **config: Any) -> str:
    """A new queue's topic."""
    name = f"queue-{uuid.uuid4().hex[:8]}"
    MADE.append((cluster, name))
    Plan({name: QueueTopic(partitions=partitions, config=config)}).apply(cluster, quiet=True)
    return name


def put(cluster: Kafka, name: str, *values: bytes, partition: int = 0) -> None:
    """As a client would that knows nothing of queues."""
    play.put(cluster, name, *({"value": value, "partition": partition} for value in values))


def put_with_header(cluster: Kafka, name: str, header: bytes) -> None:
    """As a client in C would, whose headers have any bytes as names; this client's library is asked directly."""
    c = ctypes.CDLL(cimpl.__file__)
    c.rd_kafka_conf_new.restype = c.rd_kafka_new.restype = c.rd_kafka_headers_new.restype = ctypes.c_void_p
    conf, headers, none = (ctypes.c_void_p(each) for each in (c.rd_kafka_conf_new(), c.rd_kafka_headers_new(8), None))
    c.rd_kafka_conf_set(conf, b"bootstrap.servers", cluster.bootstrap.encode(), none, 0)
    c.rd_kafka_header_add(headers, header, len(header), b"1", 1)
    producer, topic_is, headers_are = ctypes.c_void_p(c.rd_kafka_new(0, conf, none, 0)), 1, 10
    assert c.rd_kafka_producev(producer, topic_is, name.encode(), headers_are, headers, 0) == 0
    assert c.rd_kafka_flush(producer, round(WAIT * 1000)) == 0
    c.rd_kafka_destroy(producer)


def data(items: Any) -> list[bytes]:
    """What was put."""
    return [item.data for item in items]


@contextmanager
def alone(cluster: Kafka, name: str, session: float | None = SESSION, **how: Any) -> Iterator[Site]:
    """A site with one process: the group gives it every partition, and its first claim waits for them, however late they come."""
    with Site(cluster, name, session=session, **how) as site:
        site._session.decided_after = WAIT
        yield site


class Clock:
    """A site's own clock: it stands until it is moved, so that no lease ends while a process stands still."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(queue: Queue, many: int) -> list[Item]:
    """So many items, held. They may come in several claims: a claim returns as soon as there is one."""
    items: list[Item] = []
    while len(items) < many:
        more = queue.claim_many(many - len(items), wait=WAIT)
        assert more, f"{len(items)} of {many} came"
        items += more
    return items


def drained(queue: Queue, least: int = 1, wait: float = 0.5) -> list[tuple[bytes | None, int]]:
    """Everything that comes out, with its attempt; acked. `least` must come; then nothing comes for `wait` seconds."""
    found: list[tuple[bytes | None, int]] = []
    while items := queue.claim_many(100, wait=WAIT if len(found) < least else wait):
        found += [(item.data, item.attempt) for item in items]
        queue.ack_many(items)
    return sorted(found)
