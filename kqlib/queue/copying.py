"""Copies the records of a topic into another topic, on the same or on another cluster: each once, whatever dies meanwhile.

In:  two clusters and two topics. Out: `copy`: how many records were copied now; `pairs`: where each record is in the copy.

A record keeps its partition, key, value, headers and timestamp. Its offset may change. A transaction on the target writes records
and, as the commit of the group `kq-copy.TARGET`, the source's offset behind them. So a copy that was killed goes on behind the last
record that counts. The transactional id is the group's name, so a second copy at the same time fences the first one off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka import reading
from kqlib.kafka.clients import Consumer, Producer
from kqlib.kafka.cluster import Kafka
from kqlib.queue import state
from kqlib.queue.answers import as_ours, first
from kqlib.queue.item import batches
from kqlib.runtime.patience import wait_for

RECORDS, BYTES = 2_000, 4_000_000  # of one transaction, about
SECONDS = 30.0  # for one answer
AGAIN = "What was copied stays. The same command goes on behind it."


def copy(source: Kafka, topic: str, target: Kafka, name: str) -> int:
    """Copy what is in the topic now and was not copied yet: how many records that were.

    The target has at least the source's partitions. When its first copy begins, it is empty.
    """
    numbers = sorted(source.partitions(topic))
    if missing := set(numbers) - set(target.partitions(name)):
        raise NotAllowed(
            f"'{name}' has no partition {min(missing)}, and '{topic}' has. Nothing was copied: grow '{name}'"
        )
    origin = _origin(source, topic)
    if origin == _origin(target, name):
        raise NotAllowed(f"'{topic}' and '{name}' are one topic. Nothing was copied")
    group = f"kq-copy.{name}"
    producer = Producer(target.client(transactional_id=group, acks="all", linger_ms=5))
    committer = Consumer(target.client(group_id=group, group_protocol="classic"))
    try:
        producer.init_transactions(SECONDS)  # a killed copy's transaction ends here
        reached = _reached(target, committer, name, numbers, origin)
        starts = {(topic, n): reached.get(n, 0) for n in numbers}
        bounds = reading.bounds(source, topic)
        starts = {at: max(start, bounds[at][0]) for at, start in starts.items()}
        copied = 0
        records = reading.read(source, starts, {at: end for at, (_, end) in bounds.items()})
        for batch in batches(records, len, BYTES, RECORDS):
            _write(producer, committer, name, batch, origin)
            copied += len(batch)
        if copied:
            _wait_until_readable(target, name)
        return copied
    except KafkaException as error:
        raise as_ours(first(error), target.bootstrap, f"write to '{name}'", AGAIN, name) from None
    finally:
        committer.close()


def _origin(cluster: Kafka, topic: str) -> str:
    """Which topic it is: its cluster's id, and its own."""
    return f"{cluster.describe().cluster_id} {state.topic_ids(cluster, [topic])[topic][0]}"


def _reached(target: Kafka, committer: Consumer, name: str, numbers: Sequence[int], origin: str) -> dict[int, int]:
    """The offset behind the last record of each partition that was copied. One that was not begun has to be empty."""
    found = {}
    asked = [TopicPartition(name, n) for n in numbers]
    for part in reading.patient(lambda: committer.committed(asked, timeout=SECONDS), SECONDS):
        if part.offset < 0:
            continue
        if part.metadata != origin:
            raise NotAllowed(f"'{name}' holds a copy of another topic. Nothing was copied")
        found[part.partition] = part.offset
    bounds = reading.bounds(target, name)
    new = {(name, n): bounds[name, n] for n in numbers if n not in found}
    starts, ends = ({at: both[which] for at, both in new.items()} for which in (0, 1))
    if other := next(reading.read(target, starts, ends), None):
        raise NotAllowed(f"'{name}' has records already, as in partition {other.partition()}. Nothing was copied")
    return found


def _write(producer: Producer, committer: Consumer, name: str, batch: Sequence[Any], origin: str) -> None:
    """One transaction: these records, and how far they reach."""
    reached = {message.partition(): message.offset() + 1 for message in batch}
    producer.begin_transaction()
    try:
        for message in batch:
            _, moment = message.timestamp()
            kept = {"partition": message.partition(), "headers": message.headers(), "timestamp": moment}
            producer.produce(name, message.value(), message.key(), **kept)
        offsets = [TopicPartition(name, n, offset, origin) for n, offset in reached.items()]
        producer.send_offsets_to_transaction(offsets, committer.consumer_group_metadata(), SECONDS)
        producer.commit_transaction(SECONDS)
    except KafkaException:
        with suppress(KafkaException):
            producer.abort_transaction(SECONDS)
        raise


def _wait_until_readable(target: Kafka, name: str) -> None:
    """A commit returns before its mark stands in every partition. Until then the last records are not read."""
    written = reading.bounds(target, name, isolation_level="read_uncommitted")

    def readable() -> bool:
        ends = reading.bounds(target, name)
        return all(ends[at][1] >= end for at, (_, end) in written.items())

    with suppress(NotInTime):  # another program's transaction is open there: what was copied is read when that ends
        wait_for(readable, SECONDS, "the copied records can be read")


def pairs(source: Kafka, topic: str, target: Kafka, name: str, starts: dict[int, int]) -> dict[int, dict[int, int]]:
    """By partition, the offset in the copy of each source record from these offsets on. Both logs are read and compared.

    The copy is complete, and nobody else has written to it: the last record of one log is the last one of the other.
    """
    theirs: dict[int, list[Any]] = {n: [] for n in starts}
    for message in reading.read(source, {(topic, n): start for n, start in starts.items()}):
        theirs[message.partition()].append((message.offset(), _content(message)))
    ours = {n: deque[Any](maxlen=len(records)) for n, records in theirs.items()}
    lows = reading.bounds(target, name)
    for message in reading.read(target, {(name, n): lows[name, n][0] for n in starts}):
        ours[message.partition()].append((message.offset(), _content(message)))
    found: dict[int, dict[int, int]] = {}
    for n, records in theirs.items():
        copies = list(ours[n])
        originals = records[len(records) - len(copies) :]  # retention may have taken the first copies
        if any(one[1] != other[1] for one, other in zip(originals, copies, strict=True)):
            raise NotAllowed(
                f"'{name}', partition {n}, is not a copy of '{topic}' to its end: a program puts into one of them, or timestamps are "
                "those of the broker (message.timestamp.type). No state was written"
            )
        found[n] = {one[0]: other[0] for one, other in zip(originals, copies, strict=True)}
    return found


def _content(message: Any) -> int:
    """A number for all that a copy keeps."""
    headers = tuple(message.headers() or ())
    return hash((message.key(), message.value(), headers, message.timestamp()))
