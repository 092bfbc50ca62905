"""The pen of one partition: everything that is written for it, in transactions with the one id that all nodes use for it.

In:  records. Out: where they are, once they are committed together; or `Fenced`: another node has begun to write with this id, and
from then on Kafka takes nothing from here; or `Broken`, which says whether they may have been written.
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
from kqlib.queue.item import Out
from kqlib.queue.said import first
from kqlib.topic_rules import RECORD_BYTES
from kqlib.virtual.names import transactional_id

kafkas = logging.getLogger("kqlib.virtual.kafka")
kafkas.addHandler(
    logging.NullHandler()
)  # to be fenced is no accident here; librdkafka would print it to stderr as FATAL

TIMEOUT = 10.0  # seconds: the broker ends a transaction that its producer does not
FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.INVALID_PRODUCER_ID_MAPPING}
FENCED_NAMES = {"PRODUCER_FENCED", "_FENCED", "INVALID_PRODUCER_EPOCH"}


class Fenced(Exception):
    """Another node writes for this partition now."""

    unknown = True  # a commit that was answered late may have gone through before


class Broken(Exception):
    """A transaction did not come to its end."""

    def __init__(self, why: str, unknown: bool) -> None:
        super().__init__(why)
        self.unknown = unknown  # it may have been committed


class Pen:
    """The transactional producer of one partition."""

    def __init__(self, cluster: Kafka, topic: str, partition: int, most: int = RECORD_BYTES) -> None:
        """most: bytes of a record in this topic, and so of a batch."""
        settings: dict[str, Any] = {
            "transactional.id": transactional_id(topic, partition),
            "transaction.timeout.ms": int(TIMEOUT * 1000),
            "retry.backoff.ms": 1,  # a transaction with offsets takes 107 ms without these two, 4 with them
            "retry.backoff.max.ms": 5,
            "linger.ms": 0,
            "logger": kafkas,
            "socket.nagle.disable": True,  # a commit after a pause took 45 ms, and 1 without waiting for the last packet's answer
            "batch.size": min(1_000_000, most),  # Kafka refuses a larger batch as it refuses a larger record
            "message.max.bytes": 1_000_000_000,  # the topic's own limit is checked before
        }
        self._producer = Producer(cluster.client(**settings))
        self._topic, self.partition = topic, partition
        self._clock = time.time(), time.monotonic()  # Kafka's, when it last said it, and ours then

    def connect(self) -> None:
        """Know a broker: without one `begin` sleeps for 0.5 s."""
        try:
            self._producer.list_topics(self._topic, timeout=TIMEOUT)
        except KafkaException as error:
            raise _said(error, unknown=False) from None

    def begin(self) -> None:
        """Whoever had this id is fenced from now on, and what it had open is aborted."""
        try:
            self._producer.init_transactions(TIMEOUT)
        except KafkaException as error:
            raise _said(error, unknown=False) from None

    def write(self, outs: Sequence[Out]) -> list[int]:
        """The offsets of these records, all of them committed; or none is."""
        places = [-1] * len(outs)
        try:
            self._producer.begin_transaction()
            for at, out in enumerate(outs):
                self._produce(at, out, places)
        except KafkaException as error:
            raise self._abort(error) from None
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                self._producer.commit_transaction(TIMEOUT)
                return places
            except KafkaException as error:
                if first(error).txn_requires_abort():
                    raise self._abort(error) from None
                if not first(error).retriable() or time.monotonic() > deadline:
                    raise _said(error, unknown=True) from None

    def _produce(self, at: int, out: Out, places: list[int]) -> None:
        def heard(error: Any, message: Any) -> None:
            if error is None:
                places[at] = message.offset()
                self._clock = message.timestamp()[1] / 1000, time.monotonic()

        while True:
            try:
                self._producer.produce(out.topic, out.value, out.key, out.partition, heard, headers=out.headers)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.01)

    def _abort(self, error: KafkaException) -> Exception:
        said = _said(error, unknown=False)
        if isinstance(said, Broken) and not first(error).fatal():
            try:
                self._producer.abort_transaction(TIMEOUT)
            except KafkaException as worse:
                said = _said(worse, unknown=False)
        return said

    def now(self) -> float:
        """Kafka's clock, where its topic has it (LogAppendTime): a node whose own one jumps must not take consumers for idle."""
        said, then = self._clock
        return said + time.monotonic() - then

    def close(self) -> None:
        """Nothing more is written."""
        self._producer.purge()
        del self._producer  # its threads and connections end here, and nobody else waits for that


def _said(error: KafkaException, unknown: bool) -> Exception:
    said = first(error)
    if said.code() in FENCED or said.name() in FENCED_NAMES:
        return Fenced(said.str())
    return Broken(said.str(), unknown)
