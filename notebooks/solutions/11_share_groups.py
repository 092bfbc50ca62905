"""The exercises of 11-share-groups: what a broker gives out, how many members have work, and a worker that writes its letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from confluent_kafka import Producer

from kqlib.share import ShareQueue
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic
from kqlib.workshop.snapshot import records


def handed_out(records: int, limit: int, steps: list) -> list:
    state, count, handed = ["free"] * records, [0] * records, []
    for verb, *which in steps:
        if verb == "poll":
            first = state.index("free") if "free" in state else None
            if first is not None:
                state[first], count[first] = "locked", count[first] + 1
            handed.append(None if first is None else (first, count[first]))
        elif verb in ("accept", "reject"):
            state[which[0]] = "done"
        else:
            state[which[0]] = "free" if count[which[0]] < limit else "gone"
    return handed


def without_a_limit(records: int, limit: int, steps: list) -> list:
    """A record that had `limit` deliveries is never free again: look at its count when it comes back."""
    return handed_out(records, 10**9, steps)


def one_delivery_too_many(records: int, limit: int, steps: list) -> list:
    """With a limit of two there are two deliveries, and no third one: compare with < and not with <=."""
    return handed_out(records, limit + 1, steps)


def rejected_ones_come_again(records: int, limit: int, steps: list) -> list:
    """A reject is for ever. Only a release and the end of a lock make a record free."""
    return handed_out(records, limit, [("release" if verb == "reject" else verb, *which) for verb, *which in steps])


def locks_never_end(records: int, limit: int, steps: list) -> list:
    """The step "over" is missing: when its lock ends, a record is free again, as after a release."""
    return handed_out(records, limit, [step for step in steps if step[0] != "over"])


POLL = ("poll",)
BROKER = Exercise(
    id="11.1",
    ask="the first free record is given out, and counted; after `limit` deliveries it is never free again",
    task="return a list with the result of each poll: (offset, delivery) or None",
    cases=[
        Case(
            (2, 5, [POLL, POLL, POLL]), [(0, 1), (1, 1), None], hint="A locked record is not free for another member."
        ),
        Case(
            (2, 5, [POLL, ("release", 0), POLL]),
            [(0, 1), (0, 2)],
            hint="A released record comes again before later ones, as delivery 2.",
        ),
        Case((2, 5, [POLL, ("accept", 0), POLL]), [(0, 1), (1, 1)], hint="An accepted record never comes again."),
        Case((2, 5, [POLL, ("reject", 0), POLL]), [(0, 1), (1, 1)], hint="A rejected record never comes again either."),
        Case(
            (2, 5, [POLL, POLL, ("over", 0), POLL]),
            [(0, 1), (1, 1), (0, 2)],
            hint="When a lock ends its record is free, and the delivery counts.",
        ),
        Case(
            (1, 2, [POLL, ("release", 0), POLL, ("over", 0), POLL]),
            [(0, 1), (0, 2), None],
            hint="The limit is two, and it was delivered twice: it is gone.",
        ),
        Case((0, 2, [POLL]), [None], hint="There are no records at all."),
    ],
    hints=(
        "For each record keep two things: whether it is free, locked or done, and how often it was given out.",
        "Count when you give out. On a release, or when a lock is over, look at the count: below the limit it is free again.",
    ),
    solution=handed_out,
    wrong=(without_a_limit, one_delivery_too_many, rejected_ones_come_again, locks_never_end),
)


def have_work(kind: str, members: int, batches: list, at_most: int) -> int:
    if kind == "consumer":
        return min(1, members, len(batches))
    left, busy = list(batches), 0
    for _ in range(members):
        taken = 0
        while left and taken < at_most:
            taken += left.pop(0)
        busy += taken > 0
    return busy


def a_record_each(kind: str, members: int, batches: list, at_most: int) -> int:
    """You divide the records. A poll takes whole batches, so count how many batches each member takes."""
    return min(1 if kind == "consumer" else members, -(-sum(batches) // at_most))


def a_batch_each(kind: str, members: int, batches: list, at_most: int) -> int:
    """A member takes more than one batch, as long as it has fewer than at_most records."""
    return min(1 if kind == "consumer" else members, len(batches))


def all_share(kind: str, members: int, batches: list, at_most: int) -> int:
    """In a consumer group a partition has one owner: one member has work, or none."""
    return have_work("share", members, batches, at_most)


WORK = Exercise(
    id="11.2",
    ask="a poll takes batches whole until it has at_most records or more; a consumer group has one owner a partition",
    task="return the number of members that have work",
    cases=[
        Case(("share", 5, [10], 1), 1, hint="One batch of ten: the member that takes it takes all of it."),
        Case(("share", 5, [1] * 10, 1), 5, hint="Ten batches of one: each of the five members gets one."),
        Case(("share", 5, [1] * 10, 4), 3, hint="Up to four each: 4 + 4 + 2, and nothing is left for the others."),
        Case(
            ("share", 5, [3, 3, 3], 4),
            2,
            hint="3 are fewer than 4, so the first member takes another 3. One batch is left.",
        ),
        Case(("share", 5, [1, 1], 1), 2, hint="There are two records for five members."),
        Case(("consumer", 5, [1] * 10, 1), 1, hint="In a consumer group a partition has one owner."),
        Case(("consumer", 5, [], 1), 0, hint="There is nothing, so the owner has no work either."),
        Case(("share", 0, [1], 1), 0, hint="There are no members."),
    ],
    hints=(
        "Play it: a list of batches, and one member after the other. What does the first one leave?",
        "A member takes batches from the front while it has fewer than at_most records; it has work if it took any.",
    ),
    solution=have_work,
    wrong=(a_record_each, a_batch_each, all_share),
)


def with_letters(queue: Any, letters: Any, work: Callable[[bytes], object]) -> None:
    while (item := queue.claim()) is not None:
        if item.attempt > 3:
            letters.put(item.data)
            queue.reject(item)
            continue
        try:
            work(item.data)
        except ValueError:
            queue.release(item)
        else:
            queue.ack(item)


def acks_first(queue: Any, letters: Any, work: Callable[[bytes], object]) -> None:
    while (item := queue.claim()) is not None:
        if item.attempt > 3:
            letters.put(item.data)
        queue.ack(item)
        with suppress(ValueError):
            work(item.data)


def rejects_first(queue: Any, letters: Any, work: Callable[[bytes], object]) -> None:
    while (item := queue.claim()) is not None:
        if item.attempt > 3:
            queue.reject(item)
            letters.put(item.data)
            continue
        try:
            work(item.data)
        except ValueError:
            queue.release(item)
        else:
            queue.ack(item)


def counts_by_itself(queue: Any, letters: Any, work: Callable[[bytes], object]) -> None:
    tries = Counter[bytes]()
    while (item := queue.claim()) is not None:
        tries[item.data] += 1
        if tries[item.data] > 3:
            letters.put(item.data)
            queue.reject(item)
            continue
        try:
            work(item.data)
        except ValueError:
            queue.release(item)
        else:
            queue.ack(item)


def leaves_it_to_the_limit(queue: Any, letters: Any, work: Callable[[bytes], object]) -> None:
    while (item := queue.claim()) is not None:
        try:
            work(item.data)
        except ValueError:
            queue.release(item)
        else:
            queue.ack(item)


class Killed(BaseException):
    """The process of the worker ends here."""


class Day:
    """What happens to the worker: it is killed in the first work, before its first letter and after its second."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.producer, self.topic = producer, topic
        self.worked, self.done, self.deaths = Counter[str](), set[str](), ["after", "before", "work"]

    def dies(self, where: str) -> None:
        if self.deaths and self.deaths[-1] == where:
            self.deaths.pop()
            raise Killed

    def work(self, data: bytes) -> None:
        self.dies("work")
        name = data.decode()
        self.worked[name] += 1
        if name == "bad":
            raise ValueError(name)
        self.done.add(name)

    def put(self, data: bytes) -> None:
        self.dies("before")
        self.producer.produce(self.topic, data)
        self.producer.flush(20)
        self.dies("after")


class Claiming:
    """A share group's queue, as the answer gets it: `claim` waits, and gives None if nothing is left."""

    def __init__(self, queue: ShareQueue) -> None:
        self.ack, self.release, self.reject = queue.ack, queue.release, queue.reject
        self._queue = queue

    def claim(self) -> Any:
        return self._queue.claim(wait=1)


LIVES = 9  # a wrong answer may die more often than a right one
MISSING = "The work was not done, and the item does not come again. When is an ack right?"
NO_LETTER = "The letter comes first. If the worker dies between the two, the item comes once more."
TOO_OFTEN = "Three attempts at most, also when the worker was killed in between: item.attempt counts for all workers."
STAYS = "An item that comes for ever is not finished: after its letter it is rejected."


def writing(answer: Callable[..., Any]) -> Iterator[Tried]:
    """Let the answer work on three items of a share group, one of them bad, and kill it three times."""
    cluster = kafka()
    topic, letters = new_topic(cluster), new_topic(cluster)
    day = Day(Producer(cluster.client()), letters)
    with ShareQueue(cluster, topic, max_attempts=10) as puts:
        puts.put_many([(b"one", None), (b"bad", None), (b"two", None)])
    ended = False
    for _ in range(LIVES):
        with suppress(Killed), ShareQueue(cluster, topic) as queue:
            answer(Claiming(queue), day, day.work)
            ended = True
            break
    written = {record.value().decode() for record in records(cluster, letters)[0]}
    yield Tried("items that were never done", sorted({"one", "two"} - day.done), [], "the good ones are done", MISSING)
    yield Tried("letters", sorted(written), ["bad"], "the bad one has its letter", NO_LETTER)
    yield Tried("more than three attempts", day.worked["bad"] > 3, False, "three attempts at most", TOO_OFTEN)
    yield Tried("whether it ended", ended, True, "and nothing is left", STAYS)


LETTERS = Exercise(
    id="11.3",
    ask="work, then ack; after three attempts the letter, then the reject",
    task="work on each item until claim() gives None; a bad item gets three attempts, a letter, and never comes again",
    probe=writing,
    hints=(
        "item.attempt counts the deliveries of all workers, also of those that were killed. What do you do when it is above 3?",
        "while (item := queue.claim()) is not None: above three attempts letters.put(item.data), then queue.reject(item). "
        "Else work; ack if it went well, release after a ValueError.",
    ),
    solution=with_letters,
    wrong=(acks_first, rejects_first, counts_by_itself, leaves_it_to_the_limit),
    seconds=60,
)
