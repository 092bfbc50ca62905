"""The exercises of 04-consumer-groups: how partitions are assigned, what a crash leaves, and a worker that loses nothing."""

from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic


def shares(partitions: int, members: int) -> list:
    each, more = divmod(partitions, members)
    return [each + 1] * more + [each] * (members - more)


def newcomers_get(partitions: int, before: int, after: int) -> int:
    return sum(shares(partitions, after)[before:])


def all_of_them(partitions: int, before: int, after: int) -> int:
    """Not every partition moves: a member keeps as many as its new share allows."""
    return partitions


def what_newcomers_get_on_average(partitions: int, before: int, after: int) -> int:
    """Partitions that are left over by the division go to members that are there already: they keep theirs."""
    return round(partitions * (after - before) / after)


def one_each(partitions: int, before: int, after: int) -> int:
    """A newcomer may get more than one partition, and it may get none."""
    return after - before


NEWCOMERS = Exercise(
    id="04.1",
    ask="only what the new members get moves",
    task="return how many partitions get another owner",
    cases=[
        Case((4, 1, 2), 2, "from 4 to 2 + 2"),
        Case((4, 2, 3), 1, "from 2 + 2 to 2 + 1 + 1"),
        Case((4, 4, 5), 0, "a fifth member of four partitions gets none"),
        Case((12, 5, 6), 2, "from 3 + 3 + 2 + 2 + 2 to two each"),
        Case((11, 3, 4), 2, "from 4 + 4 + 3 to 3 + 3 + 3 + 2: what is left over stays with old members"),
        Case((6, 1, 6), 5, "the first member keeps one"),
        Case((3, 2, 2), 0, "nobody came"),
    ],
    hints=(
        "Write down each member's share before and after, largest first. Which members can have partitions that are new to them?",
        "Old members only lose partitions. So those that move are what the last `after` − `before` members get.",
    ),
    solution=newcomers_get,
    wrong=(all_of_them, what_newcomers_get_on_average, one_each),
)


def after_the_crash(commits: list, worked: int) -> tuple[int, int]:
    start = commits[-1] if commits else 0
    return max(0, worked - start), max(0, start - worked)


def the_highest_commit(commits: list, worked: int) -> tuple[int, int]:
    """You take the highest commit. A commit may go backwards, and the last one counts (section 3)."""
    start = max(commits, default=0)
    return max(0, worked - start), max(0, start - worked)


def commit_is_the_last_record(commits: list, worked: int) -> tuple[int, int]:
    """A commit is the next offset to read, not the last record that is done."""
    start = commits[-1] + 1 if commits else 0
    return max(0, worked - start), max(0, start - worked)


def nothing_is_ever_lost(commits: list, worked: int) -> tuple[int, int]:
    """The commit may be ahead of the work. Then records are skipped."""
    return after_the_crash(commits, worked)[0], 0


AFTER_THE_CRASH = Exercise(
    id="04.2",
    ask="the next owner begins at the last commit",
    task="return two numbers: worked on again, never worked on",
    cases=[
        Case(([], 5), (5, 0), "no commit: all of it comes again"),
        Case(([3], 5), (2, 0), "3 is the next offset: 0, 1 and 2 are done with, 3 and 4 come again"),
        Case(([3, 5], 5), (0, 0), "committed to the end of the work"),
        Case(([5, 2], 5), (3, 0), "a commit may go backwards, and the last one counts"),
        Case(([5], 4), (0, 1), "committed when it was read, dead before the work: nobody ever does that one"),
        Case(([500], 0), (0, 500), "a whole batch, read and committed and not worked on"),
    ],
    hints=(
        "Where does the next owner begin? At the last commit, whatever was committed before it; without one at 0.",
        "Again: the records from there up to what was worked on. Never: those from what was worked on up to there. One of them is 0.",
    ),
    solution=after_the_crash,
    wrong=(the_highest_commit, commit_is_the_last_record, nothing_is_ever_lost),
)


def after_the_work(consumer: Any, work: Callable[[Any], None]) -> None:
    while (record := consumer.poll(2)) is not None:
        work(record)
        consumer.commit(record, asynchronous=False)


def before_the_work(consumer: Any, work: Callable[[Any], None]) -> None:
    while (record := consumer.poll(2)) is not None:
        consumer.commit(record, asynchronous=False)
        work(record)


def never_commits(consumer: Any, work: Callable[[Any], None]) -> None:
    while (record := consumer.poll(2)) is not None:
        work(record)


def commits_this_offset(consumer: Any, work: Callable[[Any], None]) -> None:
    while (record := consumer.poll(2)) is not None:
        work(record)
        part = TopicPartition(record.topic(), record.partition(), record.offset())
        consumer.commit(offsets=[part], asynchronous=False)


def skips_what_fails(consumer: Any, work: Callable[[Any], None]) -> None:
    while (record := consumer.poll(2)) is not None:
        try:
            work(record)
        except RuntimeError:
            continue
        consumer.commit(record, asynchronous=False)


TRIES = 4  # how often the check calls an answer: once, once after the failure, and again if records are left


class _Worked:
    """The work that an answer does: it fails once, at record 4."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.failed = False

    def __call__(self, record: Any) -> None:
        if record.offset() == 4 and not self.failed:
            self.failed = True
            raise RuntimeError("the work on record 4 failed")
        self.records.append(record.offset())


def _member(cluster: Any, topic: str) -> Consumer:
    """A consumer that has its partition: two seconds without a record say something only after that."""
    consumer = Consumer(cluster.client(group_id=topic))
    consumer.subscribe([topic])
    early: list[Any] = []

    def assigned() -> bool:
        early.append(consumer.poll(0))
        return bool(consumer.assignment())

    wait_for(assigned, 20 * PATIENCE, "the consumer's partition")
    for record in reversed(early):  # the last seek counts: it goes to the first of them
        if record is not None and record.error() is None:  # it came with the assignment: the answer has to get it
            consumer.seek(TopicPartition(topic, record.partition(), record.offset()))
    return consumer


def losing_nothing(answer: Callable[[Any, Any], Any]) -> Iterator[Tried]:
    """Ten records; the work on one fails once. Then what was worked on, and the commit that Kafka holds."""
    cluster = kafka()
    topic = new_topic(cluster)
    producer = Producer(cluster.client())
    for number in range(10):
        producer.produce(topic, str(number))
    producer.flush(10 * PATIENCE)
    work = _Worked()
    part, kept = TopicPartition(topic, 0), None
    for call in range(TRIES):
        if call > 1 and 9 in work.records:
            break  # else a busy machine was slow for two seconds, and the answer returned too early
        consumer = _member(cluster, topic)
        try:
            answer(consumer, work)
        except RuntimeError as error:
            if not work.failed:
                raise error
        finally:
            [kept] = consumer.committed([part], timeout=10 * PATIENCE)
            consumer.close()
    lost = sorted({*range(10)} - {*work.records})
    early = "Record 4 is lost. When do you commit: before the work or after it? And what do you do when the work fails?"
    none = "work() was never called. Call it for each record that poll() returns."
    hint = early if work.records else none
    yield Tried(
        "records that nobody worked on, after a failure and a restart of answer", lost, [], "none is lost", hint
    )
    assert kept is not None
    far = "You commit the record's own offset. A commit is the next offset to read."
    hint = far if kept.offset == 9 else "Nothing is committed, so after a restart all is done again."
    yield Tried("the group's commit in Kafka", kept.offset, 10, "and the group continues behind the last record", hint)


LOSING_NOTHING = Exercise(
    id="04.3",
    ask="commit after the work",
    task="call work(record) for each record, and commit so that nothing is lost if work fails",
    probe=losing_nothing,
    hints=(
        "poll(2) returns a record, or None after two seconds without one.",
        "Commit record.offset() + 1 after work(record): consumer.commit(record, asynchronous=False). Let an error of work leave.",
    ),
    solution=after_the_work,
    wrong=(before_the_work, never_commits, commits_this_offset, skips_what_fails),
    seconds=90,
)
