"""The queue's verbs on a real broker, in one process: each does what its docstring says, to the letter."""

from __future__ import annotations

import re
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kqlib.errors import (
    BadPayload,
    Closed,
    KqError,
    LeaseLost,
    NotAllowed,
    NotClaimed,
    PayloadTooLarge,
    TopicMissing,
)
from kqlib.kafka import Kafka
from kqlib.queue import Queue, Site
from tests.patience import PATIENCE, WAIT
from tests.promises.play import put
from tests.promises.queues import SESSION, data, put_with_header, taken, topic


def test_what_is_put_comes_out_as_it_was_put(queue: Queue) -> None:
    id_ = queue.put(b"\x00goal", key=b"ARS-CHE", headers={"kind": b"goal", "none": None})
    assert id_ == f"{queue.name}/0/0"
    item = queue.claim()
    assert item is not None and repr(item) == f"Item({id_}, attempt 1)"
    assert (item.id, item.data, item.key, item.attempt, item.queue) == (id_, b"\x00goal", b"ARS-CHE", 1, queue.name)
    assert item.headers == {"kind": b"goal", "none": None}
    assert datetime.now(UTC) - item.created < timedelta(minutes=1)
    assert 0 < item.deadline - time.monotonic() <= 30
    queue.ack(item)
    assert queue.claim() is None and queue.depth() == 0


def test_null_empty_and_strangers_records_are_items(queue: Queue, kq_cluster: Kafka) -> None:
    queue.put(None)
    queue.put(b"")
    put(kq_cluster, queue.name, b"by someone else")
    assert data(taken(queue, 3)) == [None, b"", b"by someone else"]


def test_a_strangers_header_whose_name_is_no_text_stops_nothing(queue: Queue, kq_cluster: Kafka) -> None:
    put_with_header(kq_cluster, queue.name, b"\xff\xfe")
    queue.put(b"next", headers={"ok": b"1"})
    assert (queue.depth(), data(queue.peek())) == (2, [None, b"next"])
    first, second = taken(queue, 2)
    assert (first.data, first.headers, second.headers) == (None, {}, {"ok": b"1"})
    queue.bury(first)
    assert queue.redrive() == 1


def test_a_released_item_comes_back_before_newer_ones(queue: Queue) -> None:
    queue.put_many([(b"a", None), (b"b", None), (b"c", None)])
    first, second = taken(queue, 2)
    queue.release(first)
    again = queue.claim()
    assert (again.data, again.attempt) == (b"a", 2)
    for verb in (queue.ack, queue.release, queue.extend, queue.bury):
        with pytest.raises(LeaseLost, match="its lease ended"):
            verb(first)
    queue.ack_many([again, second])
    with pytest.raises(LeaseLost, match="done already"):
        queue.ack(second)
    assert queue.depth() == 1


def test_an_expired_lease_is_refused_even_if_nobody_took_the_item_and_wakes_who_waits(
    kq_cluster: Kafka, site: Site
) -> None:
    queue = site.queue(topic(kq_cluster), max_attempts=None)
    queue.put(b"a")
    item = queue.claim(lease=0.3)
    waited: list[float] = []
    # who is not woken looks again after a second; what was read may have woken the first; one alone may be late on a busy machine
    while len(waited) < 3 or (min(waited[1:]) >= 0.9 and len(waited) < 12):
        start = time.monotonic()
        again = queue.claim(lease=0.3, wait=WAIT)
        waited.append(time.monotonic() - start)
        assert again.attempt == len(waited) + 1
    assert min(waited[1:]) < 0.9 and max(waited) > 0.2
    again = queue.claim(lease=30, wait=WAIT)
    late = queue.extend(again, lease=0.05)
    time.sleep(0.06)
    with pytest.raises(LeaseLost, match="its lease has expired"):
        queue.ack(late)
    with pytest.raises(LeaseLost):
        queue.ack(item)


def test_an_extended_lease_holds_and_both_values_ack(kq_cluster: Kafka) -> None:
    name, clock = topic(kq_cluster), [0.0]  # a clock of its own: the lease does not end while this process stands still
    with Site(kq_cluster, name, session=SESSION, clock=lambda: clock[0]) as site:
        queue = site.queue(name)
        queue.put_many([(b"a", None), (b"b", None)])
        item, other = queue.claim(lease=0.3, wait=WAIT), queue.claim(lease=0.3, wait=WAIT)
        longer = queue.extend(item, lease=20)
        clock[0] = 0.35
        assert longer.deadline > item.deadline
        assert queue.claim(wait=WAIT).id == other.id and queue.claim() is None  # the other's lease is over
        queue.ack(item)
        with pytest.raises(LeaseLost):
            queue.ack(longer)


def test_delays_hold_an_item_back_and_wake_who_waits(kq_cluster: Kafka, site: Site) -> None:
    queue, delay = site.queue(topic(kq_cluster), max_attempts=None), 2.0 * PATIENCE
    assert queue.claim() is None  # joined: that takes a part of the delay
    queue.put(b"later", delay=delay)
    queue.put(b"now")
    now = queue.claim()
    assert now.data == b"now" and queue.claim() is None and queue.depth() == 2
    queue.release(now, delay=600)
    start = time.monotonic()
    later = queue.claim(wait=WAIT)
    assert (later.data, later.attempt, later.headers) == (b"later", 1, {})
    assert time.monotonic() - start < delay + 2.5 * PATIENCE
    assert queue.claim() is None and queue.stats()["delayed"] == 1
    waited: list[float] = []
    # who is not woken looks again after a second; one alone may be late on a busy machine
    while len(waited) < 3 or (min(waited) >= 0.9 and len(waited) < 12):
        queue.release(later, delay=0.4)
        start = time.monotonic()
        later = queue.claim(wait=WAIT)
        waited.append(time.monotonic() - start)
        assert (later.data, later.attempt) == (b"later", len(waited) + 1)
    assert min(waited) < 0.9


def test_acks_out_of_order_and_riding_ones_count_at_once(queue: Queue) -> None:
    queue.put_many([(b"%d" % n, None) for n in range(100)])
    items = taken(queue, 100)
    queue.ack_many((item for item in items[1::2]), wait=False)
    assert queue.depth() == 50
    with pytest.raises(LeaseLost, match="2 of 3 were not acked") as refused:
        queue.ack_many([items[0], items[0], items[1]])
    assert refused.value.items == [items[0], items[1]] and queue.depth() == 49


def test_a_claim_waits_for_what_is_put_meanwhile(queue: Queue) -> None:
    assert queue.claim() is None
    threading.Timer(0.3, lambda: queue.put(b"a")).start()
    start = time.monotonic()
    assert queue.claim(wait=WAIT).data == b"a"
    assert time.monotonic() - start < 2 * PATIENCE


def test_a_buried_item_is_in_the_dead_letters_once_with_its_story_and_comes_back(queue: Queue) -> None:
    queue.put(b"poison", key=b"k", headers={"mine": b"1"})
    queue.put(b"good")
    queue.bury(queue.claim(), reason="does not parse")
    assert queue.claim().data == b"good"
    (letter,) = queue.dead.peek(5)
    story = letter.headers
    assert (letter.data, letter.key, story["mine"]) == (b"poison", b"k", b"1")
    assert story["kq-origin"] == f"{queue.name}/0/0".encode() and story["kq-reason"] == b"does not parse"
    assert (story["kq-attempts"], story["kq-dead-site"]) == (b"1", queue.site.name.encode())
    with pytest.raises(NotClaimed, match="only looked at"):
        queue.dead.ack(letter)
    assert queue.redrive(5) == 1 and queue.redrive(5) == 0
    again = queue.claim(wait=WAIT)
    assert (again.data, again.key, again.attempt, again.headers) == (b"poison", b"k", 1, {"mine": b"1"})
    assert again.id != f"{queue.name}/0/0"


def test_a_step_writes_its_outputs_and_acks_or_does_nothing(queue: Queue, kq_cluster: Kafka, site: Site) -> None:
    out = site.queue(topic(kq_cluster))
    queue.put_many([(b"1", None), (b"2", None)])
    one, two = taken(queue, 2)
    with queue.step(one) as step:
        step.put(out, b"one", key=b"k")
        step.put(out, b"uno")
        assert out.claim() is None
    with pytest.raises(ZeroDivisionError), queue.step(two) as step:
        step.put(out, b"two")
        raise ZeroDivisionError
    assert sorted(data(taken(out, 2))) == [b"one", b"uno"]
    with pytest.raises(LeaseLost, match="done already"), queue.step(two) as step:
        step.put(out, b"too late")
        queue.ack(two)
    assert out.claim() is None and queue.depth() == 0


def test_several_puts_at_once_or_none(queue: Queue, site: Site) -> None:
    with site.transaction() as tx:
        tx.put(queue, b"a")
        tx.put(queue, b"b", key=b"k", delay=0)
    with pytest.raises(ZeroDivisionError), site.transaction() as tx:
        tx.put(queue, b"c")
        raise ZeroDivisionError
    assert data(taken(queue, 2)) == [b"a", b"b"]
    assert queue.claim() is None and queue.depth() == 2  # the transaction's mark in the log is no item


WRONG = {
    "text to put": (
        lambda q: q.put("a"),
        BadPayload,
        "put takes bytes or None, not str. Encode the text: data.encode()",
    ),
    "a text key": (lambda q: q.put(b"a", key="k"), BadPayload, "a key is bytes or None, not str"),
    "headers that are no dict": (
        lambda q: q.put(b"a", headers=[1]),
        BadPayload,
        "headers are a dict of names and bytes",
    ),
    "a header of ours": (lambda q: q.put(b"a", headers={"kq-due": b"1"}), BadPayload, "does not begin with 'kq-'"),
    "a header of text": (lambda q: q.put(b"a", headers={"x": "1"}), BadPayload, "header 'x' is bytes or None, not str"),
    "a long delay": (
        lambda q: q.put(b"a", delay=901),
        NotAllowed,
        "delay is a number of seconds from 0 to 900, not 901",
    ),
    "no delay at all": (lambda q: q.put(b"a", delay=None), NotAllowed, "delay is a number of seconds"),
    "too large": (lambda q: q.put(b"a" * 2_000_000), PayloadTooLarge, "'{queue}' takes 1047988"),
    "many of what": (
        lambda q: q.put_many([b"a"]),
        BadPayload,
        "put_many takes Put(…) values or (data, key) pairs, not bytes",
    ),
    "claim none": (lambda q: q.claim_many(0), NotAllowed, "n is a whole number, at least 1, not 0"),
    "no lease": (lambda q: q.claim(lease=0), NotAllowed, "lease is a number of seconds from 0.001 to 86400, not 0"),
    "wait backwards": (lambda q: q.claim(wait=-1), NotAllowed, "wait is a number of seconds from 0 to"),
    "ack an id": (lambda q: q.ack("football/0/1"), NotAllowed, "this takes an item that claim() gave, not str"),
    "a reason that is no text": (lambda q: q.bury(None, reason=1), NotAllowed, "a reason is text, not int"),
    "peek none": (lambda q: q.peek(0), NotAllowed, "n is a whole number, at least 1, not 0"),
    "discard what": (lambda q: q.discard("x"), NotAllowed, "an item's id is topic/partition/offset"),
    "discard elsewhere": (lambda q: q.discard("other/0/1"), NotAllowed, "other/0/1 is not an item of '{queue}'"),
    "discard nothing": (lambda q: q.discard(f"{q.name}/0/99"), NotAllowed, "it is not there, or done already"),
    "bury the dead": (lambda q: q.dead.bury(None), NotAllowed, "holds dead letters already"),
    "another order": (lambda q: q.site.queue(q.name, order="key"), NotAllowed, "has order='any' for site"),
    "no such order": (lambda q: q.site.queue(q.name, order="lifo"), NotAllowed, "order is 'any' or 'key', not 'lifo'"),
    "other attempts": (lambda q: q.site.queue(q.name, max_attempts=3), NotAllowed, "has max_attempts=5 for site"),
    "too many attempts": (lambda q: q.site.queue(q.name, max_attempts=15), NotAllowed, "from 1 to 14, or None"),
    "lost where": (
        lambda q: q.site.queue(q.name, on_lost="x"),
        NotAllowed,
        "on_lost is 'raise' or 'earliest' or 'latest'",
    ),
    "no topic": (lambda q: q.site.queue("nowhere"), TopicMissing, "'nowhere' does not exist on this cluster"),
    "a queue of another site": (lambda q: _tx(q, "football"), NotAllowed, "the first argument is a queue of this site"),
    "a site without a name": (lambda q: Site(q.site.cluster, ""), NotAllowed, "a site's name is text"),
}


def _tx(queue: Queue, other: Any) -> None:
    with queue.site.transaction() as tx:
        tx.put(other, b"a")


@pytest.fixture(scope="module")
def quiet_queue(kq_cluster: Kafka, site: Site) -> Queue:
    return site.queue(topic(kq_cluster))


@pytest.mark.parametrize(("ask", "kind", "sentence"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_reported_in_a_sentence(
    quiet_queue: Queue, ask: Any, kind: type[KqError], sentence: str
) -> None:
    with pytest.raises(kind, match=re.escape(sentence.replace("{queue}", quiet_queue.name))):
        ask(quiet_queue)
    assert quiet_queue.depth() == 0


def test_one_live_site_a_process_and_a_closed_one_says_so(kq_cluster: Kafka) -> None:
    name, where = topic(kq_cluster), f"twice-{uuid.uuid4().hex[:6]}"
    first = Site(kq_cluster, where)
    queue = first.queue(name)
    queue.put(b"a")
    item = queue.claim(wait=WAIT)
    with Site(kq_cluster, where) as second:
        for verb in (
            queue.claim,
            lambda: queue.put(b"b"),
            queue.depth,
            lambda: queue.ack(item),
            lambda: first.queue(name),
        ):
            with pytest.raises(Closed, match="is closed"):
                verb()
        again = second.queue(name)
        got = again.claim(wait=WAIT)
        assert (got.data, got.attempt) == (b"a", 1)  # given back in good order
        with pytest.raises(LeaseLost):
            again.ack(item)
    took = []
    for _ in range(3):  # it is closed already: nothing to wait for
        start = time.monotonic()
        second.close()
        took.append(time.monotonic() - start)
    assert min(took) < 1
