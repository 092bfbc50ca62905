"""The exercises of 00-start-here: how many connections a log leaves, and a record that is stored for sure."""

from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Producer

from kqlib.kafka import reading
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic


def with_a_log(writers: int, readers: int) -> int:
    return writers + readers


def without_a_log(writers: int, readers: int) -> int:
    """This is the left side of the picture: every writer has a connection to every reader."""
    return writers * readers


def readers_only(writers: int, readers: int) -> int:
    """You counted the readers. The writers need a connection to the log too."""
    return readers


def writers_only(writers: int, readers: int) -> int:
    """You counted the writers. The readers need a connection to the log too."""
    return writers


CONNECTIONS = Exercise(
    id="00.1",
    ask="each program has one connection, to the log",
    task="return the number of connections when all programs are connected to a log only",
    cases=[Case((4, 5), 9), Case((1, 1), 2), Case((40, 50), 90)],
    hints=("Count the lines on the right side of the picture.", "Every writer has one line, and every reader has one."),
    solution=with_a_log,
    wrong=(without_a_log, readers_only, writers_only),
)


def goal_stored(producer: Any, topic: str) -> None:
    producer.produce(topic, b"goal in minute 5", key=b"LIV-MCI")
    producer.flush(10)


def not_flushed(producer: Any, topic: str) -> None:
    producer.produce(topic, b"goal in minute 5", key=b"LIV-MCI")


def polled_once(producer: Any, topic: str) -> None:
    producer.produce(topic, b"goal in minute 5", key=b"LIV-MCI")
    producer.poll(0)


def without_a_key(producer: Any, topic: str) -> None:
    producer.produce(topic, b"goal in minute 5")
    producer.flush(10)


def key_and_value_swapped(producer: Any, topic: str) -> None:
    producer.produce(topic, b"LIV-MCI", key=b"goal in minute 5")
    producer.flush(10)


def probe(answer: Callable[[Any, str], Any]) -> Iterator[Tried]:
    cluster = kafka()
    topic = new_topic(cluster)
    producer = Producer(cluster.client(linger_ms=30_000))
    answer(producer, topic)
    records = reading.records(cluster, topic)[0]
    producer.purge()
    producer.poll(0)
    late = "The record is still in the producer's buffer. Which call waits until everything is stored?"
    many = "Write it once only."
    yield Tried("records in the topic after answer(producer, topic)", len(records), 1, hint=many if records else late)
    [record] = records
    swapped = record.value() == b"LIV-MCI"
    key = "Key and value are swapped: produce(topic, value, key=…)." if swapped else "Name the key: produce(…, key=…)."
    yield Tried("its key", record.key(), b"LIV-MCI", hint=key)
    yield Tried("its value", record.value(), b"goal in minute 5", hint="The value is the second argument, as bytes.")


STORED = Exercise(
    id="00.2",
    ask="flush() waits until the broker has stored every record",
    task="write one record, and return only when it is stored",
    probe=probe,
    hints=(
        "Section 2 has both calls that you need.",
        "producer.produce(topic, value, key=key), then producer.flush(10).",
    ),
    solution=goal_stored,
    wrong=(not_flushed, polled_once, without_a_key, key_and_value_swapped),
    seconds=60,
)
