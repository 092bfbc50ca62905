"""Endings: transactions that put records and ack items, all or nothing. Buries, steps, redrives, several puts.

In:  `Ending` values from other threads. Out: each is done, or has its error. Runs on a thread of its own: an output that takes no
records stops no commit of another partition. From `send_offsets` to the transaction's end its partitions are frozen: a plain
commit in between would win over it, and the item come again.

    outcome              what follows
    committed            the items are done in the ledger; its text is what the transaction committed
    aborted              nothing happened: leases as before; tried again alone, until its time is up
    refused              nothing happened, and a further try would be refused as well: a missing right, a record too large
    not known            the partitions are dropped and read again: Kafka knows, and tells when the transaction has ended

A topic that took no record within the last seconds is doubted. Its endings are tried alone, and their topic is looked at first:
so a topic that takes nothing holds nobody up.

The group's metadata is the member's, which takes it on its own thread while the partitions are ours. Taken here, it could be that
of a later membership, and the broker would accept a state for partitions that went to another process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from kqlib.errors import Closed, KqError, LeaseLost, PayloadTooLarge, Unreachable
from kqlib.queue import state
from kqlib.queue.granted import not_there
from kqlib.queue.item import Out
from kqlib.queue.partition import Partition
from kqlib.queue.transactions import STALL, Transactions

if TYPE_CHECKING:
    from kqlib.queue.member import Member

log = logging.getLogger("kqlib.queue")
PATIENCE = 12.0  # seconds until an ending gives up
SLOW = 0.2  # seconds of a round until what is left, after a try that failed, waits for the next round


@dataclass(eq=False)
class Ending:
    """What shall happen at once: records written, items done."""

    outs: list[Out]
    acks: list[tuple[Partition, int, int]] = field(
        default_factory=list
    )  # owner, offset, lease number; 0: the owner buries it
    anew: Callable[[], list[Out]] | None = None  # makes its records for the topic as it is now, or says why not
    begun: bool = False  # its leases are set aside
    done: bool = False
    error: KqError | None = None
    written: dict[tuple[str, int], int] = field(default_factory=dict)  # (topic, partition) -> the end of what it wrote
    open: Counter[str] = field(default_factory=Counter)  # topic -> records of this try that are not written
    refused: KafkaError | None = None  # why one of them never will be
    deadline: float = field(default_factory=lambda: time.monotonic() + PATIENCE)
    _turn: int = 0

    @property
    def over(self) -> bool:
        """Is its outcome known?"""
        return self.done or self.error is not None

    @property
    def topics(self) -> set[str]:
        """Where it writes."""
        return {out.topic for out in self.outs}

    def report(self) -> Callable[[Any, Any], None]:
        """A new try begins: what its delivery reports call. Those of an earlier one count no more."""
        self._turn, self.open, self.refused = self._turn + 1, Counter(out.topic for out in self.outs), None
        return partial(self._heard, self._turn)

    def _heard(self, turn: int, error: Any, message: Any) -> None:
        if turn != self._turn:
            return
        if error is not None:
            self.refused = error
            return
        self.open[message.topic()] -= 1
        at = (message.topic(), message.partition())
        self.written[at] = max(self.written.get(at, 0), message.offset() + 1)

    def offsets(self) -> dict[Partition, list[int]]:
        """What it acks, by owner."""
        found: dict[Partition, list[int]] = {}
        for owner, offset, _ in self.acks:
            found.setdefault(owner, []).append(offset)
        return found


class Endings(Transactions):
    """The site's transactions, one after another; those asked for meanwhile share the next one."""

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        self._asked: list[Ending] = []
        self._running: list[Ending] = []
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
        """Everything that was asked for, in one transaction; if that aborts, each in its own. Doubted ones last, and alone."""
        with self.member.changed:
            todo, self._asked = self._asked, []
            self._running = [ending for ending in todo if self._begin(ending)]
        together = [ending for ending in self._running if not self._doubted(ending)]
        if len(together) > 1:
            self._try(together)
        rest = sorted((ending for ending in self._running if not ending.over), key=self._doubted)
        began = time.monotonic()
        while rest:
            ending = rest.pop(0)
            if self._try([ending]):
                continue
            failed, why = [ending], self._why
            if why is not None and not isinstance(why, PayloadTooLarge):  # it holds for every record of its topics
                failed += [each for each in rest if each.topics == ending.topics]
                rest = [each for each in rest if each not in failed]
            if time.monotonic() - began > SLOW:
                while rest:
                    self._again(rest.pop(0), None)
            for each in failed:
                self._again(each, why)
        self._running = []

    def _again(self, ending: Ending, why: KqError | None) -> None:
        """It aborted: later; or never, and then leases are what they were."""
        with self.member.changed:
            if self._closed:
                why = self._is_closed()
            elif why is None and time.monotonic() >= ending.deadline:
                why = self._unreachable("Nothing of it happened")
            if why is None:
                self._asked.append(ending)
            else:
                self._fail(ending, why)

    def _fail(self, ending: Ending, error: KqError) -> None:
        """Nothing of it happened; `changed` is held."""
        ending.error = error
        if ending.begun:
            for owner, some in ending.offsets().items():
                owner.end(some, done=False, why=error)
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
        """One transaction. False: it aborted, and nothing happened; `_why` if a further try would be refused as well."""
        self._why = None
        if self._closed or (len(endings) == 1 and self._doubted(endings[0]) and not self._looked(endings[0])):
            return False
        offsets: dict[Partition, list[int]] = {}
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

    def _looked(self, ending: Ending) -> bool:
        """Can its topics take its records? A transaction for a missing one costs its producer as well."""
        try:
            if ending.anew is not None:
                ending.outs = ending.anew()
                return True
            missing = ending.topics - state.topic_ids(self.member.cluster, sorted(ending.topics), STALL).keys()
        except Unreachable as error:
            self.member.trouble = str(error.facts["why"])
            return False
        except KqError as error:
            self._why = error
            return False
        if missing:
            self._why = not_there(self.member.cluster, min(missing))
        return not missing

    def _unknown(self, endings: list[Ending], offsets: dict[Partition, list[int]]) -> None:
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
