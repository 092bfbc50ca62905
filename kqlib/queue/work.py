"""Work: claim, handle and ack in threads, on any queue that has the verbs.

In:  a queue (`Workable`), a handler, a number of threads, a `Retry`. Out: `Worked`. SIGTERM and Ctrl-C let running handlers end.
One thread at a time claims, for all threads that are free. While a handler runs its lease is extended.
The site's own queue (kqlib/queue/queue.py) does more than the defaults here. One commit serves a claim and the acks before it. While
handlers take less than 10 ms it claims ahead, at most four items a thread. An item that no handler began with goes back without a
counted attempt.
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
from kqlib.queue.item import Job
from kqlib.queue.retry import Retry

log = logging.getLogger("kqlib.queue")
WAIT = 5.0  # seconds of one claim
BLIND = 0.5  # seconds of a claim that does not look at `stop`
QUICK = 0.01  # seconds: if handlers take less, items are claimed ahead
AHEAD = 4  # items a thread at most: a crash counts an attempt for each of them
TICK = 0.015  # seconds between two looks at what is finished: after two of them its ack waits for no claim
SOON = 0.1  # seconds of one claim while until="empty" waits for items that are out
LONGEST_STORY = 4_000  # characters of what an exception says
CLAIM, STOP = "claim", "stop"  # what a free thread finds beside jobs
Until = str | float | Callable[[], bool] | None


@dataclass
class Worked:
    """How the items of one call of `work` ended."""

    done: int = 0
    released: int = 0
    buried: int = 0
    lost: int = 0  # the lease ended while the handler ran: the item comes again, here or elsewhere

    def __repr__(self) -> str:
        return f"{self.done} done, {self.released} to be tried again, {self.buried} buried, {self.lost} lost"


class Workable:
    """A queue with `claim_many`, `ack`, `release` and `bury`: what `work` does with it. A queue that can do better overrides it."""

    lease: float
    extends = True  # can a lease be extended?
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
        """Raise if it is closed, or not of this process."""

    def _ahead(self, ahead: int | None) -> int | None:
        return ahead or 0

    def _jobs_at_hand(self, n: int) -> list[Job]:
        """Up to n items, without waiting; [] says nothing of what else there is."""
        return []

    def _claim_jobs(
        self, n: int, wait: float, stop: Callable[[], bool], empty: Callable[[list[KqError]], None] | None
    ) -> list[Job]:
        """Up to n items. stop: end the wait. empty: call it if nothing is left; it takes what cannot be buried."""
        items = self.claim_many(n, wait=min(wait, BLIND))
        if empty is not None and not items and self._is_empty():
            empty([])
        return [Job(item) for item in items]

    def _is_empty(self) -> bool:
        return True

    def _may_come(self) -> bool:
        """May an item come that nobody puts: one that is out, or due later?"""
        return True

    def _job_done(self, job: Job) -> None:
        """Its handler returned."""
        self.ack(job.item)
        job.ended = "done"

    def _job_failed(self, job: Job, wait: float | None, story: str) -> None:
        """Its handler raised. wait: seconds until the next attempt; None: give it up."""
        if wait is None:
            self.bury(job.item, story)
        else:
            self.release(job.item, wait)
        job.ended = "buried" if wait is None else "released"

    def _ack_jobs(self, jobs: Iterable[Job]) -> None:
        """Ack those that did not end before."""

    def _give_back(self, job: Job) -> None:
        """No handler began with it."""

    def _store_soon(self) -> None:
        """Acks wait for no other commit."""

    def _flush(self) -> None:
        """Return when all acks are stored."""

    def _wake(self) -> None:
        """A thread that waits in `_claim_jobs` asks `stop` again."""


class Work:
    """One call of `work`."""

    def __init__(
        self,
        queue: Workable,
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
        self.queue, self.handler, self.retry = queue, handler, retry or Retry()
        self.threads = arguments.count("threads", threads)
        self.until, self.ahead, self.began = until, ahead, time.monotonic()
        self.tick = min(TICK, queue.lease / 6)
        self.stop, self.worked, self.error = threading.Event(), Worked(), None  # type: threading.Event, Worked, BaseException | None
        self._lock = threading.Lock()
        self._running: set[Job] = set()  # claimed and not settled
        # What free threads do next. One thread claims, or one CLAIM is in it. It becomes STOP at the end.
        self._todo: SimpleQueue[Job | str] = SimpleQueue()
        self._finished: deque[Job] = deque()  # handlers are through with them
        self._takes, self._claims = 1.0, 0.0  # seconds that one handler, and one claim, took of late
        self._stuck: list[KqError] = []  # why what is left cannot be buried, if nothing else is left
        self._idle = False  # nothing is at hand, and one thread waits in a claim: the others settle for themselves
        self._started: list[threading.Thread] = []
        self._begun = False
        self._extended = self.began
        self._before: Job | None = None  # what was finished first, a tick ago

    def run(self) -> Worked:
        """Work until the end."""
        with _terminated(self.stop):
            try:
                self._start()
                self._todo.put(CLAIM)
                self._begun = True
                self._watch()
            except KeyboardInterrupt:  # the stop button of a cell: handlers end, then it is over
                log.info("stopping: running handlers are waited for")
            finally:
                self.stop.set()
                self._end()
        if self.error is not None:
            raise self.error
        self.queue._flush()
        if self._stuck:
            raise self._stuck[0]
        return self.worked

    def _start(self) -> None:
        """Start the threads. If the machine does not give so many, those that were started end."""
        try:
            for n in range(self.threads):
                self._started.append(threading.Thread(target=self._thread, name=f"kq-work-{n}", daemon=True))
                self._started[-1].start()
        except RuntimeError:
            why = f"this machine gives this process {n:,} threads, not {self.threads:,}. Nothing was claimed"
            raise NotAllowed(why) from None

    def _watch(self) -> None:
        while any(thread.is_alive() for thread in self._started) and not self.stop.is_set():
            if self._over():
                return
            self._tend()
            self.stop.wait(self.tick)

    def _tend(self) -> None:
        """Extend leases in time, and store what was finished a tick ago: it waits for no other handler."""
        now = time.monotonic()
        if self.queue.extends and now - self._extended > self.queue.lease / 3:
            self._extend()
            self._extended = now
        with self._lock:
            first = self._finished[0] if self._finished else None
        if first is not None and first is self._before:
            self._settle()
            self.queue._store_soon()
        self._before = first

    def _over(self) -> bool:
        if callable(self.until):
            return bool(self.until())
        return isinstance(self.until, int | float) and time.monotonic() - self.began >= self.until

    def _end(self) -> None:
        if not self._begun:
            self._todo.put(STOP)
        self.queue._wake()
        while alive := [thread for thread in self._started if thread.is_alive()]:
            self._tend()
            alive[0].join(self.tick)
        self._settle()

    def _extend(self) -> None:
        with self._lock:
            running = [job for job in self._running if not job.ended]
        for job in running:
            with suppress(KqError):  # it has just been done, or is lost: the handler's thread will see
                self.queue.extend(job.item)

    def _thread(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._one(job)
            except Unreachable as error:  # Kafka is away: it comes back, or `until` ends this
                log.warning("%s", error)
                self.stop.wait(0.5)
            except Closed:
                self.stop.set()
            except BaseException as error:
                self.error = error
                self.stop.set()

    def _next(self) -> Job | str | None:
        """What to do next; None: end. STOP stays behind all jobs, for the other threads."""
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
            if job.begin(self.stop.is_set()):
                begun = time.perf_counter()
                self._handle(job)
                self._takes += (time.perf_counter() - begun - self._takes) / 8
            else:
                self.queue._give_back(job)
                job.ended = "given back"
        except BaseException:
            job.ended = job.ended or "lost"
            raise
        finally:
            self._finished.append(job)
            if self._idle or self.stop.is_set():
                self._settle()

    # --- claiming ---

    def _claim(self) -> Job | None:
        """Claim for all threads that are free, and some more. Returns the first job; the others, and the next claim, go to `_todo`."""
        jobs, free = list[Job](), 1
        try:
            if not self.stop.is_set():
                self._settle()
                free = self.threads - len(self._running)
                most = free + self._claim_ahead()
                jobs = self._at_hand(most) if most > 0 else []
                if not jobs and self._todo.empty():  # what is there already is handled before a thread waits for more
                    jobs = self._wait(max(1, most))
        finally:
            with self._lock:
                self._running.update(jobs)
            now = max(1, free, len(jobs) + free >> 1)  # half of those ahead go first: then a claim is worth its commit
            todo: list[Job | str] = [*jobs[1:now], CLAIM, *jobs[now:]]
            for each in todo:
                self._todo.put(each)
        return jobs[0] if jobs else None

    def _claim_ahead(self) -> int:
        """How many items handlers need in the time of two claims: half are at hand while the other half is claimed."""
        if self.ahead is not None:
            return self.ahead * self.threads
        return int(min(AHEAD, 2 * self._claims / self._takes) * self.threads) if self._takes < QUICK else 0

    def _at_hand(self, most: int) -> list[Job]:
        begun = time.perf_counter()
        if jobs := self.queue._jobs_at_hand(most):
            self._claims += (time.perf_counter() - begun - self._claims) / 8
        return jobs

    def _wait(self, most: int) -> list[Job]:
        self._idle = True
        try:
            self._settle()
            wait, empty = WAIT, None
            if self.until == "empty":
                wait = SOON if self._running or self.queue._may_come() else 0
                empty = None if self._running else self._is_empty
            return self.queue._claim_jobs(most, wait, self.stop.is_set, empty)
        finally:
            self._idle = False

    def _is_empty(self, stuck: list[KqError]) -> None:
        self._stuck = stuck
        self.stop.set()

    # --- handling ---

    def _handle(self, job: Job) -> None:
        """Call the handler. If it raises, the item is tried again later or buried, and the exception's text goes with it."""
        try:
            self.handler(job.item)
        except Exception as error:
            story = dead.reason(error)[:LONGEST_STORY]
            log.info("%s failed: %s", job.item.id, story)
            if not job.ended:
                with suppress(LeaseLost):  # counted when it is settled
                    wait = self.retry.wait(job.item.attempt, error, job.item.id)
                    self.queue._job_failed(job, wait, story)
            elif isinstance(error, LeaseLost):  # the handler ended it, and too late for that to be stored
                job.ended = "lost"
        else:
            with suppress(LeaseLost):
                self.queue._job_done(job)

    def _settle(self) -> None:
        """Ack and count what handlers are through with."""
        with self._lock:
            batch = list(self._finished)
            if not batch:
                return
            self.queue._ack_jobs(batch)
            for job in batch:
                what = job.ended or "lost"
                if what != "given back":
                    setattr(self.worked, what, getattr(self.worked, what) + 1)
                self._running.discard(job)
                self._finished.popleft()  # last: what Ctrl-C strikes before is settled again, and no lease stays


@contextmanager
def _terminated(stop: threading.Event) -> Iterator[None]:
    """SIGTERM sets `stop`. Only the main thread can say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
