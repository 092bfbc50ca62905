"""One item that cannot be buried waits with its reason, and holds nobody up. Mend what is in the way, and it is buried."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType

from kqlib.errors import KqError, NotAllowed, PayloadTooLarge, TopicMissing
from kqlib.queue import Item, Queue, Site, order
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.doctor import queues
from kqlib.workshop.doctor.topics import dead_letters
from tests.patience import PATIENCE, WAIT, until
from tests.promises import play, rights
from tests.promises.queues import Clock, alone, data, taken, topic

GOOD = [b"%d" % n for n in range(20)]
Within = Callable[..., float]


class Trouble:
    """Something that is in the way of every burial of a queue."""

    def __init__(self, cluster: Cluster, name: str, what: str) -> None:
        self.cluster, self.name, self.what = cluster, name, what
        rules = [f"{may} topic {each}" for each in (name, f"{name}.dead", "kq.queues") for may in ("READ", "WRITE")]
        rules += [f"READ group {name}", f"WRITE transactional-id kq-{name}-*", "DESCRIBE_CONFIGS topic *"]
        rights.may(cluster, *rules)
        lacking = {
            "no right to write there": f"WRITE topic {name}.dead",
            "no right to use transactions": f"WRITE transactional-id kq-{name}-*",
        }
        self.rule = rights._binding(lacking[what]) if what in lacking else None

    def begin(self) -> None:
        dead = f"{self.name}.dead"
        if self.what == "the topic is gone":
            play.delete(self.cluster, dead)
        elif self.what == "its limit is too low":
            play.configure(self.cluster, ResourceType.TOPIC, dead, max_message_bytes="10")
        else:
            only = rights.the_one(self.rule)
            self.cluster.admin.delete_acls([only])[only].result(WAIT)
            until(
                lambda: not self.cluster.admin.describe_acls(only).result(WAIT)
            )  # the controller decides, not the broker

    def mend(self) -> None:
        if self.rule is not None:
            self.cluster.admin.create_acls([self.rule])[self.rule].result(WAIT)
            until(lambda: self.cluster.admin.describe_acls(rights.the_one(self.rule)).result(WAIT))
        Plan({self.name: QueueTopic(partitions=1)}).apply(self.cluster, quiet=True)
        play.configure(self.cluster, ResourceType.TOPIC, f"{self.name}.dead", max_message_bytes="1048588")


TROUBLES: dict[str, tuple[type[KqError], str]] = {
    "the topic is gone": (TopicMissing, "does not exist"),
    "no right to write there": (NotAllowed, r"User 'app' lacks WRITE on topic 'queue-.*\.dead'"),
    "its limit is too low": (PayloadTooLarge, "takes 10. Nothing was written"),
    "no right to use transactions": (
        NotAllowed,
        r"User 'app' lacks WRITE on transactional ids that begin with 'kq-queue-",
    ),
}


@pytest.fixture
def trouble(locked: Cluster, what: str) -> Trouble:
    return Trouble(locked, topic(locked), what)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(trouble: Trouble, clock: Clock) -> Iterator[Site]:
    """A site of the user `app`. The transactional producer has worked before, as after a night without trouble."""
    with trouble.cluster.as_user("app") as app, alone(app, trouble.name, session=None, clock=clock) as site:
        yield site


def bad(site: Site, name: str, max_attempts: int = 3) -> tuple[Queue, Item]:
    """A claimed item in a queue that has buried one before."""
    queue = site.queue(name, max_attempts=max_attempts)
    queue.put_many([(b"buried", None), (b"bad", None)])
    first = queue.claim(wait=WAIT)
    assert first is not None
    queue.bury(first, "as it should be")
    item = queue.claim(wait=WAIT)
    assert item is not None and item.data == b"bad"
    return queue, item


def done(queue: Queue) -> float:
    """Twenty good items are put, claimed and acked; how many seconds that takes."""
    queue.put_many([(value, None) for value in GOOD])
    begun, seen = time.monotonic(), list[Any]()
    while len(seen) < len(GOOD):
        item = queue.claim(wait=WAIT)
        assert item is not None
        queue.ack(item)  # no LeaseLost
        seen.append(item.data)
    assert seen == GOOD
    return time.monotonic() - begun


@pytest.mark.parametrize("what", TROUBLES)
def test_who_buries_sees_the_real_error_at_once_and_a_used_up_item_waits_with_its_reason_until_it_can_be_buried(
    trouble: Trouble,
    site: Site,
    *,
    what: str,
    clock: Clock,
    within: Within,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    queue, item = bad(site, trouble.name)
    alone_, (kind, words) = done(queue), TROUBLES[what]
    trouble.begin()
    for _ in range(2):
        begun = time.monotonic()
        with pytest.raises(kind, match=words):
            queue.bury(item, "bad")
        assert time.monotonic() - begun < 2 * PATIENCE
    item = queue.extend(item)  # its lease holds
    for _ in range(3):
        queue.release(item)
        item = queue.claim(wait=0.01) or item
    beside = done(queue)
    assert beside < 3 * PATIENCE + 5 * alone_, f"{beside:.2f} s, and {alone_:.2f} s without the bad one"
    within(WAIT, lambda: queue.claim() is None and queue.blocked, "no reason is given")
    assert "cannot be buried" in queue.blocked and re.search(words, queue.blocked)
    assert queue.stats()["blocked"] == queue.blocked and queue.depth() == 1
    clock.now += order.BURY_AGAIN_AFTER + 1  # tried again, in vain
    within(WAIT, lambda: queue.claim() is None and not queue.stats()["claimed"], "it is still being tried")
    assert queue.blocked and done(queue) < 3 * PATIENCE + 5 * alone_
    assert caplog.text.count("cannot be buried") == 1
    assert "FATAL" not in capfd.readouterr().err
    trouble.mend()
    clock.now += order.BURY_AGAIN_AFTER + 1
    assert order.BURY_AGAIN_AFTER < 50  # seconds: with one try it is buried within a minute
    within(WAIT, lambda: queue.claim(wait=0.1) is None and queue.depth() == 0, "it is not buried")
    assert queue.blocked == "" and data(queue.dead.peek(9))[-1] == b"bad"


@pytest.mark.parametrize("what", ["the topic is gone", "no right to use transactions"])  # the others are as the first
def test_a_handlers_item_that_cannot_be_buried_holds_no_other_and_until_empty_ends_with_the_reason(
    trouble: Trouble, site: Site, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue, item = bad(site, trouble.name, max_attempts=1)
    queue.release(item)
    queue.put_many([(value, None) for value in [*GOOD[:10], b"worse", *GOOD[10:]]])
    trouble.begin()
    seen = list[Any]()

    def handler(item: Item) -> None:
        seen.append(item.data)
        if item.data == b"worse":
            raise ValueError("bad")

    kind, words = TROUBLES[what]
    begun = time.monotonic()
    with pytest.raises(kind, match=words):
        queue.work(handler, threads=4, until="empty")
    assert time.monotonic() - begun < 8 * PATIENCE
    assert sorted(seen) == sorted([*GOOD, b"worse"]) and queue.depth() == 2 == queue.stats()["delayed"]
    assert caplog.text.count("cannot be buried") == 1 and "cannot be buried" in queue.blocked


def test_a_topic_made_anew_with_fewer_partitions_takes_every_letter(locked: Cluster) -> None:
    """And one whose limit was lowered takes what is left of the letter."""
    name = topic(locked, partitions=4)
    with alone(locked, f"{name}-site") as site:
        queue = site.queue(name)
        for n in range(8):
            play.put(locked, name, b"%d" % n, partitioner="random")
        items = taken(queue, 8)
        queue.bury(items[0])
        play.delete(locked, f"{name}.dead")
        play.create(locked, f"{name}.dead", 1)
        for item in items[1:]:
            queue.bury(item)
        assert queue.depth() == 0 and queue.dead.depth() == 7


def test_a_limit_that_was_lowered_cuts_the_letter(locked: Cluster) -> None:
    name = topic(locked)
    with alone(locked, name) as site:
        queue = site.queue(name)
        queue.put(bytes(50_000))
        item = queue.claim(wait=WAIT)
        play.configure(locked, ResourceType.TOPIC, f"{name}.dead", max_message_bytes="20000")
        queue.bury(item, "too large")
        assert [letter.headers["kq-cut"] for letter in queue.dead.peek(1)] == [b"reason, headers, data"]


SEEN = {
    "the topic is gone": "does not exist: what fails for good in",
    "no right to write there": "User 'app' lacks WRITE on topic ",
    "its limit is too low": "takes records of 10 bytes and",
}


@pytest.mark.parametrize("what", SEEN)
def test_doctor_sees_that_nothing_could_be_buried_and_what_to_do(trouble: Trouble, site: Site, what: str) -> None:
    site.queue(trouble.name)
    assert dead_letters(site).ok
    trouble.begin()
    found = dead_letters(site)
    assert found.ok is False and SEEN[what] in found.what and trouble.name in found.what and found.remedy
    if what == "the topic is gone":
        assert found in list(queues.of(trouble.cluster))
    trouble.mend()
    assert dead_letters(site).ok
