"""Edges of a claim: which items a verb takes, when a delayed item comes, what a log that was cut off still owes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from kqlib.errors import LeaseLost, NotAllowed, Unreachable
from kqlib.kafka import Kafka
from kqlib.queue import Item, Queue, Site
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.cluster import Cluster
from tests.patience import WAIT
from tests.promises.play import delete
from tests.promises.queues import SESSION, Clock, alone, data, put, taken, topic

VERBS: dict[str, Callable[[Queue, Item], Any]] = {
    "ack": lambda queue, item: queue.ack(item),
    "ack_many": lambda queue, item: queue.ack_many([item]),
    "release": lambda queue, item: queue.release(item),
    "extend": lambda queue, item: queue.extend(item),
    "bury": lambda queue, item: queue.bury(item),
    "step": lambda queue, item: queue.step(item),
}


def refused(queue: Queue, item: Item, why: str) -> None:
    """Every verb says no, and says why."""
    for verb in VERBS.values():
        with pytest.raises(LeaseLost, match=why):
            verb(queue, item)


def claimed(queue: Queue) -> Item:
    """The item at hand, with a receipt of the same offset, epoch and lease number wherever this is called."""
    queue.release(queue.claim(wait=WAIT))
    (owner,) = queue._session.partitions_of(queue.name)
    owner.leases.numbers = 19
    item = queue.claim()
    assert item and (item.offset, item.epoch, item.lease) == (0, 1, 20)
    return item


def test_no_verb_takes_the_receipt_of_another_site(kq_cluster: Kafka, name: str) -> None:
    with Site(kq_cluster, name, session=SESSION) as a, Site(kq_cluster, f"{name}-b", session=SESSION) as b:
        ours, theirs = a.queue(name, max_attempts=None), b.queue(name, max_attempts=None)
        ours.put(b"goal")
        mine, its = claimed(ours), claimed(theirs)
        assert mine != its
        refused(theirs, mine, f"site '{name}' claimed it, and this is site '{name}-b'")
        assert (ours.depth(), theirs.depth()) == (1, 1)
        theirs.ack(theirs.extend(its))
        assert (ours.depth(), theirs.depth()) == (1, 0)
        ours.ack(mine)


def test_no_verb_takes_the_receipt_of_a_topic_that_was_deleted(kq_cluster: Kafka, name: str) -> None:
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name, max_attempts=None)
        queue.put(b"old")
        old = claimed(queue)
    delete(kq_cluster, name)
    Plan({name: QueueTopic(partitions=1)}).apply(kq_cluster, quiet=True)
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        queue.put(b"new")
        new = claimed(queue)
        assert old != new
        refused(queue, old, "its topic was deleted, and one of the same name is another queue")
        assert queue.depth() == 1
        queue.ack(new)
        assert queue.depth() == 0


def test_ack_many_acks_what_is_valid_and_names_the_rest(kq_cluster: Kafka, here: Site, name: str) -> None:
    queue, other = here.queue(name), here.queue(topic(kq_cluster))
    queue.put_many([(b"%d" % n, None) for n in range(4)])
    other.put(b"other")
    first, second = taken(queue, 2)
    foreign, peeked = other.claim(wait=WAIT), queue.peek(4)[2]
    wrong = [peeked, foreign, "football/0/1"]
    with pytest.raises(LeaseLost, match=f"3 of 5 were not acked; the others are. The first: {peeked.id}") as error:
        queue.ack_many([wrong[0], first, wrong[1], second, wrong[2]])
    assert error.value.items == wrong
    assert (queue.depth(), other.depth()) == (2, 1)
    assert data(queue.claim_many(4)) == [b"2", b"3"]
    with pytest.raises(LeaseLost, match="1 of 1") as error:
        queue.ack_many([peeked])
    assert error.value.items == [peeked] and queue.depth() == 2


def test_ack_many_names_what_went_with_its_partition_while_the_commit_was_on_its_way(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(kq_cluster, 2)
    with Site(kq_cluster, name, session=SESSION) as site:
        queue, member = site.queue(name), site._session
        for partition in (0, 1):
            put(kq_cluster, name, b"%d" % partition, partition=partition)
        goes, stays = sorted(taken(queue, 2), key=lambda item: item.partition)
        save = member.save

        def goes_first(owners: Any) -> Any:
            member.drop((name, 0), "this partition went to another process")
            return save(owners)

        monkeypatch.setattr(member, "save", goes_first)
        with pytest.raises(LeaseLost, match=r"1 of 2 were not acked.*was not stored") as error:
            queue.ack_many([stays, goes])
        assert error.value.items == [goes]


class Unheard:
    """A consumer whose commits are stored, and not answered, or refused; after the first one its partition is lost."""

    def __init__(self, member: Any, at: tuple[str, int], refused: bool) -> None:
        self.member, self.at, self.inner, self.refused = member, at, member.consumer, refused

    def commit(self, **how: Any) -> None:
        """Stored, but nobody hears of it; or not stored."""
        if not self.refused:
            self.inner.commit(**how)
        threading.Thread(target=self._lose).start()
        raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION if self.refused else KafkaError._TRANSPORT))

    def _lose(self) -> None:
        """As in `on_lost`, a moment after that commit."""
        with self.member.changed:
            self.member.changed.wait_for(lambda: not self.member.under_way, WAIT)
            self.member.drop(self.at, "this partition went to another process")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("many", [False, True], ids=["ack", "ack_many"])
@pytest.mark.parametrize("refused", [False, True], ids=["not answered", "refused"])
def test_an_ack_whose_partition_is_lost_says_whether_it_may_have_been_stored(
    kq_cluster: Kafka, name: str, refused: bool, many: bool
) -> None:
    kind, words = (LeaseLost, "it was not stored") if refused else (Unreachable, "may have been stored, or not")
    with alone(kq_cluster, name) as site:
        queue, member = site.queue(name), site._session
        queue.put(b"one")
        item = queue.claim(wait=WAIT)
        member.consumer = Unheard(member, (name, 0), refused)
        with pytest.raises(kind, match=words) as error:
            queue.ack_many([item]) if many else queue.ack(item)
        member.consumer = member.consumer.inner
        if many:
            assert (error.value.items, getattr(error.value, "unknown", [])) == (
                ([item], []) if refused else ([], [item])
            )
    with alone(kq_cluster, name) as site:
        assert site.queue(name).depth() == int(refused)


def test_a_delay_is_not_longer_because_the_clock_of_who_put_it_is_ahead(
    kq_cluster: Kafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with alone(kq_cluster, name, clock=clock) as site:
        queue = site.queue(name)
        queue.put(b"first")
        assert queue.claim(wait=WAIT)  # the partition is ours: what comes now is read at once
        with monkeypatch.context() as producer:
            producer.setattr("kqlib.queue.item.time", SimpleNamespace(time=lambda: time.time() + 900))
            queue.put(b"goal", delay=2)
        assert queue.claim() is None
        clock.now += 1.9
        assert queue.claim() is None
        clock.now += 0.2
        item = queue.claim()
        assert item and (item.data, item.headers) == (b"goal", {})


def test_by_key_a_delay_begins_when_a_new_owner_reads_the_item_and_not_when_its_key_is_free(
    kq_cluster: Kafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for owner in ("the first", "a new one"):
        with alone(kq_cluster, name, clock=clock) as site:
            queue = site.queue(name, order="key")
            if owner == "the first":
                with monkeypatch.context() as producer:
                    producer.setattr("kqlib.queue.item.time", SimpleNamespace(time=lambda: time.time() + 900))
                    queue.put(b"1", key=b"a game", delay=2)
                    queue.put(b"2", key=b"a game", delay=2)
                queue.put(b"not delayed")  # who has it has read the others
            item = queue.claim(wait=WAIT)
            assert item and item.data == b"not delayed" and queue.claim() is None
            if owner == "a new one":
                clock.now += 2.1
                assert emptied(queue) == [b"1", b"2"]


NEW = [b"new 3", b"new 4", b"new 5", b"new 6", b"new 7"]


def emptied(queue: Queue) -> list[bytes | None]:
    """Everything that can be claimed; acked."""
    found: list[bytes | None] = []
    while items := queue.claim_many(100):
        queue.ack_many(items)
        found += data(items)
    return found


def left(cluster: Kafka, name: str, version: int = 2) -> tuple[int, list[bytes | None]]:
    """What a new process of this site says of the queue's depth, and what it gets."""
    with alone(cluster, name, write_version=version) as site:
        queue = site.queue("cut", max_attempts=None)
        return queue.depth(), emptied(queue)


@pytest.mark.nightly  # by day tests/unit has the cases of a log that was cut off
def test_what_stands_again_where_a_log_was_cut_off_is_new(three: Cluster, within: Callable[..., float]) -> None:
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    old, lost = [b"old 0", b"old 1", b"old 2"], [b"lost 3", b"lost 4", b"lost 5"]
    new = [b"new %d" % offset for offset in range(3, 8)]  # two more than were lost
    with ExitStack() as sites:
        sites.callback(three.broker(2).start)
        made = NewTopic("cut", 1, replica_assignment=[[1, 2]], config=settings)
        three.admin.create_topics([made])["cut"].result(WAIT)
        three.wait_for_topic("cut", 1, WAIT)

        def stays(name: str) -> Queue:
            site = sites.enter_context(alone(three, name, write_version=2))
            return site.queue("cut", max_attempts=None)

        reads, comes, holds = stays("reads"), stays("comes"), stays("holds")
        put(three, "cut", *old)
        assert emptied(reads) == emptied(comes) == emptied(holds) == old
        three.broker(1).stop()  # in good order: the other replica leads and has everything
        within(30, lambda: three.leader("cut", 0) == 2, "the replica that has everything does not lead")
        put(three, "cut", *lost)
        assert emptied(reads) == lost and emptied(comes) == lost
        holds.ack(holds.claim(wait=WAIT))
        assert data(taken(holds, 2)) == lost[1:]  # not acked when the log is cut
        comes.site.close()
        assert left(three, "comes") == (0, [])
        assert left(three, "waits", version=1) == (6, old + lost)
        waits = stays("waits")
        assert waits.claim() is None  # the partition is given to it, and it reads no record
        three.broker(2).stop()
        three.broker(1).start()
        within(30, lambda: three.leader("cut", 0) == 1, "the replica that lacks what was lost does not lead")
        put(three, "cut", *new)
        assert left(three, "comes") == (5, new) and left(three, "comes") == (0, [])
        assert emptied(reads) == emptied(waits) == emptied(holds) == new
        assert reads.depth() == waits.depth() == holds.depth() == 0
        assert (reads.lost, waits.lost, holds.lost) == (0, 0, 2)
        holds.site.close()
        with alone(three, "holds", write_version=2) as site:  # a new process knows it too
            assert site.queue("cut", max_attempts=None).lost == 2


@pytest.mark.parametrize(
    ("version", "why"), [(3, "is 1 or 2, not 3"), (1.0, "is a whole number"), ("2", "is a whole number")]
)
def test_a_version_that_nobody_can_read_is_not_written(kq_cluster: Kafka, version: Any, why: str) -> None:
    with pytest.raises(NotAllowed, match=f"write_version {why}"):
        Site(kq_cluster, "site", write_version=version)
