"""Handlers: what fails is tried again and then buried, leases are kept alive, and a stop loses and doubles nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kqlib.broker import Kafka
from kqlib.errors import NotAllowed
from kqlib.queue import Queue, Retry, Site
from kqlib.topics import Plan, QueueTopic


@pytest.fixture(scope="module")
def site(kq_cluster: Kafka) -> Iterator[Site]:
    """One site for all tests of this file."""
    with Site(kq_cluster, f"work-{uuid.uuid4().hex[:8]}", session=3) as site:
        yield site


def topic(cluster: Kafka) -> str:
    name = f"work-{uuid.uuid4().hex[:8]}"
    Plan({name: QueueTopic(partitions=2)}).apply(cluster, quiet=True)
    return name


@pytest.fixture
def queue(kq_cluster: Kafka, site: Site) -> Queue:
    return site.queue(topic(kq_cluster), max_attempts=4)


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


def test_an_exception_that_is_not_to_be_tried_again_is_buried_at_once(queue: Queue) -> None:
    fill(queue, 1)
    worked = queue.work(lambda item: 1 / 0, retry=Retry(only=(OSError,)), until="empty")
    assert (worked.buried, worked.released) == (1, 0)


def test_a_lease_is_kept_alive_while_its_handler_runs_and_is_lost_without(kq_cluster: Kafka, site: Site) -> None:
    queue = site.queue(topic(kq_cluster), lease=0.6)
    fill(queue, 1)
    assert queue.work(lambda item: time.sleep(1.5), until="empty").done == 1
    fill(queue, 1)
    calls: list[int] = []

    def handler(item: Any) -> None:
        calls.append(item.attempt)
        time.sleep(1.0 if item.attempt == 1 else 0)

    worked = queue.work(handler, threads=2, until="empty", extend=False)
    assert (worked.done, worked.lost, calls) == (1, 1, [1, 2])


ENDS = {
    "seconds": lambda calls: 0.4,
    "a callable": lambda calls: lambda: len(calls) >= 2,
}


@pytest.mark.parametrize("until", ENDS.values(), ids=ENDS)
def test_it_ends_when_it_is_told(queue: Queue, until: Any) -> None:
    calls: list[bytes] = []
    fill(queue, 4)
    queue.claim_many(1)  # joined
    begun = time.monotonic()
    queue.work(lambda item: calls.append(item.data), until=until(calls))
    assert len(calls) >= 2 and time.monotonic() - begun < 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "the stop button"])
def test_a_signal_lets_handlers_end(queue: Queue, number: int) -> None:
    fill(queue, 4)
    queue.claim_many(1)  # joined
    begun = threading.Event()

    def handler(item: Any) -> None:
        begun.set()
        time.sleep(0.5)

    threading.Thread(target=lambda: (begun.wait(10), time.sleep(0.1), os.kill(os.getpid(), number))).start()
    worked = queue.work(handler, threads=2)
    assert worked.done == 2 and worked.lost == 0 and queue.depth() == 2


def test_a_handler_in_another_thread_may_ack_while_the_site_closes(kq_cluster: Kafka) -> None:
    name = topic(kq_cluster)
    said: list[str] = []
    with Site(kq_cluster, name, session=3) as site:
        queue = site.queue(name)
        fill(queue, 4)

        def worker() -> None:
            item = queue.claim(wait=8)
            time.sleep(1)
            queue.put(b"output")
            queue.ack(item)
            said.append("acked")

        thread = threading.Thread(target=worker)
        thread.start()
        while not any(owner.leases for owner in site._member.owners.values()):
            time.sleep(0.01)
    thread.join()
    with Site(kq_cluster, name, session=3) as site:
        assert said == ["acked"] and site.queue(name).depth() == 4


def test_a_crash_in_the_with_block_counts_and_a_graceful_end_does_not(kq_cluster: Kafka) -> None:
    name = topic(kq_cluster)
    for attempt, error in ((1, None), (1, ZeroDivisionError), (2, None)):
        try:
            with Site(kq_cluster, name, session=3) as site:
                queue = site.queue(name)
                if not queue.depth():
                    queue.put(b"a")
                item = queue.claim(wait=8)
                assert item.attempt == attempt
                if error:
                    raise error
        except ZeroDivisionError:
            pass


WRONG = {
    "no handler": (lambda q: q.work(3), "a handler is called with an item, and int cannot be called"),
    "no threads": (lambda q: q.work(print, threads=0), "threads is a whole number, at least 1, not 0"),
    "a retry that is none": (lambda q: q.work(print, retry=3), "retry is a Retry, like Retry.exponential(1), not int"),
    "until when": (
        lambda q: q.work(print, until="noon"),
        "until is 'empty', a number of seconds, a callable or None, not 'noon'",
    ),
    "until long ago": (lambda q: q.work(print, until=-1), "until is a number of seconds from 0 to"),
}


@pytest.mark.parametrize(("ask", "sentence"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_of_work_are_said_in_a_sentence(queue: Queue, ask: Any, sentence: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        ask(queue)
    assert sentence in str(refused.value)
