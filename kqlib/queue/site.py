"""A site: one user of queues, which is one consumer group; in this process one member of it.

In:  a cluster and a name. Out: queues, whose items each go to one process of the site at a time.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kqlib.errors import Closed, NotAllowed, TopicMissing, Unreachable
from kqlib.kafka import forks
from kqlib.kafka.cluster import Kafka
from kqlib.queue import arguments, granted, ledger_text, state
from kqlib.queue.clients import judge
from kqlib.queue.dead import DEAD
from kqlib.queue.notes import Notes
from kqlib.queue.put import TopicFacts, limits
from kqlib.queue.queue import Queue
from kqlib.queue.reader import Reader
from kqlib.queue.rights import Right
from kqlib.queue.said import as_ours, first, not_allowed, patient
from kqlib.queue.sender import Sender
from kqlib.queue.session import Session
from kqlib.queue.step import Transaction
from kqlib.queue.terms import Rates, Terms
from kqlib.queue.transactions import PATIENCE as ENDING
from kqlib.queue.transactions import Ending
from kqlib.topic_rules import RECORD_BYTES

log = logging.getLogger("kqlib.queue")
logging.getLogger("kqlib").addHandler(logging.NullHandler())  # quiet until somebody listens

VISIBLE = 1.0  # seconds until a verb returns although readers do not see yet what it committed
CLOSE = 4.3  # seconds until the site's thread is left behind
REMEMBERED: Any = ...  # order and max_attempts as the queue has had them; "any" and 5 for a new one
ATTEMPTS = 5
_LIVE: dict[tuple[str, str], weakref.ref[Site]] = {}
_ONE = threading.Lock()


class Site:
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
        self._process = os.getpid()
        self.cluster, self.name, self.clock = cluster, arguments.site_name(name), clock
        if arguments.count("write_version", write_version) not in ledger_text.WRITERS:
            known = " or ".join(map(str, ledger_text.WRITERS))
            raise NotAllowed(f"write_version is {known}, not {write_version!r}")
        self.write_version = write_version
        if session is not None:
            arguments.seconds("session", session, 0.1, 1800)
        cluster._check_open()
        self._closing = self._closed = False
        if session is not None:
            _set_session(cluster, name, session)
        self._senders: dict[int, Sender] = {}
        self._queues: dict[str, Queue] = {}
        self._rates: dict[str, Rates] = {}
        self._opening = threading.Lock()
        self._looker = state.Looker(cluster, name, wait=False)
        self._waiter = state.Looker(cluster, name, wait=True)
        self._reader = Reader(cluster)
        self._notes = Notes(cluster, self._noted)
        self._member = Session(cluster, name, self._notes, self._sender(), self._waiter)
        if session is not None:
            self._member.drain = min(self._member.drain, session / 2)
            self._member.told = min(self._member.told, session / 3 + 1.5)
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
        one item of a key is out. Both are remembered with the queue. on_lost: what to do when its committed state is gone: "raise";
        "earliest": hand out all that is in the log; "latest": only what is put from now on, and `lost` counts what that skips.
        """
        arguments.lease(lease)
        arguments.one_of("on_lost", on_lost, "raise", "earliest", "latest")
        self._check_open()
        with self._opening:
            facts, dead_facts = self._facts(name)
            said_order, said_attempts = self._remembered(name, order, max_attempts)
            if said_attempts is not None and dead_facts is None:
                raise granted.not_there(self.cluster, name + DEAD)
            rates = self._rates.setdefault(name, Rates())
            terms = Terms(name, self.name, said_order, said_attempts, self.clock, rates, self.write_version)
            queue = self._queues.get(name)
            if queue is None or queue.lease != lease or queue.facts != facts or queue.dead_facts != dead_facts:
                queue = self._queues[name] = Queue(self, terms, float(lease), facts, dead_facts)
            chosen = on_lost == "latest" != self._member.on_lost.get(name)
            ends = state.ends(self.cluster, [(name, each) for each in range(facts.partitions)]) if chosen else {}
            with self._member.changed:
                self._member.on_lost[name] = on_lost
                self._member.latest |= ends
                lost = [at for at in self._member.broken if at[0] == name and on_lost != "raise"]
                self._member.load_again(lost)
            return queue

    def _facts(self, name: str) -> tuple[TopicFacts, TopicFacts | None]:
        if not isinstance(name, str) or not name:
            raise TopicMissing(topic=name)
        names = [name] if name.endswith(DEAD) else [name, name + DEAD]
        found = state.topic_ids(self.cluster, names)
        if name not in found:
            raise granted.not_there(self.cluster, name)
        most = limits(self.cluster, list(found))
        facts = {each: TopicFacts(len(found[each][1]), most[each]) for each in found}
        return facts[name], facts.get(name + DEAD)

    def _remembered(self, name: str, order: Any, max_attempts: Any) -> tuple[str, int | None]:
        """What the queue was created with; the first to open it writes that down. Of two at the same moment the first note counts."""
        key = (self.name, name, "terms")
        self._notes.catch_up()
        is_dead = name.endswith(DEAD)
        known = self._notes.get(*key)
        if known is None:
            said = {
                "order": "any" if order is REMEMBERED else arguments.one_of("order", order, "any", "key"),
                "max_attempts": (None if is_dead else ATTEMPTS)
                if max_attempts is REMEMBERED
                else arguments.max_attempts(max_attempts),
            }
            if (
                said["max_attempts"] is not None
                and not is_dead
                and name + DEAD not in state.topic_ids(self.cluster, [name + DEAD])
            ):
                raise granted.not_there(self.cluster, name + DEAD)
            self._notes.write([(key, said)], self._sender())
            known = self._notes.get(*key)
        if key in self._notes.contested:
            self._notes.write([(key, known)], self._sender())
        if is_dead and max_attempts not in (REMEMBERED, None):
            raise NotAllowed(f"'{name}' holds dead letters: its max_attempts is None")
        for what, value in (("order", order), ("max_attempts", max_attempts)):
            if value is not REMEMBERED and value != known[what]:
                arguments.one_of(what, value, "any", "key") if what == "order" else arguments.max_attempts(value)
                raise NotAllowed(
                    f"'{name}' has {what}={known[what]!r} for site '{self.name}', not {value!r}: all its processes must agree. "
                    f"Leave {what} out, or use another site"
                )
        return known["order"], known["max_attempts"]

    def transaction(self) -> Transaction:
        """`with site.transaction() as tx: tx.put(queue, data); tx.put(other, data)`: all or nothing."""
        self._check_open()
        return Transaction(self)

    def close(self) -> None:
        """Give everything back in good order and leave the group; at most 5 s. Calling it twice does no harm."""
        self._close(give_back=True)

    def _close(self, give_back: bool) -> None:
        if self._process != os.getpid():  # the parent's: it has its thread, and its partitions
            return
        with _ONE:
            if self._closing:
                return
            self._closing = True  # handlers may still ack and put; nothing is claimed any more
            if (live := _LIVE.get(_key(self))) and live() is self:
                del _LIVE[_key(self)]
        over = time.monotonic() + CLOSE
        ended = self._member.stop(CLOSE, give_back)
        self._closed = True
        if ended:
            self._notes.close()
            for sender in self._senders.values():
                sender.close(max(0.2, over - time.monotonic()))  # the last notes, if Kafka answers
            for looker in (self._looker, self._waiter, self._reader):
                looker.close()
        else:
            self._notes._stop = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """An exception on its way out is a crash: attempts in hand count, or a poison item would come for ever."""
        self._close(give_back=kind is None)

    def __repr__(self) -> str:
        return f"Site('{self.name}'{', closed' * self._closed})"

    # --- for the rooms around ---

    def _check_here(self) -> None:
        forks.check(self._process, f"site '{self.name}'")

    def _check_open(self) -> None:
        self._check_here()
        if self._closed:
            raise Closed(thing=f"site '{self.name}'")

    def _sender(self, limit: int = RECORD_BYTES) -> Sender:
        """A producer whose batches a topic with this limit takes."""
        batch = min(limit, RECORD_BYTES) - 200
        with _ONE:
            if batch not in self._senders:
                self._senders[batch] = Sender(self.cluster, batch)
            return self._senders[batch]

    def _noted(self) -> None:
        """kq.queues says something new: let those look who wait."""
        if member := getattr(self, "_member", None):
            with member.changed:
                member.changed.notify_all()

    def _flush(self, topic: str) -> None:
        """Own riding acks count before a depth is told."""
        with self._member.changed:
            owners = [o for (name, _), o in self._member.owners.items() if name == topic and o.version > o.saved]
            if owners:
                self._member.save(owners)

    def _end(self, ending: Ending) -> None:
        """Have it ended and wait for the outcome; `changed` is held."""
        self._check_open()
        member = self._member
        member.endings.ask(ending)
        if not member.changed.wait_for(lambda: ending.over, ENDING + 35):
            raise Unreachable(
                address=self.cluster.bootstrap, why="no answer to a transaction; it may have happened, or not"
            )
        if ending.error is not None:
            raise ending.error
        for out in ending.outs:
            if out.topic in self._rates:
                self._rates[out.topic].note("puts", 1, time.monotonic())
        if (
            ending.written
        ):  # committed; a reader sees it when Kafka has marked it so in each partition, milliseconds later
            member.changed.release()
            try:
                self._seen(ending.written)
            finally:
                member.changed.acquire()

    def _seen(self, written: dict[tuple[str, int], int]) -> None:
        """Return when readers can see it, so that whoever asks next finds it."""
        deadline, over = time.monotonic() + VISIBLE, False
        while not over:  # one look at least: this process may have stood still for that time
            over = time.monotonic() > deadline
            with suppress(Unreachable):
                ends = state.ends(self.cluster, list(written))
                if all(ends[at] >= end for at, end in written.items()):
                    return
            time.sleep(0.002)


def _key(site: Site) -> tuple[str, str]:
    return site.cluster.bootstrap, site.name


def _one_a_process(site: Site) -> None:
    """A cell that runs twice makes the site twice; two in one process would take each other's partitions."""
    with _ONE:
        older = _LIVE.get(_key(site))
        _LIVE[_key(site)] = weakref.ref(site)
    if older and (before := older()):
        log.warning("site '%s' is opened again in this process; the older one is closed", site.name)
        before.close()


@atexit.register
def _close_all() -> None:
    for live in list(_LIVE.values()):
        if site := live():
            with suppress(Exception):
                site.close()


def _in_a_fork() -> None:
    """The parent's sites are not this process's, and another thread of the parent may have held the lock."""
    global _ONE  # noqa: PLW0603
    _ONE = threading.Lock()
    _LIVE.clear()


os.register_at_fork(after_in_child=_in_a_fork)


def _set_session(cluster: Kafka, group: str, session: float) -> None:
    """It is a setting of the group; the heartbeat goes with it."""
    milliseconds = int(session * 1000)
    clocks = {"consumer.session.timeout.ms": milliseconds, "consumer.heartbeat.interval.ms": milliseconds // 3}
    try:
        _alter(cluster, group, clocks)
        with suppress(
            KafkaException
        ):  # a broker before 4.3 does not know it; who restarts within a second waits for it
            _alter(cluster, group, {"consumer.assignment.interval.ms": 0})
    except KafkaException as error:
        if first(error).code() == KafkaError.INVALID_CONFIG:
            raise NotAllowed(
                f"session={session:g} is refused by the cluster: {first(error).str()}. Use session=None"
            ) from None
        safe = "Nothing was changed."
        lacks = not_allowed(Right("ALTER_CONFIGS", "group", group), cluster, safe)
        raise as_ours(first(error), cluster.bootstrap, "set the group's session", safe, lacks=lacks) from None


def _alter(cluster: Kafka, group: str, values: dict[str, int]) -> None:
    how = {"incremental_operation": AlterConfigOpType.SET}
    entries = [ConfigEntry(name, str(value), **how) for name, value in values.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)

    def ask() -> None:
        admin = cluster.admin  # held while it works
        admin.incremental_alter_configs([resource], request_timeout=5)[resource].result(6)

    patient(ask, 10, partial(judge, cluster))
