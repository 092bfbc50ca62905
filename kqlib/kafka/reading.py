"""Reading a topic from given offsets to its end, as values: in no group, and nothing is committed.

In:  a cluster, topics or places (a topic and a partition's number). Out: `read`: messages; `bounds`: where a partition begins and
ends; `committed`: a group's commits; `described`: its members.
Reading goes to the ends seen when it begins, so it also ends while others write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition

from kqlib.errors import NotAllowed, NotInTime, NotNow, Unreachable
from kqlib.kafka.clients import Consumer

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.kafka.members import Member

# librdkafka needs a group's name even for a reader in no group, and looks for its coordinator. No user needs a right to this group:
# where it is refused, the reader gets one event with GROUP_AUTHORIZATION_FAILED and no topic, and reads on.
LOOKER = "kqlib-looks"
TIMEOUT = 15.0  # seconds for one answer
Place = tuple[str, int]  # a topic and the number of a partition
# A leader, a controller or a group's coordinator is being chosen, moved or loaded: ask again.
MOVING = {
    *("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART"),
    *("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "_TIMED_OUT", "_TRANSPORT", "_DESTROY", "_WAIT_COORD"),
    "_NOENT",  # the AdminClient knows no leader of any partition that was asked for
    # A client whose last connection closed forgets its brokers, fails what it asked them, and for a moment knows no partition.
    *("_DESTROY_BROKER", "_UNKNOWN_PARTITION"),
    *("NOT_CONTROLLER", "REQUEST_TIMED_OUT"),
    *("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"),
}


def bounds(cluster: Kafka, *topics: str, **client: Any) -> dict[Place, tuple[int, int]]:
    """The first offset and the end of each partition now. Records of open transactions are left out by default."""
    with closing(reader_of(cluster, **client)) as reader:
        return _bounds(cluster, reader, [(topic, number) for topic in topics for number in cluster.partitions(topic)])


def read(
    cluster: Kafka, starts: Mapping[Place, int], ends: Mapping[Place, int] | None = None, timeout: float = TIMEOUT
) -> Iterator[Message]:
    """The committed records from these offsets on and below `ends` (None: the ends seen now).

    `NotInTime` if nothing arrives for `timeout` seconds before that.
    """
    with closing(reader_of(cluster)) as reader:
        if ends is None:
            ends = {at: end for at, (_, end) in _bounds(cluster, reader, starts).items()}
        left = {at for at, start in starts.items() if start < ends[at]}
        reader.assign([TopicPartition(*at, starts[at]) for at in left])
        last, deadline = "nothing", time.monotonic() + timeout
        while left:
            for message in reader.consume(1000, 0.03):
                at, error = (message.topic(), message.partition()), message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    last = error.str()
                    continue
                if at not in left:
                    continue
                if error is None and message.offset() < ends[at]:
                    yield message
                # The event of a log's end has the offset of that end: it is beyond the marks of transactions.
                if message.offset() + (error is None) >= ends[at]:
                    left.discard(at)
                    reader.pause([TopicPartition(*at)])
                last, deadline = f"{at[0]}/{at[1]}/{message.offset()}", time.monotonic() + timeout
            if time.monotonic() > deadline:
                unread = ", ".join(f"{topic}/{number}" for topic, number in sorted(left))
                raise NotInTime(seconds=timeout, why=f"the end of {unread}", last=last)


def records(
    cluster: Kafka, topic: str, there: Mapping[Place, tuple[int, int]] | None = None
) -> dict[int, list[Message]]:
    """Every record of a topic by partition, within these bounds (None: from the first that is left to the end seen now)."""
    there = bounds(cluster, topic) if there is None else there
    found: dict[int, list[Message]] = {number: [] for _, number in there}
    starts, ends = ({at: both[which] for at, both in there.items()} for which in (0, 1))
    for message in read(cluster, starts, ends):
        found[message.partition()].append(message)
    return found


def reader_of(cluster: Kafka, **client: Any) -> Consumer:
    """A consumer in no group. At a log's end the broker would wait 500 ms for more."""
    quick = {"enable_partition_eof": True, "fetch_wait_max_ms": 10, "group_protocol": "classic"}
    level = {"isolation_level": "read_committed"}  # also if the cluster's own settings say otherwise
    return Consumer(cluster.client(group_id=LOOKER, **(quick | level | client)))


def _bounds(cluster: Kafka, reader: Consumer, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
    ask = partial(reader.get_watermark_offsets, timeout=TIMEOUT)
    return {at: asked(cluster, partial(ask, TopicPartition(*at))) for at in places}


def committed(cluster: Kafka, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """A group's commits. A consumer asks, in the group's name but not in the group: the AdminClient's call for this ends the
    whole process when the coordinator is not there to answer (librdkafka issue 5040)."""
    places = [TopicPartition(topic, number) for number in partitions]
    quiet = {"group_protocol": "classic", "isolation_level": "read_uncommitted"}  # does not wait for open transactions
    with closing(Consumer(cluster.client(group_id=group, **quiet))) as reader:
        found = asked(cluster, lambda: reader.committed(places, timeout=TIMEOUT))
        return {part.partition: part.offset for part in found if part.offset >= 0}


def described(cluster: Kafka, group: str) -> list[Member]:
    """The group's members; none when there is no group."""

    def ask() -> list[Member]:
        try:
            return cluster.describe_group(group).members
        except KafkaException as error:
            if error.args[0].name() == "GROUP_ID_NOT_FOUND":
                return []
            raise

    return asked(cluster, ask)


def asked(cluster: Kafka, ask: Callable[[], Any]) -> Any:
    """The answer, as `patient` gets it. `Unreachable` if none came, `NotAllowed` if this user lacks a right."""
    try:
        return patient(ask, TIMEOUT)
    except KafkaException as error:
        answer = error.args[0]
    if answer.name().endswith("AUTHORIZATION_FAILED"):
        raise NotAllowed(f"Kafka refused to answer: {answer.str()}. The right must be granted")
    kind = NotNow if answer.code() > 0 else Unreachable  # the others are the client's own: no answer came
    raise kind(address=cluster.bootstrap, why=answer.str())


def patient(ask: Callable[[], Any], seconds: float, dead: Callable[[], bool] | None = None) -> Any:
    """The answer. While a leader, a controller or a coordinator is on the move, it is asked for again.

    dead: judges the client that was asked, which also learns who leads now. If it was dead, its successor is asked too.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].name() not in MOVING:
                raise
            replaced = dead is not None and dead()
            if time.monotonic() > deadline and not replaced:
                raise
        time.sleep(0.05)


def answered(found: Any) -> Any:
    """This answer about an offset. If a leader is silent, librdkafka gives OFFSET_INVALID and no error: that raises _TIMED_OUT."""
    if found.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer from a leader"))
    return found
