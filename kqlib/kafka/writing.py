"""Records written, topics created and deleted: done when these return.

In:  a cluster; records as `Producer.produce` takes them; what an AdminClient was asked for.
Out: `write`: '' when all are acknowledged, else why not (a `NoAnswer` if that is not known).
     `settled` and `ensure`: an error that names the topic, if it failed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import NewTopic

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka.clients import Producer
from kqlib.kafka.cluster import Kafka
from kqlib.text import count, words

GONE = {"UNKNOWN_TOPIC_OR_PART"}  # what Kafka says of a topic that is deleted already


class NoAnswer(str):
    """Why not all records are acknowledged: no answer came in time. They may be stored, or not."""


def write(
    cluster: Kafka,
    records: Iterable[Mapping[str, Any]],
    seconds: float,
    stored: list[Message] | None = None,
    **client: Any,
) -> str:
    """Write these records with a producer of their own, until one fails. Out: '' when all are acknowledged, else why not.

    seconds: without any answer, after the last record or while the producer's queue is full.
    stored: gets what is acknowledged, with offsets. client: the producer's settings.
    """
    failed: list[str] = []
    answered = time.monotonic()

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal answered
        answered = time.monotonic()
        if error is not None:
            failed.append(error.str())
        elif stored is not None:
            stored.append(message)

    producer = Producer(cluster.client(**client))
    for record in records:
        while not failed:
            try:
                producer.produce(**record, on_delivery=delivered)
                break
            except BufferError:  # the producer's queue is full
                producer.poll(0.1)
                if time.monotonic() - answered > seconds:
                    return NoAnswer(f"no answer in {seconds:g} s")
            except KafkaException as error:  # known at once: no such partition, too large
                failed.append(error.args[0].str())
        producer.poll(0)
        if failed:
            break
    left = producer.flush(seconds)
    if failed:
        return failed[0]
    return NoAnswer(f"{count(left, 'record')} not acknowledged within {seconds:g} s") if left else ""


def settled(asked: Mapping[str, Future[Any]], done: str, seconds: float, ignored: Collection[str] = ()) -> None:
    """Wait for what an AdminClient was asked for: topics "created", "deleted" … ignored: errors that need no sentence."""
    for topic, answer in asked.items():
        try:
            answer.result(seconds)
        except TimeoutError:
            raise NotInTime(seconds=seconds, why=f"'{topic}' to be {done}", last="no answer") from None
        except KafkaException as error:
            if error.args[0].name() not in ignored:
                raise NotAllowed(f"'{topic}' could not be {done}: {words(error)}") from None


def ensure(cluster: Kafka, topic: str, config: dict[str, str], seconds: float, advice: str) -> None:
    """Create a topic with one partition if it is missing. advice: what to do if that is refused."""
    if topic not in cluster.describe().topics:
        asked = cluster.admin.create_topics([NewTopic(topic, 1, config=config)])
        try:
            settled(asked, "created", seconds, {"TOPIC_ALREADY_EXISTS"})
        except NotAllowed as error:
            raise NotAllowed(f"{error}. {advice}") from None
        cluster.wait_for_topic(topic, 1)
