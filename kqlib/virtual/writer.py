"""Writes everything for one partition, in transactions with the one id that all nodes use for it.

In:  records. Out: their offsets once they are committed together. Or `Fenced`: another node began with this id, and Kafka takes
nothing from here any more. Or `WriteFailed`, which knows whether the records may be committed.
"""

# ruff: noqa: N818 - names say what is wrong, as in kqlib.errors

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kqlib.kafka.clients import Producer
from kqlib.kafka.cluster import Kafka
from kqlib.queue.answers import first
from kqlib.queue.item import Out
from kqlib.topic_rules import RECORD_BYTES

log = logging.getLogger("kqlib.virtual.kafka")
log.addHandler(logging.NullHandler())  # to be fenced is expected here; librdkafka would print it to stderr as FATAL

TIMEOUT = 10.0  # seconds: the broker ends a transaction that its producer does not
FENCED = {"PRODUCER_FENCED", "_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"}


class Fenced(Exception):
    """Another node writes for this partition now."""

    unknown = True  # a commit whose answer is late may have gone through before


class WriteFailed(Exception):
    """A transaction did not come to its end."""

    def __init__(self, why: str, unknown: bool) -> None:
        super().__init__(why)
        self.unknown = unknown  # it may have been committed


class PartitionWriter:
    """The transactional producer of one partition."""

    def __init__(self, cluster: Kafka, topic: str, partition: int, most: int = RECORD_BYTES) -> None:
        """most: bytes of a record in this topic, and so of a batch."""
        settings: dict[str, Any] = {
            "transactional.id": f"kq-virtual-{topic}-{partition}",
            "transaction.timeout.ms": int(TIMEOUT * 1000),
            "retry.backoff.ms": 1,  # a transaction with offsets takes 107 ms without these two, 4 with them
            "retry.backoff.max.ms": 5,
            "linger.ms": 0,
            "logger": log,
            "socket.nagle.disable": True,  # a commit after a pause took 45 ms with Nagle's algorithm, 1 ms without
            "batch.size": min(1_000_000, most),  # Kafka refuses a larger batch as it refuses a larger record
            "message.max.bytes": 1_000_000_000,  # the topic's own limit is checked before
        }
        self._producer = Producer(cluster.client(**settings))
        self._topic, self.partition = topic, partition
        self._clock = time.time(), time.monotonic()  # Kafka's clock in its last answer, and ours at that moment

    def connect(self) -> None:
        """Know a broker: without one `begin` sleeps for 0.5 s."""
        try:
            self._producer.list_topics(self._topic, timeout=TIMEOUT)
        except KafkaException as error:
            raise _failed(error, unknown=False) from None

    def begin(self) -> None:
        """Fence the node that had this id; Kafka aborts what it left open."""
        try:
            self._producer.init_transactions(TIMEOUT)
        except KafkaException as error:
            raise _failed(error, unknown=False) from None

    def write(self, outs: Sequence[Out]) -> list[int]:
        """The offsets of these records, all of them committed; or none is."""
        offsets = [-1] * len(outs)
        try:
            self._producer.begin_transaction()
            for at, out in enumerate(outs):
                self._produce(at, out, offsets)
        except KafkaException as error:
            raise self._abort(error) from None
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                self._producer.commit_transaction(TIMEOUT)
                return offsets
            except KafkaException as error:
                if first(error).txn_requires_abort():
                    raise self._abort(error) from None
                if not first(error).retriable() or time.monotonic() > deadline:
                    raise _failed(error, unknown=True) from None

    def _produce(self, at: int, out: Out, offsets: list[int]) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                offsets[at] = message.offset()
                self._clock = message.timestamp()[1] / 1000, time.monotonic()

        while True:
            try:
                self._producer.produce(out.topic, out.value, out.key, out.partition, delivered, headers=out.headers)
                return  # no poll: it would let other threads run, after each record. The commit calls `delivered`
            except BufferError:
                self._producer.poll(0.01)

    def _abort(self, error: KafkaException) -> Exception:
        failed = _failed(error, unknown=False)
        if isinstance(failed, WriteFailed) and not first(error).fatal():
            try:
                self._producer.abort_transaction(TIMEOUT)
            except KafkaException as worse:
                failed = _failed(worse, unknown=False)
        return failed

    def now(self) -> float:
        """Kafka's clock (LogAppendTime): a node whose own clock jumps must not take consumers for idle."""
        seconds, then = self._clock
        return seconds + time.monotonic() - then

    def close(self) -> None:
        """Write nothing more."""
        self._producer.purge()
        del self._producer  # its threads and connections end now, and nobody waits for that


def _failed(error: KafkaException, unknown: bool) -> Exception:
    cause: KafkaError = first(error)
    return Fenced(cause.str()) if cause.name() in FENCED else WriteFailed(cause.str(), unknown)
