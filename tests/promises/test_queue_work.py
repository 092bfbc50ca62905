"""Handlers: what fails is tried again and then buried, leases are kept alive, and a stop loses and doubles nothing."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from math import inf
from typing import Any

import psutil
import pytest

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.queue import Queue, Retry, Site
from tests.patience import PATIENCE, WAIT, until
from tests.promises.queues import MADE, alone, taken, topic


@pytest.fixture
def queue(kq_cluster: Kafka, site: Site) -> Queue:
    return site.queue(topic(kq_cluster, 2), max_attempts=4)


def fill(queue: Queue, many: int) -> None:
    queue.put_many([(b"%d" % n, b"%d" % n) for n in range(many)])


def test_everything_is_handled_once_what_fails_comes_again_and_then_is_buried(queue: Queue) -> None:
    fill(queue, 40)
    calls: list[tuple[int, int]] = []

    def handler(item: Any) -> None:
        calls.append((int(item.data), item.attempt))
        if item.data == b"7":
            raise ValueError("seven")
        if item.data == b"9" and item.attempt == 1:
            raise OSError("once")

    worked = queue.work(handler, threads=4, retry=Retry.exponential(0.05), until="empty")
    assert repr(worked) == "39 done, 4 to be tried again, 1 buried, 0 lost"
    assert sorted(calls) == sorted([(n, 1) for n in range(40)] + [(7, 2), (7, 3), (7, 4), (9, 2)])
    (letter,) = queue.dead.peek(5)
    assert (letter.data, letter.headers["kq-reason"]) == (b"7", b"ValueError: seven") and queue.depth() == 0


def test_a_lease_is_kept_alive_while_its_handler_runs(kq_cluster: Kafka, site: Site) -> None:
    queue = site.queue(topic(kq_cluster, 2), lease=0.6)
    fill(queue, 1)
    assert queue.work(lambda item: time.sleep(1.5), until="empty").done == 1


def test_it_ends_in_time_although_a_thread_waits_in_a_claim(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kqlib.queue.work.CLAIM_WAIT", 60.0)  # a claim that waits on would take too long
    calls: list[bytes] = []
    fill(queue, 4)
    queue.claim_many(1)  # joined
    limit = time.monotonic() + WAIT
    while len(calls) < 2 and time.monotonic() < limit:  # on a busy machine two do not begin in 0.4 s
        begun = time.monotonic()
        queue.work(lambda item: calls.append(item.data), until=0.4)
        assert time.monotonic() - begun < 4 * PATIENCE
    assert len(calls) >= 2


WORKS = """
import os, sys, threading, time
import kqlib as kq
from kqlib.kafka import Kafka

now = 0.0

def runs():  # the clock stops while this process stands still: a lease ends for want of an extension only
    global now
    while True:
        begun = time.monotonic()
        time.sleep(0.01)
        now += min(time.monotonic() - begun, 0.05)

def handler(item):
    os.write(1, b"begun\\n")  # print writes twice, and threads come between
    time.sleep(1.5 * lease)

lease = float(sys.argv[3])
threading.Thread(target=runs, daemon=True).start()
with kq.Site(Kafka(sys.argv[1]), sys.argv[2], session=2 * lease, clock=lambda: now) as site:
    print(site.queue(sys.argv[2], lease=lease).work(handler, threads=3), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_process_that_is_asked_to_end_finishes_what_runs_and_gives_back_the_rest(
    kq_cluster: Kafka, number: int
) -> None:
    name, lease = topic(kq_cluster, 2), 1.3 * PATIENCE
    with alone(kq_cluster, name) as site:
        fill(site.queue(name), 30)
    words = [sys.executable, "-c", WORKS, kq_cluster.bootstrap, name, str(lease)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and [process.stdout.readline() for _ in range(3)] == ["begun\n"] * 3
            process.send_signal(number)
            reported = time.monotonic()
            answer, wrong = process.communicate(timeout=WAIT)
            took = time.monotonic() - reported
        finally:
            process.kill()
    assert (answer, wrong, process.returncode) == ("3 done, 0 to be tried again, 0 buried, 0 lost\n", "", 0)
    assert took < (3 + 4.5 + 1) * PATIENCE  # the drain, then the closing
    with alone(kq_cluster, name) as site:
        queue = site.queue(name)
        assert queue.depth() == 27
        left = [*taken(queue, 27), *queue.claim_many(30, wait=0.5)]
        assert [item.attempt for item in left] == [1] * 27


def stepped(queue: Queue, item: Any) -> None:
    with queue.step(item) as step:
        step.put(queue.dead, b"output")


# what the handler does, and then: done, released, buried, lost
ENDED: dict[str, tuple[Any, tuple[int, int, int, int]]] = {
    "ack": (lambda queue, item: queue.ack(item), (1, 0, 0, 0)),
    "riding ack": (lambda queue, item: queue.ack(item, wait=False), (1, 0, 0, 0)),
    "ack, then a failure": (lambda queue, item: (queue.ack(item), 1 / 0), (1, 0, 0, 0)),
    "step": (stepped, (1, 0, 0, 0)),
    "bury": (lambda queue, item: queue.bury(item), (0, 0, 1, 0)),
    "release": (lambda queue, item: queue.release(item) if item.attempt == 1 else None, (1, 1, 0, 0)),
    "extend": (lambda queue, item: queue.extend(item), (1, 0, 0, 0)),
    "purge": (lambda queue, item: queue.purge(), (0, 0, 0, 1)),
}


@pytest.mark.parametrize(("verb", "counts"), ENDED.values(), ids=ENDED)
def test_a_handler_may_end_its_item_itself(queue: Queue, verb: Any, counts: tuple[int, ...]) -> None:
    fill(queue, 1)
    worked = queue.work(lambda item: verb(queue, item), until="empty")
    assert (worked.done, worked.released, worked.buried, worked.lost) == counts
    assert queue.depth() == 0


def test_a_lease_that_is_lost_before_its_handler_begins_stops_nothing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(queue, 6)
    hand_out, lost = queue._hand_out, list[int]()

    def purges(*words: Any) -> Any:  # between the claim and its handler
        items = hand_out(*words)
        if items and not lost:
            lost.append(len(items))
            for owner in queue._session.partitions_of(queue.name):
                owner.purge(owner.ledger.top)
        return items

    monkeypatch.setattr(queue, "_hand_out", purges)
    worked = queue.work(lambda item: None, threads=2, until="empty")
    assert (worked.done, worked.lost) == (6 - lost[0], lost[0]) and lost[0]


def test_nothing_is_reported_unless_someone_listens(kq_cluster: Kafka) -> None:
    name = topic(kq_cluster, 2)
    words = f"""
import logging
import kqlib as kq
from kqlib.kafka import Kafka
cluster = Kafka("{kq_cluster.bootstrap}")
first = kq.Site(cluster, "{name}")
second = kq.Site(cluster, "{name}")  # a warning: the first is closed
queue = second.queue("{name}")
queue.put(b"a")
queue.work(lambda item: queue.bury(item), until="empty")
logging.basicConfig()  # from here on someone listens
kq.Site(cluster, "{name}").close()
"""
    ran = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=WAIT, check=True)
    assert ran.stdout == "" and re.fullmatch(r"WARNING:kqlib\.queue:site '.* opened again.*\n", ran.stderr)


@pytest.mark.parametrize("sites", [5, pytest.param(51, marks=pytest.mark.nightly)])
def test_nothing_is_left_of_sites_that_were_closed(kq_cluster: Kafka, sites: int) -> None:
    name = topic(kq_cluster, 2)
    here, sizes = psutil.Process(), list[tuple[int, int]]()
    for turn in range(sites):
        with Site(kq_cluster, name) as site:
            queue = site.queue(name)
            queue.put(b"a")
            queue.ack(queue.claim(wait=WAIT))
        if turn in (0, sites - 1):
            deadline = time.monotonic() + WAIT
            while time.monotonic() < deadline and sizes and (here.num_fds(), here.num_threads()) > sizes[0]:
                time.sleep(0.1)
            sizes.append((here.num_fds(), here.num_threads()))
    assert sizes[1][0] <= sizes[0][0] + 2 and sizes[1][1] <= sizes[0][1] + 2, sizes


def test_a_handler_in_another_thread_may_ack_while_the_site_closes(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(kq_cluster, 2)
    answer: list[str] = []
    monkeypatch.setattr("kqlib.queue.connection.CLOSE", WAIT)
    with alone(kq_cluster, name) as site:
        queue, site._session.drain = site.queue(name), WAIT
        fill(queue, 4)

        def worker() -> None:
            item = queue.claim(wait=WAIT)
            (owner,) = [owner for owner in site._session.partitions_of(name) if owner.number == item.partition]
            until(lambda: owner.leaving)  # the close has begun; it waits for handlers
            queue.put(b"output")
            queue.ack(item)
            answer.append("acked")

        thread = threading.Thread(target=worker)
        thread.start()
        mine = site._session.partitions
        # handed out, not only chosen
        until(lambda: any(lease.deadline < inf for o in mine.values() for lease in list(o.leases.values())))
    thread.join()
    with alone(kq_cluster, name) as site:
        assert answer == ["acked"] and site.queue(name).depth() == 4


def test_a_worker_of_the_playground_is_added_stalled_and_woken_by_a_button_and_the_floor_moves(
    kq_cluster: Kafka,
) -> None:
    MADE.append((kq_cluster, "queue-playground"))
    shown = kq.play.queue(kq_cluster)
    assert shown.picture.text.startswith("nobody works · 2 partitions · 3 + 3 records")
    assert "&#x27;ann&#x27; is not there" in shown.press("kill").note
    shown.press("add")
    until(lambda: "(ann)" in shown.picture.text)  # by itself: it has claimed
    assert "ann stalled" in shown.press("stall").picture.text
    shown.press("wake")
    until(lambda: re.search(r"✓\d+ \|floor", shown.picture.text), lambda: shown.picture.text)  # by itself
    assert "ann killed" in shown.press("kill").picture.text
