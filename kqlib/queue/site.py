"""A site: one user of queues. It is a consumer group, and a process has one member of it.

In:  a cluster and a name. Out: queues, whose items each go to one process of the site at a time.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kqlib.errors import NotAllowed
from kqlib.kafka.cluster import Kafka
from kqlib.queue import answers, arguments, ledger_text, state
from kqlib.queue.broker_settings import set_session_timeout
from kqlib.queue.connection import Connection, TopicFacts
from kqlib.queue.dead import DEAD
from kqlib.queue.terms import Rates, Terms

if TYPE_CHECKING:
    from kqlib.queue.put import Transaction
    from kqlib.queue.queue import Queue

log = logging.getLogger("kqlib.queue")
logging.getLogger("kqlib").addHandler(logging.NullHandler())  # quiet until a program adds a handler

REMEMBERED: Any = ...  # order and max_attempts as the queue has had them; "any" and 5 for a new one
ATTEMPTS = 5
_LIVE: dict[tuple[str, str], weakref.ref[Site]] = {}
_LIVE_LOCK = threading.Lock()


class Site(Connection):
    """`with kq.Site(cluster, "drupal-eu") as site: queue = site.queue("football")`.

    session: seconds until a process that is gone is noticed, for the whole group; None leaves the cluster's.
    clock: for leases and delays, in seconds. write_version: of the committed state. All versions are read. Version 2 makes a queue
    notice that its log was cut off and has grown again; write it when every process of the site runs kqlib 0.2 or later.
    """

    def __init__(
        self,
        cluster: Kafka,
        name: str,
        session: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        write_version: int = ledger_text.VERSION,
    ) -> None:
        arguments.site_name(name)
        if arguments.count("write_version", write_version) not in ledger_text.WRITERS:
            known = " or ".join(map(str, ledger_text.WRITERS))
            raise NotAllowed(f"write_version is {known}, not {write_version!r}")
        if session is not None:
            arguments.seconds("session", session, 0.1, 1800)
            cluster._check_open()
            set_session_timeout(cluster, name, session)
        super().__init__(cluster, name)
        self.clock = clock
        self.write_version = write_version
        self._queues: dict[str, Queue] = {}
        self._opening = threading.Lock()
        if session is not None:
            self._session.drain = min(self._session.drain, session / 2)
            self._session.decided_after = min(self._session.decided_after, session / 3 + 1.5)
        _one_a_process(self)  # last: a site that cannot be made closes no older one

    def queue(
        self,
        name: str,
        lease: float = 30,
        max_attempts: int | None = REMEMBERED,
        order: str = REMEMBERED,
        on_lost: str = "raise",
    ) -> Queue:
        """A queue of this site; its topic must exist.

        lease: seconds that a claimed item is yours. max_attempts: then it is buried; None: never. order: "any", or "key": at most
        one item of a key is out. Both are remembered with the queue. on_lost is for a committed state that is gone. "raise": an error.
        "earliest": hand out all that is in the log. "latest": only what is put from now on; `lost` counts what that skips.
        """
        from kqlib.queue.queue import Queue

        arguments.lease(lease)
        arguments.one_of("on_lost", on_lost, "raise", "earliest", "latest")
        self._check_open()
        with self._opening:
            facts, dead_facts = self._facts(name)
            agreed = self._agreed(name, order, max_attempts, dead_facts)
            rates = self._rates.setdefault(name, Rates())
            terms = Terms(name, self.name, *agreed, self.clock, rates, self.write_version)
            queue = self._queues.get(name)
            if queue is None or queue.lease != lease or queue.facts != facts or queue.dead_facts != dead_facts:
                opens = partial(self.queue, name + DEAD, lease=lease, max_attempts=None)
                queue = self._queues[name] = Queue(self, terms, float(lease), facts, dead_facts, open_dead=opens)
            chosen = on_lost == "latest" != self._session.on_lost.get(name)
            ends = state.ends(self.cluster, [(name, each) for each in range(facts.partitions)]) if chosen else {}
            with self._session.changed:
                self._session.on_lost[name] = on_lost
                self._session.latest |= ends
                lost = [at for at in self._session.broken if at[0] == name and on_lost != "raise"]
                self._session.load_again(lost)
            return queue

    def _agreed(
        self, name: str, order: Any, max_attempts: Any, dead_facts: TopicFacts | None
    ) -> tuple[str, int | None]:
        """The terms of a queue: order and max_attempts. The first process that opens it notes them.

        If two processes do so at the same moment, the first note counts.
        """
        key = (self.name, name, "terms")
        is_dead = name.endswith(DEAD)
        asked = dict[str, Any]()
        if order is not REMEMBERED:
            asked["order"] = arguments.one_of("order", order, "any", "key")
        if max_attempts is not REMEMBERED:
            asked["max_attempts"] = arguments.max_attempts(max_attempts)
        if is_dead and asked.get("max_attempts") is not None:
            raise NotAllowed(f"'{name}' holds dead letters: its max_attempts is None")
        self._notes.catch_up()
        terms = self._notes.get(*key) or {"order": "any", "max_attempts": None if is_dead else ATTEMPTS} | asked
        if terms["max_attempts"] is not None and dead_facts is None:
            raise answers.not_there(self.cluster, name + DEAD)
        if self._notes.get(*key) is None:
            self._notes.write([(key, terms)], self._sender())
            terms = self._notes.get(*key)
        if key in self._notes.contested:
            self._notes.write([(key, terms)], self._sender())
        for what, value in asked.items():
            if value != terms[what]:
                raise NotAllowed(
                    f"'{name}' has {what}={terms[what]!r} for site '{self.name}', not {value!r}: all its processes must agree. "
                    f"Leave {what} out, or use another site"
                )
        return terms["order"], terms["max_attempts"]

    def transaction(self) -> Transaction:
        """`with site.transaction() as tx: tx.put(queue, data); tx.put(other, data)`: all or nothing."""
        from kqlib.queue.put import Transaction

        self._check_open()
        return Transaction(self)

    def close(self) -> None:
        """Give everything back in good order and leave the group; at most 5 s. Calling it twice does no harm."""
        self._close(give_back=True)

    def _close(self, give_back: bool) -> None:
        if self._process != os.getpid():  # the parent's: it has its thread, and its partitions
            return
        with _LIVE_LOCK:
            if self._closing:
                return
            self._closing = True  # handlers may still ack and put; nothing is claimed any more
            if (live := _LIVE.get(_key(self))) and live() is self:
                del _LIVE[_key(self)]
        self._disconnect(give_back)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """An exception on its way out is a crash: attempts in hand count, or a poison item would come for ever."""
        self._close(give_back=kind is None)


def _key(site: Site) -> tuple[str, str]:
    return site.cluster.bootstrap, site.name


def _one_a_process(site: Site) -> None:
    """Close an older site of this name. A cell that runs twice makes two, and they would take each other's partitions."""
    with _LIVE_LOCK:
        older = _LIVE.get(_key(site))
        _LIVE[_key(site)] = weakref.ref(site)
    if older and (before := older()):
        text = "site '%s' is opened again in this process; the older one is closed"
        log.warning(text, site.name, extra={"site": site.name})
        before.close()


@atexit.register
def _close_all() -> None:
    # As in `__exit__`: an exception that ends the program is a crash. At a prompt it ends nothing.
    crashed = hasattr(sys, "last_value") and not hasattr(sys, "ps1")
    for live in list(_LIVE.values()):
        if site := live():
            with suppress(Exception):
                site._close(give_back=not crashed)


def _in_a_fork() -> None:
    """The parent's sites are not this process's, and another thread of the parent may have held the lock."""
    global _LIVE_LOCK  # noqa: PLW0603
    _LIVE_LOCK = threading.Lock()
    _LIVE.clear()


os.register_at_fork(after_in_child=_in_a_fork)
