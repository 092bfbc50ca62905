"""What several promises do with a cluster before they look at what came of it. In: a Kafka or a lab. Out: values to compare."""

from __future__ import annotations

import random
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from kqlib.kafka import Kafka, reading
from kqlib.workshop import snapshot
from tests.patience import WAIT, until


def create(kafka: Kafka, topic: str, partitions: int = 1, replicas: int = -1) -> None:
    """A topic with its leaders."""
    kafka.admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(WAIT)
    kafka.wait_for_topic(topic, partitions, WAIT)


def delete(kafka: Kafka, topic: str) -> None:
    """It is gone when this returns: also for the broker, which hears of it a moment after the controller has answered."""
    kafka.admin.delete_topics([topic])[topic].result(WAIT)
    until(lambda: topic not in topics(kafka))


def topics(kafka: Kafka) -> set[str]:
    """The names of all topics."""
    return set(kafka.admin.list_topics(timeout=WAIT).topics)


def put(kafka: Any, topic: str, *records: bytes | dict[str, Any] | None, **settings: Any) -> None:
    """Records that are confirmed when this returns: a value, or all that `produce` takes by name."""
    wrong: list[str | None] = []
    producer = Producer(kafka.client(acks="all", **settings))
    for record in records:
        fields = record if isinstance(record, dict) else {"value": record}
        producer.produce(topic, **fields, on_delivery=lambda error, _: wrong.append(error and error.str()))
    assert producer.flush(WAIT) == 0
    assert wrong == [None] * len(records)


def values(kafka: Kafka, topic: str) -> list[bytes]:
    """Every record's value."""
    return [message.value() for part in snapshot.records(kafka, topic).values() for message in part]


def commit(kafka: Any, group: str, topic: str, offset: int = 1, metadata: str = "") -> None:
    """A commit of a group that nobody is in, as Kafka's own tools set a group's offset."""
    reader = Consumer(kafka.client(group_id=group, group_protocol="classic"))
    reader.commit(offsets=[TopicPartition(topic, 0, offset, metadata=metadata)], asynchronous=False)
    reader.close()


def claimed(queue: Any) -> Any:
    """The next item of a Drupal queue: it must come. Its claim does not wait, so it is asked again."""
    return until(queue.claim_item)


def decided(kafka: Kafka, topic: str) -> None:
    """Return when readers see what transactions did: a commit returns before its marks are in the log."""
    every = {"isolation_level": "read_uncommitted"}
    until(lambda: reading.bounds(kafka, topic) == reading.bounds(kafka, topic, **every))


def committed(kafka: Kafka, group: str, topic: str) -> int | None:
    """What a group has committed in partition 0."""
    return reading.committed(kafka, group, topic, [0]).get(0)


def setting(kafka: Kafka, kind: ResourceType, name: str, key: str) -> str:
    """A setting of a broker or a topic, as the cluster tells it."""
    resource = ConfigResource(kind, name)
    return str(kafka.admin.describe_configs([resource])[resource].result(WAIT)[key].value)


def configure(kafka: Kafka, kind: ResourceType, name: str, **settings: str) -> None:
    """Change settings of a topic or a group. They are in force when this returns.

    The controller answers before the broker knows the change, and the broker describes a change before it applies it. It applies one
    after the other: once it describes a second change, the first one is in force.
    """
    _configured(kafka, kind, name, {key.replace("_", "."): value for key, value in settings.items()})
    interval = {"consumer.heartbeat.interval.ms": str(random.randrange(5_000, 15_000))}  # of a group that nobody is in
    _configured(kafka, ResourceType.GROUP, "marker", interval)


def _configured(kafka: Kafka, kind: ResourceType, name: str, settings: dict[str, str]) -> None:
    entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in settings.items()]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    # the client would wait for 10 s: a broker that gets another certificate needs 4, on a quiet machine
    kafka.admin.incremental_alter_configs([resource], request_timeout=WAIT)[resource].result(WAIT)
    asked = ConfigResource(kind, name)

    def described() -> bool:
        found = kafka.admin.describe_configs([asked], request_timeout=WAIT)[asked].result(WAIT)
        # a broker describes no setting of a listener, and gives no secret value
        return all(key not in found or found[key].value in (None, value) for key, value in settings.items())

    until(described)
