"""Endings: transactions that put records and ack items, all or nothing. Buries, steps, redrives, several puts.

In:  `Ending` values from other threads. Out: each is done, or has its error. Runs on the member's thread, which makes no other
commit meanwhile: a plain commit between `send_offsets` and the transaction's end would win over it, and the item come again.

    outcome              what follows
    committed            the items are done in the ledger; its text is what the transaction committed
    aborted              nothing happened: leases as before; tried again alone, until its time is up
    not known            the partitions are dropped and read again: Kafka knows, and tells when the transaction has ended
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from kqlib.errors import KqError, LeaseLost, Unreachable
from kqlib.queue.item import Out
from kqlib.queue.owner import Owner
from kqlib.queue.said import first

if TYPE_CHECKING:
    from kqlib.queue.member import Member

log = logging.getLogger("kqlib.queue")
TIMEOUT = 10.0  # seconds: the broker ends a transaction that its producer does not
PATIENCE = 12.0  # seconds until an ending gives up
GRACE = 1.0  # seconds beyond its time until a call is left behind


class NoAnswer(Exception):  # noqa: N818 - nobody outside sees it
    """A call has not come back."""


@dataclass(eq=False)
class Ending:
    """What shall happen at once: records written, items done."""

    outs: list[Out]
    acks: list[tuple[Owner, int, int]] = field(
        default_factory=list
    )  # owner, offset, lease number; 0: the owner buries it
    begun: bool = False  # its leases are set aside
    done: bool = False
    error: KqError | None = None
    written: dict[tuple[str, int], int] = field(default_factory=dict)  # (topic, partition) -> the end of what it wrote
    deadline: float = field(default_factory=lambda: time.monotonic() + PATIENCE)

    @property
    def over(self) -> bool:
        """Is its outcome known?"""
        return self.done or self.error is not None

    def heard(self, error: Any, message: Any) -> None:
        """A record's delivery report."""
        if error is None:
            at = (message.topic(), message.partition())
            self.written[at] = max(self.written.get(at, 0), message.offset() + 1)

    def offsets(self) -> dict[Owner, list[int]]:
        """What it acks, by owner."""
        found: dict[Owner, list[int]] = {}
        for owner, offset, _ in self.acks:
            found.setdefault(owner, []).append(offset)
        return found


class Endings:
    """The site's transactions, one after another; those asked for meanwhile share the next one."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._asked: list[Ending] = []
        self._producer: Any = None
        self._fresh = False  # the producer has not been introduced to its coordinator yet

    def ask(self, ending: Ending) -> None:
        """Leave it for the thread; `changed` is held."""
        self._asked.append(ending)
        self.member.wake.set()

    def asked(self) -> bool:
        """Is there something to do?"""
        return bool(self._asked)

    def run(self) -> None:
        """Everything that was asked for, in one transaction; if that aborts, each in its own."""
        if not self._asked:
            return
        with self.member.changed:
            todo, self._asked = self._asked, []
            together = [ending for ending in todo if self._begin(ending)]
        if not together or self._try(together):
            return
        for ending in together:
            if not self._try([ending]):
                self._again(ending)

    def _again(self, ending: Ending) -> None:
        """It aborted alone: later, after rebalances had their turn; or never, and then leases are what they were."""
        with self.member.changed:
            if time.monotonic() < ending.deadline and not ending.over:
                self._asked.append(ending)
            else:
                ending.error = ending.error or self._unreachable("Nothing of it happened")
                for owner, some in ending.offsets().items():
                    owner.end(some, done=False)
            self.member.changed.notify_all()
        time.sleep(0.02)

    def _begin(self, ending: Ending) -> bool:
        """Set its leases aside, once; a lease that no longer holds ends it here, before anything is written."""
        for owner, offset, number in ending.acks:
            why = owner.dropped
            if number and not ending.begun:
                why = owner.why_not(offset, owner.ledger.epoch, number)
            if why:
                ending.error = LeaseLost(f"{owner.terms.queue}/{owner.partition}/{offset}: {why}. Nothing was written")
                if ending.begun:
                    for other, some in ending.offsets().items():
                        other.end(some, done=False)
                self.member.changed.notify_all()
                return False
        for owner, offset, number in ending.acks:
            if number and not ending.begun:
                owner.begin_ending(offset)
        ending.begun = True
        return True

    def _try(self, endings: list[Ending]) -> bool:
        """One transaction. False: it aborted, and nothing happened."""
        with self.member.changed:
            offsets: dict[Owner, list[int]] = {}
            for ending in endings:
                for owner, some in ending.offsets().items():
                    offsets.setdefault(owner, []).extend(some)
            versions = {owner: owner.version for owner in offsets}
            ledgers = {owner: owner.with_acked(some) for owner, some in offsets.items()}
            parts = [
                TopicPartition(o.terms.queue, o.partition, ledger.floor, metadata=ledger.text())
                for o, ledger in ledgers.items()
            ]
        outcome = self._transaction(endings, parts)
        with self.member.changed:
            if outcome is None:
                self._unknown(endings, offsets)
            elif outcome:
                for owner, some in offsets.items():
                    owner.saved = max(owner.saved, versions[owner])
                    owner.end(some, done=True)
                self.member.committed.notify_all()
                for ending in endings:
                    ending.done = True
            self.member.changed.notify_all()
        return outcome is not False

    def _unknown(self, endings: list[Ending], offsets: dict[Owner, list[int]]) -> None:
        for owner in offsets:
            self.member.reload(owner, "a transaction's end was not heard of, and the state is read again")
        for ending in endings:
            ending.error = self._unreachable("It happened as a whole or not at all: which, is not known here")

    def _unreachable(self, safe: str) -> Unreachable:
        return Unreachable(address=self.member.cluster.bootstrap, why=f"{self.member.trouble or 'no answer'}. {safe}")

    # --- Kafka ---

    def _transaction(self, endings: list[Ending], parts: list[TopicPartition]) -> bool | None:
        """True: committed. False: aborted, nothing happened. None: not known."""
        deadline = time.monotonic() + TIMEOUT
        try:
            producer = self._ready(deadline)
            producer.begin_transaction()
            for ending in endings:
                for out in ending.outs:
                    self._produce(producer, out, ending)
            if parts:
                group = self.member.consumer.consumer_group_metadata()
                _insist(lambda left: producer.send_offsets_to_transaction(parts, group, left), deadline)
        except KafkaException as error:
            self._abort(error)
            return False  # its end was never asked for, and whoever could ask for it has aborted or is gone
        except NoAnswer:  # it is never committed: the broker ends it when its time is up
            return self._leave("no answer to a transaction", False)
        try:
            _insist(
                producer.commit_transaction, time.monotonic() + 2 * TIMEOUT
            )  # by then the broker has ended it itself
            return True
        except KafkaException as error:
            if first(error).txn_requires_abort() and self._abort(error):
                return False
            self._forget()  # its end was asked for: one whose abort is refused too has perhaps been committed
            return self._leave(first(error).str(), None)
        except NoAnswer:
            return self._leave("no answer to a transaction's end", None)

    def _leave(self, trouble: str, outcome: bool | None) -> bool | None:
        """With this producer nothing more is begun; a call that still stands in it ends there."""
        self.member.trouble, self._producer = trouble, None
        return outcome

    def _produce(self, producer: Any, out: Out, ending: Ending) -> None:
        while True:
            try:
                producer.produce(out.topic, out.value, out.key, out.partition, ending.heard, headers=out.headers)
                producer.poll(0)
                return
            except BufferError:
                producer.poll(0.01)

    def _ready(self, deadline: float) -> Any:
        if self._producer is None:
            self._producer = Producer(
                self.member.cluster.client(
                    **{
                        "transactional.id": f"kq-{self.member.site}-{uuid.uuid4().hex[:12]}",
                        "transaction.timeout.ms": int(TIMEOUT * 1000),
                        "retry.backoff.ms": 1,  # a transaction with offsets takes 107 ms without these two, 4 with them
                        "retry.backoff.max.ms": 5,
                        "linger.ms": 0,
                        "message.max.bytes": 1_000_000_000,
                    }
                )
            )
            self._fresh = True
        if self._fresh:  # the coordinator may be in the making: the next one who asks goes on with this producer
            _insist(self._producer.init_transactions, deadline)
            self._fresh = False
        return self._producer

    def _abort(self, error: KafkaException) -> bool:
        """True: Kafka says that it is aborted, or it was never begun. A producer that cannot even abort is replaced."""
        self.member.trouble = first(error).str()
        log.info("a transaction is aborted: %s", self.member.trouble)
        if self._producer is None or (self._fresh and not first(error).fatal()):
            return True
        try:
            if not first(error).fatal():
                _insist(self._producer.abort_transaction, time.monotonic() + TIMEOUT)
                return True
        except KafkaException as worse:
            log.info("aborting: %s", worse)
        except NoAnswer:
            return bool(self._leave("no answer to a transaction's abort", False))
        self._forget()
        return False

    def _forget(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._producer = None

    def close(self) -> None:
        """What was not begun never is."""
        with self.member.changed:
            for ending in self._asked:
                ending.error = ending.error or self._unreachable("Nothing of it happened")
            self._asked = []
            self.member.changed.notify_all()
        self._forget()


def _insist(call: Callable[[float], Any], deadline: float) -> None:
    """Called with the seconds that are left, again and again while Kafka only says "not now"."""
    while True:
        try:
            _bounded(call, max(0.1, deadline - time.monotonic()))
            return
        except KafkaException as error:
            said = first(error)
            if not said.retriable() or said.txn_requires_abort() or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _bounded(call: Callable[[float], Any], seconds: float) -> None:
    """On a thread of its own: librdkafka's calls do not all keep the time they are given (librdkafka 5456, 5511)."""
    came: SimpleQueue[BaseException | None] = SimpleQueue()

    def run() -> None:
        try:
            call(seconds)
            came.put(None)
        except BaseException as error:
            came.put(error)

    threading.Thread(target=run, name="kq-ending", daemon=True).start()
    try:
        error = came.get(timeout=seconds + GRACE)
    except Empty:
        raise NoAnswer from None
    if error is not None:
        raise error
