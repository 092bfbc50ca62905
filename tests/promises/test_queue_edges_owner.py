"""Depth, 'empty' and `blocked` are exact at the edges: what is at hand, what is out and what is not known are kept apart."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from kqlib.kafka import Kafka
from kqlib.queue import Item, Retry, Site, fetch, subscriptions
from tests.patience import WAIT
from tests.promises.play import decided, delete
from tests.promises.queues import SESSION, Start, data, put, topic

Within = Callable[..., float]


# --- depth ------------------------------------------------------------------------------------------------------------------


def test_depth_is_exact_in_the_owner_however_much_it_has_not_read(
    name: str, here: Site, start: Start, within: Within
) -> None:
    queue = here.queue(name)
    queue.put_many([(b"x", None)] * 40_000)
    items = queue.claim_many(1_000, wait=WAIT)
    within(WAIT, lambda: here._session.fetch.paused, "it reads everything")
    assert queue.depth() == 40_000
    queue.ack_many(items)
    assert queue.depth() == 40_000 - len(items) == start(name).do("depth")


@pytest.mark.parametrize(("max_attempts", "reads"), [(1, True), (5, False)], ids=["read", "not read"])
def test_depth_counts_items_and_not_offsets(
    here: Site, name: str, monkeypatch: pytest.MonkeyPatch, max_attempts: int, reads: bool
) -> None:
    """One item is out, and three more come, one of them in a transaction: its mark in the log is no item."""
    queue, cluster = here.queue(name, max_attempts=max_attempts), here.cluster
    queue.put(b"1")
    out = queue.claim(wait=WAIT)
    if not reads:
        monkeypatch.setattr(fetch.Fetch, "_full", lambda *_: True)
    in_transactions(cluster, name, [b"2"])
    put(cluster, name, b"3", b"4")
    assert queue.depth() == 4
    queue.ack(out)
    assert queue.depth() == 3


def test_depth_in_a_process_that_the_group_put_out_is_what_the_others_left(
    kq_cluster: Kafka, name: str, here: Site, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = here.queue(name)
    queue.put_many([(b"a", None), (b"b", None)])
    queue.claim_many(2, wait=WAIT)
    gate = threading.Event()
    monkeypatch.setattr(here._session.fetch, "aim", lambda: gate.wait(WAIT))  # its thread hears nothing from now on
    put_out(kq_cluster, name)
    worker = start(name)
    assert set(worker.do("claim", 2).values()) == {2}
    assert worker.do("ack", f"{name}/0/0") == "ok"
    assert queue.depth() == 1
    monkeypatch.undo()
    gate.set()


def test_depth_counts_many_items_of_transactions_exactly(kq_cluster: Kafka, name: str, here: Site) -> None:
    queue = here.queue(name)
    in_transactions(kq_cluster, name, *[[b"x"] * 40] * 50)
    assert queue.depth() == 2_000
    in_transactions(kq_cluster, name, [b"x"] * 10)
    assert queue.depth() == 2_010


def in_transactions(cluster: Kafka, name: str, *batches: list[bytes]) -> None:
    """As a stock producer would, the last one aborted; they are visible when this returns, and so is all that is put after it."""
    producer = Producer(cluster.client(transactional_id=f"{name}-tx"))
    producer.init_transactions(WAIT)
    for batch in batches:
        producer.begin_transaction()
        for value in batch:
            producer.produce(name, value, partition=0)
        producer.commit_transaction(WAIT)
    producer.begin_transaction()
    producer.produce(name, b"-", partition=0)
    producer.flush(WAIT)
    producer.abort_transaction(WAIT)
    decided(cluster, name)


# --- empty ------------------------------------------------------------------------------------------------------------------


def put_out(cluster: Kafka, group: str) -> None:
    """The group puts its one member out: someone leaves in its name (ConsumerGroupHeartbeat with the epoch -1)."""
    answer = cluster.admin.describe_consumer_groups([group])[group].result(WAIT)
    (member,) = answer.members

    def text(value: str) -> bytes:
        return bytes([len(value) + 1]) + value.encode()

    body = text(group) + text(member.member_id) + struct.pack(">ihi", -1, 0, -1) + bytes(5)
    request = struct.pack(">hhihsb", 68, 1, 7, 1, b"x", 0) + body
    with socket.create_connection((answer.coordinator.host, answer.coordinator.port), WAIT) as line:
        line.sendall(struct.pack(">i", len(request)) + request)
        assert len(line.recv(4)) == 4


@pytest.mark.parametrize("knows", [True, False], ids=["it knows", "it does not know yet"])
def test_a_process_that_the_group_put_out_and_took_in_again_does_not_say_empty_beside_items(
    kq_cluster: Kafka, name: str, here: Site, within: Within, knows: bool
) -> None:
    queue = here.queue(name)
    queue.put_many([(b"%d" % n, None) for n in range(30)])
    queue.ack(queue.claim(wait=WAIT))
    (owner,) = here._session.partitions_of(name)
    put_out(kq_cluster, name)
    if knows:
        within(WAIT, lambda: owner.dropped, "it does not hear that it is out")
    found = list[Any]()
    for _ in range(29):
        item = queue.claim()
        found.append(item and item.data)
        if item:
            queue.ack(item)
    assert found == [b"%d" % n for n in range(1, 30)]
    assert queue.claim() is None


def test_until_empty_goes_on_when_the_group_has_put_the_process_out(kq_cluster: Kafka, name: str, here: Site) -> None:
    queue, done = here.queue(name), set[bytes]()
    queue.put_many([(b"%d" % n, None) for n in range(60)])

    def handler(item: Item) -> None:
        done.add(item.data or b"")
        if item.offset == 9 and item.attempt == 1:
            put_out(kq_cluster, name)
        time.sleep(0.05)

    queue.work(handler, threads=2, until="empty")
    assert queue.depth() == 0 and len(done) == 60


def test_a_queue_whose_leased_items_fill_the_memory_starves_no_other(
    kq_cluster: Kafka, name: str, here: Site, monkeypatch: pytest.MonkeyPatch, within: Within
) -> None:
    monkeypatch.setattr(fetch, "MOST_BYTES", 1_000_000)
    big, small = here.queue(name), here.queue(topic(kq_cluster))
    assert big.claim() is None and small.claim() is None
    put(kq_cluster, big.name, *[bytes(300_000)] * 4)
    held = list[Item]()
    while len(held) < 4:
        held += big.claim_many(9, wait=WAIT)
    big.put(b"more")
    assert big.claim() is None and "too much is in memory" in big.blocked
    small.put(b"a")
    item = small.claim()
    assert data([item]) == [b"a"] and small.blocked == ""
    big.ack_many(held)
    assert big.blocked == "" and data([big.claim()]) == [b"more"]


# --- who goes alone ---------------------------------------------------------------------------------------------------------


def test_handlers_that_fail_now_and_then_do_not_slow_the_others_down(name: str, here: Site) -> None:
    """An item that is tried for the last but one time goes out beside others, and others go out beside it."""
    queue, again, beside = here.queue(name, max_attempts=3), threading.Event(), threading.Event()
    queue.put_many([(b"%d" % n, None) for n in range(24)])

    def handler(item: Item) -> None:
        if item.data == b"7" and item.attempt == 1:
            raise ValueError
        if item.data == b"7":
            again.set()
            assert beside.wait(WAIT), "nothing goes out beside what failed"
        elif item.offset > 7 and not again.is_set():
            assert again.wait(WAIT), "what failed does not go out beside others"
        elif item.offset > 7:
            beside.set()

    assert queue.work(handler, threads=8, retry=Retry(), until="empty", ahead=0).done == 24


# --- what is reported -----------------------------------------------------------------------------------------------------------


def test_while_an_inherited_item_is_out_alone_the_others_wait_and_blocked_says_so(kq_cluster: Kafka, name: str) -> None:
    put(kq_cluster, name, b"0")
    with suppress(ZeroDivisionError), Site(kq_cluster, name, session=SESSION) as site:  # its owner dies of it
        assert site.queue(name, max_attempts=3).claim(wait=WAIT)
        raise ZeroDivisionError
    put(kq_cluster, name, *(b"%d" % n for n in range(1, 6)))
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        alone = queue.claim_many(9, wait=WAIT)
        assert [(item.data, item.attempt) for item in alone] == [(b"0", 2)]
        assert queue.claim() is None and "alone" in queue.blocked and queue.blocked == queue.stats()["blocked"]
        queue.release(alone[0])  # it stays one that goes alone
        alone = queue.claim_many(9)
        assert data(alone) == [b"0"] and "alone" in queue.blocked
        queue.ack(alone[0])
        assert queue.blocked == ""
        assert data(queue.claim_many(9)) == [b"1", b"2", b"3", b"4", b"5"]


def test_blocked_is_empty_as_soon_as_everything_is_acked(name: str, here: Site) -> None:
    queue, held = here.queue(name), list[Item]()
    queue.put_many([(b"x", None)] * 3_500)
    while items := queue.claim_many(3_500, wait=0 if held else WAIT):
        held += items
    assert "the ledger is full" in queue.blocked
    queue.ack_many(held)
    assert queue.blocked == ""
    assert queue.claim() is not None


@pytest.mark.parametrize("retry", [Retry(only=(OSError,)), Retry()], ids=["given up", "tried at once"])
def test_without_a_dead_letter_topic_what_fails_for_good_waits_and_it_is_reported(
    kq_cluster: Kafka, here: Site, name: str, caplog: pytest.LogCaptureFixture, retry: Retry
) -> None:
    delete(kq_cluster, f"{name}.dead")
    queue, seen = here.queue(name, max_attempts=None), Counter[bytes]()
    queue.put_many([(b"bad", None), (b"good", None), (b"bad too", None)])

    def handler(item: Item) -> None:
        seen[item.data or b""] += 1
        if item.data != b"good":
            raise ValueError

    queue.work(handler, retry=retry, until=lambda: seen.total() > 50 or queue.stats()["delayed"] == 2)
    assert seen[b"good"] == 1 and max(seen.values()) <= 5
    assert "no dead-letter topic" in queue.blocked and queue.claim() is None and queue.depth() == 2
    assert caplog.text.count("no dead-letter topic") == 1
    queue.purge()
    assert queue.blocked == ""


def test_what_was_lost_is_still_reported_when_the_subscription_is_dropped(
    kq_cluster: Kafka, name: str, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        queue.put_many([(b"%d" % n, None) for n in range(6)])
        queue.ack(queue.claim(wait=WAIT))
    kq_cluster.admin.delete_records([TopicPartition(name, 0, 4)])[TopicPartition(name, 0, 4)].result(WAIT)
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        item = queue.claim(wait=WAIT)
        assert item.data == b"4" and queue.lost == 3
        queue.ack(item)
        monkeypatch.setattr(subscriptions, "IDLE", 0.2)
        within(WAIT, lambda: not site._session.partitions, "nobody claims, and it stays")
        assert queue.lost == 3 == queue.stats()["lost"]
        monkeypatch.undo()
        assert data([queue.claim(wait=WAIT)]) == [b"5"] and queue.lost == 3  # not counted again


def test_latest_is_where_the_log_ended_when_it_was_chosen_and_what_it_skips_is_lost(
    kq_cluster: Kafka, name: str, within: Within
) -> None:
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        queue.put_many([(b"a", None), (b"b", None)])
        queue.ack(queue.claim(wait=WAIT))
        within(WAIT, lambda: site._notes.get(name, name, "state", 0), "nobody notes that there is a state")
    kq_cluster.admin.delete_consumer_groups([name])[name].result(WAIT)
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name, on_lost="latest")
        queue.put(b"c")
        assert site.queue(name, on_lost="latest") is queue  # chosen already
        assert data(queue.claim_many(9, wait=WAIT)) == [b"c"]
        assert queue.lost == 2 and queue.claim() is None
