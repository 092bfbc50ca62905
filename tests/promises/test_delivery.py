"""A worker that is really killed, on a real broker: what each order loses and doubles, and what Kafka's own remedies drop."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kqlib.errors import NotAllowed, TopicMissing
from kqlib.kafka import Kafka
from kqlib.workshop import delivery
from kqlib.workshop.delivery import CRASHES, ORDERS, CrashTable, Outcome
from tests.patience import PATIENCE, WAIT
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
    assert delivery.run(kq_cluster, mine, "write", items=3) == Outcome(0, 2, 1)


def test_an_order_that_never_comes_to_its_crash_point_is_not_taken_for_one_that_survived_it(kq_cluster: Kafka) -> None:
    with pytest.raises(NotAllowed, match=r"'mine' was to be killed after commit of item 1 and never came there"):
        delivery.run(kq_cluster, mine, "commit", items=2)


def test_a_run_whose_order_fails_says_so_and_leaves_nothing(kq_cluster: Kafka) -> None:
    with pytest.raises(NotAllowed, match=r"the worker failed in 'fails'.*AttributeError: 'Worker' object has no"):
        delivery.run(kq_cluster, fails, "write", items=1)
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
def test_a_topic_that_is_not_there_is_said_before_a_worker_begins(
    kq_cluster: Kafka, kq_topic: str, topic: str | None, done: str | None
) -> None:
    with pytest.raises(TopicMissing):
        delivery.life(
            kq_cluster, kq_topic if topic is None else topic, done or kq_topic, "at-least-once", group="workers"
        )


# --- Kafka's own remedies ----------------------------------------------------------------------------------------------


class Frozen:
    """Producers whose broker stops in the middle: it has the request, and the client never hears of it."""

    def __init__(self, kafka: Any) -> None:
        self.kafka, self.timeouts, self.answers = kafka, Counter[str](), dict[str, list[str]]()

    def producer(self, name: str, **settings: Any) -> Producer:
        def hear(record: logging.LogRecord) -> bool:
            self.timeouts[name] += "REQTMOUT" in record.getMessage()  # its statistics were old, once in twelve runs
            return False

        log = logging.Logger(name)
        log.addFilter(hear)
        quick = {"acks": "all", "socket_timeout_ms": 500, "log_level": 5}
        # linger: what is sent goes when the broker stands
        return Producer(self.kafka.client(**quick, linger_ms=200, **settings), logger=log)

    def send(self, names: dict[str, Producer], value: str) -> None:
        self.timeouts.clear()
        for name, producer in names.items():
            answers = self.answers.setdefault(name, [])
            producer.produce(
                name,
                value,
                on_delivery=lambda error, _, answers=answers: answers.append(error.name() if error else "yes"),
            )


def test_idempotence_drops_what_the_client_sends_again_and_a_timeout_does_not_mean_unwritten(
    kq_cluster: Any, kq_topic: str, within: Callable[..., float]
) -> None:
    plain, idempotent, impatient = names = [f"{kq_topic}-{kind}" for kind in ("plain", "idempotent", "impatient")]
    for name in names:
        create(kq_cluster, name)
    frozen = Frozen(kq_cluster)
    producers = {
        plain: frozen.producer(plain, enable_idempotence=False),
        idempotent: frozen.producer(idempotent, enable_idempotence=True),
        impatient: frozen.producer(impatient, enable_idempotence=True, message_timeout_ms=int(1500 * PATIENCE)),
    }

    def begun(name: str) -> bool:
        frozen.send({name: producers[name]}, "kick-off")
        return producers[name].flush(WAIT) == 0 and frozen.answers[name][-1] == "yes"

    for name in names:  # in turn: a cluster's first producer id may take longer than the last one waits
        within(60, partial(begun, name))
    answers = len(frozen.answers[impatient])
    broker = kq_cluster.broker(1).pause()
    frozen.send(producers, "goal")

    def given_up() -> bool:
        for producer in producers.values():
            producer.poll(0)
        return all(frozen.timeouts[name] for name in names) and len(frozen.answers[impatient]) == answers + 1

    try:
        within(60, given_up)
    finally:
        broker.resume()  # others share it
    assert [producer.flush(WAIT) for producer in producers.values()] == [0, 0, 0]
    last = {name: answers[-1] for name, answers in frozen.answers.items()}
    assert last == {plain: "yes", idempotent: "yes", impatient: "_MSG_TIMED_OUT"}

    def goals(name: str) -> int:
        return values(kq_cluster, name).count(b"goal")

    within(60, lambda: goals(plain) >= 2)  # a broker that wakes slowly gets it a third time
    within(60, lambda: goals(impatient))
    assert (goals(idempotent), goals(impatient)) == (1, 1)


def transactional(kafka: Kafka, name: str) -> Producer:
    """A producer of transactions, silent about its own end."""
    quiet = logging.getLogger("kqlib.tests.quiet")
    quiet.disabled = True
    quick = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 5, "transaction.timeout.ms": 10_000}
    producer = Producer(kafka.client() | quick | {"transactional.id": name}, logger=quiet)
    producer.init_transactions(WAIT)
    return producer


def read(kafka: Kafka, topic: str, level: str) -> bytes:
    """What a consumer of this isolation gets, to the end."""
    quick = {"group_protocol": "classic", "enable_partition_eof": True, "fetch_wait_max_ms": 10}
    reader = Consumer(kafka.client(group_id="reads", isolation_level=level, **quick))
    reader.assign([TopicPartition(topic, 0, 0)])
    found = b""
    while (message := reader.poll(WAIT)).error() is None:
        found += message.value()
    reader.close()
    return found


def test_a_zombie_is_fenced_and_what_was_aborted_is_seen_by_those_alone_who_ask_for_it(
    kq_cluster: Kafka, kq_topic: str, within: Callable[..., float]
) -> None:
    zombie = transactional(kq_cluster, kq_topic)
    zombie.begin_transaction()
    zombie.produce(kq_topic, b"z")
    zombie.flush(WAIT)
    heir = transactional(kq_cluster, kq_topic)  # the same id: aborts what the zombie has open
    for value, end in (
        (b"a", heir.commit_transaction),
        (b"x", heir.abort_transaction),
        (b"b", heir.commit_transaction),
    ):
        heir.begin_transaction()
        heir.produce(kq_topic, value)
        heir.flush(WAIT)
        end()
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction()
    assert caught.value.args[0].name() == "_FENCED"
    within(60, lambda: read(kq_cluster, kq_topic, "read_committed") == b"ab")
    assert read(kq_cluster, kq_topic, "read_uncommitted") == b"zaxb"
