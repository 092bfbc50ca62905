"""Reads what lies between two offsets of a partition, in no group: for whoever only looks.

In:  a partition, offsets. Out: its records, read committed, so that what transactions left in the log is no record. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kqlib.broker.kafka import Kafka
from kqlib.errors import NotAllowed
from kqlib.queue.clients import Kept
from kqlib.queue.state import check_read

PATIENCE = 10.0


@dataclass
class Counted:
    """A part of a log that was read once: which offsets from start to end are no items."""

    topic: str
    start: int
    end: int
    others: array[int] = field(default_factory=lambda: array("q"))

    def skip(self, end: int) -> None:
        """Up to here there is no item."""
        self.others.extend(range(self.end, end))
        self.end = max(self.end, end)


class Reader:
    """A consumer that is made at the first use and kept."""

    def __init__(self, cluster: Kafka) -> None:
        self.cluster = cluster
        self._one, self._kept = threading.Lock(), Kept(cluster, self._made)
        self._counted: dict[tuple[str, int], Counted] = {}

    def read(
        self, at: tuple[str, int], start: int, end: int, most: int, seconds: float = PATIENCE
    ) -> tuple[list[Any], bool]:
        """Up to `most` records from start on, and below end; and: are these all that there are?"""
        with self._one:
            found, whole = self._read(at, start, end, most, seconds / 3)
            if not found and not whole:
                self._kept.dead()
                found, whole = self._read(at, start, end, most, seconds * 2 / 3)
            return found, whole

    def _read(self, at: tuple[str, int], start: int, end: int, most: int, seconds: float) -> tuple[list[Any], bool]:
        with self._reading(at, start) as consumer:
            return self._collect(consumer, end, most, time.monotonic() + seconds)

    @contextmanager
    def _reading(self, at: tuple[str, int], start: int) -> Iterator[Consumer]:
        """The consumer, on this partition. One that was refused says so only once: the next reader takes another."""
        consumer, refused = self._kept.now(), False
        consumer.assign([TopicPartition(*at, start)])
        try:
            yield consumer
        except NotAllowed:
            refused = True
            raise
        finally:
            consumer.unassign()
            if refused:
                self._kept.close()

    def _collect(self, consumer: Any, end: int, most: int, deadline: float) -> tuple[list[Any], bool]:
        found: list[Any] = []
        while len(found) < most:
            message = consumer.poll(0.1)
            error = message.error() if message is not None else None
            if message is not None and error is None:
                if message.offset() >= end:
                    return found, True
                found.append(message)
                if message.offset() == end - 1:
                    return found, True
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found, True
            elif message is not None:
                check_read(message, self.cluster)
            elif time.monotonic() > deadline:
                return found, False
        return found, False

    def others(
        self, at: tuple[str, int], topic_id: str, start: int, end: int, *, item: Callable[[Any], bool], deadline: float
    ) -> int:
        """How many offsets from start to end are no items: transactions' marks, and records that `item` refuses.

        Only those that were read before the deadline. What was read is remembered: the next call reads on from there.
        """
        with self._one:
            known = self._counted.get(at)
            if known is None or known.topic != topic_id or not known.start <= start <= known.end:
                known = self._counted[at] = Counted(topic_id, start, start)
            del known.others[: bisect_left(known.others, start)]
            known.start = start
            if known.end < end:
                with self._reading(at, known.end) as consumer:
                    self._count(consumer, known, end, item, deadline)
            return bisect_left(known.others, end)

    def _count(self, consumer: Any, known: Counted, end: int, item: Callable[[Any], bool], deadline: float) -> None:
        while known.end < end and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.1):
                if (error := message.error()) is None:
                    known.skip(message.offset() + (not item(message)))
                    known.end = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    known.skip(message.offset())
                else:
                    check_read(message, self.cluster)

    def _made(self) -> Consumer:
        quick = {"enable_partition_eof": True, "fetch_wait_max_ms": 10, "queued_max_messages_kbytes": 8_192}
        how = {"group_id": "kqlib-looks", "group_protocol": "classic", "isolation_level": "read_committed"}
        return Consumer(self.cluster.client(**how, **quick))

    def close(self) -> None:
        """Done reading."""
        with self._one:
            self._kept.close()
