"""Work: claim, handle, ack in threads, until there is nothing left, time is up, or somebody says stop.

In:  a queue, a handler, how many threads, a `Retry`. Out: `Worked`, the numbers. SIGTERM and Ctrl-C end it in good order.
One thread at a time claims, for all that are free: one commit serves them all. While handlers take less than 10 ms it claims ahead
what they are through with while a claim is committed, and as much again, but no more than four items a thread; `ahead` says another
number. Acks ride on the next claim's commit, or go by themselves when none comes. While a handler runs its lease is extended.
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
from kqlib.extras import check
from kqlib.queue import arguments, dead
from kqlib.queue.item import Item
from kqlib.queue.partition import Handled
from kqlib.queue.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kqlib.queue.queue import Queue

log = logging.getLogger("kqlib.queue")
WAIT = 5.0  # seconds of one claim
QUICK = 0.01  # seconds: handlers that take less are claimed for ahead
AHEAD = 4  # items a thread at most: a crash counts an attempt for each of them
TICK = 0.015  # seconds between two looks at what is finished: after two of them its ack waits for no claim
AT_ONCE = 5  # attempts without a wait between them, where nothing can be buried
SOON = 0.1  # the same while until="empty" waits for what is out
LONGEST_STORY = 4_000  # characters of what an exception says
CLAIM, STOP = "claim", "stop"  # what a free thread may be told beside an item
Hand = tuple[Item, Handled] | str
Until = str | float | Callable[[], bool] | None


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
    until: Until = None,
    extend: bool = True,
    progress: bool = False,
    ahead: int | None = None,
) -> Worked:
    """Handle items until told otherwise.

    until: None for ever; "empty": until nothing is left in the partitions of this process, leased and delayed items included; seconds;
    or a callable.
    extend: keep a handler's lease alive while it runs. progress: a tqdm bar. A handler may end its item itself (ack, step,
    release, bury); one that returns without has done it. What is done is stored at most 50 ms later, and when this returns.
    ahead: how many items a thread may hold beside the one it works on; None: 0, and up to 4 while handlers are quick.
    An item that cannot be buried (no dead-letter topic, no right to write there) waits 20 s and is tried again;
    `queue.blocked` says why. If until="empty" has nothing else left, and the item was given up (by `retry`, or by the queue's
    attempts), that reason is raised.
    """
    if ahead is not None:
        arguments.count("ahead", ahead, 0)
    how: dict[str, Any] = {"until": until, "extend": extend, "progress": progress, "ahead": ahead}
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
        ahead: int | None = None,
    ) -> None:
        if not callable(handler):
            raise NotAllowed(f"a handler is called with an item, and {type(handler).__name__} cannot be called")
        if not isinstance(retry, Retry):
            raise NotAllowed(f"retry is a Retry, like Retry.exponential(1), not {type(retry).__name__}")
        if isinstance(until, str) and until != "empty":
            raise NotAllowed(f"until is 'empty', a number of seconds, a callable or None, not {until!r}")
        if until is not None and not callable(until) and not isinstance(until, str):
            arguments.seconds("until", until, 0, 366 * 24 * 3600.0)
        if ahead is None and queue.terms.max_attempts == 1:
            ahead = 0  # a crash counts an attempt, and this one would be the last of what no handler began with
        self.queue, self.handler, self.threads, self.retry = queue, handler, threads, retry
        self.until, self.extend, self.ahead, self.began = until, extend, ahead, time.monotonic()
        self.tick = min(TICK, queue.lease / 6)
        self.stop, self.worked, self.error = threading.Event(), Worked(), None  # type: threading.Event, Worked, BaseException | None
        self._one = threading.Lock()
        self._running: dict[Handled, Item] = {}  # what was claimed and is not settled
        self._hands: SimpleQueue[Hand] = SimpleQueue()  # for threads that are free
        self._handed: deque[Handled] = deque()  # what handlers are through with
        self._takes, self._claims = 1.0, 0.0  # seconds that handling one, and claiming, took of late
        self._stuck: list[KqError] = []  # why what is left cannot be buried, if nothing else is left
        self._idle = False  # nothing is at hand, and who claims waits: others settle for themselves
        self._crew: list[threading.Thread] = []
        self._extended = self.began
        self._before: Handled | None = None  # what was finished first, a tick ago
        self._bar = _bar() if progress else None

    def run(self) -> Worked:
        """Until the end; then what came of it."""
        with _terminated(self.stop):
            try:
                self._start()
                self._hands.put(CLAIM)
                self._watch()
            except KeyboardInterrupt:  # the stop button of a cell: handlers end, then it is over
                log.info("stopping: handlers in hand are waited for")
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
        """The threads; those that there are end again where the machine does not give as many as that."""
        try:
            for n in range(self.threads):
                self._crew.append(threading.Thread(target=self._thread, name=f"kq-work-{n}", daemon=True))
                self._crew[-1].start()
        except RuntimeError:
            why = f"this machine gives this process {n:,} threads, not {self.threads:,}. Nothing was claimed"
            raise NotAllowed(why) from None

    def _watch(self) -> None:
        while any(thread.is_alive() for thread in self._crew) and not self.stop.is_set():
            if self._over():
                return
            self._tend()
            self.stop.wait(self.tick)

    def _tend(self) -> None:
        """Leases are extended in time, and what was finished a tick ago is stored: it waits for no other handler."""
        now = time.monotonic()
        if self.extend and now - self._extended > self.queue.lease / 3:
            self._extend()
            self._extended = now
        with self._one:
            first = self._handed[0] if self._handed else None
        if first is not None and first is self._before:
            self._settle()
            self.queue._store_soon()
        self._before = first

    def _over(self) -> bool:
        if callable(self.until):
            return bool(self.until())
        return isinstance(self.until, int | float) and time.monotonic() - self.began >= self.until

    def _end(self) -> None:
        self._hands.put(STOP)
        with self.queue._member.changed:
            self.queue._member.changed.notify_all()  # who waits in a claim
        while alive := [thread for thread in self._crew if thread.is_alive()]:
            self._tend()
            alive[0].join(self.tick)
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
        while (hand := self._next_hand()) is not STOP:
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

    def _next_hand(self) -> Hand:
        """What comes next. The word to stop is passed on, and nobody claims after the end: nobody else need end the threads."""
        hand = self._hands.get()
        if hand is STOP or (hand is CLAIM and self.stop.is_set()):
            self._hands.put(STOP)
            return STOP
        return hand

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
                items = self._at_hand(most, handled) if most > 0 else []
                if not items and self._hands.empty():  # what is there already is handled before anybody waits for more
                    items = self._wait(max(1, free), handled)
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
        if self.ahead is not None:
            return self.ahead * self.threads
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
            empty = self._empty if self.until == "empty" else None
            return self.queue._claim(free, self.queue.lease, wait, handled, self.stop.is_set, empty=empty)
        finally:
            self._idle = False

    def _empty(self, stuck: list[KqError]) -> None:
        self._stuck = stuck
        self.stop.set()

    def _in_hand(self) -> bool:
        """Is something out or due later in this process? What a handler releases is still to be done."""
        member = self.queue._member
        with member.changed:
            return any(owner.in_hand() for owner in member.owners_of(self.queue.name))

    def _one_item(self, item: Item, handled: Handled) -> None:
        try:
            if self.stop.is_set() or not handled.begin():  # nobody begins with it any more
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
            if self._idle or self.stop.is_set():
                self._settle()

    def _handle(self, item: Item, handled: Handled) -> None:
        """What fails is tried again later, or buried; what went wrong goes into its story."""
        try:
            self.handler(item)
        except Exception as error:
            story = dead.reason(error)[:LONGEST_STORY]
            log.info("%s failed: %s", item.id, story)
            if not handled.ended:
                with suppress(LeaseLost):  # counted when it is settled
                    self._failed(item, error, story)
            elif isinstance(error, LeaseLost):  # the handler ended it, and too late for that to be stored
                handled.ended = "lost"

    def _failed(self, item: Item, error: Exception, story: str) -> None:
        wait = self.retry.wait(item.attempt, error, item.id)
        most = self.queue.terms.max_attempts
        over, no_dead = wait is None or (most is not None and item.attempt >= most), self.queue.dead_facts is None
        if over and not no_dead:
            self._bury(item, story)
        elif over or (no_dead and not wait and item.attempt >= AT_ONCE):
            self.queue._set_aside(item, self.queue._no_letters(), given_up=over)
        else:
            self.queue.release(item, wait or 0.0)

    def _bury(self, item: Item, story: str) -> None:
        """What cannot be buried waits with the reason, and holds nobody up."""
        try:
            self.queue.bury(item, story)
        except (Closed, LeaseLost, Unreachable):
            raise
        except KqError as why:
            self.queue._set_aside(item, why, given_up=True)

    def _settle(self) -> None:
        """What handlers are through with is acked, unless it was ended before, and counted."""
        with self._one:
            batch = list(self._handed)
            if not batch:
                return
            self.queue._settle(batch)
            for handled in batch:
                what = handled.ended or "lost"
                if what != "given back":
                    setattr(self.worked, what, getattr(self.worked, what) + 1)
                if self._bar is not None and what in ("done", "buried"):
                    self._bar.update()
                self._running.pop(handled, None)
                self._handed.popleft()  # last: what Ctrl-C strikes before is settled again, and no lease stays


def _bar() -> Any:
    check("lab", "progress=True", "tqdm")
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
