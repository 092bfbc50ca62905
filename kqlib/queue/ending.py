"""Endings: transactions that put records and ack items, all or nothing. Buries, steps, redrives, several puts.

In:  `Ending` values from other threads. Out: each is done, or has its error. Runs on a thread of its own: an output that takes no
records stops no commit of another partition. From `send_offsets` to the transaction's end its partitions are frozen: a plain
commit in between would win over it, and the item come again.

    outcome              what follows
    committed            the items are done in the ledger; its text is what the transaction committed
    aborted              nothing happened: leases as before; tried again alone, until its time is up
    not known            the partitions are dropped and read again: Kafka knows, and tells when the transaction has ended

The group's metadata is the member's, which takes it on its own thread while the partitions are ours. Taken here, it could be that
of a later membership, and the broker would accept a state for partitions that went to another process.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from kqlib.errors import Closed, KqError, LeaseLost, Unreachable
from kqlib.queue import state
from kqlib.queue.clients import HOLDS, SETTINGS, judge
from kqlib.queue.item import Out
from kqlib.queue.owner import Owner
from kqlib.queue.said import first

if TYPE_CHECKING:
    from kqlib.queue.member import Member

log = logging.getLogger("kqlib.queue")
TIMEOUT = 10.0  # seconds: the broker ends a transaction that its producer does not
PATIENCE = 12.0  # seconds until an ending gives up
STALL = 1.0  # seconds without a written record until the others go first
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
    late: bool = False  # an output took no record: tried alone, and its partitions are frozen only when all are written
    done: bool = False
    error: KqError | None = None
    written: dict[tuple[str, int], int] = field(default_factory=dict)  # (topic, partition) -> the end of what it wrote
    open: int = 0  # records of this try that are not written
    refused: str = ""  # why one of them never will be
    deadline: float = field(default_factory=lambda: time.monotonic() + PATIENCE)
    _turn: int = 0

    @property
    def over(self) -> bool:
        """Is its outcome known?"""
        return self.done or self.error is not None

    def report(self) -> Callable[[Any, Any], None]:
        """A new try begins: what its delivery reports call. Those of an earlier one count no more."""
        self._turn, self.open, self.refused = self._turn + 1, len(self.outs), ""
        return partial(self._heard, self._turn)

    def _heard(self, turn: int, error: Any, message: Any) -> None:
        if turn != self._turn:
            return
        if error is not None:
            self.refused = error.str()
            return
        self.open -= 1
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
        self._running: list[Ending] = []
        self._producer: Any = None
        self._fresh = False  # the producer has not been introduced to its coordinator yet
        self._closed = self._committing = False  # _committing: from here on only Kafka knows the outcome
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kq-endings", daemon=True)

    def ask(self, ending: Ending) -> None:
        """Leave it for the thread; `changed` is held."""
        if self._closed:
            raise self._is_closed()
        self._asked.append(ending)
        if not self._thread.ident:
            self._thread.start()
        self._wake.set()

    def close(self, seconds: float) -> None:
        """What was not begun never is. What runs is committed or aborted within these seconds, if Kafka answers."""
        with self.member.changed:
            self._closed = True
            for ending in self._asked:
                self._fail(ending, self._is_closed())
            self._asked = []
            self.member.committed.notify_all()
        self._wake.set()
        if self._thread.ident:
            self._thread.join(seconds)
        with self.member.changed:
            for ending in self._running:
                if not ending.over:
                    ending.error = self._not_known() if self._committing else self._is_closed()
            self.member.changed.notify_all()

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(0.02 if self._asked else None)  # what is tried again waits a moment
            self._wake.clear()
            self._round()
        self._forget()

    def _round(self) -> None:
        """Everything that was asked for, in one transaction; if that aborts, each in its own. Of those that are late one."""
        with self.member.changed:
            todo, self._asked = self._asked, []
            self._running = [ending for ending in todo if self._begin(ending)]
        together = [ending for ending in self._running if not ending.late]
        late = [ending for ending in self._running if ending.late]
        if together and not self._try(together):
            for ending in together:
                if ending.late or len(together) == 1 or not self._try([ending]):
                    self._again(ending)
        for ending in late[1:]:
            self._again(ending)
        if late and not self._try(late[:1]):
            self._again(late[0])
        self._running = []

    def _again(self, ending: Ending) -> None:
        """It aborted: later; or never, and then leases are what they were."""
        with self.member.changed:
            if time.monotonic() < ending.deadline and not self._closed:
                self._asked.append(ending)
            else:
                self._fail(ending, self._is_closed() if self._closed else self._unreachable("Nothing of it happened"))

    def _fail(self, ending: Ending, error: KqError) -> None:
        """Nothing of it happened; `changed` is held."""
        ending.error = error
        if ending.begun:
            for owner, some in ending.offsets().items():
                owner.end(some, done=False)
        self.member.changed.notify_all()

    def _begin(self, ending: Ending) -> bool:
        """Set its leases aside, once; a lease that no longer holds ends it here, before anything is written."""
        for owner, offset, number in ending.acks:
            why = owner.dropped
            if number and not ending.begun:
                why = owner.why_not(offset, owner.ledger.epoch, number)
            if why:
                where = f"{owner.terms.queue}/{owner.partition}/{offset}"
                self._fail(ending, LeaseLost(f"{where}: {why}. Nothing was written"))
                return False
        for owner, offset, number in ending.acks:
            if number and not ending.begun:
                owner.begin_ending(offset)
        ending.begun = True
        return True

    def _try(self, endings: list[Ending]) -> bool:
        """One transaction. False: it aborted, and nothing happened."""
        if self._closed or not self._there(endings):
            return False
        offsets: dict[Owner, list[int]] = {}
        for ending in endings:
            for owner, some in ending.offsets().items():
                offsets.setdefault(owner, []).extend(some)
        try:
            outcome = self._transaction(endings, offsets)
        except Exception:  # a bug must be seen where somebody waits, not in a thread that died
            log.exception("a transaction met something unforeseen")
            outcome = self._leave("something unforeseen, see the log", None)
        with self.member.changed:
            self._committing = False
            if outcome is None:
                self._unknown(endings, offsets)
            elif outcome:
                for owner, some in offsets.items():
                    owner.saved, owner.committed = max(owner.saved, owner.frozen), owner.sent
                    owner.end(some, done=True)
                for ending in endings:
                    ending.done = True
            elif offsets:
                self.member.group = None  # perhaps the group has counted on: its metadata is asked for again
            for owner in offsets:
                owner.frozen = 0
            self.member.committed.notify_all()
            self.member.changed.notify_all()
            self.member.wake.set()  # what could not be committed meanwhile
        return outcome is not False

    def _unknown(self, endings: list[Ending], offsets: dict[Owner, list[int]]) -> None:
        for owner in offsets:
            self.member.reload(owner, "a transaction's end was not heard of, and the state is read again")
        for ending in endings:
            ending.error = self._not_known()

    def _not_known(self) -> Unreachable:
        return self._unreachable("It happened as a whole or not at all: which, is not known here")

    def _unreachable(self, safe: str) -> Unreachable:
        return Unreachable(address=self.member.cluster.bootstrap, why=f"{self.member.trouble or 'no answer'}. {safe}")

    def _is_closed(self) -> Closed:
        return Closed(thing=f"site '{self.member.site}'")

    # --- Kafka ---

    def _there(self, endings: list[Ending]) -> bool:
        """Are the topics there of those that are late? A transaction for one that is not costs its producer as well."""
        topics = {out.topic for ending in endings if ending.late for out in ending.outs}
        try:
            missing = topics - state.topic_ids(self.member.cluster, sorted(topics), STALL).keys()
        except KqError as error:
            missing, self.member.trouble = topics, str(error.facts["why"])
        else:
            if missing:
                self.member.trouble = f"{' and '.join(map(repr, sorted(missing)))} does not exist"
        return not missing

    def _transaction(self, endings: list[Ending], offsets: dict[Owner, list[int]]) -> bool | None:
        """True: committed. False: aborted, nothing happened. None: not known."""
        deadline = time.monotonic() + TIMEOUT
        try:
            producer = self._ready(deadline)
            producer.begin_transaction()
            for ending in endings:
                self._produce(producer, ending)
            if any(ending.late for ending in endings):
                self._written(producer, endings)
            if offsets:
                parts, group = self._freeze(offsets, deadline)
                _insist(lambda left: producer.send_offsets_to_transaction(parts, group, left), deadline)
            self._written(producer, endings)
            with self.member.changed:
                if self._closed:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the site closes"))
                self._committing = True
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

    def _produce(self, producer: Any, ending: Ending) -> None:
        report = ending.report()
        for out in ending.outs:
            while True:
                try:
                    producer.produce(out.topic, out.value, out.key, out.partition, report, headers=out.headers)
                    producer.poll(0)
                    break
                except BufferError:
                    producer.poll(0.01)

    def _written(self, producer: Any, endings: list[Ending]) -> None:
        """Return when every record is written; an error when none was for a second, one is refused or the site closes."""
        left, moved = sum(ending.open for ending in endings), time.monotonic()
        while left:
            producer.poll(0.05)
            before, left = left, sum(ending.open for ending in endings)
            refused = next((ending.refused for ending in endings if ending.refused), "")
            if left < before:
                moved = time.monotonic()
            elif refused or self._closed or time.monotonic() - moved > STALL:
                for ending in endings:
                    ending.late = ending.open > 0
                topics = sorted({out.topic for ending in endings if ending.late for out in ending.outs})
                why = f"no record was written to {' or '.join(map(repr, topics))}" + f": {refused}" * bool(refused)
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, why))

    def _freeze(self, offsets: dict[Owner, list[int]], deadline: float) -> tuple[list[TopicPartition], Any]:
        """The states as they will be, and the group's metadata. Until the end no other commit is made for these partitions."""
        member = self.member
        with member.changed:
            for owner in offsets:
                owner.frozen = owner.version
            member.committed.wait_for(
                lambda: self._closed or any(o.dropped for o in offsets) or self._may_commit(offsets),
                max(0.1, deadline - time.monotonic()),
            )
            if any(o.dropped for o in offsets) or not self._may_commit(offsets):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the group has not said whose the partition is"))
            parts = []
            for owner, some in offsets.items():
                owner.frozen, ledger = owner.version, owner.with_acked(some)
                at, text = (owner.terms.queue, owner.partition), ledger.text(owner.terms.write_version)
                owner.sent = (ledger.floor, text)
                parts.append(TopicPartition(*at, ledger.floor, metadata=text))
            return parts, member.group

    def _may_commit(self, offsets: dict[Owner, list[int]]) -> bool:
        """Is it known who we are, and no other commit of these partitions under way?"""
        return self.member.group is not None and not self.member.commits.under_way & offsets.keys()

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
                        **SETTINGS,
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
        if self._producer is None or (self._fresh and not first(error).fatal() and not self._dead()):
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

    def _dead(self) -> bool:
        return judge(self.member.cluster, self._producer, HOLDS)

    def _forget(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._producer = None


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
