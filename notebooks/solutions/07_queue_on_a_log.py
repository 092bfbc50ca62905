"""The exercises of 07-queue-on-a-log: what a createItem leaves, what a queue with a position gives, and its number of items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic


def records_left(deleted: list, end: int) -> int:
    listed, left = set(deleted), 1
    while end in listed:
        end, left = end + 1, left + 1
    return left


def the_whole_list_and_one(deleted: list, end: int) -> int:
    """Only offsets that the new record really gets cost anything. Which offsets does it try, and where does it stop?"""
    return len(deleted) + 1


def whatever_is_behind(deleted: list, end: int) -> int:
    """You count all later offsets of the list. The search stops at the first offset that is free."""
    return sum(offset >= end for offset in deleted) + 1


def only_the_copies(deleted: list, end: int) -> int:
    """The record that stays counts too."""
    return records_left(deleted, end) - 1


RECORDS = Exercise(
    id="07.1",
    ask="a record is written first, and only then is its offset looked up; the first that is not in the list ends it",
    task="return how many records one createItem writes until an offset is not in the list",
    cases=[
        Case(([], 0), 1, "nothing is in the list: one record for one item"),
        Case(([0, 1, 2], 3), 1, hint="The next record gets offset 3. Is it in the list?"),
        Case(([0, 1, 2], 0), 4, hint="0, 1 and 2 are in the list, 3 is free. How many records were written?"),
        Case(([0, 1, 5, 6], 0), 3, hint="2 is free. What is listed after it costs later items."),
        Case(([0, 1, 5, 6], 5), 3, hint="5 and 6 are in the list, 7 is free."),
        Case(([4, 2, 3], 2), 4, hint="The list has no order."),
        Case((list(range(1000)), 0), 1001, "after a thousand deleted items"),
    ],
    hints=(
        "Write the record at `end` first. Is that offset in the list? Then write again, at end + 1.",
        "Count from 1; as long as `end` is in the list, add one to both. Make a set of the list first: it may be long.",
    ),
    solution=records_left,
    wrong=(the_whole_list_and_one, whatever_is_behind, only_the_copies),
)


def handed_out(total: int, steps: list) -> list:
    position, deleted, handed = 0, set(), []
    for verb, *offset in steps:
        if verb == "delete":
            deleted.add(offset[0])
        elif verb == "release":
            position = offset[0]
        else:
            while position in deleted:
                position += 1
            handed.append(position if position < total else None)
            position = min(position + 1, total)
    return handed


def only_what_was_released(total: int, steps: list) -> list:
    """You give only the released item again. A position is one number: what lies behind it comes too."""
    fresh, back, handed = 0, [], []
    for verb, *offset in steps:
        if verb == "release":
            back.append(offset[0])
        elif verb == "claim":
            handed.append(back.pop(0) if back else fresh if fresh < total else None)
            fresh = max(fresh, (handed[-1] if handed[-1] is not None else total) + 1)
    return handed


def without_the_list(total: int, steps: list) -> list:
    """A deleted offset never comes again. A claim skips it."""
    return handed_out(total, [step for step in steps if step[0] != "delete"])


def never_back(total: int, steps: list) -> list:
    """A release sets the position back to its offset."""
    return handed_out(total, [step for step in steps if step[0] != "release"])


def never_forward(total: int, steps: list) -> list:
    """The last release counts. It sets the position, also forward."""
    position, deleted, handed = 0, set(), []
    for verb, *offset in steps:
        if verb == "delete":
            deleted.add(offset[0])
        elif verb == "release":
            position = min(position, offset[0])
        else:
            while position in deleted:
                position += 1
            handed.append(position if position < total else None)
            position = min(position + 1, total)
    return handed


CLAIM = ("claim",)

QUEUE = Exercise(
    id="07.2",
    ask="the position is one number: a claim moves it on and skips what is deleted, a release sets it to that offset",
    task="return a list with the result of each claim: an offset or None",
    cases=[
        Case((2, [CLAIM, CLAIM, CLAIM]), [0, 1, None], "one after the other, then nothing"),
        Case((3, [CLAIM, ("release", 0), CLAIM, CLAIM]), [0, 0, 1], hint="After the release the position is 0 again."),
        Case(
            (4, [CLAIM, CLAIM, CLAIM, ("release", 0), CLAIM, CLAIM, CLAIM, CLAIM]),
            [0, 1, 2, 0, 1, 2, 3],
            hint="What is in flight after the released item comes again too.",
        ),
        Case(
            (4, [CLAIM, CLAIM, CLAIM, ("delete", 1), ("release", 0), CLAIM, CLAIM, CLAIM]),
            [0, 1, 2, 0, 2, 3],
            hint="1 is deleted: a claim skips it.",
        ),
        Case(
            (3, [CLAIM, CLAIM, CLAIM, ("release", 0), ("release", 2), CLAIM, CLAIM]),
            [0, 1, 2, 2, None],
            hint="The second release sets the position to 2.",
        ),
        Case(
            (2, [CLAIM, ("delete", 0), ("release", 0), CLAIM]),
            [0, 1],
            hint="A released item that is deleted is skipped.",
        ),
    ],
    hints=(
        "You need the position, which begins at 0, and the set of deleted offsets. What does each step do to them?",
        "A release sets the position to its offset, no more. A claim moves on over deleted ones, hands out, and moves on by one.",
    ),
    solution=handed_out,
    wrong=(only_what_was_released, without_the_list, never_back, never_forward),
)


def not_done(consumer: Any, topic: str, deleted: list) -> int:
    low, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    return end - low - len({offset for offset in deleted if low <= offset < end})


def by_the_length_of_the_list(consumer: Any, topic: str, deleted: list) -> int:
    low, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    return end - low - len(deleted)


def from_zero(consumer: Any, topic: str, deleted: list) -> int:
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    return end - len([offset for offset in deleted if offset < end])


def by_lag(consumer: Any, topic: str, deleted: list) -> int:
    part = TopicPartition(topic, 0)
    _, end = consumer.get_watermark_offsets(part, timeout=10)
    return end - max(0, consumer.committed([part], timeout=10)[0].offset)


def all_records(consumer: Any, topic: str, deleted: list) -> int:
    low, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    return end - low


TOPICS = [  # records, those that retention took, the stored offset, the list, and a hint
    (6, 0, 3, [], "Three are claimed, and none is deleted. Claimed items count."),
    (6, 0, 6, [1, 2], "Two are deleted. The stored offset does not matter."),
    (3, 0, 3, [0, 1, 2], "All are deleted."),
    (20, 15, 20, [14, 15], "The log begins at 15. The list has an older offset too."),
    (3, 0, 0, list(range(12)), "This topic was created anew: the list is longer than the log."),
    (5, 0, 0, [4, 5], "The end is the next offset; it is not in the log."),
]


def counting(answer: Callable[[Any, str, list], int]) -> Iterator[Tried]:
    """Make topics with records, stored offsets and a low watermark, and ask the answer for each."""
    cluster = kafka()
    producer = Producer(cluster.client())
    for records, gone, stored, deleted, hint in TOPICS:
        topic = new_topic(cluster)
        for number in range(records):
            producer.produce(topic, f"{number}")
        producer.flush(20)
        if gone:
            low = TopicPartition(topic, 0, gone)
            cluster.admin.delete_records([low])[low].result(20)
        consumer = Consumer(cluster.client(group_id=topic))
        consumer.commit(offsets=[TopicPartition(topic, 0, stored)], asynchronous=False)
        try:
            got = answer(consumer, topic, list(deleted))
        finally:
            consumer.close()
        right = len(set(range(gone, records)) - set(deleted))
        what = f"offsets {gone} to {records - 1} in the log, {stored} stored, {len(deleted)} in the list"
        yield Tried(what, got, right, "in the log and not in the list", hint)


DEPTH = Exercise(
    id="07.3",
    ask="what is in the log and not in the list; the list may know offsets that the log does not have",
    task="return how many records of the topic are not in the list",
    probe=counting,
    hints=(
        "consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) gives the log's first offset and its end.",
        "end − low, minus the offsets of the list with low <= offset < end.",
    ),
    solution=not_done,
    wrong=(by_the_length_of_the_list, from_zero, by_lag, all_records),
    seconds=60,
)
