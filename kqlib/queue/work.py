"""Work: claim, handle, ack in threads, until there is nothing left, time is up, or somebody says stop.

In:  a queue, a handler, how many threads, a `Retry`. Out: `Worked`, the numbers. SIGTERM and Ctrl-C end it in good order.
A thread claims one item when it is free, so no more is claimed than is handled. While a handler runs its lease is extended.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kqlib.errors import Closed, KqError, LeaseLost, NotAllowed, Unreachable
from kqlib.queue import arguments
from kqlib.queue.item import Item
from kqlib.queue.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kqlib.queue.queue import Queue

log = logging.getLogger("kqlib.queue")
WAIT = 0.5  # seconds of one claim: how soon a thread hears that it shall stop
LONGEST_STORY = 4_000  # characters of what an exception says


@dataclass
class Worked:
    """What came of it."""

    done: int = 0
    released: int = 0
    buried: int = 0
    lost: int = 0  # the lease ended while the handler ran

    def __repr__(self) -> str:
        return f"{self.done} done, {self.released} to be tried again, {self.buried} buried, {self.lost} lost"


def work(
    queue: Queue,
    handler: Callable[[Item], object],
    threads: int = 1,
    retry: Retry | None = None,
    *,
    until: str | float | Callable[[], bool] | None = None,
    extend: bool = True,
    progress: bool = False,
) -> Worked:
    """Handle items until told otherwise.

    until: None for ever; "empty": until a claim finds nothing and nothing is out or due here; seconds; or a callable.
    extend: keep a handler's lease alive while it runs. progress: a tqdm bar.
    """
    how: dict[str, Any] = {"until": until, "extend": extend, "progress": progress}
    return Work(queue, handler, threads=arguments.count("threads", threads), retry=retry or Retry(), **how).run()


class Work:
    """One call of `work`."""

    def __init__(
        self,
        queue: Queue,
        handler: Callable[[Item], object],
        *,
        threads: int,
        retry: Retry,
        until: Any,
        extend: bool,
        progress: bool,
    ) -> None:
        if not callable(handler):
            raise NotAllowed(f"a handler is called with an item, and {type(handler).__name__} cannot be called")
        if not isinstance(retry, Retry):
            raise NotAllowed(f"retry is a Retry, like Retry.exponential(1), not {type(retry).__name__}")
        if isinstance(until, str) and until != "empty":
            raise NotAllowed(f"until is 'empty', a number of seconds, a callable or None, not {until!r}")
        if until is not None and not callable(until) and not isinstance(until, str):
            arguments.seconds("until", until, 0, 366 * 24 * 3600.0)
        self.queue, self.handler, self.threads, self.retry = queue, handler, threads, retry
        self.until, self.extend, self.began = until, extend, time.monotonic()
        self.stop, self.worked, self.error = threading.Event(), Worked(), None  # type: threading.Event, Worked, BaseException | None
        self._one, self._running = threading.Lock(), dict[int, Item]()
        self._bar = _bar() if progress else None

    def run(self) -> Worked:
        """Until the end; then what came of it."""
        crew = [threading.Thread(target=self._thread, name=f"kq-work-{n}", daemon=True) for n in range(self.threads)]
        with _terminated(self.stop):
            for thread in crew:
                thread.start()
            try:
                self._watch(crew)
            except KeyboardInterrupt:  # the stop button of a cell: handlers end, then it is over
                log.info("stopping: handlers in hand are waited for")
            finally:
                self.stop.set()
                self._end(crew)
        if self.error is not None:
            raise self.error
        return self.worked

    def _watch(self, crew: list[threading.Thread]) -> None:
        extended = time.monotonic()
        while any(thread.is_alive() for thread in crew) and not self.stop.is_set():
            if self._over():
                return
            if self.extend and time.monotonic() - extended > self.queue.lease / 3:
                self._extend()
                extended = time.monotonic()
            self.stop.wait(min(0.05, self.queue.lease / 6))

    def _over(self) -> bool:
        if callable(self.until):
            return bool(self.until())
        return isinstance(self.until, int | float) and time.monotonic() - self.began >= self.until

    def _end(self, crew: list[threading.Thread]) -> None:
        while any(thread.is_alive() for thread in crew):
            if self.extend:
                self._extend()
            for thread in crew:
                thread.join(min(0.2, self.queue.lease / 6))
        if self._bar is not None:
            self._bar.close()

    def _extend(self) -> None:
        with self._one:
            running = list(self._running.values())
        for item in running:
            with suppress(KqError):  # it has just been done, or is lost: the handler's thread will see
                self.queue.extend(item)

    def _thread(self) -> None:
        while not self.stop.is_set() and self.error is None:
            try:
                item = self.queue.claim(wait=WAIT)
                if item is not None:
                    self._one_item(item)
                elif self.until == "empty" and self._empty():
                    return
            except Unreachable as error:  # Kafka is away: it comes back, or `until` ends this
                log.warning("%s", error)
                self.stop.wait(0.5)
            except Closed:
                return
            except BaseException as error:
                self.error = error
                self.stop.set()

    def _empty(self) -> bool:
        """Nothing is out or due later in this process either: what a handler releases is still to be done."""
        member = self.queue._member
        with member.changed:
            owners = member.owners_of(self.queue.name)
            return not any(owner.in_hand() for owner in owners)

    def _one_item(self, item: Item) -> None:
        me = threading.get_ident()
        with self._one:
            self._running[me] = item
        self.queue._handled(item)
        try:
            try:
                self.handler(item)
            except Exception as error:
                self._failed(item, error)
            else:
                self.queue.ack(item)
                self._count("done")
        except LeaseLost as error:
            log.warning("%s", error)
            self._count("lost")
        finally:
            with self._one:
                self._running.pop(me, None)

    def _failed(self, item: Item, error: Exception) -> None:
        """Tried again later, or buried; what went wrong goes into its story."""
        story = f"{type(error).__name__}: {error}"[:LONGEST_STORY]
        log.info("%s failed: %s", item.id, story)
        wait = self.retry.wait(item.attempt, error, item.id)
        most = self.queue.terms.max_attempts
        if (wait is None or (most is not None and item.attempt >= most)) and self.queue.dead_facts is not None:
            self.queue.bury(item, story)
            self._count("buried")
        else:
            self.queue.release(item, wait or 0.0)
            self._count("released")

    def _count(self, what: str) -> None:
        with self._one:
            setattr(self.worked, what, getattr(self.worked, what) + 1)
            if self._bar is not None and what in ("done", "buried"):
                self._bar.update()


def _bar() -> Any:
    from tqdm.auto import tqdm

    return tqdm(unit=" items")


@contextmanager
def _terminated(stop: threading.Event) -> Iterator[None]:
    """SIGTERM stops it in good order; only the main thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
