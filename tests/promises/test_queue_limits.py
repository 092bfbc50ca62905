"""Where a queue meets its limits: idle processes, states that expire, memory, retention, other logs, rules about users."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kqlib.errors import KqError, Unreachable
from kqlib.kafka import Kafka
from kqlib.queue import Item, Put, Queue, Site, commits, fetch, notes, session, subscriptions
from kqlib.queue.ledger import Ledger
from kqlib.workshop.cluster import Cluster
from tests.patience import PATIENCE, WAIT
from tests.promises.queue_worker import Worker
from tests.promises.queues import NOWHERE, SESSION, alone, data, drained, put, taken, topic

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
        queue, here._session.decided_after = here.queue(name), 2.0  # seconds until it is clear that nothing is ours
        assert queue.claim() is None
        here._session.trouble = "a broker was away for a moment"
        here._session.decided_after = (
            WAIT  # a claim that waits for the assignment again takes longer than the test allows
        )
        for _ in range(3):
            begun = time.monotonic()
            assert queue.claim(wait=0.1) is None
            assert time.monotonic() - begun < 2 * PATIENCE
    finally:
        worker.end()


def test_an_idle_process_leaves_its_partitions_to_others_and_comes_back(
    kq_cluster: Kafka, here: Site, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(kq_cluster, 2)
    queue = here.queue(name)
    queue.put_many([Put(b"0", key=b"a"), Put(b"1", key=b"b"), Put(b"2", key=b"c"), Put(b"3", key=b"d")])
    held = queue.claim(lease=600, wait=WAIT)
    monkeypatch.setattr(subscriptions, "IDLE", 1.0)
    time.sleep(2)
    assert here._session.partitions, "a lease is open: it stays"
    queue.ack(held)
    within(20, lambda: not here._session.partitions, "nobody claims, and it stays")
    monkeypatch.undo()  # or it leaves again while its claim waits for the partitions
    worker = Worker(kq_cluster.bootstrap, here.name, name, SESSION)
    try:
        assert set(worker.claim(3).values()) == {1} and worker.do("claim now", 9) == {}
    finally:
        worker.end()
    assert [attempt for _, attempt in drained(queue, 3)] == [2, 2, 2]


def test_a_queue_that_was_left_is_visited_and_its_state_committed_again(
    kq_cluster: Kafka, name: str, here: Site, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = here.queue(name)
    queue.put_many([(b"a", None), (b"b", None)])
    queue.ack(queue.claim(wait=WAIT))
    monkeypatch.setattr(subscriptions, "IDLE", 0.5)
    monkeypatch.setattr(subscriptions, "LONG", 1.0)

    def epoch() -> int:
        seen = here._looker.look([(name, 0)])[name, 0]
        return Ledger.read(seen.metadata, seen.committed or 0).epoch

    first = epoch()
    within(30, lambda: epoch() >= first + 2, "nobody committed it again")
    monkeypatch.setattr(subscriptions, "LONG", 3600.0)
    within(30, lambda: not here._session.partitions, "the visit does not end")
    monkeypatch.undo()  # or it leaves again before its claim has the partition
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


def test_a_close_waits_for_a_note_that_the_broker_does_not_answer_at_once(
    kq_cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, key = 1.0, (name, name, "last", 7)
    with Site(kq_cluster, name, session=SESSION) as site:
        site.queue(name).put(b"x")
        site.queue(name).ack(site.queue(name).claim(wait=WAIT))
        informed, closed = site._notes, site._notes.close

        def last() -> None:
            """The last note goes when the member has left, and the broker stands still for a second."""
            closed()
            broker = kq_cluster.broker(1).pause()
            threading.Timer(slow, broker.resume).start()
            informed.post([(key, "noted")], site._sender(), print)

        monkeypatch.setattr(informed, "close", last)
        begun = time.monotonic()
        site.close()
    assert time.monotonic() - begun >= slow
    with Site(kq_cluster, name, session=SESSION) as site:
        assert site._notes.get(*key) == "noted"


def test_a_commit_that_never_comes_back_is_left_behind_with_its_consumer_though_every_client_is_deaf(
    kq_cluster: Kafka, name: str, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, cluster = threading.Event(), Kafka(kq_cluster.bootstrap)
    with Site(cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        queue.put_many([(b"a", None), (b"b", None)])
        first = queue.claim(wait=WAIT)
        site._session.consumer, changed = Stuck(site._session.consumer, gate), time.monotonic()
        stuck = site._session.consumer
        cluster.__dict__["admin"] = NOWHERE.admin
        site._waiter._kept._client = Consumer(NOWHERE.client(group_id=name))
        site._notes._kept._client = Consumer(NOWHERE.client(group_id="kqlib-notes"))
        within(10, lambda: site._session._checked_at > changed, "its thread still reads from the old one")
        with Site(kq_cluster, f"{name}-other") as other:
            other.queue(name)  # a note, which has to be read
        old, reported, found = site._session._thread, list[BaseException](), list[bytes]()

        def ack() -> None:
            try:
                queue.ack(first)
            except KqError as error:
                reported.append(error)

        def claim() -> None:
            item = queue.claim(wait=WAIT)
            queue.ack(item)
            found.append(item.data)

        threads = [threading.Thread(target=ack), threading.Thread(target=claim)]
        with monkeypatch.context() as patch:
            patch.setattr(notes.Notes.catch_up, "__defaults__", (2.0 * PATIENCE,))
            with monkeypatch.context() as quick:
                quick.setattr(commits, "STUCK", 1.5)
                for thread in threads:
                    thread.start()
                within(20, lambda: site._session.consumer is not stuck, "it stays with the stuck one")
            gate.set()  # from here on a commit may take its time: if it were given up, the claim would be lost with it
            within(20, lambda: not old.is_alive(), "the old thread is still there")
            for thread in threads:
                thread.join(WAIT)
        assert [type(error) for error in reported] == [Unreachable] and "may have been stored, or not" in str(
            reported[0]
        )
        assert found
    with alone(kq_cluster, name) as site:
        found += [value for value, _ in drained(site.queue(name), int(found == [b"a"]))]
    assert sorted(found) in ([b"b"], [b"a", b"b"])


# --- several sites --------------------------------------------------------------------------------------------------------


def test_a_client_that_says_it_is_dead_is_replaced(
    kq_cluster: Kafka, name: str, monkeypatch: pytest.MonkeyPatch, within: Within, caplog: pytest.LogCaptureFixture
) -> None:
    """Some answers to a heartbeat end a consumer for good; here, that someone else has its name in the group."""
    other = Consumer(kq_cluster.client(group_id=name, group_instance_id="one"))
    other.subscribe([name])
    within(30, lambda: other.poll(0.1) is None and other.assignment() != [])
    monkeypatch.setitem(session.SETTINGS, "group.instance.id", "one")
    with Site(kq_cluster, name, session=SESSION) as site:
        queue, found = site.queue(name), list[Any]()
        queue.put(b"a")
        claiming = threading.Thread(target=lambda: found.append(queue.claim(wait=WAIT)))
        claiming.start()
        within(30, lambda: "its consumer ended" in caplog.text)
        other.close()
        claiming.join(WAIT)
        assert data(found) == [b"a"]
        queue.ack(found[0])
        assert queue.depth() == 0


def test_what_one_site_puts_back_is_not_the_other_sites(kq_cluster: Kafka, name: str) -> None:
    put(kq_cluster, name, b"poison", b"good")
    with (
        alone(kq_cluster, f"{name}-one") as one,
        alone(kq_cluster, f"{name}-two") as two,
    ):
        mine, theirs = one.queue(name), two.queue(name)
        first, second = taken(mine, 2)
        mine.bury(first, "bad")
        mine.ack(second)
        assert mine.dead.depth() == 1 and theirs.dead.depth() == 0 and theirs.dead.peek(5) == []
        assert theirs.dead.claim() is None and theirs.redrive(5) == 0
        assert mine.redrive(5) == 1
        assert mine.depth() == 1 and theirs.depth() == 2 and data(theirs.peek(5)) == [b"poison", b"good"]
        assert drained(theirs, 2) == [(b"good", 1), (b"poison", 1)] and theirs.depth() == 0
        assert drained(mine) == [(b"poison", 1)] and mine.depth() == 0


def test_dead_letters_and_outputs_are_counted_exactly_by_a_process_that_owns_nothing(
    kq_cluster: Kafka, name: str, here: Site
) -> None:
    queue, out = here.queue(name), here.queue(topic(kq_cluster))
    queue.put_many([(b"%d" % n, None) for n in range(4)])
    for item in taken(queue, 3):
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


def test_records_deleted_ahead_of_a_running_reader_are_counted_and_it_goes_on(
    kq_cluster: Kafka, name: str, here: Site, monkeypatch: pytest.MonkeyPatch, within: Within
) -> None:
    queue = here.queue(name)
    queue.put(b"first")
    held = queue.claim(wait=WAIT)
    monkeypatch.setattr(fetch.Fetch, "_full", lambda *_: True)  # it reads no further
    within(10, lambda: here._session.fetch.paused, "it reads on")
    put(kq_cluster, name, *(b"%d" % n for n in range(9)))
    kq_cluster.admin.delete_records([TopicPartition(name, 0, 7)])[TopicPartition(name, 0, 7)].result(WAIT)
    monkeypatch.undo()
    assert data(taken(queue, 3)) == [b"6", b"7", b"8"]
    queue.ack(held)
    within(15, lambda: queue.lost == 6, "what was deleted is not counted")
    assert queue.depth() == 3


# --- memory ---------------------------------------------------------------------------------------------------------------


def test_what_is_in_memory_is_bounded_and_everything_comes_out(
    kq_cluster: Kafka, name: str, here: Site, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, size = 8_000_000, 500_000
    client = fetch.SETTINGS["queued.max.messages.kbytes"] * 1024 + 1_048_576  # its buffer, and one answer more
    monkeypatch.setattr(fetch, "MOST_BYTES", most)
    put(kq_cluster, name, *(b"%03d" % n + os.urandom(size) for n in range(80)))  # 40 MB
    queue, seen, highest = here.queue(name), list[bytes](), 0
    held = taken(queue, 2)
    while items := queue.claim_many(4, wait=WAIT if len(seen) < 78 else 0.5):
        highest = max(highest, *(owner.window.bytes for owner in here._session.partitions.values()))
        seen += [item.data[:3] for item in items]
        queue.ack_many(items)
    assert seen == [b"%03d" % n for n in range(2, 80)]
    within(10, lambda: queue.blocked == "")
    assert highest < most + client + 100_000  # and what the client gives at once, some bytes more a record
    queue.ack_many(held)


def test_what_nobody_claims_is_not_taken_from_the_client_and_comes_when_someone_does(
    kq_cluster: Kafka, name: str, here: Site, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MOST_CACHED", 1_000)
    put(kq_cluster, name, *(b"%d" % n for n in range(6_000)))
    queue = here.queue(name)
    seen = [item.data for item in done_with(queue, 10)]
    (owner,) = here._session.partitions_of(name)
    within(10, lambda: here._session.fetch.paused, "it reads on")
    assert owner.order.cached <= 1_000 + fetch.MANY + 1
    while items := done_with(queue, 500, WAIT if len(seen) < 6_000 else 0.5):
        seen += [item.data for item in items]
    assert seen == [b"%d" % n for n in range(6_000)]
    within(10, lambda: queue.blocked == "")


def test_a_round_in_which_the_rest_of_a_full_memory_ends_takes_no_more(
    kq_cluster: Kafka, name: str, here: Site, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First there is a rest, in case someone claims; then the partition is paused. In between nothing is taken either."""
    monkeypatch.setattr(fetch, "MOST_CACHED", 5)
    queue, reading, rounds = here.queue(name), here._session.fetch, list[int]()
    put(kq_cluster, name, *(b"%d" % n for n in range(7)))
    aim = reading.aim

    def ends(self: fetch.Fetch) -> bool:
        """The rest is over when it is asked for the second time."""
        rounds.append(len(rounds))
        return self._full_since is not None and not asked.pop()

    def aims() -> None:
        asked[:] = [True, False]
        aim()

    asked = [True, False]
    monkeypatch.setattr(fetch.Fetch, "_resting", ends)
    monkeypatch.setattr(reading, "aim", aims)
    assert queue.claim(wait=WAIT)
    (owner,) = here._session.partitions_of(name)
    within(10, lambda: owner.order.cached == 6, "it does not read what was put")
    put(kq_cluster, name, *(b"more %d" % n for n in range(7)))
    begun = len(rounds)
    within(10, lambda: len(rounds) > begun + 20)
    assert owner.order.cached == 6


def done_with(queue: Queue, many: int, wait: float = WAIT) -> list[Item]:
    """Up to so many, claimed and acked at once."""
    items = queue.claim_many(many, wait=wait)
    queue.ack_many(items)
    return items
