"""Work on any queue that has claim, ack and release: a thread claims one item, handles it, answers, and claims the next.

In:  a queue, a handler, how many threads, a `Retry`, and how to keep an item, let it go, or give it up. Out: `Worked`.
The house's own queue has a loop that saves it commits (kqlib/queue/work.py); here each answer is a call of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from kqlib.errors import Closed, KqError, LeaseLost, NotAllowed, Unreachable
from kqlib.queue import arguments, dead
from kqlib.queue.item import Item
from kqlib.queue.retry import Retry
from kqlib.queue.work import LONGEST_STORY, Until, Worked, _bar, _terminated

log = logging.getLogger("kqlib.share")
WAIT = 0.5  # seconds of one claim: how soon a thread hears that it shall stop
SOON = 0.05


class Workable(Protocol):
    """What a queue must have to be worked on."""

    lease: float

    def claim(self, lease: float | None = None, wait: float = 0) -> Any: ...
    def ack(self, item: Any) -> None: ...


Failed = Callable[[Any, float | None, str], str]  # item, seconds to wait or None: give up, story -> what it did of it


class Work:
    """One call of `work`."""

    def __init__(self, queue: Workable, handler: Callable[[Item], object], failed: Failed, **how: Any) -> None:
        if not callable(handler):
            raise NotAllowed(f"a handler is called with an item, and {type(handler).__name__} cannot be called")
        self.queue, self.handler, self.failed = queue, handler, failed
        self.threads = arguments.count("threads", how.get("threads", 1))
        self.retry, self.until = _retry(how.get("retry")), _until(how.get("until"))
        self.extend: Callable[[Any], Any] | None = how.get("extend")
        self.empty: Callable[[], bool] = how.get("empty") or (lambda: True)  # beside what runs here
        self.stop, self.worked, self.error = threading.Event(), Worked(), None  # type: threading.Event, Worked, BaseException | None
        self._one, self._running, self._began = threading.Lock(), dict[int, Any](), time.monotonic()
        self._bar = _bar() if how.get("progress") else None

    def run(self) -> Worked:
        """Until the end; then what came of it."""
        crew = [threading.Thread(target=self._thread, name=f"kq-work-{n}", daemon=True) for n in range(self.threads)]
        with _terminated(self.stop):
            for thread in crew:
                thread.start()
            try:
                self._watch(crew, lambda: self.stop.is_set() or self._over())
            except KeyboardInterrupt:  # the stop button of a cell: handlers end, then it is over
                log.info("stopping: handlers in hand are waited for")
            finally:
                self.stop.set()
                self._watch(crew, lambda: False)
        if self._bar is not None:
            self._bar.close()
        if self.error is not None:
            raise self.error
        return self.worked

    def _watch(self, crew: list[threading.Thread], over: Callable[[], bool]) -> None:
        """Wait for the threads, and keep what they have."""
        extended = time.monotonic()
        while any(thread.is_alive() for thread in crew) and not over():
            if self.extend and time.monotonic() - extended > self.queue.lease / 3:
                extended = time.monotonic()
                with self._one:
                    running = list(self._running.values())
                for item in running:
                    with suppress(KqError):  # it has just been done, or is lost: its thread will see
                        self.extend(item)
            self.stop.wait(SOON) if not self.stop.is_set() else time.sleep(SOON)

    def _over(self) -> bool:
        if callable(self.until):
            return bool(self.until())
        return isinstance(self.until, int | float) and time.monotonic() - self._began >= self.until

    def _thread(self) -> None:
        while not self.stop.is_set():
            try:
                item = self.queue.claim(wait=SOON if self.until == "empty" else WAIT)
                if item is not None:
                    self._handle(item)
                elif self.until == "empty" and not self._running and self.empty():
                    return
            except Unreachable as error:  # whoever has the queue is away: it comes back, or `until` ends this
                log.warning("%s", error)
                self.stop.wait(0.5)
            except Closed:
                return
            except BaseException as error:
                self.error = error
                self.stop.set()

    def _handle(self, item: Any) -> None:
        me = threading.get_ident()
        with self._one:
            self._running[me] = item
        what = "lost"
        try:
            with suppress(LeaseLost):  # the item comes again, here or elsewhere
                what = self._ended(item)
        finally:
            with self._one:
                self._running.pop(me, None)
                setattr(self.worked, what, getattr(self.worked, what) + 1)
                if self._bar is not None and what in ("done", "buried"):
                    self._bar.update()

    def _ended(self, item: Any) -> str:
        try:
            self.handler(item)
        except Exception as error:
            story = dead.reason(error)[:LONGEST_STORY]
            log.info("%s failed: %s", item.id, story)
            return self.failed(item, self.retry.wait(item.attempt, error, item.id), story)
        self.queue.ack(item)
        return "done"


def _retry(retry: Any) -> Retry:
    if retry is not None and not isinstance(retry, Retry):
        raise NotAllowed(f"retry is a Retry, like Retry.exponential(1), not {type(retry).__name__}")
    return retry or Retry()


def _until(until: Any) -> Until:
    if isinstance(until, str) and until != "empty":
        raise NotAllowed(f"until is 'empty', a number of seconds, a callable or None, not {until!r}")
    if until is not None and not callable(until) and not isinstance(until, str):
        return arguments.seconds("until", until, 0, 366 * 24 * 3600.0)
    checked: Until = until
    return checked
