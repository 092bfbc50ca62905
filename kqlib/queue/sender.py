"""Puts that are durable when the call returns: one idempotent producer, one thread that hears how each record fared.

In:  records for topics. Out: where each of them is now, or why it is not. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from kqlib.broker.kafka import Kafka
from kqlib.queue.item import Headers

PATIENCE = 30.0  # seconds until a put gives up


class Out(NamedTuple):  # as Item: quick to make
    """A record on its way."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    partition: int = -1  # chosen by the key


class Sent:
    """How a batch fares: offsets by place, errors by place."""

    def __init__(self, many: int) -> None:
        self.places: list[tuple[int, int] | None] = [None] * many
        self.errors: dict[int, KafkaError] = {}
        self._open, self._all = many, threading.Event()

    def heard(self, at: int, error: KafkaError | None, message: Any) -> None:
        """A record's delivery report; called by one thread only."""
        if error is None:
            self.places[at] = (message.partition(), message.offset())
        else:
            self.errors[at] = error
        self._open -= 1
        if not self._open:
            self._all.set()

    def wait(self, seconds: float) -> bool:
        """Has every record been heard of?"""
        return not self.places or self._all.wait(seconds)


class Sender:
    """One producer and the thread that serves it."""

    def __init__(self, cluster: Kafka, batch: int = 1_000_000) -> None:
        # batch: a batch larger than its topic takes would be refused as a whole
        settings: dict[str, Any] = {
            "enable.idempotence": True,
            "linger.ms": 0,  # 5 ms of lingering are 5 ms more for everyone who puts one
            "delivery.timeout.ms": int(PATIENCE * 1000),
            "message.max.bytes": 1_000_000_000,  # the topic's own limit is checked before
            "batch.size": min(1_000_000, batch),
        }
        self._producer = Producer(cluster.client(**settings))
        self._stop = False
        self._thread = threading.Thread(target=self._hear, name="kq-sender", daemon=True)
        self._thread.start()

    def send(self, records: Sequence[Out]) -> Sent:
        """Send them all and wait until each is durable or has failed."""
        sent = self.post(records)
        sent.wait(PATIENCE + 5)
        return sent

    def post(self, records: Sequence[Out]) -> Sent:
        """Send them and do not wait."""
        sent = Sent(len(records))
        produce = self._producer.produce
        for at, (topic, value, key, headers, partition) in enumerate(records):
            heard = partial(sent.heard, at)
            while True:
                try:
                    produce(topic, value, key, partition, heard, headers=headers)
                    break
                except BufferError:  # back-pressure: the client's buffer is full
                    time.sleep(0.005)
                except KafkaException as error:  # said at once: no such partition, too large, fatal
                    sent.heard(at, error.args[0], None)
                    break
        return sent

    def _hear(self) -> None:
        producer = self._producer
        while not self._stop:
            producer.poll(0.1)

    def close(self, seconds: float = 1.0) -> None:
        """What is still on its way is waited for a moment, then dropped."""
        self._stop = True
        self._thread.join(0.5)
        if len(self._producer) and self._producer.flush(seconds):
            self._producer.purge()
            self._producer.flush(0.1)
        del self._producer  # its threads and connections end with it
