"""Reads the records between two offsets of a partition, in no group: for verbs that only look.

In:  a partition, offsets. Out: its records, read committed, so that what transactions left in the log is no record. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from kqlib.errors import NotAllowed
from kqlib.kafka.clients import Consumer
from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import LOOKER
from kqlib.queue.clients import Kept
from kqlib.queue.state import check_read

PATIENCE = 10.0
Place = tuple[str, int]  # a topic and the number of a partition


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
        self._counted: dict[tuple[str, str, int], Counted] = {}  # by site: what one puts back is no item of another

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
        with self._reading({at: start}) as consumer:
            return self._collect(consumer, end, most, time.monotonic() + seconds)

    @contextmanager
    def _reading(self, starts: Mapping[Place, int]) -> Iterator[Consumer]:
        """The consumer, on these partitions. One that was refused says so only once: the next reader takes another."""
        consumer, refused = self._kept.now(), False
        consumer.assign([TopicPartition(*at, start) for at, start in starts.items()])
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
        self, site: str, parts: Mapping[Place, tuple[str, int, int]], item: Callable[[Any], bool], deadline: float
    ) -> dict[Place, int]:
        """How many offsets of each partition are no items of a site: transactions' marks, and records that `item` refuses.

        parts: topic id, start and end. All are read at once, until the deadline. What was read is remembered: the next call reads on.
        """
        with self._one:
            known = {at: self._known(site, at, topic_id, start) for at, (topic_id, start, _) in parts.items()}
            unread = {at: each for at, each in known.items() if each.end < parts[at][2]}
            if unread:
                with self._reading({at: each.end for at, each in unread.items()}) as consumer:
                    self._count(consumer, unread, {at: end for at, (_, _, end) in parts.items()}, item, deadline)
            return {at: bisect_left(each.others, parts[at][2]) for at, each in known.items()}

    def _known(self, site: str, at: Place, topic_id: str, start: int) -> Counted:
        known = self._counted.get((site, *at))
        if known is None or known.topic != topic_id or not known.start <= start <= known.end:
            known = self._counted[site, *at] = Counted(topic_id, start, start)
        del known.others[: bisect_left(known.others, start)]
        known.start = start
        return known

    def _count(
        self,
        consumer: Any,
        unread: dict[Place, Counted],
        ends: Mapping[Place, int],
        item: Callable[[Any], bool],
        deadline: float,
    ) -> None:
        while unread and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.1):
                at, error = (message.topic(), message.partition()), message.error()
                if (known := unread.get(at)) is None:  # its end was reached before, or the event is of no partition
                    continue
                if error is None:
                    known.skip(message.offset() + (not item(message)))
                    known.end = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    known.skip(message.offset())
                else:
                    check_read(message, self.cluster)
                if known.end >= ends[at]:
                    del unread[at]  # not paused: a partition would stay so when it is assigned again

    def _made(self) -> Consumer:
        quick = {"enable_partition_eof": True, "fetch_wait_max_ms": 10, "queued_max_messages_kbytes": 8_192}
        how = {"group_id": LOOKER, "group_protocol": "classic", "isolation_level": "read_committed"}
        return Consumer(self.cluster.client(**how, **quick))

    def close(self) -> None:
        """Done reading."""
        with self._one:
            self._kept.close()
