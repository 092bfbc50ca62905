"""What `work` goes by, without Kafka: whether a handler ended its item or lost it, and how much is claimed at a time."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.queue import work
from kqlib.queue.item import Item, Job, Outcome
from kqlib.queue.partition import Partition
from kqlib.queue.queue import Queue
from kqlib.queue.terms import Terms
from tests.unit.records import Rec
from tests.unit.test_queue_partition import arrive, opened, owner, take


def handled(some: Partition) -> Any:
    arrive(some, Rec(0))
    some.start(some.claim(1), 30.0)
    return some.handle(Item("football", 0, some.window.records[0], 1, 30.0, 1, 1))


def buried(some: Partition) -> None:
    some.begin_ending(0)
    some.end([0], done=True)


HANDLERS: dict[str, tuple[Callable[[Partition], Any], Outcome | None, bool]] = {
    "runs": (lambda o: None, None, True),
    "acked it": (lambda o: o.ack([0]), Outcome.DONE, False),
    "released it": (lambda o: o.release(0, 5), Outcome.RELEASED, False),
    "extended it": (lambda o: o.extend(0, 60), None, True),
    "ended it with a transaction": (buried, Outcome.DONE, False),
    "tried a transaction in vain": (lambda o: (o.begin_ending(0), o.end([0], done=False)), None, True),
    "slept past its lease": (lambda o: o.terms.clock.__dict__.update(now=200.0), None, False),
    "saw its lease end and another begin": (lambda o: (setattr(o.terms.clock, "now", 200.0), take(o, 1)), None, False),
    "was purged": (lambda o: o.purge(1), None, False),
    "lost its partition": (lambda o: setattr(o, "dropped", "gone"), None, False),
}


@pytest.mark.parametrize(("what", "outcome", "holds"), HANDLERS.values(), ids=HANDLERS)
def test_it_is_known_whether_a_handler_ended_its_item_or_lost_it(
    what: Any, outcome: Outcome | None, holds: bool
) -> None:
    some = owner()
    mine = handled(some)
    what(some)
    assert (mine.outcome, some.holds(mine)) == (outcome, holds)


def test_what_no_handler_began_with_is_given_back_and_does_not_count() -> None:
    some = owner()
    mine = handled(some)
    some.unclaim(0)
    assert (mine.outcome, opened(some.ledger), take(some)) == (None, {0: 0}, [(0, 1)])


def test_a_handler_of_sigterm_that_python_cannot_put_back_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: None)  # so it is in a Python inside of uWSGI
    monkeypatch.setattr(signal, "signal", lambda *_: pytest.fail("it was replaced"))
    with work._terminated(threading.Event()):
        pass


class Memory(work.WorkMixin):
    """A queue that gives out numbers and remembers how many were out at a time."""

    lease = 30.0

    def __init__(self, many: int, slow: float) -> None:
        self.left, self.slow, self.out, self.most = list(range(many)), slow, set[int](), 0
        self.one = threading.Lock()

    def _jobs_at_hand(self, n: int) -> list[Job]:
        with self.one:
            got, self.left = self.left[:n], self.left[n:]
            self.out |= set(got)
            self.most = max(self.most, len(self.out))
        time.sleep(self.slow)
        return [Job(number) for number in got]

    def _claim_jobs(self, n: int, wait: float, stop: Any, empty: Any) -> list[Job]:
        got = self._jobs_at_hand(n)
        if empty is not None and not got and not self.out:
            empty([])
        return got

    def _ahead(self, ahead: int | None) -> int | None:
        return ahead

    def _may_begin(self, job: Job, stopping: bool) -> bool:
        return not stopping

    def _job_done(self, job: Job) -> None:
        job.outcome = Outcome.DONE

    def _ack_jobs(self, jobs: Iterable[Job]) -> None:
        with self.one:
            self.out -= {job.item for job in jobs}

    def _give_back(self, job: Job) -> None:
        with self.one:
            self.left.append(job.item)
            self.out.discard(job.item)


SLOW = {"handlers that take their time": (0.02, 0.02, 4), "handlers of a moment": (0.0, 0.002, 4 + 4 * work.MOST_AHEAD)}


@pytest.mark.parametrize(("takes", "claim", "most"), SLOW.values(), ids=SLOW)
def test_no_more_is_claimed_than_threads_can_take_when_the_claim_is_committed(
    takes: float, claim: float, most: int
) -> None:
    queue, seen = Memory(60, claim), list[int]()

    def handler(number: Any) -> None:
        time.sleep(takes)
        seen.append(number)

    done = queue.work(handler, threads=4, until="empty")
    assert (done.done, sorted(seen), queue.out) == (60, list(range(60)), set())
    assert queue.most <= most


AHEAD: list[tuple[int | None, int | None, int | None]] = [(1, None, 0), (1, 2, 2), (2, None, None), (None, 0, 0)]


@pytest.mark.parametrize(("max_attempts", "asked", "ahead"), AHEAD)
def test_nothing_is_claimed_ahead_where_the_first_attempt_is_the_last_unless_it_is_asked_for(
    max_attempts: int | None, asked: int | None, ahead: int | None
) -> None:
    queue: Any = SimpleNamespace(terms=Terms("football", "here", max_attempts=max_attempts))
    assert Queue._ahead(queue, asked) == ahead


def test_what_was_claimed_and_not_begun_when_it_stops_is_given_back() -> None:
    queue, seen = Memory(100, 0.004), list[int]()

    def handler(number: Any) -> None:
        time.sleep(0.004)
        seen.append(number)

    done = queue.work(handler, threads=4, until=lambda: len(seen) >= 20)
    assert done.done == len(seen) and queue.out == set()
    assert sorted([*seen, *queue.left]) == list(range(100))


def test_what_is_claimed_while_the_others_are_reported_to_stop_is_given_back() -> None:
    queue = Memory(8, 0.3)
    queue.work(print, threads=4, until=0.1)
    assert queue.out == set() and queue.left


def test_more_threads_than_the_machine_gives_is_reported_and_those_there_are_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, start, begun = Memory(5, 0.0), threading.Thread.start, list[threading.Thread]()

    def refused(thread: threading.Thread) -> None:
        if len(begun) == 3:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(NotAllowed, match="this machine gives this process 3 threads, not 4"):
        queue.work(print, threads=4)
    assert len(queue.left) == 5 and not any(thread.is_alive() for thread in begun)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no handler": ({"handler": 3}, "a handler is called with an item, and int cannot be called"),
    "no threads": ({"threads": 0}, "threads is a whole number, at least 1, not 0"),
    "a retry that is none": ({"retry": 3}, "retry is a Retry, like Retry.exponential(1), not int"),
    "until when": ({"until": "noon"}, "until is 'empty', a number of seconds, a callable or None, not 'noon'"),
    "until long ago": ({"until": -1}, "until is a number of seconds from 0 to"),
    "fewer than none ahead": ({"ahead": -1}, "ahead is a whole number, at least 0, not -1"),
}


@pytest.mark.parametrize(("wrong", "sentence"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_refused_with_a_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(NotAllowed, match=re.escape(sentence)):
        Memory(1, 0).work(**{"handler": print} | wrong)
