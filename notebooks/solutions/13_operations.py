"""The exercises of 13-operations: when a move ends, how long a quota makes a client wait, and a reader that was away."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import bounds, records
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic
from kqlib.workshop.lab import open_clusters


def when(missing: int, written: int, throttle: int) -> float | None:
    if throttle <= written:
        return None
    return missing / (throttle - written)


def nobody_writes(missing: int, written: int, throttle: int) -> float | None:
    """While the old data is copied, new records come in. They have to be copied too."""
    return missing / throttle


def below_zero(missing: int, written: int, throttle: int) -> float | None:
    """A time below zero means that the distance grows. The move never ends: return None."""
    return missing / (throttle - written) if throttle != written else None


def equal_is_enough(missing: int, written: int, throttle: int) -> float | None:
    """If as much is written as is copied, the distance stays as it is. The move does not end."""
    if throttle < written:
        return None
    return missing / max(1, throttle - written)


WHEN = Exercise(
    id="13.1",
    ask="a move ends if the throttle is above the write rate; what is left for old data is the difference",
    task="return the seconds until the new replica has all records, or None",
    cases=[
        Case((10_000, 0, 1_000), 10.0, "nobody writes: all of the throttle is for old data"),
        Case((10_000, 500, 1_000), 20.0, "half of the throttle goes to new records"),
        Case((10_000, 2_000, 1_000), None, "more is written than may be copied"),
        Case((10_000, 1_000, 1_000), None, "as much is written as may be copied: the distance stays"),
        Case((500_000_000_000, 20_000_000, 70_000_000), 10_000.0, "500 GB at work: almost three hours"),
    ],
    hints=(
        "The throttle is shared by old data and new records. How much of it is left for old data?",
        "missing / (throttle - written), if that is above zero.",
    ),
    solution=when,
    wrong=(nobody_writes, below_zero, equal_is_enough),
)


def wait(sent: int, quota: int) -> float:
    return max(0.0, sent / quota - 10)


def no_window(sent: int, quota: int) -> float:
    """The average is over ten seconds and the wait. What ten seconds allow passes at once."""
    return sent / quota


def may_be_negative(sent: int, quota: int) -> float:
    """A client that stays below its quota waits 0 seconds, not less."""
    return sent / quota - 10


def one_second(sent: int, quota: int) -> float:
    """The quota is for a second, and the broker measures over ten of them."""
    return max(0.0, sent / quota - 1)


WAIT = Exercise(
    id="13.2",
    ask="a client waits until all that it sent, over ten seconds and the wait, is no more than its quota",
    task="return the seconds that the broker tells the client to wait",
    cases=[
        Case((600_000, 60_000), 0.0, "ten seconds' worth passes at once"),
        Case((300_000, 60_000), 0.0, "half of that passes as well"),
        Case((720_000, 60_000), 2.0, "120 kB more: two seconds at 60 kB a second"),
        Case((1_200_000, 60_000), 10.0, "twice as much: ten seconds"),
        Case((1_200_000, 1_200_000), 0.0, "a quota that is large enough is not noticed"),
    ],
    hints=(
        "The rate is sent / 10 as long as nothing waits. After w seconds of waiting it is sent / (10 + w).",
        "sent / (10 + w) = quota. Solve it for w, and a wait is never below 0.",
    ),
    solution=wait,
    wrong=(no_window, may_be_negative, one_second),
)


def up_to_date(consumer: Any, topic: str, before: tuple, away: float, keep: float) -> dict:
    known, position = before
    if away > keep:
        known, position = {}, 0
    return _read(consumer, topic, dict(known), position)


def _read(consumer: Any, topic: str, state: dict, position: int) -> dict:
    consumer.assign([TopicPartition(topic, 0, position)])
    while (message := consumer.poll(10)) is not None and not message.error():
        if message.value() is None:
            state.pop(message.key(), None)
        else:
            state[message.key()] = message.value()
    return state


def goes_on(consumer: Any, topic: str, before: tuple, away: float, keep: float) -> dict:
    return _read(consumer, topic, dict(before[0]), before[1])


def keeps_the_old_state(consumer: Any, topic: str, before: tuple, away: float, keep: float) -> dict:
    return _read(consumer, topic, dict(before[0]), 0 if away > keep else before[1])


def always_anew(consumer: Any, topic: str, before: tuple, away: float, keep: float) -> dict:
    return _read(consumer, topic, {}, 0)


def forgets_tombstones(consumer: Any, topic: str, before: tuple, away: float, keep: float) -> dict:
    state, position = ({}, 0) if away > keep else before
    found = dict(state)
    consumer.assign([TopicPartition(topic, 0, position)])
    while (message := consumer.poll(10)) is not None and not message.error():
        found[message.key()] = message.value()
    return found


def takes_the_end_for_a_record(consumer: Any, topic: str, before: tuple, away: float, keep: float) -> dict:
    known, position = ({}, 0) if away > keep else before
    consumer.assign([TopicPartition(topic, 0, position)])
    found = dict(known)
    while (message := consumer.poll(10)) is not None:
        found[message.key()] = message.value()
        if message.error():
            break
    return found


def keeps_only_keys(consumer: Any, topic: str, before: tuple, away: float, keep: float) -> dict:
    return dict.fromkeys(up_to_date(consumer, topic, before, away, keep))


DAY = 86_400
BEFORE = {b"A": b"plays", b"B": b"plays", b"C": b"plays"}  # what the reader knew: the records 0 to 2


class Reader(Consumer):
    """A consumer that notes where it began."""

    begun: int | None = None

    def assign(self, partitions: Any) -> None:
        """Assign them, and note the first offset."""
        self.begun = partitions[0].offset
        super().assign(partitions)


def away(answer: Callable[..., dict]) -> Iterator[Tried]:
    """Two compacted topics in which B was deleted: one still has the tombstone, the other one has lost it."""
    cluster = next(iter(open_clusters()), None) or kafka(1)
    kept, gone = _topics(cluster)
    ghost = "B was deleted, and its tombstone is gone: nothing that you read says so. Forget the old state too."
    extra = "A tombstone is a record without a value: take its key out of the state."
    types = "The keys of the old state are bytes, as message.key() returns them. Some of yours are text."
    for topic, seconds, keep, hint in ((kept, 60, DAY, extra), (gone, 2 * DAY, DAY, ghost)):
        reader = Reader(cluster.client(group_id="check", enable_partition_eof=True))
        try:
            found = answer(reader, topic, (dict(BEFORE), 3), seconds, keep)
        finally:
            reader.close()
        rows = sorted((_text(key), _text(value)) for key, value in found.items()) if isinstance(found, dict) else found
        mixed = isinstance(found, dict) and len(set(map(type, found))) > 1
        why = types if mixed else hint
        if isinstance(found, dict) and None in found:
            why = "A message with an error is the end of the partition, and no record: ask message.error() first."
        right = [("A", "plays"), ("C", "plays"), ("tick", "?")]
        yield Tried(f"the state after {seconds} seconds", rows, right, "B was deleted", why)
        if topic == kept:
            again = "The tombstones are all there. Read on from your position: a large state takes hours to read."
            yield Tried("the first offset that was read", reader.begun, 3, "it need not begin anew", again)


def _text(data: object) -> str:
    """A key or a value of the state as text: a reader may decode all of them."""
    return data.decode() if isinstance(data, bytes) else str(data)


@functools.cache
def _topics(cluster: Kafka) -> tuple[str, str]:
    """The two topics, compacted."""
    found = []
    for keep in (DAY * 1000, 0):
        config = {"cleanup_policy": "compact", "segment_ms": 100, "min_cleanable_dirty_ratio": 0.01}
        topic = new_topic(cluster, delete_retention_ms=keep, **config)
        producer = Producer(cluster.client())
        for key, value in (*BEFORE.items(), (b"B", None)):
            producer.produce(topic, value, key)
        producer.flush(20)
        left = [0, 2, 3] if keep else [0, 2]
        wait_for(functools.partial(_cleaned, cluster, producer, topic, left), 60 * PATIENCE, "compaction")
        found.append(topic)
    return found[0], found[1]


def _cleaned(cluster: Kafka, producer: Producer, topic: str, left: list[int]) -> bool:
    """Are just these left of the first four records? Each record more can close a segment, and so let the cleaner begin."""
    producer.produce(topic, b"?", b"tick")
    producer.flush(20)
    there = records(cluster, topic, bounds(cluster, topic))[0]
    return [record.offset() for record in there if record.offset() < 4] == left


AWAY = Exercise(
    id="13.3",
    ask="a reader that was away longer than tombstones are kept reads everything anew, into an empty state",
    task="return the state as it is now: a dict of keys and values",
    probe=away,
    hints=(
        "If the reader was away for longer than tombstones are kept, it may miss one. What can it trust then?",
        "if away > keep, begin with {} at offset 0. Assign, and poll until message.error() says that the end is reached.",
    ),
    solution=up_to_date,
    wrong=(goes_on, keeps_the_old_state, always_anew, forgets_tombstones, takes_the_end_for_a_record, keeps_only_keys),
    seconds=120,
)
