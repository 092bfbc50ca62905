"""Puts that are durable when the call returns: one idempotent producer, one thread that gets the delivery reports.

In:  records for topics. Out: each one's id, or why it has none. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kqlib.errors import Closed
from kqlib.kafka.clients import Producer
from kqlib.kafka.cluster import Kafka
from kqlib.queue.answers import fatal
from kqlib.queue.clients import RECONNECT_WITHIN, SETTINGS, hears, judge
from kqlib.queue.item import Headers

PATIENCE = 30.0  # seconds until a put gives up
SUSPECT_AFTER = 2.0  # seconds without an answer to a put until its producer is judged
# The record's producer was replaced or closed: no answer will come.
PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


Record = tuple[bytes | None, bytes | None, Headers | None, int]  # value, key, headers, partition or -1


class Sent:
    """The results of a batch: ids and errors, by place."""

    def __init__(self, topic: str, many: int, failed: Callable[[KafkaError], None] | None = None) -> None:
        self._failed = failed  # called for each that is not stored, if nobody waits
        self.ids: list[str | None] = [None] * many
        self.errors: dict[int, KafkaError] = {}
        self._topic = topic
        self._all = threading.Event()
        self._open, self._refused = many, 0  # each is changed by one thread only

    def delivered(self, at: int, error: KafkaError | None, message: Any) -> None:
        """The delivery report of a record; called by the thread that polls."""
        if error is None:
            self.ids[at] = f"{self._topic}/{message.partition()}/{message.offset()}"
        elif error.code() not in PURGED:
            self._error(at, error)
        self._open -= 1
        if self._open == self._refused:
            self._all.set()

    def refused(self, at: int, error: KafkaError) -> None:
        """The client did not take it; called by the thread that sends."""
        self._error(at, error)
        self._refused += 1
        if self._open == self._refused:
            self._all.set()

    def again(self, places: list[int], sent: Sent) -> None:
        """The records of these places were sent once more: take over those results."""
        for at, id_ in zip(places, sent.ids, strict=True):
            self.ids[at] = id_
            del self.errors[at]
        self.errors |= {places[at]: error for at, error in sent.errors.items()}

    def _error(self, at: int, error: KafkaError) -> None:
        self.errors[at] = error
        if self._failed is not None:
            self._failed(error)

    def wait(self, seconds: float) -> bool:
        """Is every record acknowledged, or has it failed?"""
        return not self.ids or self._all.wait(seconds)


class Sender:
    """One producer and the thread that serves it."""

    def __init__(self, cluster: Kafka, batch: int = 1_000_000) -> None:
        # batch: its largest size in bytes. Kafka refuses a larger one than its topic takes as a whole.
        self._cluster = cluster
        self._verdicts = cluster.verdicts
        self._suspected = False  # the producer gave no answer: is it dead?
        self._fatal = False  # the producer has reported a fatal error
        self._settings: dict[str, Any] = {
            **SETTINGS,
            "error_cb": self._complaint,
            "enable.idempotence": True,
            "linger.ms": 0,  # 5 ms of lingering are 5 ms more for everyone who puts one
            "delivery.timeout.ms": int(PATIENCE * 1000),
            "message.max.bytes": 1_000_000_000,  # the topic's own limit is checked before
            "batch.size": min(1_000_000, batch),
        }
        self._producer: Any = None
        self._stop = False
        self._making = threading.Lock()
        self._thread = threading.Thread(target=self._hear, name="kq-sender", daemon=True)

    def _made(self) -> Any:
        """The producer, made at the first use: a process that never writes needs no right to write.

        It connects before its first record, which would else wait for half a second (seen: 0.51 s instead of 0.05 s).
        """
        with self._making:
            producer = self._producer
            if producer is None:
                if self._stop:
                    raise Closed(thing="site")
                producer = self._producer = Producer(self._cluster.client(**self._settings))
                hears(producer)
                self._thread.start()
            return producer

    def send(self, topic: str, records: Iterable[Record], many: int) -> Sent:
        """Send them all, so many, and wait until each is durable or has failed."""
        producer = self._made()
        sent = self.post(topic, records, many)
        deadline = time.monotonic() + PATIENCE + 5  # from now on: many records take long until all are in the buffer
        while not sent.wait(SUSPECT_AFTER) and time.monotonic() < deadline and producer is self._producer:
            self._suspected = True
        return sent

    def post(
        self, topic: str, records: Iterable[Record], many: int, failed: Callable[[KafkaError], None] | None = None
    ) -> Sent:
        """Send them and do not wait. failed: called with the error of each that is not stored."""
        sent = Sent(topic, many, failed)
        producer = self._made()
        produce, delivered = producer.produce, sent.delivered
        for at, (value, key, headers, partition) in enumerate(records):
            answer = MethodType(delivered, at)  # delivered(at, …), and the quickest to make and to call
            while True:
                try:
                    produce(topic, value, key, partition, answer, None, 0, headers)  # named, they take a third longer
                    break
                except BufferError:  # back-pressure: the client's buffer is full
                    if producer is not self._producer:  # closed or replaced: nothing empties its buffer any more
                        return sent
                    time.sleep(0.005)
                except KafkaException as error:  # known at once: no such partition, too large, fatal
                    sent.refused(at, error.args[0])
                    break
        return sent

    def _complaint(self, error: KafkaError) -> None:
        self._fatal = self._fatal or fatal(error)

    def _hear(self) -> None:
        while (producer := self._producer) is not None and not self._stop:
            producer.poll(0.1)
            if self._fatal or self._suspected or self._verdicts != self._cluster.verdicts:
                self._judge()

    def _judge(self) -> None:
        """A dead producer is replaced; what it had may be stored or not, and the verbs that wait for it say so."""
        dead = self._fatal or judge(self._cluster, self._producer, RECONNECT_WITHIN)
        self._fatal = self._suspected = False
        self._verdicts = self._cluster.verdicts
        if dead and not self._stop:
            old = self._producer
            self._producer = Producer(self._cluster.client(**self._settings))
            old.purge()
            old.flush(0.1)

    def close(self, seconds: float = 1.0) -> None:
        """Wait a moment for records on their way, then drop them."""
        self._stop = True
        producer = self._producer
        if producer is None:
            return
        if self._thread.ident:  # else the first put just makes the producer
            self._thread.join(0.5)
        if len(producer) and producer.flush(seconds):
            producer.purge()
            producer.flush(0.1)
        self._producer = None  # its threads and connections end with it
