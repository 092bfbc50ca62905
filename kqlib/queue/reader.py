"""Reads the records between two offsets of a partition, in no group: for verbs that only look.

In:  partitions, offsets. Out: records, read committed, so that marks and aborted records of transactions are left out. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from kqlib.errors import NotAllowed
from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import reader_of
from kqlib.queue.clients import Kept
from kqlib.queue.item import Place
from kqlib.queue.state import check_read

PATIENCE = 10.0


@dataclass
class Counted:
    """A part of a log that was read once: which offsets from start to end are no items."""

    topic: str
    start: int
    end: int
    others: array[int] = field(default_factory=lambda: array("q"))

    def add(self, upto: int, item: bool) -> None:
        """It was read up to here; the last offset is an item, or there is none."""
        self.others.extend(range(self.end, upto - item))
        self.end = max(self.end, upto)


class Reader:
    """A consumer that is made at the first use and kept."""

    def __init__(self, cluster: Kafka) -> None:
        self.cluster = cluster
        self._lock = threading.Lock()
        self._kept = Kept(cluster, self._made)
        self._counted: dict[tuple[str, str, int], Counted] = {}  # by site: what one puts back is no item of another

    def read(self, at: Place, start: int, end: int, most: int) -> tuple[list[Any], bool]:
        """Up to `most` records from start on and below end. The second value says whether these are all."""
        with self._lock:
            found, whole = self._first(at, start, end, most, PATIENCE / 3)
            if not found and not whole:
                self._kept.dead()
                found, whole = self._first(at, start, end, most, PATIENCE * 2 / 3)
            return found, whole

    def _first(self, at: Place, start: int, end: int, most: int, seconds: float) -> tuple[list[Any], bool]:
        found: list[Any] = []
        with closing(self._records({at: start}, {at: end}, time.monotonic() + seconds)) as records:
            for _, record, upto in records:
                if record is not None and record.offset() < end:
                    found.append(record)
                whole = record is None or upto >= end
                if whole or len(found) == most:
                    return found, whole
        return found, False

    def others(
        self, site: str, parts: Mapping[Place, tuple[str, int, int]], item: Callable[[Any], bool], deadline: float
    ) -> dict[Place, int]:
        """How many offsets of each partition are no items of a site: transactions' marks, and records that `item` refuses.

        parts: topic id, start and end. All are read at once, until the deadline. What was read is remembered: the next call reads on.
        """
        with self._lock:
            known = {at: self._known(site, at, topic_id, start) for at, (topic_id, start, _) in parts.items()}
            starts = {at: each.end for at, each in known.items() if each.end < parts[at][2]}
            ends = {at: parts[at][2] for at in starts}
            with closing(self._records(starts, ends, deadline)) as records:
                for at, record, upto in records:
                    known[at].add(upto, record is not None and item(record))
            return {at: bisect_left(each.others, parts[at][2]) for at, each in known.items()}

    def _known(self, site: str, at: Place, topic_id: str, start: int) -> Counted:
        known = self._counted.get((site, *at))
        if known is None or known.topic != topic_id or not known.start <= start <= known.end:
            known = self._counted[site, *at] = Counted(topic_id, start, start)
        del known.others[: bisect_left(known.others, start)]
        known.start = start
        return known

    def _records(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int], deadline: float
    ) -> Generator[tuple[Place, Any, int], None, None]:
        """Each record until all ends are reached, with the offset behind it. Where a log ends, there is no record."""
        if not starts:
            return
        consumer = self._kept.now()
        left = set(starts)
        refused = False
        consumer.assign([TopicPartition(*at, start) for at, start in starts.items()])
        try:
            while left and time.monotonic() < deadline:
                if (message := consumer.poll(0.1)) is None:
                    continue
                for each in [message, *consumer.consume(500, 0)]:
                    at, error = (each.topic(), each.partition()), each.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        check_read(each, self.cluster)
                    elif at in left:  # not paused when it is through: it would stay so when it is assigned again
                        upto = each.offset() + (error is None)
                        yield at, each if error is None else None, upto
                        left -= {at} if upto >= ends[at] else set()
        except NotAllowed:  # a consumer reports this only once: the next call makes another one
            refused = True
            raise
        finally:
            consumer.unassign()
            if refused:
                self._kept.close()

    def _made(self) -> Any:
        return reader_of(self.cluster, queued_max_messages_kbytes=8_192)

    def close(self) -> None:
        """Done reading."""
        with self._lock:
            self._kept.close()
