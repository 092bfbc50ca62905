"""What the queues of one site share in this process: its clients, its notes, its rates, and its session with the group.

In:  a cluster and a site's name. Out: what a verb needs. `Site` adds the methods for users; queues need only this part.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kqlib.errors import Closed, TopicMissing, Unreachable
from kqlib.kafka import forks
from kqlib.kafka.cluster import Kafka
from kqlib.queue import answers, state
from kqlib.queue.broker_settings import record_limits
from kqlib.queue.dead import DEAD
from kqlib.queue.item import Place
from kqlib.queue.notes import Notes
from kqlib.queue.reader import Reader
from kqlib.queue.sender import Sender
from kqlib.queue.terms import Rates
from kqlib.topic_rules import RECORD_BYTES

if TYPE_CHECKING:
    from kqlib.queue.transactions import Ending

VISIBLE = 1.0  # seconds that a verb waits until readers can see what it committed
CLOSE = 4.3  # seconds until the site's thread is left behind
BATCH_HEAD = 200  # bytes of a batch that the client's batch.size does not count, and some to spare


@dataclass(frozen=True)
class TopicFacts:
    """What must be known of a queue's topic before anything is sent."""

    partitions: int
    limit: int  # bytes of a record


def topic_facts(cluster: Kafka, name: str, *more: str) -> dict[str, TopicFacts]:
    """The facts of this topic, which must exist, and of those others that do."""
    if not isinstance(name, str) or not name:
        raise TopicMissing(topic=name)
    found = state.topic_ids(cluster, [name, *more])
    if name not in found:
        raise answers.not_there(cluster, name)
    most = record_limits(cluster, list(found))
    return {each: TopicFacts(len(partitions), most[each]) for each, (_, partitions) in found.items()}


class Connection:
    """A site's clients in this process, and its session with the group."""

    def __init__(self, cluster: Kafka, name: str) -> None:
        from kqlib.queue.session import Session

        cluster._check_open()
        self._process = os.getpid()
        self.cluster = cluster
        self.name = name
        self._closing = False
        self._closed = False
        self._lock = threading.Lock()
        self._senders: dict[int, Sender] = {}
        self._rates: dict[str, Rates] = {}
        self._looker = state.Looker(cluster, name, wait=False)
        self._waiter = state.Looker(cluster, name, wait=True)
        self._reader = Reader(cluster)
        self._notes = Notes(cluster, self._noted)
        self._session = Session(cluster, name, self._notes, self._sender(), self._waiter)

    def __repr__(self) -> str:
        return f"Site('{self.name}'{', closed' * self._closed})"

    def _check_here(self) -> None:
        if os.getpid() != self._process:  # the words are made for the error only: a claim checks this 17 times
            forks.check(self._process, f"site '{self.name}'")

    def _check_open(self) -> None:
        self._check_here()
        if self._closed:
            raise Closed(thing=f"site '{self.name}'")

    def _sender(self, limit: int = RECORD_BYTES) -> Sender:
        """A producer whose batches a topic with this limit takes."""
        batch = min(limit, RECORD_BYTES) - BATCH_HEAD
        with self._lock:
            if batch not in self._senders:
                self._senders[batch] = Sender(self.cluster, batch)
            return self._senders[batch]

    def _noted(self) -> None:
        """A new note was read: wake the threads that wait."""
        if session := getattr(self, "_session", None):
            with session.changed:
                session.changed.notify_all()

    def _facts(self, name: str) -> tuple[TopicFacts, TopicFacts | None]:
        more = [] if str(name).endswith(DEAD) else [f"{name}{DEAD}"]
        facts = topic_facts(self.cluster, name, *more)
        return facts[name], facts.get(f"{name}{DEAD}")

    def _end(self, ending: Ending) -> None:
        """Run this transaction and wait for its outcome; `changed` is held."""
        from kqlib.queue import transactions

        self._check_open()
        session = self._session
        session.endings.ask(ending)
        if not session.changed.wait_for(lambda: ending.over, transactions.PATIENCE + transactions.LAST_TRY):
            why = "no answer to a transaction; it may have happened, or not"
            raise Unreachable(address=self.cluster.bootstrap, why=why)
        if ending.error is not None:
            raise ending.error
        for out in ending.outs:
            if out.topic in self._rates:
                self._rates[out.topic].note("puts", 1, time.monotonic())
        # Kafka marks the end of a transaction in each partition: readers see what it wrote some milliseconds later
        if ending.written:
            session.changed.release()
            try:
                self._seen(ending.written)
            finally:
                session.changed.acquire()

    def see_letters(self) -> None:
        """Return when readers can see what this process's owners have buried."""
        with self._session.changed:
            unseen = self._session.endings.unseen
            self._session.endings.unseen = {}
        if unseen:
            self._seen(unseen)

    def _seen(self, written: dict[Place, int]) -> None:
        """Return when readers can see these records, so that the next question finds them."""
        deadline = time.monotonic() + VISIBLE
        over = False
        while not over:  # at least one look: this process may have been stopped for that time
            over = time.monotonic() > deadline
            with suppress(Unreachable):
                ends = state.ends(self.cluster, list(written), VISIBLE)
                if all(ends[at] >= end for at, end in written.items()):
                    return
            time.sleep(0.002)

    def _disconnect(self, give_back: bool) -> None:
        """Leave the group and close all clients, in at most 5 s. What has not ended by then is left behind."""
        over = time.monotonic() + CLOSE
        ended = self._session.stop(CLOSE, give_back)
        self._closed = True
        if not ended:
            self._notes._stop = True
            return
        self._notes.close()
        for sender in self._senders.values():
            sender.close(max(0.2, over - time.monotonic()))  # the last notes, if Kafka answers
        for looker in (self._looker, self._waiter, self._reader):
            looker.close()
