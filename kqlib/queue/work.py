"""Work: claim, handle, ack in threads, until there is nothing left, time is up, or somebody says stop.

In:  a queue, a handler, how many threads, a `Retry`. Out: `Worked`, the numbers. SIGTERM and Ctrl-C end it in good order.
One thread at a time claims, for all that are free: one commit serves them all. While handlers take less than 10 ms it claims ahead
what they are through with while a claim is committed, and as much again, but no more than four items a thread.
Acks ride on the next commit. While a handler runs its lease is extended.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from kqlib.errors import Closed, KqError, LeaseLost, NotAllowed, Unreachable
from kqlib.queue import arguments
from kqlib.queue.item import Item
from kqlib.queue.lease import Handled
from kqlib.queue.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kqlib.queue.queue import Queue

log = logging.getLogger("kqlib.queue")
WAIT = 5.0  # seconds of one claim
QUICK = 0.01  # seconds: handlers that take less are claimed for ahead
AHEAD = 4  # items a thread at most: a crash counts an attempt for each of them
SOON = 0.1  # the same while until="empty" waits for what is out
LONGEST_STORY = 4_000  # characters of what an exception says
CLAIM, STOP = "claim", "stop"  # what a free thread may be told beside an item
Hand = tuple[Item, Handled] | str


@dataclass
class Worked:
    """What came of it."""

    done: int = 0
    released: int = 0
    buried: int = 0
    lost: int = 0  # the lease ended while the handler ran: the item comes again, here or elsewhere

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
    extend: keep a handler's lease alive while it runs. progress: a tqdm bar. A handler may end its item itself (ack, step,
    release, bury); one that returns without has done it. What is done is stored at most 50 ms later, and when this returns.
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
        self._one = threading.Lock()
        self._running: dict[Handled, Item] = {}  # what was claimed and is not settled
        self._hands: SimpleQueue[Hand] = SimpleQueue()  # for threads that are free
        self._handed: deque[Handled] = deque()  # what handlers are through with
        self._takes, self._claims = 1.0, 0.0  # seconds that handling one, and claiming, took of late
        self._idle = False  # nothing is at hand, and who claims waits: others settle for themselves
        self._bar = _bar() if progress else None

    def run(self) -> Worked:
        """Until the end; then what came of it."""
        with _terminated(self.stop):
            crew = self._crew()
            self._hands.put(CLAIM)
            try:
                self._watch(crew)
            except KeyboardInterrupt:  # the stop button of a cell: handlers end, then it is over
                log.info("stopping: handlers in hand are waited for")
            finally:
                self.stop.set()
                self._end(crew)
        if self.error is not None:
            raise self.error
        self.queue._flush()
        return self.worked

    def _crew(self) -> list[threading.Thread]:
        """The threads, started; those that there are end again where the machine does not give as many as that."""
        crew: list[threading.Thread] = []
        try:
            for n in range(self.threads):
                thread = threading.Thread(target=self._thread, name=f"kq-work-{n}", daemon=True)
                thread.start()
                crew.append(thread)
        except RuntimeError:
            self._end(crew)
            why = f"this machine gives this process {len(crew):,} threads, not {self.threads:,}. Nothing was claimed"
            raise NotAllowed(why) from None
        return crew

    def _watch(self, crew: list[threading.Thread]) -> None:
        extended = time.monotonic()
        while any(thread.is_alive() for thread in crew) and not self.stop.is_set():
            if self._over():
                return
            if self.extend and time.monotonic() - extended > self.queue.lease / 3:
                self._extend()
                extended = time.monotonic()
            self.stop.wait(min(0.5 if self.until is None else 0.05, self.queue.lease / 6))

    def _over(self) -> bool:
        if callable(self.until):
            return bool(self.until())
        return isinstance(self.until, int | float) and time.monotonic() - self.began >= self.until

    def _end(self, crew: list[threading.Thread]) -> None:
        for _ in crew:
            self._hands.put(STOP)
        with self.queue._member.changed:
            self.queue._member.changed.notify_all()  # who waits in a claim
        while any(thread.is_alive() for thread in crew):
            if self.extend:
                self._extend()
            self._settle()
            for thread in crew:
                thread.join(min(0.2, self.queue.lease / 6))
        while not self._hands.empty():  # claimed by one while the others were told to stop
            hand = self._hands.get()
            if not isinstance(hand, str):
                with suppress(KqError):
                    self._one_item(*hand)
        self._settle()
        if self._bar is not None:
            self._bar.close()

    def _extend(self) -> None:
        with self._one:
            running = list(self._running.values())
        for item in running:
            with suppress(KqError):  # it has just been done, or is lost: the handler's thread will see
                self.queue.extend(item)

    def _thread(self) -> None:
        while (hand := self._hands.get()) is not STOP:
            try:
                got = self._claim() if isinstance(hand, str) else hand
                if got is not None:
                    self._one_item(*got)
            except Unreachable as error:  # Kafka is away: it comes back, or `until` ends this
                log.warning("%s", error)
                self.stop.wait(0.5)
            except Closed:
                self.stop.set()
            except BaseException as error:
                self.error = error
                self.stop.set()

    def _claim(self) -> tuple[Item, Handled] | None:
        """For all that are free, and some more: they get theirs through `_hands`, and one of them claims next."""
        items: list[Item] = []
        handled: list[Handled] = []
        free = 1
        try:
            if not self.stop.is_set():
                self._settle()
                free = self.threads - len(self._running)
                most = free + self._ahead()
                items = self._at_hand(most, handled) or self._wait(max(1, free), handled) if most > 0 else []
        finally:
            got = list(zip(items, handled, strict=False))
            with self._one:
                self._running |= {handled: item for item, handled in got}
            now = max(1, free, len(got) + free >> 1)  # half of those ahead go first: then a claim is worth its commit
            hands: list[Hand] = [*got[1:now], CLAIM, *got[now:]]
            for hand in hands:
                self._hands.put(hand)
        return got[0] if got else None

    def _ahead(self) -> int:
        """How many items handlers are through with in the time of two claims: half are at hand while the other half is claimed."""
        return int(min(AHEAD, 2 * self._claims / self._takes) * self.threads) if self._takes < QUICK else 0

    def _at_hand(self, most: int, handled: list[Handled]) -> list[Item]:
        begun = time.perf_counter()
        items = self.queue._at_hand(most, handled)
        if items:
            self._claims += (time.perf_counter() - begun - self._claims) / 8
        return items

    def _wait(self, free: int, handled: list[Handled]) -> list[Item]:
        self._idle = True
        try:
            self._settle()
            wait = WAIT if self.until != "empty" else SOON if self._in_hand() else 0
            items = self.queue._claim(free, self.queue.lease, wait, handled, self.stop.is_set)
        finally:
            self._idle = False
        if self.until == "empty" and not items and not self._in_hand():
            self.stop.set()
        return items

    def _in_hand(self) -> bool:
        """Is something out or due later in this process? What a handler releases is still to be done."""
        member = self.queue._member
        with member.changed:
            return any(owner.in_hand() for owner in member.owners_of(self.queue.name))

    def _one_item(self, item: Item, handled: Handled) -> None:
        try:
            if self.stop.is_set():  # nobody begins with it any more
                self.queue._give_back(handled)
                handled.ended = "given back"
            else:
                begun = time.perf_counter()
                self._handle(item, handled)
                self._takes += (time.perf_counter() - begun - self._takes) / 8
        except BaseException:
            handled.ended = handled.ended or "lost"
            raise
        finally:
            self._handed.append(handled)
            if self._idle:
                self._settle()

    def _handle(self, item: Item, handled: Handled) -> None:
        """What fails is tried again later, or buried; what went wrong goes into its story."""
        try:
            self.handler(item)
        except Exception as error:
            story = f"{type(error).__name__}: {error}"[:LONGEST_STORY]
            log.info("%s failed: %s", item.id, story)
            if not handled.ended:
                with suppress(LeaseLost):  # counted when it is settled
                    self._failed(item, error, story)
            elif isinstance(error, LeaseLost):  # the handler ended it, and too late for that to be stored
                handled.ended = "lost"

    def _failed(self, item: Item, error: Exception, story: str) -> None:
        wait = self.retry.wait(item.attempt, error, item.id)
        most = self.queue.terms.max_attempts
        if (wait is None or (most is not None and item.attempt >= most)) and self.queue.dead_facts is not None:
            self.queue.bury(item, story)
        else:
            self.queue.release(item, wait or 0.0)

    def _settle(self) -> None:
        """What handlers are through with is acked, unless it was ended before, and counted."""
        with self._one:
            batch = [self._handed.popleft() for _ in range(len(self._handed))]
            if not batch:
                return
            self.queue._settle(batch)
            for handled in batch:
                self._running.pop(handled, None)
                what = handled.ended or "lost"
                if what != "given back":
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
