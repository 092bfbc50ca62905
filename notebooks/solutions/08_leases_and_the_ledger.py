"""The exercises of 08-leases-and-the-ledger: a ledger by hand, how many items are left, and whose ack counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition

from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic


def ledger(steps: list) -> tuple:
    top, out = 0, set()
    for verb, offset in steps:
        if verb == "claim":
            out.add(offset)
            top = max(top, offset + 1)
        else:
            out.discard(offset)
    return min(out, default=top), top, sorted(out)


def floor_past_the_last_ack(steps: list) -> tuple:
    """The floor is not the last ack: everything below the floor must be done. Which is the lowest open offset?"""
    _, top, out = ledger(steps)
    return max((offset + 1 for verb, offset in steps if verb == "ack"), default=0), top, out


def floor_moves_one_by_one(steps: list) -> tuple:
    """Offsets that were left out count as done. The floor jumps to the next open offset, or to top."""
    _, top, out = ledger(steps)
    acked = {offset for verb, offset in steps if verb == "ack"}
    floor = 0
    while floor in acked:
        floor += 1
    return floor, top, out


def top_is_the_last_open(steps: list) -> tuple:
    """Top never goes back: an ack does not change what was handed out."""
    floor, _, out = ledger(steps)
    return floor, max(out, default=floor - 1) + 1, out


def floor_stays_at_zero(steps: list) -> tuple:
    """The first item is done, so the floor moves: to the lowest open offset, or to top if nothing is open."""
    _, top, out = ledger(steps)
    return 0, top, out


def claims(*offsets: int) -> list:
    return [("claim", offset) for offset in offsets]


def acks(*offsets: int) -> list:
    return [("ack", offset) for offset in offsets]


LEDGER = Exercise(
    id="08.1",
    ask="the floor is the lowest open offset, or top if nothing is open; top never goes back",
    task="return floor, top and the sorted list of open offsets, as a tuple",
    cases=[
        Case(([],), (0, 0, []), hint="Nothing happened yet: floor and top are 0."),
        Case((claims(0, 1, 2),), (0, 3, [0, 1, 2]), hint="Three are claimed. Top is the next offset to be handed out."),
        Case(
            (claims(0, 1, 2) + acks(1),), (0, 3, [0, 2]), hint="Acked out of order, the floor stays: 0 is still open."
        ),
        Case((claims(0, 1, 2) + acks(1, 0),), (2, 3, [2]), hint="0 is acked, and 1 was acked before. Only 2 is open."),
        Case((claims(0, 1, 2) + acks(2, 1, 0),), (3, 3, []), hint="Nothing is open: the floor is top."),
        Case((claims(0, 1) + acks(1),), (0, 2, [0]), hint="The last one is done. Does that change top?"),
        Case((claims(0, 5, 6) + acks(0),), (5, 7, [5, 6]), hint="1 to 4 held nothing to do: they count as done."),
        Case((claims(5) + acks(5),), (6, 6, []), hint="0 to 4 held nothing to do either: nothing is open."),
        Case((claims(0, 1) + claims(0) + acks(0),), (1, 2, [1]), hint="Claimed a second time, it is still one item."),
    ],
    hints=(
        "Keep top and a set of open offsets. What does a claim change, and what an ack? The floor follows from the two.",
        "claim: add the offset, top = max(top, offset + 1). ack: take it out. In the end: min(open, default=top).",
    ),
    solution=ledger,
    wrong=(floor_past_the_last_ack, floor_moves_one_by_one, top_is_the_last_open, floor_stays_at_zero),
)


def not_done(consumer: Any, topic: str) -> int:
    part = TopicPartition(topic, 0)
    [state] = consumer.committed([part], timeout=10)
    low, end = consumer.get_watermark_offsets(part, timeout=10)
    if not state.metadata:
        return end - max(low, state.offset)
    _, _, top, open_items = json.loads(state.metadata)
    return sum(offset >= low for offset, _ in open_items) + end - max(top, low)


def by_lag(consumer: Any, topic: str) -> int:
    part = TopicPartition(topic, 0)
    [state] = consumer.committed([part], timeout=10)
    low, end = consumer.get_watermark_offsets(part, timeout=10)
    return end - max(low, state.offset)


def without_the_open_items(consumer: Any, topic: str) -> int:
    part = TopicPartition(topic, 0)
    [state] = consumer.committed([part], timeout=10)
    low, end = consumer.get_watermark_offsets(part, timeout=10)
    return end - max(low, json.loads(state.metadata)[2] if state.metadata else state.offset)


def what_has_left_the_log_too(consumer: Any, topic: str) -> int:
    part = TopicPartition(topic, 0)
    [state] = consumer.committed([part], timeout=10)
    low, end = consumer.get_watermark_offsets(part, timeout=10)
    top, open_items = json.loads(state.metadata)[2:] if state.metadata else (max(low, state.offset), [])
    return len(open_items) + end - top


class Kept(NamedTuple):
    """A topic with records, the state of its site, and a hint."""

    records: int
    low: int
    floor: int | None
    top: int
    open_items: list[list[int]]
    hint: str


TOPICS = [
    Kept(6, 0, 0, 4, [[0, 1], [2, 1]], "Four were handed out, and two of them are acked. Claimed items count."),
    Kept(6, 0, 6, 6, [], "Everything is done: nothing is open, and top is the end."),
    Kept(40, 0, 3, 40, [[3, 2]], "One slow item holds the floor at 3. Everything behind it is done."),
    Kept(6, 0, None, 0, [], "This site has no commit yet: committed() gives a negative offset and no metadata."),
    Kept(10, 4, 2, 8, [[2, 1], [3, 1], [6, 1]], "2 and 3 are open, and they have left the log."),
    Kept(10, 9, 2, 5, [[2, 1]], "The log begins above top: only offset 9 is left."),
]


def counting(answer: Callable[[Any, str], int]) -> Iterator[Tried]:
    """Make topics whose site has such a state, and ask the answer for each."""
    cluster = kafka()
    producer = Producer(cluster.client())
    for records, low, floor, top, open_items, hint in TOPICS:
        topic = new_topic(cluster)
        for number in range(records):
            producer.produce(topic, f"{number}")
        producer.flush(20)
        if low:
            place = TopicPartition(topic, 0, low)
            cluster.admin.delete_records([place])[place].result(20)
        found = cluster.admin.describe_topics(TopicCollection([topic]))[topic].result(10)
        consumer = Consumer(cluster.client(group_id=topic))
        if floor is not None:
            text = json.dumps([str(found.topic_id), 1, top, open_items])
            consumer.commit(offsets=[TopicPartition(topic, 0, floor, text)], asynchronous=False)
        try:
            got = answer(consumer, topic)
        finally:
            consumer.close()
        right = len([1 for offset, _ in open_items if offset >= low]) + records - max(top, low)
        state = f"floor {floor}, top {top}, open {[offset for offset, _ in open_items]}"
        what = f"offsets {low} to {records - 1} in the log, {state if floor is not None else 'no commit'}"
        yield Tried(what, got, right, "open and in the log, or never handed out", hint)


DEPTH = Exercise(
    id="08.2",
    ask="what is open and still in the log, and what was never handed out",
    task="return how many items of the topic are not done",
    probe=counting,
    hints=(
        "With part = TopicPartition(topic, 0), [state] = consumer.committed([part], timeout=10) has .offset and .metadata; "
        "consumer.get_watermark_offsets(part, timeout=10) gives the log's first offset and its end.",
        "Count the open offsets with offset >= low. Add end − max(top, low). Without a commit top is 0.",
    ),
    solution=not_done,
    wrong=(by_lag, without_the_open_items, what_has_left_the_log_too),
    seconds=60,
)


def fence(steps: list) -> list:
    epoch, number, leases, answers = 1, 0, {}, []
    for verb, *what in steps:
        if verb == "claim":
            number += 1
            leases[what[0]] = (what[0], epoch, number)
        elif verb == "expire":
            leases.pop(what[0], None)
        elif verb == "takeover":
            epoch, number, leases = epoch + 1, 0, {}
        else:
            answers.append(leases.get(what[0][0]) == what[0])
            if answers[-1]:
                del leases[what[0][0]]
    return answers


def without_the_epoch(steps: list) -> list:
    """A new owner counts from 1 again, so the number alone names two claims. Compare the epoch too."""
    number, leases, answers = 0, {}, []
    for verb, *what in steps:
        if verb == "claim":
            number += 1
            leases[what[0]] = number
        elif verb == "expire":
            leases.pop(what[0], None)
        elif verb == "takeover":
            number, leases = 0, {}
        else:
            offset, _, receipt = what[0]
            answers.append(leases.get(offset) == receipt)
            if answers[-1]:
                del leases[offset]
    return answers


def by_the_offset_alone(steps: list) -> list:
    """The item is claimed again, and another worker has it. The offset is the same, the receipt is not."""
    out, answers = set(), []
    for verb, *what in steps:
        if verb == "claim":
            out.add(what[0])
        elif verb == "expire":
            out.discard(what[0])
        elif verb == "takeover":
            out = set()
        else:
            answers.append(what[0][0] in out)
            out.discard(what[0][0])
    return answers


def twice_is_fine(steps: list) -> list:
    """A good ack ends the lease. The second ack of the same receipt is refused."""
    epoch, number, leases, answers = 1, 0, {}, []
    for verb, *what in steps:
        if verb == "claim":
            number += 1
            leases[what[0]] = (what[0], epoch, number)
        elif verb == "expire":
            leases.pop(what[0], None)
        elif verb == "takeover":
            epoch, number, leases = epoch + 1, 0, {}
        else:
            answers.append(leases.get(what[0][0]) == what[0])
    return answers


def nothing_expires(steps: list) -> list:
    """A lease that is over is no lease, even if no one else has the item."""
    return fence([step for step in steps if step[0] != "expire"])


FENCE = Exercise(
    id="08.3",
    ask="an ack counts if its receipt is that of the lease that runs now: offset, epoch and number",
    task="return a list with True or False for each ack",
    cases=[
        Case(
            ([("claim", 0), ("ack", (0, 1, 1))],),
            [True],
            "claimed and acked",
            "Claimed and acked in time: this one counts.",
        ),
        Case(
            ([("claim", 0), ("ack", (0, 1, 1)), ("ack", (0, 1, 1))],),
            [True, False],
            hint="The second ack of the same item is refused.",
        ),
        Case(
            ([("claim", 0), ("expire", 0), ("ack", (0, 1, 1))],),
            [False],
            hint="It is too late, although no one else has the item.",
        ),
        Case(
            ([("claim", 0), ("expire", 0), ("claim", 0), ("ack", (0, 1, 1)), ("ack", (0, 1, 2))],),
            [False, True],
            hint="Another worker has it now: the offset is the same, the number is not.",
        ),
        Case(
            ([("claim", 0), ("takeover",), ("claim", 0), ("ack", (0, 1, 1)), ("ack", (0, 2, 1))],),
            [False, True],
            hint="A new owner counts from 1 again: offset and number are the same, the epoch is not.",
        ),
        Case(([("claim", 0), ("takeover",), ("ack", (0, 1, 1))],), [False], hint="A takeover ends every lease."),
        Case(
            ([("claim", 0), ("claim", 1), ("expire", 0), ("ack", (1, 1, 2)), ("ack", (0, 1, 1))],),
            [True, False],
            hint="Each item has a lease of its own.",
        ),
        Case(([("ack", (3, 1, 1))],), [False], hint="No one has claimed it."),
    ],
    hints=(
        "Remember for each claimed offset the one receipt that counts now. Which steps add one, and which take one away?",
        "leases = {offset: (offset, epoch, number)}. A takeover empties it, raises the epoch and begins to number anew. "
        "An ack is good if leases.get(offset) == receipt; a good ack takes it out.",
    ),
    solution=fence,
    wrong=(without_the_epoch, by_the_offset_alone, twice_is_fine, nothing_expires),
)
