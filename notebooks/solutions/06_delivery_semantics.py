"""The exercises of 06-delivery-semantics: a transaction, a broker's memory, and a worker that survives every death."""

from __future__ import annotations

import functools
import inspect
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

import kqlib as kq
from kqlib.errors import KqError, NotAllowed
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka
from kqlib.workshop.crash import crash_cluster
from kqlib.workshop.lab import open_clusters


def in_one_transaction(w: Any) -> None:
    producer = w.transactional()
    for item in w.items():
        result = w.work(item)
        producer.begin_transaction()
        w.write(item, result)
        producer.send_offsets_to_transaction(w.after(item), w.consumer.consumer_group_metadata())
        producer.commit_transaction()
        w.reached("commit")


def commits_afterwards(w: Any) -> None:
    producer = w.transactional()
    for item in w.items():
        result = w.work(item)
        producer.begin_transaction()
        w.write(item, result)
        producer.commit_transaction()
        w.commit(item)


def commits_before(w: Any) -> None:
    producer = w.transactional()
    for item in w.items():
        w.commit(item)
        result = w.work(item)
        producer.begin_transaction()
        w.write(item, result)
        producer.commit_transaction()


def without_a_transaction(w: Any) -> None:
    for item in w.items():
        w.write(item, w.work(item))
        w.commit(item)


def the_same_offset(w: Any) -> None:
    producer = w.transactional()
    for item in w.items():
        result = w.work(item)
        producer.begin_transaction()
        w.write(item, result)
        this = TopicPartition(item.topic(), item.partition(), item.offset())
        producer.send_offsets_to_transaction([this], w.consumer.consumer_group_metadata())
        producer.commit_transaction()
        w.reached("commit")


HINTS = {
    "work": "An item was committed and never written. Where is the commit?",
    "write": "The result counted, and the commit did not. Are both in the same transaction?",
    "commit": "The item came again. Is the commit inside the transaction, and is it w.after(item), the next offset?",
}


def dies_before_its_commit(answer: Callable[[Any], None]) -> Callable[[Any], None]:
    """The same worker; one that is killed at its commit dies before w.commit, not after it."""

    def order(w: Any) -> None:
        commit = w.commit

        def later(item: Any) -> None:
            w.reached("commit")
            commit(item)

        w.commit = later
        answer(w)

    return order


def killing(answer: Callable[[Any], None]) -> Iterator[Tried]:
    """Kill the answer's worker at each point, and count the results in Kafka."""
    cluster = kafka(max((len(each._brokers) for each in open_clusters()), default=1))
    try:
        table = kq.delivery.table(cluster, [dies_before_its_commit(inspect.unwrap(answer))])
    except NotAllowed as error:
        ended = (
            "w.items, w.work and w.write mark their points. Call w.reached('commit') yourself, after the transaction."
        )
        yield Tried("the worker", str(error).split(" and never")[0], "comes to each point", hint=ended)
        return
    except KqError as error:
        yield Tried(
            "the worker", f"{type(error).__name__}: {error}", "reads to the end", hint="It ended with an error."
        )
        return
    for crash, hint in HINTS.items():
        outcome = table["order", crash]
        what = f"killed after {crash} of the fifth item of ten: lost, doubled"
        yield Tried(what, (outcome.lost, outcome.doubled), (0, 0), "nothing lost, nothing doubled", hint)


TRANSACTION = Exercise(
    id="06.1",
    ask="result and commit are in one transaction: both count, or neither",
    task="read, work, then write and commit in one transaction, for each item",
    probe=killing,
    hints=(
        "Call w.transactional() once, before the loop. In the loop: work, begin, write, send the offsets, commit the transaction.",
        'The offsets are w.after(item), the metadata is w.consumer.consumer_group_metadata(). Then w.reached("commit").',
    ),
    solution=in_one_transaction,
    wrong=(commits_afterwards, commits_before, without_a_transaction, the_same_offset),
    seconds=90,
)


def stored(arrivals: list) -> list:
    expected: dict = {}
    kept = []
    for producer, partition, sequence, value in arrivals:
        if sequence == expected.get((producer, partition), 0):
            expected[producer, partition] = sequence + 1
            kept.append(value)
    return kept


def by_value(arrivals: list) -> list:
    """The broker does not look at values: two goals with two numbers are two records."""
    return list(dict.fromkeys(value for *_, value in arrivals))


def by_producer(arrivals: list) -> list:
    """Each partition has its own numbers. The key of your memory is (producer id, partition)."""
    return list({(producer, sequence): value for producer, _, sequence, value in reversed(arrivals)}.values())[::-1]


def by_partition(arrivals: list) -> list:
    """Each producer id has its own numbers. A restarted program has a new id and begins at 0."""
    expected: dict = {}
    kept = []
    for _, partition, sequence, value in arrivals:
        if sequence == expected.get(partition, 0):
            expected[partition] = sequence + 1
            kept.append(value)
    return kept


def gaps_allowed(arrivals: list) -> list:
    """You store a number that is too far ahead. It is refused: the one before it is missing."""
    seen, kept = set(), []
    for *which, value in arrivals:
        if tuple(which) not in seen:
            seen.add(tuple(which))
            kept.append(value)
    return kept


STORED = Exercise(
    id="06.2",
    ask="a broker numbers by producer id and partition, and knows nothing of values",
    task="return the list of values that the broker stores, in order",
    cases=[
        Case(([(7, 0, 0, "a"), (7, 0, 1, "b"), (7, 0, 1, "b")],), ["a", "b"], "sent again by the client: dropped"),
        Case(([(7, 0, 0, "goal"), (7, 0, 1, "goal")],), ["goal", "goal"], "a second produce() has the next number"),
        Case(([(7, 0, 0, "goal"), (8, 0, 0, "goal")],), ["goal", "goal"], hint="These are two producer ids."),
        Case(([(7, 0, 0, "a"), (7, 1, 0, "b"), (7, 1, 0, "b")],), ["a", "b"], hint="These are two partitions."),
        Case(
            ([(7, 0, 0, "a"), (7, 0, 2, "c"), (7, 0, 1, "b")],),
            ["a", "b"],
            hint="After 0 the broker waits for 1. What does it do with 2?",
        ),
        Case(
            ([(7, 0, 0, "a"), (7, 0, 1, "b"), (7, 0, 0, "a"), (7, 0, 2, "c")],),
            ["a", "b", "c"],
            hint="A dropped copy changes nothing: after it the broker still waits for the same number.",
        ),
        Case(([],), [], "nothing came"),
    ],
    hints=(
        "For each producer id and partition the broker remembers one number: the next one. It begins at 0.",
        "Is it that number? Store the value, and wait for the next number. Anything else is not stored.",
    ),
    solution=stored,
    wrong=(by_value, by_producer, by_partition, gaps_allowed),
)


def survivor(consumer: Any, producer: Any, results: str) -> None:
    from confluent_kafka import TopicPartition

    producer.init_transactions()
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        producer.begin_transaction()
        producer.produce(results, b"done " + message.value(), message.key())
        after = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
        producer.send_offsets_to_transaction([after], consumer.consumer_group_metadata())
        producer.commit_transaction()


def commit_behind_the_transaction(consumer: Any, producer: Any, results: str) -> None:
    producer.init_transactions()
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        producer.begin_transaction()
        producer.produce(results, b"done " + message.value(), message.key())
        producer.commit_transaction()
        consumer.commit(message, asynchronous=False)


def commit_before_the_transaction(consumer: Any, producer: Any, results: str) -> None:
    producer.init_transactions()
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        consumer.commit(message, asynchronous=False)
        producer.begin_transaction()
        producer.produce(results, b"done " + message.value(), message.key())
        producer.commit_transaction()


def no_init(consumer: Any, producer: Any, results: str) -> None:
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        producer.begin_transaction()
        producer.produce(results, b"done " + message.value(), message.key())
        producer.commit_transaction()
        consumer.commit(message, asynchronous=False)


PROGRAM = """
import os
import signal
import sys

from confluent_kafka import Consumer, Producer

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
base = {"bootstrap.servers": os.environ["KQ_BOOTSTRAP"]}
consumer = Consumer(
    {**base, "group.id": os.environ["KQ_GROUP"], "auto.offset.reset": "earliest", "enable.auto.commit": False}
)
producer = Producer({**base, "transactional.id": os.environ["KQ_TXN"]})
consumer.subscribe([os.environ["KQ_TOPIC"]])
"""


@functools.cache
def wired() -> Any:
    """A Kafka with wires for `kq crash`, for as long as this process lives."""
    return crash_cluster()


def dying(answer: Callable[..., None]) -> Iterator[Tried]:
    """Run the answer as a program under `kq crash`: one item, every point."""
    function = inspect.unwrap(answer)
    source = textwrap.dedent(inspect.getsource(function)).split("\nkq.check(")[0]
    if "poll" not in function.__code__.co_names:
        yield Tried(
            "answer(consumer, producer, results)", "polls nothing", "polls", hint="The loop begins with poll()."
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "worker.py"
        call = f'{function.__name__}(consumer, producer, os.environ["KQ_RESULTS"])\n'
        file.write_text(
            f"from __future__ import annotations\n\nfrom typing import Any\n{PROGRAM}\n\n{source}\n\n{call}"
        )
        try:
            report = kq.crash([sys.executable, str(file)], 1, cluster=wired())
        except NotAllowed as error:
            last = [line for line in str(error).splitlines() if line.strip()][-1]
            yield Tried("the worker without any accident", "it fails", "it works", hint=f"Its last line: {last}")
            return
    story = " ".join(report.story()[:-1])
    picture = f"{story}\n{report.picture.text}" if report.picture else story
    yield Tried(f"items lost in {len(report.runs)} runs", report.lost, 0, "nothing is lost at any point", picture)
    yield Tried(f"items doubled in {len(report.runs)} runs", report.doubled, 0, "nothing is doubled", picture)
    yield Tried("runs that did not end well", len(report.bad), 0, hint=picture)


SURVIVES = Exercise(
    id="06.3",
    ask="result and commit are in one transaction, so a death at any request loses and doubles nothing",
    task="poll, and for each message write its result and commit its offset in one transaction, for ever",
    probe=dying,
    hints=(
        "It is 06.1 without w. Call producer.init_transactions() once, before the loop.",
        "The offset is TopicPartition(message.topic(), message.partition(), message.offset() + 1), in a list.",
    ),
    solution=survivor,
    wrong=(commit_behind_the_transaction, commit_before_the_transaction, no_init),
    seconds=240,
)
