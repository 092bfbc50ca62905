"""Work: claim, handle and ack items in threads, on any queue that has the verbs.

In:  a queue (`WorkMixin`), a handler, a number of threads, a `Retry`. Out: `Worked`. SIGTERM and Ctrl-C let running handlers end.
One thread at a time claims, for all threads that are free. A site's own queue (kqlib/queue/queue.py) overrides some methods of
`WorkMixin`. There one commit serves a claim and the acks before it, and an item that no handler began with is given back.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from kqlib.errors import Closed, KqError, LeaseLost, NotAllowed, Unreachable
from kqlib.queue import arguments, dead
from kqlib.queue.item import Job, Outcome
from kqlib.queue.retry import Retry

log = logging.getLogger("kqlib.queue")
CLAIM_WAIT = 5.0  # seconds that a claim waits for an item, if the queue can end that wait early
SHORT_CLAIM_WAIT = 0.5  # the same, if it cannot: then `stop` is looked at between two claims
EMPTY_CLAIM_WAIT = 0.1  # the same, while until="empty" waits for items that are out
QUICK_HANDLER = 0.01  # seconds: if handlers take less, items are claimed ahead
MOST_AHEAD = 4  # items a thread may hold beside its own: a crash counts an attempt for each of them
TICK = 0.015  # seconds between two looks at finished items; at the second look their acks are committed
LONGEST_STORY = 4_000  # characters of an exception's text that go into a dead letter
# What `_todo` holds beside jobs: claim, or end.
CLAIM = "claim"
STOP = "stop"
Until = str | float | Callable[[], bool] | None


@dataclass
class Worked:
    """How many items of one call of `work` had each outcome."""

    done: int = 0
    released: int = 0
    buried: int = 0
    lost: int = 0  # the lease ended while the handler ran: the item comes again, here or elsewhere

    def count(self, outcome: Outcome) -> None:
        """One more item had this outcome."""
        setattr(self, outcome.value, getattr(self, outcome.value) + 1)

    def __repr__(self) -> str:
        return f"{self.done} done, {self.released} to be tried again, {self.buried} buried, {self.lost} lost"


class WorkMixin:
    """`work` for a queue that has `claim_many`, `ack`, `release`, `extend` and `bury`. A queue may override all the rest."""

    lease: float
    claim_many: Callable[..., Any]
    ack: Callable[..., Any]
    release: Callable[..., Any]
    bury: Callable[..., Any]
    extend: Callable[..., Any]

    def work(
        self,
        handler: Callable[[Any], object],
        threads: int = 1,
        retry: Retry | None = None,
        *,
        until: Until = None,
        ahead: int | None = None,
    ) -> Worked:
        """Claim, handle and ack items in `threads` threads.

        until: None for ever; "empty": until nothing is left, leased and delayed items included (of the site's own queue: in the
        partitions of this process); a number of seconds; or a callable.
        The lease of an item is extended while its handler runs. A handler may end its item itself (ack, step, release, bury); if it
        returns without that, the item is acked. The ack is stored at most 50 ms later, and when this returns.
        ahead: how many items a thread may hold beside the one it works on. None: 0; a site's own queue takes up to 4 while handlers
        are quick.
        Of a site's own queue: an item that cannot be buried (no dead-letter topic, no right to write there) waits 20 s and is tried
        again; `queue.blocked` says why. If until="empty" has nothing else left, and the item was given up (by `retry`, or by the
        queue's attempts), that reason is raised.
        """
        return Work(self, handler, threads, retry, until=until, ahead=self._ahead(ahead)).run()

    def _usable(self) -> None:
        """Raise an error if the queue is closed, or was made in another process."""

    def _ahead(self, ahead: int | None) -> int | None:
        """How many items a thread may hold beside its own. None: `work` decides by how long handlers take."""
        return ahead or 0

    def _jobs_at_hand(self, n: int) -> list[Job]:
        """Up to n items that are here already. [] does not mean that the queue is empty."""
        return []

    def _claim_jobs(
        self, n: int, wait: float, stop: Callable[[], bool], empty: Callable[[list[KqError]], None] | None
    ) -> list[Job]:
        """Up to n items. stop: ends the wait. empty: to be called if nothing is left, with the reasons why items cannot be buried."""
        items = self.claim_many(n, wait=min(wait, SHORT_CLAIM_WAIT))
        if empty is not None and not items and self._is_empty():
            empty([])
        return [Job(item) for item in items]

    def _is_empty(self) -> bool:
        """Is nothing left, claimed and delayed items included? Asked when a claim got nothing."""
        return True

    def _may_come(self) -> bool:
        """May an item become ready without a put: one that is claimed, or due later?"""
        return True

    def _may_begin(self, job: Job, stopping: bool) -> bool:
        """May its handler begin? If not, the item is given back. stopping: `work` ends."""
        return True

    def _job_done(self, job: Job) -> None:
        """Its handler returned."""
        self.ack(job.item)
        job.outcome = Outcome.DONE

    def _job_failed(self, job: Job, wait: float | None, story: str) -> None:
        """Its handler raised. wait: seconds until the next attempt; None: give it up."""
        if wait is None:
            self.bury(job.item, story)
        else:
            self.release(job.item, wait)
        job.outcome = Outcome.BURIED if wait is None else Outcome.RELEASED

    def _ack_jobs(self, jobs: Iterable[Job]) -> None:
        """Ack those whose handler returned, if `_job_done` did not."""

    def _give_back(self, job: Job) -> None:
        """No handler began with it: give it back."""

    def _commit_soon(self) -> None:
        """Commit acks now: they wait for no other commit."""

    def _flush(self) -> None:
        """Return when all acks are stored."""

    def _wake(self) -> None:
        """Make a thread that waits in `_claim_jobs` ask `stop` again."""


class Work:
    """One call of `work`."""

    def __init__(
        self,
        queue: WorkMixin,
        handler: Callable[[Any], object],
        threads: int = 1,
        retry: Retry | None = None,
        *,
        until: Until = None,
        ahead: int | None = 0,
    ) -> None:
        if not callable(handler):
            raise NotAllowed(f"a handler is called with an item, and {type(handler).__name__} cannot be called")
        if retry is not None and not isinstance(retry, Retry):
            raise NotAllowed(f"retry is a Retry, like Retry.exponential(1), not {type(retry).__name__}")
        if isinstance(until, str) and until != "empty":
            raise NotAllowed(f"until is 'empty', a number of seconds, a callable or None, not {until!r}")
        if until is not None and not callable(until) and not isinstance(until, str):
            arguments.seconds("until", until, 0, 366 * 24 * 3600.0)
        if ahead is not None:
            arguments.count("ahead", ahead, 0)
        queue._usable()
        self.queue = queue
        self.handler = handler
        self.retry = retry or Retry()
        self.threads = arguments.count("threads", threads)
        self.until = until
        self.ahead = ahead
        self.began = time.monotonic()
        self.tick = min(TICK, queue.lease / 6)
        self.stop = threading.Event()
        self.worked = Worked()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._running: set[Job] = set()  # claimed, and not settled yet
        # What free threads do next: jobs, and one CLAIM unless a thread is claiming just now. At the end the CLAIM becomes a STOP.
        self._todo: SimpleQueue[Job | str] = SimpleQueue()
        self._finished: deque[Job] = deque()  # their handlers have ended, and they are not settled yet
        self._handler_seconds = 1.0  # how long a handler took lately
        self._claim_seconds = 0.0  # how long a claim took lately
        self._unburied: list[KqError] = []  # why what is left cannot be buried, if nothing else is left
        self._idle = False  # one thread waits in a claim for more items: the other threads settle their own
        self._threads: list[threading.Thread] = []
        self._claiming_began = False
        self._extended_at = self.began
        self._first_at_last_tick: Job | None = None  # the first of `_finished`, a tick ago

    def run(self) -> Worked:
        """Work until the end."""
        with _terminated(self.stop):
            try:
                self._start()
                self._todo.put(CLAIM)
                self._claiming_began = True
                self._watch()
            except KeyboardInterrupt:  # the stop button of a cell: handlers end, then it is over
                log.info("stopping: running handlers are waited for")
            finally:
                self.stop.set()
                self._end()
        if self.error is not None:
            raise self.error
        self.queue._flush()
        if self._unburied:
            raise self._unburied[0]
        return self.worked

    def _start(self) -> None:
        """Start the threads. If the machine does not give so many, those that were started end."""
        try:
            for n in range(self.threads):
                self._threads.append(threading.Thread(target=self._thread, name=f"kq-work-{n}", daemon=True))
                self._threads[-1].start()
        except RuntimeError:
            why = f"this machine gives this process {n:,} threads, not {self.threads:,}. Nothing was claimed"
            raise NotAllowed(why) from None

    def _watch(self) -> None:
        while any(thread.is_alive() for thread in self._threads) and not self.stop.is_set():
            if self._is_over():
                return
            self._look_after()
            self.stop.wait(self.tick)

    def _look_after(self) -> None:
        """Extend leases in time. Settle what was finished a tick ago: its ack waits for no other handler."""
        now = time.monotonic()
        if now - self._extended_at > self.queue.lease / 3:
            self._extend()
            self._extended_at = now
        with self._lock:
            first = self._finished[0] if self._finished else None
        if first is not None and first is self._first_at_last_tick:
            self._settle()
            self.queue._commit_soon()
        self._first_at_last_tick = first

    def _is_over(self) -> bool:
        if callable(self.until):
            return bool(self.until())
        return isinstance(self.until, int | float) and time.monotonic() - self.began >= self.until

    def _end(self) -> None:
        if not self._claiming_began:
            self._todo.put(STOP)
        self.queue._wake()
        while alive := [thread for thread in self._threads if thread.is_alive()]:
            self._look_after()
            alive[0].join(self.tick)
        self._settle()

    def _extend(self) -> None:
        with self._lock:
            running = [job for job in self._running if job.outcome is None]
        for job in running:
            with suppress(KqError):  # it has just been done, or is lost: the handler's thread will see
                self.queue.extend(job.item)

    def _thread(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._one(job)
            except Unreachable as error:  # Kafka is away: it comes back, or `until` ends this
                log.warning("%s", error, extra={"reason": str(error)})
                self.stop.wait(0.5)
            except Closed:
                self.stop.set()
            except BaseException as error:
                self.error = error
                self.stop.set()

    def _next(self) -> Job | str | None:
        """What to do next; None: end. STOP goes back into `_todo`, for the other threads."""
        while (todo := self._todo.get()) is CLAIM and self.stop.is_set():
            self._todo.put(STOP)
        if todo is STOP:
            self._todo.put(STOP)
            return None
        return todo

    def _one(self, todo: Job | str) -> None:
        job = self._claim() if isinstance(todo, str) else todo
        if job is None:
            return
        try:
            if self.queue._may_begin(job, self.stop.is_set()):
                begun = time.perf_counter()
                self._handle(job)
                self._handler_seconds += (time.perf_counter() - begun - self._handler_seconds) / 8
            else:
                self.queue._give_back(job)
                job.outcome = Outcome.GIVEN_BACK
        except BaseException:
            job.outcome = job.outcome or Outcome.LOST
            raise
        finally:
            self._finished.append(job)
            if self._idle or self.stop.is_set():
                self._settle()

    # --- claiming ---

    def _claim(self) -> Job | None:
        """Claim for all threads that are free, and perhaps ahead. Returns the first job; the others and a CLAIM go to `_todo`."""
        jobs, free = list[Job](), 1
        try:
            if not self.stop.is_set():
                self._settle()
                free = self.threads - len(self._running)
                most = free + self._claim_ahead()
                jobs = self._at_hand(most) if most > 0 else []
                if not jobs and self._todo.empty():  # jobs that are there are handled before a thread waits for more
                    jobs = self._wait(max(1, most))
        finally:
            with self._lock:
                self._running.update(jobs)
            # The next claim comes behind half of the jobs ahead: then it finds more threads free, and is worth its commit.
            now = max(1, free, (len(jobs) + free) // 2)
            todo: list[Job | str] = [*jobs[1:now], CLAIM, *jobs[now:]]
            for each in todo:
                self._todo.put(each)
        return jobs[0] if jobs else None

    def _claim_ahead(self) -> int:
        """How many items handlers end in the time of two claims: half of them wait here while the other half is claimed."""
        if self.ahead is not None:
            return self.ahead * self.threads
        if self._handler_seconds >= QUICK_HANDLER:
            return 0
        return int(min(MOST_AHEAD, 2 * self._claim_seconds / self._handler_seconds) * self.threads)

    def _at_hand(self, most: int) -> list[Job]:
        begun = time.perf_counter()
        if jobs := self.queue._jobs_at_hand(most):
            self._claim_seconds += (time.perf_counter() - begun - self._claim_seconds) / 8
        return jobs

    def _wait(self, most: int) -> list[Job]:
        self._idle = True
        try:
            self._settle()
            wait, empty = CLAIM_WAIT, None
            if self.until == "empty":
                wait = EMPTY_CLAIM_WAIT if self._running or self.queue._may_come() else 0
                empty = None if self._running else self._is_empty
            return self.queue._claim_jobs(most, wait, self.stop.is_set, empty)
        finally:
            self._idle = False

    def _is_empty(self, stuck: list[KqError]) -> None:
        self._unburied = stuck
        self.stop.set()

    # --- handling ---

    def _handle(self, job: Job) -> None:
        """Call the handler. If it raises, the item is tried again later or buried, and the exception's text goes with it."""
        try:
            self.handler(job.item)
        except Exception as error:
            story = dead.reason(error)[:LONGEST_STORY]
            fields = {"queue": job.item.queue, "item": job.item.id, "attempt": job.item.attempt, "reason": story}
            log.info("%s failed: %s", job.item.id, story, extra=fields)
            if job.outcome is None:
                with suppress(LeaseLost):  # counted when it is settled
                    wait = self.retry.wait(job.item.attempt, error, job.item.id)
                    self.queue._job_failed(job, wait, story)
            elif isinstance(error, LeaseLost):  # the handler ended it, but too late: that was not stored
                job.outcome = Outcome.LOST
        else:
            with suppress(LeaseLost):
                self.queue._job_done(job)

    def _settle(self) -> None:
        """Ack and count the jobs whose handlers have ended."""
        with self._lock:
            batch = list(self._finished)
            if not batch:
                return
            self.queue._ack_jobs(batch)
            for job in batch:
                if job.outcome is not Outcome.GIVEN_BACK:
                    self.worked.count(job.outcome or Outcome.LOST)
                self._running.discard(job)
                self._finished.popleft()  # last: if Ctrl-C comes before, the job is settled again, and no lease stays


@contextmanager
def _terminated(stop: threading.Event) -> Iterator[None]:
    """SIGTERM sets `stop`. Only the main thread can say so. A handler of a program in C, as uWSGI, stays: it could not come back."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is None:
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
