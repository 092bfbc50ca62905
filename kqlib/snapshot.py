"""What a topic or a cluster looks like now, as plain values: the bridge from Kafka to the pictures of `view`.

In:  a cluster and names. Out: messages (`records`), lanes and rooms for `view.log` and `view.cluster`.
Reading joins no group and commits nothing: looking changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kqlib import view
from kqlib.errors import NotAllowed, NotInTime, Unreachable

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition

    from kqlib.broker import Kafka

LOOKER = "kqlib-looks"  # librdkafka wants a group's name even of a reader in no group
MOST = 100_000  # records; beyond, a picture of each of them is not what is needed
PATIENCE = 15.0
# A leader, a controller or a group's coordinator is being made, moved or loaded: ask again.
MOVING = {
    *("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART"),
    *("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "_TIMED_OUT", "_TRANSPORT", "_DESTROY", "_WAIT_COORD"),
    *("NOT_CONTROLLER", "REQUEST_TIMED_OUT"),
    *("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"),
}


def records(cluster: Kafka, topic: str) -> dict[int, list[Message]]:
    """Every record of a topic by partition, from the first that is left to the end seen now."""
    return _read(cluster, topic)[0]


def lanes(cluster: Kafka, topic: str, group: str | None = None) -> list[view.Lane]:
    """A topic's partitions for `view.log`; with a group, its commits as floors and what lies below them as done."""
    found, bounds = _read(cluster, topic)
    floors = _committed(cluster, group, topic, bounds) if group else {}
    return [
        view.Lane(
            number,
            records=[
                view.Record(
                    m.offset(),
                    m.key(),
                    "done" if m.offset() < floors.get(number, 0) else "waiting",
                    note="" if m.value() is not None else "∅",
                )
                for m in found[number]
            ],
            low=low,
            end=end,
            floor=floors.get(number),
        )
        for number, (low, end) in sorted(bounds.items())
    ]


def rooms(cluster: Kafka, topic: str) -> tuple[list[view.Broker], list[view.Partition]]:
    """The brokers and a topic's replicas for `view.cluster`; brokers that a partition names and nobody sees are down."""
    up, found = set(cluster.brokers), cluster.partitions(topic)
    partitions = [
        view.Partition(
            topic,
            number,
            part.leader if part.leader in up else None,
            tuple(sorted(part.replicas)),
            tuple(sorted(part.isrs)),
        )
        for number, part in found.items()
    ]
    everyone = up | {number for part in partitions for number in part.replicas}
    return [view.Broker(number, number in up) for number in sorted(everyone)], partitions


def _read(cluster: Kafka, topic: str) -> tuple[dict[int, list[Message]], dict[int, tuple[int, int]]]:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    # At a log's end the broker would wait 500 ms for more.
    quick = {"fetch_wait_max_ms": 10, "group_protocol": "classic"}
    reader = Consumer(cluster.client(group_id=LOOKER, enable_partition_eof=True, **quick))
    try:
        parts = [TopicPartition(topic, number) for number in cluster.partitions(topic)]
        bounds = {part.partition: _bounds(cluster, reader, part) for part in parts}
        total = sum(end - low for low, end in bounds.values())
        if total > MOST:
            raise NotAllowed(f"'{topic}' holds up to {total:,} records; a picture is for {MOST:,} at most")
        found: dict[int, list[Message]] = {number: [] for number in bounds}
        reader.assign([TopicPartition(topic, number, low) for number, (low, _) in bounds.items()])
        open_ones, deadline = set(bounds), time.monotonic() + PATIENCE
        while open_ones and time.monotonic() < deadline:
            for message in reader.consume(1000, 0.03):
                if message.error() is None:
                    found[message.partition()].append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(message.partition())
        if open_ones:
            raise NotInTime(seconds=PATIENCE, why=f"the end of '{topic}'", last=f"{total} records to read")
        return found, bounds
    finally:
        reader.close()


def _bounds(cluster: Kafka, reader: Any, part: TopicPartition) -> tuple[int, int]:
    low, end = _asked(cluster, lambda: reader.get_watermark_offsets(part, timeout=PATIENCE))
    return low, end


def _committed(cluster: Kafka, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """A group's commits. A consumer asks, in the group's name but not in the group: the AdminClient's call for this ends the
    whole process when the coordinator is not there to answer (librdkafka issue 5040)."""
    from confluent_kafka import Consumer, TopicPartition

    asked = [TopicPartition(topic, number) for number in partitions]
    quiet = {"group_protocol": "classic", "isolation_level": "read_uncommitted"}  # does not wait for open transactions
    reader = Consumer(cluster.client(group_id=group, **quiet))
    try:
        found = _asked(cluster, lambda: reader.committed(asked, timeout=PATIENCE))
        return {part.partition: part.offset for part in found if part.offset >= 0}
    finally:
        reader.close()


def _asked(cluster: Kafka, ask: Callable[[], Any]) -> Any:
    """The answer, asked for again while whoever has it is on the move."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except KafkaException as error:
            if time.monotonic() > deadline or error.args[0].name() not in MOVING:
                raise Unreachable(address=cluster.bootstrap, why=error.args[0].str()) from None
        time.sleep(0.05)
