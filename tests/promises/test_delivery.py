"""A worker that is really killed, on a real broker.

What each order loses and doubles: notebook 06 has the whole table, and an order of one's own, as stored outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kqlib.errors import NotAllowed, TopicMissing
from kqlib.kafka import Kafka
from kqlib.workshop import delivery
from tests.patience import WAIT
from tests.promises.play import committed, create, decided, put, topics, values


def left(kafka: Kafka) -> set[str]:
    """The topics of runs."""
    return {name for name in topics(kafka) if name.startswith(delivery.GROUP)}


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


def test_the_next_life_aborts_what_the_killed_one_wrote_and_goes_on_from_its_commit(
    kq_cluster: Kafka, kq_topic: str, done: str
) -> None:
    put(kq_cluster, kq_topic, b"a", b"b", b"c")
    live = {"group": f"{kq_topic}-workers", "order": "exactly-once"}
    assert (
        repr(delivery.life(kq_cluster, kq_topic, done, crash="write", at=2, **live)) == "killed after write, at item 2"
    )
    assert (committed(kq_cluster, live["group"], kq_topic), values(kq_cluster, done)) == (1, [b"A"])
    assert repr(delivery.life(kq_cluster, kq_topic, done, **live)) == "read to the end"
    decided(kq_cluster, done)  # the last commit was answered; its mark may come into the log a moment later
    assert values(kq_cluster, done) == [b"A", b"B", b"C"]


@pytest.mark.parametrize(("topic", "done"), [("", None), ("nowhere", None), (None, "nowhere")])
def test_a_topic_that_is_not_there_is_reported_before_a_worker_begins(
    kq_cluster: Kafka, kq_topic: str, topic: str | None, done: str | None
) -> None:
    with pytest.raises(TopicMissing):
        delivery.life(
            kq_cluster, kq_topic if topic is None else topic, done or kq_topic, "at-least-once", group="workers"
        )
