"""Fetches single records by their offsets: those that a partition read long ago and does not keep any more.

In:  a partition, offsets, and whom to tell. Out: the records that are still in the log. One thread and one consumer a node, in no
group: the node's other consumer reads the logs' ends and is never led elsewhere.
"""

from __future__ import annotations

import logging
import queue as queues
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kqlib.kafka.cluster import Kafka
from kqlib.queue.clients import leave
from kqlib.virtual.cache import Kept, kept
from kqlib.virtual.readers import reader

log = logging.getLogger("kqlib.virtual")
FAR = 1_000  # offsets: a gap that is read over rather than sought over
PATIENCE = 5.0
BYTES = 4_000_000  # at once
Told = Callable[[list[Kept], list[int]], None]  # what was found, what is not there any more


class Fetcher:
    """A thread that fetches."""

    def __init__(self, cluster: Kafka, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self._consumer = reader(cluster, "fetch")
        self._asked: queues.SimpleQueue[tuple[int, list[int], Told] | None] = queues.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kq-virtual-fetch", daemon=True)
        self._thread.start()

    def fetch(self, partition: int, offsets: Sequence[int], told: Told) -> None:
        """Fetch these, in rising order, as many as fit at once; `told` hears of them, from this thread."""
        self._asked.put((partition, list(offsets), told))

    def close(self) -> None:
        """Stop."""
        self._asked.put(None)
        self._thread.join(1.0)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            partition, offsets, told = asked
            found, gone = [], []  # type: list[Kept], list[int]
            try:
                found, gone = self._fetch(partition, offsets)
            except KafkaException as error:
                log.info("fetching: %s", error)
            told(found, gone)
            if not found and not gone:  # Kafka is away, or this consumer is: the next one begins at the first address
                leave(self._consumer)
                self._consumer = reader(self.cluster, "fetch")
        self._consumer.close()

    def _fetch(self, partition: int, offsets: list[int]) -> tuple[list[Kept], list[int]]:
        """Row by row; a row's offsets lie so near to one another that it is read as one."""
        found: dict[int, Kept] = {}
        gone: list[int] = []
        deadline, total = time.monotonic() + PATIENCE, 0
        for row in rows(offsets):
            reached = self._row(partition, row, found, deadline)
            gone += [offset for offset in row if offset < reached and offset not in found]
            total = sum(len(record.data or b"") for record in found.values())
            if total > BYTES or time.monotonic() > deadline:
                break
        return [found[offset] for offset in offsets if offset in found], gone

    def _row(self, partition: int, row: list[int], found: dict[int, Kept], deadline: float) -> int:
        """Read from the row's first offset to its last; up to where it was read."""
        wanted, total, reached = set(row), 0, row[0]
        self._consumer.assign([TopicPartition(self.topic, partition, row[0])])
        while reached <= row[-1] and time.monotonic() < deadline and total < BYTES:
            message: Any = self._consumer.poll(0.1)
            for each in [message, *self._consumer.consume(200, 0)] if message is not None else []:
                if each.error() is None:
                    reached = max(reached, each.offset() + 1)
                    if each.offset() in wanted:
                        found[each.offset()] = kept(each)
                        total += len(each.value() or b"")
                elif each.error().code() == KafkaError._PARTITION_EOF:
                    reached = max(reached, each.offset())
                    deadline = 0.0
        return reached


def rows(offsets: Sequence[int], far: int = FAR) -> list[list[int]]:
    """Rising offsets in rows, parted where the gap is wide."""
    found: list[list[int]] = []
    for offset in offsets:
        if found and offset - found[-1][-1] <= far:
            found[-1].append(offset)
        else:
            found.append([offset])
    return found
