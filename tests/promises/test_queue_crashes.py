"""The queue when processes die, stop and come back, and when the cluster changes under it: real processes, a real broker."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from kqlib.errors import LedgerCorrupt
from kqlib.kafka import Kafka
from kqlib.queue import Site
from tests.patience import PATIENCE, WAIT
from tests.promises.play import commit
from tests.promises.queues import SESSION, Start, alone, drained, put, taken, topic


def test_a_killed_workers_items_come_back_counted_within_a_session(
    kq_cluster: Kafka, name: str, start: Start, here: Site
) -> None:
    put(kq_cluster, name, b"a", b"b", b"c", b"d")
    worker = start(name)
    assert worker.claim(3) == {f"{name}/0/{n}": 1 for n in range(3)}
    assert worker.do("ack", f"{name}/0/1") == "ok"
    queue = here.queue(name)
    assert queue.depth() == 3
    worker.signal(signal.SIGKILL)
    killed = time.monotonic()
    assert queue.claim(wait=WAIT).attempt == 2
    assert time.monotonic() - killed < (SESSION + 2) * PATIENCE  # joining included
    assert drained(queue, 2) == [(b"c", 2), (b"d", 1)] and queue.depth() == 1


@pytest.mark.parametrize("end", ["raise SystemExit", "raise LookupError"])
def test_a_program_that_an_exception_ends_has_made_its_attempt_although_it_closed_no_site(
    kq_cluster: Kafka, name: str, here: Site, python: Callable[..., Any], end: str
) -> None:
    put(kq_cluster, name, b"a")
    claims = f"item = Site(Kafka({kq_cluster.bootstrap!r}), {name!r}).queue({name!r}).claim(wait={WAIT})"
    out, _ = python(
        "from kqlib import Site", "from kqlib.kafka import Kafka", claims, "print(item.attempt)", end
    ).communicate(timeout=WAIT)
    assert out == "1\n"
    assert taken(here.queue(name), 1)[0].attempt == 1 + (end == "raise LookupError")


def test_a_large_claim_that_was_counted_with_the_acks_before_it_comes_back_counted_but_not_after_a_close(
    kq_cluster: Kafka, name: str, start: Start, here: Site
) -> None:
    put(kq_cluster, name, *(b"%d" % number for number in range(500)))
    for ends in ("close", "kill"):
        worker = start(name)
        for _ in range(2):
            claimed = worker.claim(100)
            assert set(claimed.values()) == {1}
            assert worker.do("ack_many", *claimed) == "ok"
        if ends == "close":
            assert worker.do("close") == "ok"
    claimed = worker.claim(50)
    worker.signal(signal.SIGKILL)
    again = taken(here.queue(name), 50)
    assert {item.id: item.attempt for item in again} == dict.fromkeys(claimed, 2)


def test_a_worker_that_slept_past_its_session_loses_its_lease_and_changes_nothing(
    kq_cluster: Kafka, name: str, start: Start, here: Site
) -> None:
    put(kq_cluster, name, b"a", b"b")
    worker, queue = start(name), here.queue(name)
    assert worker.claim(2) == {f"{name}/0/0": 1, f"{name}/0/1": 1}
    worker.signal(signal.SIGSTOP)
    a = queue.claim(wait=WAIT)
    assert (a.data, a.attempt) == (b"a", 2)
    queue.ack(a)
    worker.signal(signal.SIGCONT)
    for verb in ("ack", "release", "extend", "bury", "ack"):
        assert str(worker.do(verb, f"{name}/0/1")).startswith(("LeaseLost: ", "Unreachable: ")), verb
    assert drained(queue) == [(b"b", 2)] and queue.depth() == 0
    assert queue.dead.peek(5) == []


def test_a_poison_item_that_kills_its_workers_is_buried_and_takes_nobody_with_it(
    kq_cluster: Kafka, name: str, start: Start, here: Site, within: Callable[..., float]
) -> None:
    put(kq_cluster, name, b"poison", b"good", b"fine")
    first, second = start(name, max_attempts=2), start(name, max_attempts=2)
    together = first.do("claim", 3)
    assert together[f"{name}/0/0"] == 1
    first.end()
    assert second.do("claim", 3) == {f"{name}/0/0": 2}  # it may have killed its worker: alone
    second.end()
    queue = here.queue(name)
    good, fine = (1 + (f"{name}/0/{offset}" in together) for offset in (1, 2))
    assert drained(queue, 2) == [(b"fine", fine), (b"good", good)]
    within(10, lambda: [item.headers["kq-attempts"] for item in queue.dead.peek(5)] == [b"2"], "it is not buried")


def test_two_processes_share_the_partitions_and_do_everything_once(
    kq_cluster: Kafka, start: Start, within: Callable[..., float]
) -> None:
    name = topic(kq_cluster, 4)
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        seen: Counter[str] = Counter()
        got: Counter[str] = Counter()
        worker = start(name)
        assert queue.claim() is None and worker.do("claim now", 1) == {}  # both are in the group
        within(30, lambda: len(site._session.partitions) == 2, "the partitions are not shared")
        queue.put_many([(b"%d" % n, b"%d" % n) for n in range(200)])
        for turn in range(30):
            mine = queue.claim_many(5, wait=0.2)
            queue.ack_many(mine)  # at once: what is in hand when a partition moves has three seconds
            theirs = worker.do("claim now" if turn else "claim", 5)  # the first waits until its partitions are there
            got.update(mine=len(mine), theirs=len(theirs))
            assert set(theirs.values()) <= {1} and {item.attempt for item in mine} <= {1}
            seen.update([*theirs, *(item.id for item in mine)])
            assert {worker.do("ack", id_) for id_ in theirs} <= {"ok"}
        worker.do("close")
        while items := queue.claim_many(50, wait=WAIT if len(seen) < 200 else 3):
            seen.update(item.id for item in items)
            queue.ack_many(items)
        assert len(seen) == 200 and set(seen.values()) == {1} and queue.depth() == 0
        assert got["mine"] and got["theirs"], got


def test_a_purge_that_its_owner_applies_while_the_depth_is_asked_is_counted(
    kq_cluster: Kafka, name: str, start: Start, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float]
) -> None:
    with alone(kq_cluster, name) as asks:
        queue, look = asks.queue(name), asks._looker.look
        queue.put_many([(b"a", None), (b"b", None)])
        owner = start(name)
        owner.claim(1)  # it owns the partition
        owner.signal(signal.SIGSTOP)
        queue.purge()

        def late(*where: Any, **how: Any) -> Any:
            found = look(*where, **how)
            owner.signal(signal.SIGCONT)
            within(WAIT, lambda: asks._notes.get(name, name, "purged", 0), "its owner does not apply it")
            return found

        monkeypatch.setattr(asks._looker, "look", late)
        assert queue.depth() == 0


def test_a_mark_once_applied_is_not_applied_to_a_group_that_is_moved_back(
    kq_cluster: Kafka, name: str, within: Callable[..., float]
) -> None:
    with alone(kq_cluster, name) as site:
        queue = site.queue(name)
        queue.put_many([(b"a", None), (b"b", None)])
        queue.claim()
        queue.purge()
        assert queue.claim() is None
        within(10, lambda: site._notes.get(name, name, "purged", 0), "nobody notes that the mark was applied")
    commit(kq_cluster, name, name, 0)
    with alone(kq_cluster, name) as site:
        assert drained(site.queue(name), 2) == [(b"a", 1), (b"b", 1)]


def test_a_state_that_cannot_be_read_is_not_guessed(kq_cluster: Kafka, name: str) -> None:
    put(kq_cluster, name, b"a")
    commit(kq_cluster, name, name, 0, "1 7 someone wrote-here")
    with alone(kq_cluster, name) as site:
        queue = site.queue(name)
        with pytest.raises(LedgerCorrupt):
            queue.claim()
        with pytest.raises(LedgerCorrupt):
            queue.depth()


def test_an_aborted_transactions_records_are_no_items_and_no_depth(kq_cluster: Kafka, name: str, here: Site) -> None:
    producer = Producer(kq_cluster.client(transactional_id=name))
    producer.init_transactions(WAIT)
    for value, end in ((b"a", "commit_transaction"), (b"-", "abort_transaction"), (b"b", "commit_transaction")):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(WAIT)
        getattr(producer, end)(WAIT)
    queue = here.queue(name)
    assert drained(queue, 2) == [(b"a", 1), (b"b", 1)]
    time.sleep(0.6)
    assert queue.claim() is None and queue.depth() == 0 and queue.lost == 0
