"""Reads what lies between two offsets of a partition, in no group: for whoever only looks.

In:  a partition, offsets. Out: its records, read committed, so that what transactions left in the log is no record. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kqlib.broker.kafka import Kafka

PATIENCE = 10.0


class Reader:
    """A consumer that is made at the first use and kept."""

    def __init__(self, cluster: Kafka) -> None:
        self.cluster = cluster
        self._consumer: Any = None
        self._one = threading.Lock()

    def read(
        self, at: tuple[str, int], start: int, end: int, most: int, seconds: float = PATIENCE
    ) -> tuple[list[Any], bool]:
        """Up to `most` records from start on, and below end; and: are these all that there are?"""
        with self._one:
            consumer = self._ready()
            consumer.assign([TopicPartition(*at, start)])
            try:
                return self._collect(end, most, time.monotonic() + seconds)
            finally:
                consumer.unassign()

    def _collect(self, end: int, most: int, deadline: float) -> tuple[list[Any], bool]:
        found: list[Any] = []
        while len(found) < most:
            message = self._consumer.poll(0.1)
            error = message.error() if message is not None else None
            if message is not None and error is None:
                if message.offset() >= end:
                    return found, True
                found.append(message)
                if message.offset() == end - 1:
                    return found, True
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found, True
            elif time.monotonic() > deadline:
                return found, False
        return found, False

    def _ready(self) -> Any:
        if self._consumer is None:
            quick = {"enable_partition_eof": True, "fetch_wait_max_ms": 10, "queued_max_messages_kbytes": 8_192}
            self._consumer = Consumer(
                self.cluster.client(
                    group_id="kqlib-looks", group_protocol="classic", isolation_level="read_committed", **quick
                )
            )
        return self._consumer

    def close(self) -> None:
        """Done reading."""
        with self._one:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
