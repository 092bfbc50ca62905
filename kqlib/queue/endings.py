"""The thread that runs a site's transactions one after another: buries, steps, redrives, several puts.

In:  `Ending` values (`transactions`) from other threads. Out: each is done, or has its error. What is asked for meanwhile
shares the next transaction.
This thread is not the session's: a topic that takes no records stops no commit of another partition.

    outcome              what follows
    committed            the items are done in the ledger, as the transaction committed it
    aborted              nothing happened: the leases are as before; it is tried again alone, until its time is up
    refused              nothing happened, and a further try would be refused too: a missing right, a record too large
    not known            the partitions are dropped and read again: their state shows it, when the transaction has ended

A topic that took no record lately is doubted: its endings are tried alone, and Kafka is asked for it first.
"""

from __future__ import annotations

import logging
import threading
import time

from kqlib.errors import Closed, KqError, LeaseLost, PayloadTooLarge, Unreachable
from kqlib.queue import state
from kqlib.queue.answers import not_there
from kqlib.queue.assigned import Assigned
from kqlib.queue.item import Place
from kqlib.queue.partition import Partition
from kqlib.queue.transactions import STALL, Ending, Transactions

log = logging.getLogger("kqlib.queue")
ROUND = 0.2  # seconds: after a try that failed, a round that is older leaves the rest to the next one


class Endings:
    """The endings of a site, in the order in which they were asked for."""

    def __init__(self, assigned: Assigned) -> None:
        self.assigned = assigned
        self.transactions = Transactions(assigned)
        self._asked: list[Ending] = []
        self._running: list[Ending] = []
        # (topic, partition) -> the end of letters that no verb waits to see
        self.unseen: dict[Place, int] = {}
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kq-endings", daemon=True)

    def ask(self, ending: Ending) -> None:
        """Add this ending for the next transaction; `changed` is held."""
        if self.transactions.closed:
            raise self._is_closed()
        self._asked.append(ending)
        if not self._thread.ident:
            self._thread.start()
        self._wake.set()

    def close(self, seconds: float) -> None:
        """Begin nothing more. The transaction that runs is committed or aborted within these seconds, if Kafka answers."""
        with self.assigned.changed:
            self.transactions.closed = True
            for ending in self._asked:
                self._fail(ending, self._is_closed())
            self._asked = []
            self.assigned.committed.notify_all()
        self._wake.set()
        if self._thread.ident:
            self._thread.join(seconds)
        with self.assigned.changed:
            for ending in self._running:
                if not ending.over:
                    ending.error = self._not_known() if self.transactions.committing else self._is_closed()
            self.assigned.changed.notify_all()

    def _run(self) -> None:
        while not self.transactions.closed:
            self._wake.wait(0.02 if self._asked else None)  # what is tried again waits a moment
            self._wake.clear()
            self._round()
        self.transactions.forget()

    def _round(self) -> None:
        """Run all endings in one transaction; if that aborts, each in its own. Doubted ones go last, and alone."""
        with self.assigned.changed:
            todo = self._asked
            self._asked = []
            self._running = [ending for ending in todo if self._begin(ending)]
        together = [ending for ending in self._running if not self.transactions.doubted(ending)]
        if len(together) > 1:
            self._try(together)
        rest = sorted((ending for ending in self._running if not ending.over), key=self.transactions.doubted)
        began = time.monotonic()
        while rest:
            ending = rest.pop(0)
            if self._try([ending]):
                continue
            failed, why = [ending], self.transactions.why
            if why is not None and not isinstance(why, PayloadTooLarge):  # it holds for every record of its topics
                failed += [each for each in rest if each.topics == ending.topics]
                rest = [each for each in rest if each not in failed]
            if time.monotonic() - began > ROUND:
                while rest:
                    self._again(rest.pop(0), None)
            for each in failed:
                self._again(each, why)
        self._running = []

    def _again(self, ending: Ending, why: KqError | None) -> None:
        """It was aborted: try again later, or fail; then leases are what they were."""
        with self.assigned.changed:
            if self.transactions.closed:
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
            for partition, some in ending.offsets().items():
                partition.end(some, done=False, why=error)
        self.assigned.changed.notify_all()

    def _begin(self, ending: Ending) -> bool:
        """Set its leases aside, once. If one does not hold any more, the ending fails before anything is written."""
        for partition, offset, lease in ending.acks:
            why = partition.dropped
            if lease and not ending.begun:
                why = partition.why_not(offset, partition.ledger.epoch, lease)
            if why:
                self._fail(ending, LeaseLost(f"{partition.id_of(offset)}: {why}. Nothing was written"))
                return False
        for partition, offset, lease in ending.acks:
            if lease and not ending.begun:
                partition.begin_ending(offset)
        ending.begun = True
        return True

    def _try(self, endings: list[Ending]) -> bool:
        """Run one transaction. False: it was aborted, and nothing happened; `why` is set if a further try would fail too."""
        self.transactions.why = None
        if self.transactions.closed:
            return False
        if len(endings) == 1 and self.transactions.doubted(endings[0]) and not self._looked(endings[0]):
            return False
        offsets: dict[Partition, list[int]] = {}
        for ending in endings:
            for partition, some in ending.offsets().items():
                offsets.setdefault(partition, []).extend(some)
        try:
            outcome = self.transactions.run(endings, offsets)
        except Exception:  # a bug must be seen by the verb that waits, not in a thread that died
            log.exception("a transaction met something unforeseen")
            outcome = self.transactions.leave("something unforeseen, see the log", None)
        self._apply(outcome, endings, offsets)
        return outcome is not False

    def _apply(self, outcome: bool | None, endings: list[Ending], offsets: dict[Partition, list[int]]) -> None:
        """Do what follows: True: committed; False: aborted; None: not known."""
        with self.assigned.changed:
            self.transactions.committing = False
            if outcome is None:
                self._unknown(endings, offsets)
            elif outcome:
                self._committed(endings, offsets)
            elif offsets:
                self.assigned.group = None  # perhaps the group has counted on: its metadata is asked for again
            for partition in offsets:
                partition.frozen = 0
            self.assigned.committed.notify_all()
            self.assigned.changed.notify_all()
            self.assigned.wake.set()  # commit what was frozen

    def _committed(self, endings: list[Ending], offsets: dict[Partition, list[int]]) -> None:
        for partition, some in offsets.items():
            partition.saved = max(partition.saved, partition.frozen)
            partition.committed = partition.sent
            partition.end(some, done=True)
        for ending in endings:
            ending.done = True
            if ending.by_owner:
                self.unseen |= ending.written

    def _looked(self, ending: Ending) -> bool:
        """Do its topics exist, and can they take its records? A transaction into a missing topic costs the producer."""
        try:
            if ending.anew is not None:
                ending.outs = ending.anew()
                return True
            missing = ending.topics - state.topic_ids(self.assigned.cluster, sorted(ending.topics), STALL).keys()
        except Unreachable as error:
            self.assigned.trouble = str(error.facts["why"])
            return False
        except KqError as error:
            self.transactions.why = error
            return False
        if missing:
            self.transactions.why = not_there(self.assigned.cluster, min(missing))
        return not missing

    def _unknown(self, endings: list[Ending], offsets: dict[Partition, list[int]]) -> None:
        for partition in offsets:
            self.assigned.reload(partition, "the end of a transaction is not known, and the state is read again")
        for ending in endings:
            ending.error = self._not_known()

    def _not_known(self) -> Unreachable:
        return self._unreachable("It happened as a whole or not at all: which, is not known here")

    def _unreachable(self, safe: str) -> Unreachable:
        return Unreachable(
            address=self.assigned.cluster.bootstrap, why=f"{self.assigned.trouble or 'no answer'}. {safe}"
        )

    def _is_closed(self) -> Closed:
        return Closed(thing=f"site '{self.assigned.site}'")
