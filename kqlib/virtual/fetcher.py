"""Fetches single records by their offsets: those that a partition read long ago and does not keep in memory.

In:  a partition, offsets, a function to call. Out: the records that are still in the log. One thread and one consumer a node, in
no group: the consumer of the group reads the logs' ends and never seeks back.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import reader_of
from kqlib.queue.clients import Kept
from kqlib.virtual.index import StoredRecord

log = logging.getLogger("kqlib.virtual")
FAR = 1_000  # offsets: a smaller gap is read over, a larger one is sought over
PATIENCE = 5.0  # seconds
BYTES = 4_000_000  # at once
Fetched = Callable[[list[StoredRecord], list[int]], object]  # the records, and the offsets that are not in the log


def reader(cluster: Kafka, wait: int = 5) -> Any:
    """A consumer in no group, of what is committed; it reports the end of a log. wait: milliseconds that a fetch waits there."""
    return reader_of(cluster, fetch_wait_max_ms=wait, fetch_queue_backoff_ms=5)


class RecordFetcher:
    """A thread that fetches."""

    def __init__(self, cluster: Kafka, topic: str) -> None:
        self.topic, self._kept = topic, Kept(cluster, partial(reader, cluster))
        self._thread = ThreadPoolExecutor(1, "kq-virtual-fetch")

    def fetch(self, partition: int, offsets: Sequence[int], fetched: Fetched) -> None:
        """Fetch these, in rising order, as many as fit at once. `fetched` is called by the fetcher's thread."""
        self._thread.submit(self._fetch, partition, list(offsets), fetched)

    def close(self) -> None:
        """Stop."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._kept.close()

    def _fetch(self, partition: int, offsets: list[int], fetched: Fetched) -> None:
        found, gone = list[StoredRecord](), list[int]()
        try:
            found, gone = self._read(partition, offsets)
        except KafkaException as error:
            log.info("fetching: %s", error, extra={"partition": partition})
        fetched(found, gone)
        if not found and not gone:  # Kafka is away, or this consumer is dead
            self._kept.dead()

    def _read(self, partition: int, offsets: list[int]) -> tuple[list[StoredRecord], list[int]]:
        """The records, and the offsets that were read over and are not there."""
        consumer = self._kept.now()
        left, asked, found, gone = deque(offsets), set(offsets), dict[int, StoredRecord](), list[int]()
        position, size, deadline = -FAR - 1, 0, time.monotonic() + PATIENCE
        while left and size < BYTES and time.monotonic() < deadline:
            if left[0] - position > FAR:
                position = left[0]
                consumer.assign([TopicPartition(self.topic, partition, position)])
            first = consumer.poll(0.1)
            for message in [first, *consumer.consume(200, 0)] if first is not None else []:
                if message.error() is None:
                    position = message.offset() + 1
                    if message.offset() in asked:
                        found[message.offset()] = StoredRecord.of(message)
                        size += len(message.value() or b"")
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    position = max(position, message.offset())
                    deadline = 0.0
            while left and left[0] < position:
                if (offset := left.popleft()) not in found:
                    gone.append(offset)
        consumer.unassign()  # or it would read on to the log's end, and ask there for more
        return [found[offset] for offset in offsets if offset in found], gone
