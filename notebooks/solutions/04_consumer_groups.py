"""The exercises of 04-consumer-groups: how partitions are assigned, what a crash leaves, and a worker that loses nothing."""

from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic


def dealt(partitions: int, members: int) -> list:
    each, more = divmod(partitions, members)
    return [each + 1] * more + [each] * (members - more)


def only_whole_shares(partitions: int, members: int) -> list:
    """Some partitions have no owner in your answer. What is left over by the division must go to members too."""
    return [partitions // members] * members


def nobody_idles(partitions: int, members: int) -> list:
    """A member without a partition is a member too: list its 0."""
    return [size for size in dealt(partitions, members) if size]


def all_the_rest_to_the_first(partitions: int, members: int) -> list:
    """The first member gets everything that is left over. It goes to several members, one partition each."""
    each, more = divmod(partitions, members)
    return [each + more] + [each] * (members - 1)


WHO_IDLES = Exercise(
    id="04.1",
    ask="each partition has one owner, and no member has two more than another",
    task="return the list of how many partitions each member has, largest first",
    cases=[
        Case((4, 1), [4], "one member has everything"),
        Case((4, 2), [2, 2], "an even share"),
        Case((4, 3), [2, 1, 1], "a partition is never split, so one member has one more"),
        Case((4, 5), [1, 1, 1, 1, 0], "members beyond the number of partitions idle"),
        Case((12, 5), [3, 3, 2, 2, 2], "nobody has two more than another"),
        Case((1, 3), [1, 0, 0], "one partition keeps one member at work, whatever you pay for"),
    ],
    hints=(
        "divmod(partitions, members) gives how many everybody has, and how many partitions are left over.",
        "The partitions that are left over go to as many members, one each; they come first in the list.",
    ),
    solution=dealt,
    wrong=(only_whole_shares, nobody_idles, all_the_rest_to_the_first),
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


def losing_nothing(answer: Callable[[Any, Any], Any]) -> Iterator[Tried]:
    """Ten records; the work on one fails once. Then what was worked on, and the commit that Kafka holds."""
    cluster = kafka()
    topic = new_topic(cluster)
    producer = Producer(cluster.client())
    for number in range(10):
        producer.produce(topic, str(number))
    producer.flush(10)
    work = _Worked()
    part, kept = TopicPartition(topic, 0), None
    for _ in range(2):
        consumer = Consumer(cluster.client(group_id=topic))
        consumer.subscribe([topic])
        try:
            answer(consumer, work)
        except RuntimeError as error:
            if not work.failed:
                raise error
        finally:
            [kept] = consumer.committed([part], timeout=10)
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
        "work(record), then consumer.commit(record, asynchronous=False). Let an error of work end your function.",
    ),
    solution=after_the_work,
    wrong=(before_the_work, never_commits, commits_this_offset, skips_what_fails),
    seconds=90,
)
