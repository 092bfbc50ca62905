"""The exercises of 01-topics: what compaction leaves, and a plan of one's own."""

from collections.abc import Callable, Iterator

import kqlib as kq
from kqlib.workshop.checks import Case, Exercise, Tried


def survivors(records: list) -> list:
    last = {key: offset for offset, (key, _) in enumerate(records)}
    return sorted(offset for offset in last.values() if records[offset][1] is not None)


def forgets_tombstones(records: list) -> list:
    return sorted({key: offset for offset, (key, _) in enumerate(records)}.values())


def keeps_the_first(records: list) -> list:
    first: dict = {}
    for offset, (key, _) in enumerate(records):
        first.setdefault(key, offset)
    return sorted(first.values())


COMPACTION = Exercise(
    id="01.1",
    ask="compaction keeps the last record of each key, and nothing of a key whose last record is a tombstone",
    cases=[
        Case(([("A", 1), ("A", 2)],), [1]),
        Case(([("A", 1), ("B", 1), ("A", 2), ("C", 1)],), [1, 2, 3]),
        Case(([("A", 1), ("B", 1), ("A", None)],), [1]),
        Case(([("A", None), ("A", 3)],), [1]),
        Case(([],), []),
    ],
    hints=(
        "A dictionary from key to offset, filled from left to right, ends up with each key's last offset.",
        "Then drop the offsets whose record has the value None, and sort the rest.",
    ),
    solution=survivors,
    wrong=(forgets_tombstones, keeps_the_first),
)


def planned() -> kq.Plan:
    return kq.Plan({"orders": kq.QueueTopic(web_servers=3), "prices": kq.Topic(partitions=1, compact=True)})


def one_partition_a_server() -> kq.Plan:
    return kq.Plan({"orders": kq.QueueTopic(partitions=3), "prices": kq.Topic(partitions=1, compact=True)})


def orders_compacted() -> kq.Plan:
    return kq.Plan({"orders": kq.Topic(partitions=6, compact=True), "prices": kq.Topic(partitions=1, compact=True)})


def probe(answer: Callable[[], kq.Plan]) -> Iterator[Tried]:
    """Compare with the plan that is asked for, topic by topic, so that the reader hears which one differs."""
    got, wanted = answer(), planned()
    yield Tried("the kind of answer()", type(got).__name__, "Plan")
    for name in wanted.topics:
        yield Tried(f"answer()'s {name}", got.topics.get(name), wanted.topics[name])
    yield Tried(
        "answer()'s topics", sorted(got.topics), sorted(wanted.topics), "a queue keeps for ever, state is compacted"
    )


PLAN = Exercise(
    id="01.2",
    ask="a queue for three web servers has six partitions and is never compacted",
    probe=probe,
    hints=(
        "A queue is a kq.QueueTopic, which knows web servers; anything else is a kq.Topic.",
        'kq.Plan takes a dictionary: {"orders": kq.QueueTopic(web_servers=3), …}.',
    ),
    solution=planned,
    wrong=(one_partition_a_server, orders_compacted),
)
