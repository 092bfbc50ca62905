"""Records written to topics, and waited for.

In:  a cluster, records as `Producer.produce` takes them. Out: `write`: '' when all are acknowledged, else why not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from kqlib.kafka.clients import Producer
from kqlib.kafka.cluster import Kafka
from kqlib.text import count


def write(
    cluster: Kafka,
    records: Iterable[Mapping[str, Any]],
    seconds: float,
    stored: list[Message] | None = None,
    **client: Any,
) -> str:
    """Write these records with a producer of their own, until one fails. Out: '' when all are acknowledged, else why not.

    seconds: for the answers after the last record. stored: gets what is acknowledged, with offsets. client: the producer's settings.
    """
    failed: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
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
            except KafkaException as error:  # known at once: no such partition, too large
                failed.append(error.args[0].str())
        producer.poll(0)
        if failed:
            break
    left = producer.flush(seconds)
    return failed[0] if failed else f"no answer for {count(left, 'record')} in {seconds:g} s" if left else ""
