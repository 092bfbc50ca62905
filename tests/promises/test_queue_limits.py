"""Where a queue meets its limits: idle processes, states that expire, memory, retention, other logs, rules about users."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions

from kqlib.broker import Cluster, Kafka
from kqlib.errors import LeaseLost, NotAllowed
from kqlib.queue import Item, Put, Queue, Site, commits, fetch, loader, member, notes, state, wanted
from kqlib.queue.ledger import Ledger
from kqlib.topics import Plan, QueueTopic
from tests.promises.queue_worker import Worker
from tests.promises.queues import SESSION, data, drained, put, topic

Within = Callable[..., float]


# --- who waits for what ---------------------------------------------------------------------------------------------------


def test_what_was_put_before_the_claim_is_found_however_slow_the_reading_is(
    here: Site, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = here.queue(name)
    assert queue.claim() is None
    read = fetch.Fetch.read

    def slowly(self: fetch.Fetch) -> None:
        time.sleep(1.2)
        read(self)

    monkeypatch.setattr(fetch.Fetch, "read", slowly)
    for value in (b"a", b"b"):
        queue.put(value)
        assert queue.claim().data == value


def test_only_the_first_claim_waits_for_the_assignment(kq_cluster: Kafka, name: str, here: Site) -> None:
    worker = Worker(kq_cluster.bootstrap, name, name, SESSION)
    try:
        worker.do("claim now", 1)  # it has the only partition
        queue = here.queue(name)
        assert queue.claim() is None
        here._member.trouble = "a broker was away for a moment"
        for _ in range(3):
            begun = time.monotonic()
            assert queue.claim(wait=0.1) is None
            assert time.monotonic() - begun < 2
    finally:
        worker.end()


def test_an_idle_process_leaves_its_partitions_to_others_and_comes_back(
    kq_cluster: Kafka, here: Site, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(kq_cluster, 2)
    queue = here.queue(name)
    queue.put_many([Put(b"0", key=b"a"), Put(b"1", key=b"b"), Put(b"2", key=b"c"), Put(b"3", key=b"d")])
    held = queue.claim()
    monkeypatch.setattr(wanted, "IDLE", 1.0)
    time.sleep(2)
    assert here._member.owners, "a lease is open: it stays"
    queue.ack(held)
    within(20, lambda: not here._member.owners, "nobody claims, and it stays")
    worker = Worker(kq_cluster.bootstrap, here.name, name, SESSION)
    try:
        assert len(worker.do("claim", 9)) + len(worker.do("claim now", 9)) == 3
    finally:
        worker.end()
    assert [attempt for _, attempt in drained(queue, 20)] == [2, 2, 2]


def test_a_queue_that_was_left_is_visited_and_its_state_committed_again(
    kq_cluster: Kafka, name: str, here: Site, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = here.queue(name)
    queue.put_many([(b"a", None), (b"b", None)])
    queue.ack(queue.claim())
    monkeypatch.setattr(wanted, "IDLE", 0.5)
    monkeypatch.setattr(wanted, "LONG", 1.0)

    def epoch() -> int:
        seen = here._looker.look([(name, 0)])[name, 0]
        return Ledger.read(seen.metadata, seen.committed or 0).epoch

    first = epoch()
    within(30, lambda: epoch() >= first + 2, "nobody committed it again")
    monkeypatch.setattr(wanted, "LONG", 3600.0)
    within(30, lambda: not here._member.owners, "the visit does not end")
    assert drained(queue) == [(b"b", 1)]


class Stuck:
    """A consumer whose commits do not come back until the gate opens, as librdkafka's do when it has lost every broker."""

    def __init__(self, consumer: Any, gate: threading.Event) -> None:
        self._consumer, self._gate = consumer, gate

    def commit(self, **how: Any) -> Any:
        self._gate.wait()
        return self._consumer.commit(**how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


NOWHERE = Kafka("127.0.0.1:1")  # a client of it hears nobody, as one that was once told of no broker (librdkafka 5301)


def test_a_commit_that_never_comes_back_is_left_behind_with_its_consumer_though_every_client_is_deaf(
    kq_cluster: Kafka, name: str, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "STUCK", 1.5)
    monkeypatch.setattr(loader, "DEAF", 1.0)
    monkeypatch.setattr(notes.Notes.catch_up, "__defaults__", (2.0,))
    gate, cluster = threading.Event(), Kafka(kq_cluster.bootstrap)
    with Site(cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        queue.put_many([(b"a", None), (b"b", None)])
        first = queue.claim(wait=8)
        site._member.consumer = stuck = Stuck(site._member.consumer, gate)
        cluster.__dict__["admin"] = NOWHERE.admin
        site._waiter._reader = Consumer(NOWHERE.client(group_id=name))
        site._notes._reader = Consumer(NOWHERE.client(group_id="kqlib-notes"))
        time.sleep(0.5)  # the poll that runs is the old one's
        with Site(kq_cluster, f"{name}-other") as other:
            other.queue(name)  # a note, which has to be read
        old, said, found = site._member._thread, list[BaseException](), list[bytes]()

        def ack() -> None:
            try:
                queue.ack(first)
            except LeaseLost as error:
                said.append(error)

        def claim() -> None:
            item = queue.claim(wait=60)
            queue.ack(item)
            found.append(item.data)

        threads = [threading.Thread(target=ack), threading.Thread(target=claim)]
        for thread in threads:
            thread.start()
        within(20, lambda: site._member.consumer is not stuck, "it stays with the stuck one")
        gate.set()
        within(20, lambda: not old.is_alive(), "the old thread is still there")
        for thread in threads:
            thread.join(70)
        assert [type(error) for error in said] == [LeaseLost] and "was not answered" in str(said[0])
        assert found
    with Site(kq_cluster, name, session=SESSION) as site:
        found += [value for value, _ in drained(site.queue(name), 3)]
    assert sorted(found) in ([b"b"], [b"a", b"b"])


# --- several sites --------------------------------------------------------------------------------------------------------


def test_a_client_that_says_it_is_dead_is_replaced(
    kq_cluster: Kafka, name: str, monkeypatch: pytest.MonkeyPatch, within: Within, caplog: pytest.LogCaptureFixture
) -> None:
    """Some answers to a heartbeat end a consumer for good; here, that somebody else has its name in the group."""
    other = Consumer(kq_cluster.client(group_id=name, group_instance_id="one"))
    other.subscribe([name])
    within(30, lambda: other.poll(0.1) is None and other.assignment() != [])
    monkeypatch.setitem(member.SETTINGS, "group.instance.id", "one")
    with Site(kq_cluster, name, session=SESSION) as site:
        queue, found = site.queue(name), list[Any]()
        queue.put(b"a")
        claiming = threading.Thread(target=lambda: found.append(queue.claim(wait=60)))
        claiming.start()
        within(30, lambda: "its consumer ended" in caplog.text)
        other.close()
        claiming.join(60)
        assert data(found) == [b"a"]
        queue.ack(found[0])
        assert queue.depth() == 0


def test_what_one_site_puts_back_is_not_the_other_sites(kq_cluster: Kafka, name: str) -> None:
    put(kq_cluster, name, b"poison", b"good")
    with (
        Site(kq_cluster, f"{name}-one", session=SESSION) as one,
        Site(kq_cluster, f"{name}-two", session=SESSION) as two,
    ):
        mine, theirs = one.queue(name), two.queue(name)
        first, second = mine.claim_many(2, wait=8)
        mine.bury(first, "bad")
        mine.ack(second)
        assert mine.dead.depth() == 1 and theirs.dead.depth() == 0 and theirs.dead.peek(5) == []
        assert theirs.dead.claim() is None and theirs.redrive(5) == 0
        assert mine.redrive(5) == 1
        assert mine.depth() == 1 and theirs.depth() == 2 and data(theirs.peek(5)) == [b"poison", b"good"]
        assert drained(theirs) == [(b"good", 1), (b"poison", 1)] and theirs.depth() == 0
        assert drained(mine) == [(b"poison", 1)] and mine.depth() == 0


def test_dead_letters_and_outputs_are_counted_exactly_by_a_process_that_owns_nothing(
    kq_cluster: Kafka, name: str, here: Site
) -> None:
    queue, out = here.queue(name), here.queue(topic(kq_cluster))
    queue.put_many([(b"%d" % n, None) for n in range(4)])
    for item in queue.claim_many(3, wait=8):
        queue.bury(item, "bad")
    with queue.step(queue.claim()) as step:
        step.put(out, b"one")
        step.put(out, b"two")
    with Site(kq_cluster, f"{name}-looks") as looks:  # nobody of this site has ever claimed
        assert looks.queue(out.name).depth() == 2
    worker = Worker(kq_cluster.bootstrap, name, f"{name}.dead", SESSION)
    try:
        assert worker.do("depth") == 3
    finally:
        worker.end()
    assert queue.stats()["dead"] == 3


# --- the log --------------------------------------------------------------------------------------------------------------


def test_unread_records_that_retention_took_are_counted_as_lost(kq_cluster: Kafka, name: str) -> None:
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        queue.put_many([(b"%d" % n, None) for n in range(8)])
        queue.ack(queue.claim(wait=8))
        assert data([queue.claim()]) == [b"1"]
    kq_cluster.admin.delete_records([TopicPartition(name, 0, 6)])[TopicPartition(name, 0, 6)].result(10)
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        assert queue.depth() == 2
        assert drained(queue) == [(b"6", 1), (b"7", 1)]
        assert queue.lost == 5 and queue.stats()["lost"] == 5  # one open, four that nobody had read


def test_records_deleted_ahead_of_a_running_reader_are_counted_and_it_goes_on(
    kq_cluster: Kafka, name: str, here: Site, monkeypatch: pytest.MonkeyPatch, within: Within
) -> None:
    queue = here.queue(name)
    queue.put(b"first")
    held = queue.claim(wait=8)
    monkeypatch.setattr(fetch.Fetch, "_full", lambda *_: True)  # it reads no further
    time.sleep(0.5)
    put(kq_cluster, name, *(b"%d" % n for n in range(9)))
    time.sleep(0.5)
    kq_cluster.admin.delete_records([TopicPartition(name, 0, 7)])[TopicPartition(name, 0, 7)].result(10)
    monkeypatch.undo()
    assert data(queue.claim_many(9, wait=15)) == [b"6", b"7", b"8"]
    queue.ack(held)
    within(15, lambda: queue.lost == 6, "what was deleted is not counted")
    assert queue.depth() == 3


def test_new_partitions_under_load_lose_and_double_nothing(kq_cluster: Kafka, name: str, here: Site) -> None:
    queue = here.queue(name)
    stop, done = threading.Event(), list[bytes]()
    thread = threading.Thread(
        target=lambda: queue.work(lambda item: done.append(item.data), threads=4, until=stop.is_set)
    )
    thread.start()
    put(kq_cluster, name, *(b"0 %d" % n for n in range(300)))
    kq_cluster.admin.create_partitions([NewPartitions(name, 3)])[name].result(10)
    kq_cluster.wait_for_topic(name, 3)
    for partition in range(3):
        put(kq_cluster, name, *(b"%d %d" % (partition + 1, n) for n in range(300)), partition=partition)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(set(done)) < 1_200:
        time.sleep(0.05)
    stop.set()
    thread.join()
    assert len(done) == len(set(done)) == 1_200


# --- memory ---------------------------------------------------------------------------------------------------------------


def test_what_is_in_memory_is_bounded_and_everything_comes_out(
    kq_cluster: Kafka, name: str, here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, size = 8_000_000, 500_000
    monkeypatch.setattr(fetch, "MOST_BYTES", most)
    put(kq_cluster, name, *(b"%03d" % n + os.urandom(size) for n in range(80)))  # 40 MB
    queue, seen, highest = here.queue(name), list[bytes](), 0
    held = queue.claim_many(2, wait=15)
    while items := queue.claim_many(4, wait=3):
        highest = max(highest, *(owner.bytes for owner in here._member.owners.values()))
        seen += [item.data[:3] for item in items]
        queue.ack_many(items)
    assert seen == [b"%03d" % n for n in range(2, 80)] and queue.blocked == ""
    assert highest < most + 17_000_000  # and what the client gives at once
    queue.ack_many(held)


def test_items_out_that_fill_the_memory_stop_the_reading_and_it_is_said(
    kq_cluster: Kafka, name: str, here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MOST_BYTES", 1_000_000)
    queue = here.queue(name)
    for wave in range(3):  # what was read in one go may be more than the bound
        put(kq_cluster, name, *(b"%d%d" % (wave, n) + bytes(300_000) for n in range(4)))
        time.sleep(0.3)
        if wave == 0:
            held = queue.claim_many(9, wait=8)
    while items := queue.claim_many(9):
        held += items
    assert "too much is in memory" in queue.blocked and len(held) < 12
    queue.ack_many(held)
    rest = queue.claim_many(9, wait=8)
    assert rest and queue.blocked == ""
    queue.ack_many(rest)
    assert len(held) + len(rest) + len(drained(queue, 2)) == 12


def test_what_nobody_claims_is_not_taken_from_the_client_and_comes_when_somebody_does(
    kq_cluster: Kafka, name: str, here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MOST_CACHED", 1_000)
    put(kq_cluster, name, *(b"%d" % n for n in range(6_000)))
    queue = here.queue(name)
    seen = [item.data for item in done_with(queue, 10)]
    (owner,) = here._member.owners_of(name)
    until = time.monotonic() + 5
    while not here._member.fetch.paused and time.monotonic() < until:
        time.sleep(0.02)
    assert here._member.fetch.paused and owner.cached <= 1_000 + fetch.MANY + 1
    while items := done_with(queue, 500):
        seen += [item.data for item in items]
    assert seen == [b"%d" % n for n in range(6_000)] and queue.blocked == ""


def done_with(queue: Queue, many: int) -> list[Item]:
    """So many, claimed and acked at once."""
    items = queue.claim_many(many, wait=3)
    queue.ack_many(items)
    return items


# --- who may what ---------------------------------------------------------------------------------------------------------


def test_an_application_on_a_cluster_with_rules_needs_no_more_than_the_plan_gave_it() -> None:
    with Cluster(secure=True) as cluster, cluster.as_user("app") as app:
        Plan({"football": QueueTopic(partitions=1), "results": QueueTopic(partitions=1)}).apply(cluster, quiet=True)
        with Site(app, "drupal-eu") as site:
            queue, out = site.queue("football"), site.queue("results")
            queue.put_many([(b"%d" % n, None) for n in range(4)])
            one, two, three = queue.claim_many(3, wait=10)
            queue.ack(one)
            queue.bury(two, "bad")
            with queue.step(three) as step:
                step.put(out, b"done")
            assert (queue.depth(), queue.dead.depth(), out.depth()) == (1, 1, 1)
            assert queue.redrive(1) == 1 and data(queue.peek(5)) == [b"3", b"1"]
            queue.purge()
            assert queue.depth() == 0 and queue.stats()["dead"] == 0
            assert state.topic_ids(app, ["nowhere"]) == {}
        with pytest.raises(NotAllowed, match="This user may not"), Site(app, "drupal-eu", session=3):
            pass
