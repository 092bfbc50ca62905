"""Queues that are wrong on purpose, one mistake each: the judge of the fault runs must find every one.

In:  the name of a mistake, in a worker's or a producer's settings. Out: this process's kqlib is changed; nothing of it is in kqlib.
And a clock that is wrong: `time.time` of this process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kqlib.errors import KqError
from kqlib.queue import state, transactions
from kqlib.queue.assigned import Assigned
from kqlib.queue.commits import Commits, Sent
from kqlib.queue.ledger import Ledger
from kqlib.queue.loader import Loader
from kqlib.queue.order import Order
from kqlib.queue.put import Putting
from kqlib.queue.queue import Queue
from kqlib.queue.sender import Sender, Sent as Results
from kqlib.queue.session import Session
from kqlib.queue.transactions import Ending, Transactions
from kqlib.virtual.member import GroupMember
from kqlib.virtual.outbox import Outbox
from kqlib.virtual.partition import PartitionServer
from kqlib.virtual.store import ItemStore, Writes
from kqlib.virtual.writer import PartitionWriter


def changed(clock: float, mutant: str) -> None:
    """Set this process's clock so many seconds ahead, and make it this mutant; '': none."""
    if clock:
        real = time.time
        time.time = lambda: real() + clock
    if mutant:
        MUTANTS[mutant]()


def around(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a method by what `make` makes of it."""
    setattr(owner, name, make(getattr(owner, name)))


def floor() -> None:
    """Each commit says that everything handed out is done."""

    def send(old: Callable[..., Any]) -> Callable[..., Any]:
        def sends(self: Commits, partitions: list[Any], now: float) -> list[Sent]:
            sent = list[Sent]()
            for each in old(self, partitions, now):
                was = each.partition.ledger
                done = Ledger(was.top, was.top, was.epoch, was.topic, was.leader)
                sent.append(each._replace(state=(done.floor, done.text(each.partition.terms.write_version))))
            return sent

        return sends

    around(Commits, "send", send)


def stored_later() -> None:
    """Claims and acks return before their commit, which follows within three seconds."""
    from kqlib.queue import commits

    commits.RIDE = 3.0
    Session.save = lambda self, partitions: None  # type: ignore[method-assign]


def kept() -> None:
    """What the group takes from a process that was away is kept there, and its receipts hold."""

    def drop(old: Callable[..., None]) -> Callable[..., None]:
        def drops(self: Assigned, at: Any, why: str) -> None:
            if "too long" not in why:
                old(self, at, why)

        return drops

    around(Assigned, "drop", drop)


def buried_in_two_steps() -> None:
    """A dead letter is written before its item is acked, and not in one transaction with that."""

    def bury(_: Callable[..., None]) -> Callable[..., None]:
        def buries(self: Queue, item: Any, reason: str = "") -> None:
            with self._session.changed:
                letter = self._burial(self._held(item), item.offset, reason, item.lease)
                self.site._end(Ending(letter.outs))
            time.sleep(0.5)
            self.ack(item)

        return buries

    around(Queue, "bury", bury)


def late() -> None:
    """An owner reads its partitions' states only after eight seconds."""

    def load(old: Callable[..., None]) -> Callable[..., None]:
        def loads(self: Loader, batch: list[Any]) -> None:
            self._stop.wait(8)
            old(self, batch)

        return loads

    around(Loader, "_load", load)


def any_order() -> None:
    """The queue does not look at keys."""

    def begin(old: Callable[..., None]) -> Callable[..., None]:
        return lambda self, terms, *rest: old(self, replace(terms, order="any"), *rest)

    around(Order, "__init__", begin)


def by_their_clock() -> None:
    """A delayed item is due by the clock of the process that put it."""
    Order._arrived_at = lambda self, offset: float("inf")  # type: ignore[method-assign]


def sent_twice() -> None:
    """Each put of many sends its first record twice."""

    def send(old: Callable[..., Any]) -> Callable[..., Any]:
        def sends(self: Sender, topic: str, records: Any, many: int) -> Any:
            found = list(records)
            old(self, topic, found[:1], 1)
            return old(self, topic, found, many)

        return sends

    around(Sender, "send", send)


def another_item() -> None:
    """Each put of many puts one more item, whose data nobody gave it."""

    def put_many(old: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, items: old(self, [*items, (b"1", b"1")])

    around(Putting, "put_many", put_many)


def sender_with(**own: Any) -> None:
    """The producers of puts begin with these settings."""

    def begin(old: Callable[..., None]) -> Callable[..., None]:
        def begins(self: Sender, *how: Any) -> None:
            old(self, *how)
            self._settings |= {name.replace("_", "."): value for name, value in own.items()}

        return begins

    around(Sender, "__init__", begin)


def acked_by_one() -> None:
    """A put is acknowledged when the leader alone has it (acks=1)."""
    sender_with(acks=1, enable_idempotence=False)


def sent_anew() -> None:
    """A put whose answer was lost is sent again by a producer that is not idempotent."""
    sender_with(enable_idempotence=False)


def swallowed() -> None:
    """A put that Kafka refused with NotEnoughReplicas returns as if it were stored."""
    silent_about("NotEnoughReplicas")


def given_up() -> None:
    """A put that has no answer for a second returns as if it were stored."""
    sender_with(delivery_timeout_ms=1000)
    silent_about("")


def silent_about(why: str) -> None:
    """Once a put was stored, puts raise no error that has these words. Before that the producer connects."""
    begun = list[bool]()

    def put_many(old: Callable[..., Any]) -> Callable[..., Any]:
        def puts(self: Putting, items: Any) -> Any:
            try:
                stored = old(self, items)
            except KqError as error:
                if why not in str(error) or not begun:
                    raise
                return []
            begun.append(True)
            return stored

        return puts

    around(Putting, "put_many", put_many)


def unsent() -> None:
    """A put returns when the client has its items, before Kafka has them."""

    def wait(_: Callable[..., Any]) -> Callable[..., Any]:
        def waits(self: Results, seconds: float) -> bool:
            self.ids = [at or "not known" for at in self.ids]
            return True

        return waits

    around(Results, "wait", wait)


def begun_again() -> None:
    """A transaction whose commit has no answer for 50 ms is begun again."""

    def insist(old: Callable[..., None]) -> Callable[..., None]:
        def insists(call: Callable[[float], Any], deadline: float) -> None:
            if getattr(call, "__name__", "") == "commit_transaction":
                old(lambda _: call(0.05), time.monotonic())
            else:
                old(call, deadline)

        return insists

    around(transactions, "insist", insist)
    around(Transactions, "leave", lambda old: lambda self, why, outcome: bool(old(self, why, outcome)))


def failed_as_done() -> None:
    """A transaction that Kafka refuses counts as done."""
    around(Transactions, "run", lambda old: lambda self, *what: old(self, *what) in (True, False, None))


def taken_as_done() -> None:
    """A commit that fails or gets no answer counts as stored."""
    around(Commits, "_commit", lambda old: lambda self, parts: old(self, parts) and {})


def older_topic() -> None:
    """A topic that was deleted and made again goes on with the state of the old one."""

    def read(old: Callable[..., Ledger]) -> Callable[..., Ledger]:
        def reads(seen: Any, on_lost: str, where: str) -> Ledger:
            if not seen.metadata:
                return old(seen, on_lost, where)
            before = Ledger.read(seen.metadata, seen.committed).topic
            ledger = old(replace(seen, topic_id=before), on_lost, where)
            ledger.topic = seen.topic_id
            return ledger

        return reads

    around(state, "ledger_from", read)


def ends_at_once() -> None:
    """A worker ends at SIGTERM without finishing or giving back what it has."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def hurried() -> None:
    """An owner gives its partitions away before the handlers of their items have ended."""

    def wait(_: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, ours: [self.partitions[at] for at in ours if at in self.partitions]

    around(Session, "_wait_for_handlers", wait)


def unwritten() -> None:
    """A node of virtual queues keeps in its memory only what consumers have done."""
    around(
        ItemStore, "_save", lambda old: lambda self, name, ledger, entry, out: old(self, name, ledger, entry, Writes())
    )


def unfenced() -> None:
    """A node of virtual queues has transactional ids of its own, and goes on with partitions that others have taken over."""

    def begin(old: Callable[..., None]) -> Callable[..., None]:
        def begins(self: PartitionWriter, cluster: Any, topic: str, partition: int, *most: int) -> None:
            old(self, cluster, f"{topic}-{os.getpid()}", partition, *most)
            self._topic = topic

        return begins

    around(PartitionWriter, "__init__", begin)
    PartitionServer.drop = lambda self, why: None  # type: ignore[method-assign]
    GroupMember._on_lost = lambda self, consumer, parts: None  # type: ignore[method-assign]


def done_anew() -> None:
    """A reader of an outbox takes each item for the first with its id."""
    around(Outbox, "first", lambda _: lambda self, item: True)


def deleted_first() -> None:
    """An outbox deletes its jobs before they are put."""

    def put(old: Callable[..., None]) -> Callable[..., None]:
        def puts(self: Outbox, queue: Any, name: str, jobs: Any, first: Any) -> None:
            self._take(jobs)
            old(self, queue, name, jobs, first)

        return puts

    around(Outbox, "_put", put)


MUTANTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        *(floor, stored_later, kept, buried_in_two_steps, late, any_order, by_their_clock, sent_twice, another_item),
        *(acked_by_one, sent_anew, swallowed, given_up, unsent, begun_again, failed_as_done, taken_as_done),
        *(older_topic, ends_at_once, hurried),
        *(unwritten, unfenced, done_anew, deleted_first),
    )
}
