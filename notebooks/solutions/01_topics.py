"""The exercises of 01-topics: what compaction leaves, a plan of one's own, and a sender that knows what is stored."""

from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Producer

import kqlib as kq
from kqlib.kafka import reading
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic


def survivors(records: list) -> list:
    last = {key: offset for offset, (key, _) in enumerate(records)}
    return sorted(offset for offset in last.values() if records[offset][1] is not None)


def forgets_tombstones(records: list) -> list:
    """The tombstone of a key is its last record. When its day is over, it goes too."""
    return sorted({key: offset for offset, (key, _) in enumerate(records)}.values())


def keeps_the_first(records: list) -> list:
    """You keep the first record of each key. Compaction keeps the last one."""
    first: dict = {}
    for offset, (key, _) in enumerate(records):
        first.setdefault(key, offset)
    return sorted(first.values())


def drops_tombstones_alone(records: list) -> list:
    """A tombstone removes the older records of its key as well, not only itself."""
    return [offset for offset, (_, value) in enumerate(records) if value is not None]


def never_brings_a_key_back(records: list) -> list:
    """A key may be written again after its tombstone. Then it has a last record that stays."""
    dead = {key for key, value in records if value is None}
    last = {key: offset for offset, (key, _) in enumerate(records)}
    return sorted(offset for key, offset in last.items() if key not in dead)


COMPACTION = Exercise(
    id="01.1",
    ask="compaction keeps the last record of each key, and nothing of a key whose last record is a tombstone",
    task="return the offsets of the records that compaction keeps, smallest first",
    cases=[
        Case(([("A", 1), ("A", 2)],), [1]),
        Case(([("A", 1), ("B", 1), ("A", 2), ("C", 1)],), [1, 2, 3]),
        Case(([("A", 1), ("B", 1), ("A", None)],), [1], hint="What becomes of A, whose last record is a tombstone?"),
        Case(([("A", None), ("A", 3)],), [1], hint="The tombstone is not the last record of A here."),
        Case(([],), []),
    ],
    hints=(
        "A dictionary from key to offset, filled from left to right, ends up with each key's last offset.",
        "Then drop the offsets whose record has the value None, and sort the rest.",
    ),
    solution=survivors,
    wrong=(forgets_tombstones, keeps_the_first, drops_tombstones_alone, never_brings_a_key_back),
)


def planned() -> kq.Plan:
    return kq.Plan({"orders": kq.QueueTopic(web_servers=3), "prices": kq.Topic(partitions=1, compact=True)})


def one_partition_a_server() -> kq.Plan:
    return kq.Plan({"orders": kq.QueueTopic(partitions=3), "prices": kq.Topic(partitions=1, compact=True)})


def orders_compacted() -> kq.Plan:
    return kq.Plan({"orders": kq.Topic(partitions=6, compact=True), "prices": kq.Topic(partitions=1, compact=True)})


def no_compaction() -> kq.Plan:
    return kq.Plan({"orders": kq.QueueTopic(web_servers=3), "prices": kq.Topic(partitions=1)})


def topics_alone() -> dict:
    return {"orders": kq.QueueTopic(web_servers=3), "prices": kq.Topic(partitions=1, compact=True)}


def comparing(answer: Callable[[], kq.Plan]) -> Iterator[Tried]:
    """Compare with the plan that is asked for, topic by topic, so that the reader sees which one differs."""
    got, right = answer(), planned()
    yield Tried("answer()'s type", type(got).__name__, "Plan", hint="kq.Plan takes a dictionary of topics.")
    for name in right.topics:
        there = got.topics.get(name)
        yield Tried(f"{name} in answer()", there, right.topics[name], hint=_plan_hint(name, there))
    why = "a queue keeps for ever, state is compacted"
    yield Tried("the topics of answer()", sorted(got.topics), sorted(right.topics), why)


def _plan_hint(name: str, there: Any) -> str:
    """What may be wrong with this topic of the plan."""
    if there is None:
        return f"The plan has no topic {name}."
    if name == "prices":
        return "State is compacted: compact=True."
    if isinstance(there, kq.QueueTopic):
        return "n web servers need 2 × n partitions. QueueTopic(web_servers=…) computes that."
    return "orders is a queue: kq.QueueTopic. A compacted queue loses items."


PLAN = Exercise(
    id="01.2",
    ask="a queue for three web servers has six partitions and is never compacted",
    task="return a kq.Plan with the topics orders and prices",
    probe=comparing,
    hints=(
        "A queue is a kq.QueueTopic, which knows web servers; anything else is a kq.Topic.",
        'kq.Plan takes a dictionary: {"orders": kq.QueueTopic(web_servers=3), …}.',
    ),
    solution=planned,
    wrong=(one_partition_a_server, orders_compacted, no_compaction, topics_alone),
)


def sent(producer: Any, topic: str, values: list) -> list:
    refused = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            refused.append(message.value())

    for value in values:
        try:
            producer.produce(topic, value, on_delivery=delivered)
        except BufferError:
            producer.flush()
            producer.produce(topic, value, on_delivery=delivered)
        producer.poll(0)
    producer.flush()
    return refused


def never_polls(producer: Any, topic: str, values: list) -> list:
    for value in values:
        producer.produce(topic, value)
    producer.flush()
    return []


def drops_when_full(producer: Any, topic: str, values: list) -> list:
    refused = []
    for value in values:
        try:
            producer.produce(topic, value, on_delivery=lambda error, m: refused.append(m.value()) if error else None)
        except BufferError:
            producer.flush()
    producer.flush()
    return refused


def believes_produce(producer: Any, topic: str, values: list) -> list:
    refused = []
    for value in values:
        try:
            producer.produce(topic, value)
        except BufferError:
            producer.flush()
            producer.produce(topic, value)
        except Exception:
            refused.append(value)
    producer.flush()
    return refused


def does_not_flush(producer: Any, topic: str, values: list) -> list:
    refused = []
    for value in values:
        try:
            producer.produce(topic, value, on_delivery=lambda error, m: refused.append(m.value()) if error else None)
        except BufferError:
            producer.flush()
            producer.produce(topic, value, on_delivery=lambda error, m: refused.append(m.value()) if error else None)
    return refused


SHORT = [f"event {number}".encode() for number in range(205)]
LONG = b"x" * 2000


def sending(answer: Callable[[Any, str, list], list]) -> Iterator[Tried]:
    """205 short values with a long one in between, through a buffer of 100.

    The buffer is full twice. The last six then fill no batch, so only a flush sends them.
    """
    cluster = kafka()
    topic = new_topic(cluster, max_message_bytes=1000)
    settings = {"queue_buffering_max_messages": 100, "batch_size": 600, "linger_ms": 60_000, "acks": "all"}
    producer = Producer(cluster.client(**settings))
    what = "answer(producer, topic, 206 values)"
    try:
        got = answer(producer, topic, [*SHORT[:150], LONG, *SHORT[150:]])
    except BufferError:
        full = "The buffer is full: 100 records wait for their delivery reports. Which calls serve reports?"
        yield Tried(what, "BufferError", "a list", hint=full)
        return
    kept = [record.value() for record in reading.records(cluster, topic)[0]]
    producer.purge()
    producer.flush(1)
    if kept == SHORT[: len(kept)]:
        lost = "The last values are missing. Who waits until the buffer is empty?"
    else:
        lost = "Values in the middle are missing. What became of those that raised BufferError?"
    yield Tried(f"values in the topic after {what}", len(kept), len(SHORT), "all short ones are stored", lost)
    yield Tried("their order", "kept" if kept == SHORT else "changed", "kept", "in the order of the list")
    report = "produce() does not know yet. The delivery report of the long value has an error, and message.value()."
    yield Tried(what, got, [LONG], "the delivery report names what was refused", report)


SENDING = Exercise(
    id="01.3",
    ask="a record is stored when its delivery report has no error",
    task="send every value, wait for all delivery reports, and return the values whose report has an error",
    probe=sending,
    hints=(
        "Start from the program in section 2 that keeps all 1,000 records.",
        "In on_delivery(error, message), append message.value() to a list if there is an error. Return it after flush().",
    ),
    solution=sent,
    wrong=(never_polls, drops_when_full, believes_produce, does_not_flush),
    seconds=60,
)
