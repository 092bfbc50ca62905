"""A worker that is really killed, on a real broker: what each order loses and doubles."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kqlib.errors import NotAllowed, TopicMissing
from kqlib.kafka import Kafka
from kqlib.workshop import delivery
from kqlib.workshop.delivery import CRASHES, ORDERS, CrashTable, Outcome
from tests.patience import WAIT
from tests.promises.play import committed, create, decided, put, topics, values

ONCE = Outcome(0, 10, 0)
EXPECTED = {
    ("at-most-once", "work"): Outcome(1, 9, 0),
    ("at-most-once", "commit"): Outcome(1, 9, 0),
    ("at-least-once", "write"): Outcome(0, 9, 1),
}


def left(kafka: Kafka) -> set[str]:
    """The topics of runs."""
    return {name for name in topics(kafka) if name.startswith(delivery.GROUP)}


# --- the table ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(kq_cluster: Kafka) -> tuple[CrashTable, float]:
    """The whole table, and how many seconds it took: made once."""
    start = time.monotonic()
    return delivery.table(kq_cluster), time.monotonic() - start


def test_sixteen_killed_workers_give_the_table_in_a_minute_and_leave_nothing(
    kq_cluster: Kafka, made: tuple[CrashTable, float]
) -> None:
    table, seconds = made
    assert table.outcomes == {
        (order, crash): EXPECTED.get((order, crash), ONCE) for order in ORDERS for crash in CRASHES
    }
    assert seconds < WAIT
    assert not left(kq_cluster)


def test_work_is_done_again_in_every_order_that_commits_last_whatever_becomes_of_the_result(
    made: tuple[CrashTable, float],
) -> None:
    again = {cell: outcome.again for cell, outcome in made[0].outcomes.items() if outcome.again}
    assert again == {(order, crash): 1 for order in list(ORDERS)[1:] for crash in ("work", "write")}


def mine(w: Any) -> None:
    """At least once, by hand: real clients, and a commit that comes last."""
    for item in w.items():
        w.producer.produce(w.job["done"], w.work(item), item.key())
        w.producer.flush()
        w.reached("write")
        w.consumer.commit(item, asynchronous=False)


def fails(w: Any) -> None:
    """An order with a slip in it."""
    for item in w.items():
        w.wrote(item)


def test_an_order_of_ones_own_is_killed_and_counted_as_ours_are(kq_cluster: Kafka) -> None:
    assert delivery.run(kq_cluster, mine, "write") == Outcome(0, 9, 1)


def test_an_order_that_never_comes_to_its_crash_point_is_not_taken_for_one_that_survived_it(kq_cluster: Kafka) -> None:
    with pytest.raises(NotAllowed, match=r"'mine' was to be killed after commit of item 5 and never came there"):
        delivery.run(kq_cluster, mine, "commit")


def test_a_run_whose_order_fails_says_so_and_leaves_nothing(kq_cluster: Kafka) -> None:
    with pytest.raises(NotAllowed, match=r"the worker failed in 'fails'.*AttributeError: 'Worker' object has no"):
        delivery.run(kq_cluster, fails, "write")
    assert not left(kq_cluster)


# --- one life, on topics of one's own ----------------------------------------------------------------------------------


@pytest.fixture
def done(kq_cluster: Kafka, kq_topic: str) -> Iterator[str]:
    """A topic for the results."""
    create(kq_cluster, name := f"{kq_topic}-done"[-200:])
    yield name
    kq_cluster.admin.delete_topics([name])[name].result(WAIT)


@pytest.mark.parametrize(
    "story",
    [
        ("at-most-once", "commit", (2, b"A"), b"AC"),
        ("at-least-once", "write", (1, b"AB"), b"ABBC"),
        ("exactly-once", "write", (1, b"A"), b"ABC"),
    ],
)
def test_the_next_life_goes_on_from_the_commit(kq_cluster: Kafka, kq_topic: str, done: str, story: tuple) -> None:
    order, crash, between, after = story
    put(kq_cluster, kq_topic, b"a", b"b", b"c")
    live = {"group": f"{kq_topic}-workers", "order": order}
    assert (
        repr(delivery.life(kq_cluster, kq_topic, done, crash=crash, at=2, **live)) == f"killed after {crash}, at item 2"
    )
    assert (committed(kq_cluster, live["group"], kq_topic), b"".join(values(kq_cluster, done))) == between
    assert repr(delivery.life(kq_cluster, kq_topic, done, **live)) == "read to the end"
    decided(kq_cluster, done)  # the last commit was answered; its mark may come into the log a moment later
    assert b"".join(values(kq_cluster, done)) == after


@pytest.mark.kq_partitions(3)
def test_a_life_reads_every_partition_and_a_database_holds_each_item_once(
    kq_cluster: Kafka, kq_topic: str, tmp_path: Path
) -> None:
    producer = Producer(kq_cluster.client())
    for number in range(9):
        producer.produce(kq_topic, str(number), partition=number % 3)
    assert producer.flush(WAIT) == 0
    file, live = tmp_path / "results.db", {"group": f"{kq_topic}-workers", "order": delivery.idempotent_sink}
    for crash in ("write", "write", None):
        life = delivery.life(kq_cluster, kq_topic, file, crash=crash, at=2, **live)
        assert (life.killed, life.at) == ((crash, 2) if crash else (None, 0))
    with closing(delivery.open_database(str(file))) as database:
        rows = database.execute("SELECT result FROM results ORDER BY result").fetchall()
    assert rows == [(str(number).encode(),) for number in range(9)]


@pytest.mark.parametrize(("topic", "done"), [("", None), ("nowhere", None), (None, "nowhere")])
def test_a_topic_that_is_not_there_is_reported_before_a_worker_begins(
    kq_cluster: Kafka, kq_topic: str, topic: str | None, done: str | None
) -> None:
    with pytest.raises(TopicMissing):
        delivery.life(
            kq_cluster, kq_topic if topic is None else topic, done or kq_topic, "at-least-once", group="workers"
        )
