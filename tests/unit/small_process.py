"""One process of a small world: the queue's own session, verbs and transactions, without threads, clients and time.

In:  a name. Out: a `Process` whose parts are called step by step, by `small_world`. Where a thread would wait, the call returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest.mock import patch

from kqlib.queue import assigned, commits, endings, partition, transactions
from kqlib.queue.assigned import Assigned
from kqlib.queue.commits import Commits, Sent
from kqlib.queue.endings import Endings
from kqlib.queue.incidents import Stored
from kqlib.queue.item import Item
from kqlib.queue.partition import Partition
from kqlib.queue.queue import Queue
from kqlib.queue.terms import Terms
from kqlib.queue.transactions import Ending, Transactions
from tests.unit.records import Rec

AT = ("football", 0)
NOW = 100.0
LEASE = 30.0
OWN = (
    "life",
    "member",
    "epoch",
    "alive",
    "sent",
    "request",
    "answer",
    "gave_back",
    "claimed",
    "held",
    "acking",
    "ending",
    "stepping",
    "frozen",
    "stage",
)
NO_ANSWER_YET = 1_000  # no code of Kafka's; 0 means stored


class NotYet(Exception):  # noqa: N818 - control flow
    """A thread would wait here."""


class Unlocked:
    """In place of a lock and its conditions: there is one thread."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def notify_all(self) -> None: ...
    def set(self) -> None: ...

    def wait_for(self, condition: Callable[[], bool], _seconds: float) -> None:
        """Go on if that holds already."""
        if not condition():
            raise NotYet


class Ignored:
    """In place of the notes and the rates: it takes calls."""

    def committed(self, _partition: object) -> None: ...
    def note(self, *_: object) -> None: ...


class Cluster:
    """The cluster, as far as an error's text names it."""

    bootstrap = "the broker"


class Clock:
    """The time of leases, in all processes."""

    now = NOW

    def __call__(self) -> float:
        return self.now


class Agreed(Terms):
    """The queue's terms: the same object in every copy of a world."""

    def __reduce__(self) -> str:
        return "TERMS"


class Record(Rec):
    """An item in the log: the same object in every copy of a world."""

    def __reduce__(self) -> Any:
        return record, (self.at,)


def record(offset: int) -> Record:
    """The item at this offset."""
    return RECORDS[offset]


CLOCK = Clock()
TERMS = Agreed("football", "here", max_attempts=None, clock=CLOCK, rates=cast(Any, Ignored()))
RECORDS = tuple(Record(offset) for offset in range(5))


class Session(Assigned):
    """The session of one process, without its thread."""

    def __init__(self) -> None:
        super().__init__(cast(Any, Cluster()), "here")
        self._lock = self.changed = self.committed = self.wake = cast(Any, Unlocked())
        self.begin_loading = _nothing
        self.returns = False  # is the wait for a commit over?

    def save(self, partitions: list[Partition]) -> None:
        """Ask for a commit, as the real one does. The wait is a step of its own."""
        for each in partitions:
            if not self.returns:
                each.awaited = max(each.awaited, each.version)


class Place:
    """The site, as far as a queue's verbs ask it."""

    name = "here"
    cluster = Cluster()

    def __init__(self, session: Session) -> None:
        self._session = session

    def _check_here(self) -> None: ...
    def _check_open(self) -> None: ...


class Request(NamedTuple):
    """A state on its way to the broker."""

    member: str
    epoch: int  # of the member, as its client knows it
    state: Stored


class Acking(NamedTuple):
    """An ack that waits for a commit."""

    offset: int
    partition: Partition
    version: int


class Process:
    """One process of the site, and its workers."""

    def __init__(self, name: str, life: int = 0) -> None:
        self.name = name
        self.life = life
        self.member = f"{name}{life}"  # the id of its member: a new one after a crash
        self.alive = True
        self.epoch = 0  # of its member, as it knows it; 0: it is not in the group
        self.session = Session()
        self.session.terms["football"] = TERMS
        self.commits = Commits(self.session, cast(Any, Ignored()))
        self.endings = Endings.__new__(Endings)  # it would make a thread
        self.endings.assigned = self.session
        self.endings.transactions = Transactions(self.session)
        self.endings._asked, self.endings._running, self.endings.unseen = [], [], {}
        self.queue = Queue.__new__(Queue)  # it would ask for the topic
        facts = {"dead_facts": None, "_first_partition": 0, "_allowed_at": 0}
        self.queue.__dict__ |= {
            "site": Place(self.session),
            "name": "football",
            "terms": TERMS,
            "lease": LEASE,
            **facts,
        }
        # The session's thread: the commit that it waits for, as it was sent, and Kafka's code for the answer.
        self.sent: list[Sent] = []
        self.request: Request | None = None
        self.answer = NO_ANSWER_YET
        self.gave_back = False
        # Workers: a claim whose attempts are not stored yet, items in hand, acks that wait.
        self.claimed: list[Any] = []
        self.held: list[Item] = []
        self.acking: list[Acking] = []
        # The thread of transactions: it ends one item.
        self.ending: Ending | None = None
        self.stepping: Item | None = None
        self.frozen: Request | None = None  # what its transaction commits
        self.stage = ""  # begun, frozen, asked, ended

    @property
    def partition(self) -> Partition | None:
        """The partition, if this process has it."""
        return self.session.partitions.get(AT)

    def returned(self, call: Callable[[], Any]) -> Any:
        """Make this call once more, now that its wait for a commit is over."""
        self.session.returns = True
        try:
            return call()
        finally:
            self.session.returns = False

    def tidy(self) -> None:
        """Forget what only counts or explains."""
        session = self.session
        session.trouble, session.next_try = "", 0.0
        session.last, session.broken, session.reloaded, session.ended = {}, {}, [], {}
        self.queue._first_partition = 0
        if session.group is None and self.epoch and session.mine():
            session.group = self.epoch  # as `_take_group_metadata`
        if not self.stage:
            self.ending = self.frozen = self.stepping = None

    # --- copies ---

    def copied(self) -> tuple[Any, ...]:
        """All that changes, to be pickled. The rest is wiring."""
        session = self.session
        own = {name: getattr(self, name) for name in OWN}
        return own, session.partitions, session.loadings, session.group, session.under_way

    def become(self, copied: tuple[Any, ...]) -> None:
        """Be as that copy."""
        own, session = copied[0], self.session
        self.__dict__ |= own
        session.partitions, session.loadings, session.group, session.under_way = copied[1:]

    def key(self) -> Any:
        """All that decides how it goes on."""
        own, loading = self.partition, self.session.loadings.get(AT)
        saved = own.saved if own else 0
        acks = [(ack.offset, ack.version - saved if ack.partition is own else -1) for ack in self.acking]
        sent = [(s.state, s.version - saved if s.partition is own else -1) for s in self.sent]
        claims = [(c.offsets, c.lease.number, c.attempts, p is own) for p, c in self.claimed]
        held = sorted((i.offset, i.epoch, i.lease) for i in self.held)
        ending = self.ending and [(a.offset, a.lease, a.partition is own) for a in self.ending.acks]
        loads = loading and (loading.over, loading.ledger and _of_ledger(loading.ledger), loading.was)
        thread = (
            sent,
            self.request,
            self.answer,
            self.gave_back,
            self.session.group,
            loads,
            bool(self.session.under_way),
        )
        workers = (claims, held, sorted(acks), ending, self.frozen, self.stage)
        return self.name, self.alive, self.life, self.epoch, thread, workers, own and _of_partition(own)


def _of_ledger(ledger: Any) -> Any:
    return ledger.floor, ledger.top, ledger.epoch, tuple(ledger.runs())


KEYED = {"ledger", "window", "leases", "ending", "order", "losses", "used_up", "blocked", "leaving", "dropped"} | {
    *("version", "saved", "awaited", "unsure", "frozen", "committed", "sent", "_inherited", "_alone"),
}
NOT_KEYED = {  # the same in all copies, or only about time, large claims and limits
    *("terms", "number", "ahead", "_loading", "full", "dirty_since", "saved_at", "arrived_at"),
}


def _of_partition(one: Partition) -> Any:
    """All of KEYED. Versions count from the one that is saved."""
    window, order, saved = one.window, one.order, one.saved
    leases = sorted((offset, lease.number, lease.deadline > CLOCK.now) for offset, lease in one.leases.items())
    records = (window.position, window.head, sorted(window.missing), sorted(window._not_there), sorted(window.records))
    places = (list(order.fresh), sorted(order.back), sorted(order.later), sorted(one.ending), one.leases.numbers)
    versions = (one.version - saved, max(0, one.awaited - saved), max(0, one.unsure - saved), bool(saved))
    flags = (one.blocked, one.leaving, one.dropped, one._alone, sorted(one._inherited), one.used_up, one.losses.items)
    frozen = one.frozen and (one.frozen - saved, one.sent)
    return _of_ledger(one.ledger), leases, records, places, versions, flags, frozen, one.committed


def _nothing(*_: object) -> None:
    """Do nothing."""


@contextmanager
def no_time() -> Iterator[None]:
    """Let no time pass in the queue's code, so that equal states are equal."""
    still = SimpleNamespace(monotonic=lambda: NOW, time=lambda: NOW)
    patches = [patch.object(each, "time", still) for each in (assigned, commits, endings, partition, transactions)]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
