"""Commits: every ledger that changed, in one call, on the session's thread.

In:  the partitions of this process. Out: their states are stored, and those who wait for that go on.
The call cannot be bounded: librdkafka's never returns when its consumer has lost every broker for good (librdkafka 5301). Then
another thread notices (`stuck`). The session leaves this consumer and its thread behind, and joins anew with another one. What is
left behind can write nothing later: its member is out of the group, and nobody polls for it.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kqlib.errors import NotAllowed
from kqlib.queue.answers import GIVE_UP, RIGHTS, first, not_allowed
from kqlib.queue.assigned import Assigned
from kqlib.queue.incidents import Stored
from kqlib.queue.item import Place
from kqlib.queue.partition import Partition
from kqlib.queue.partition_notes import PartitionNotes
from kqlib.queue.rights import READ_GROUP, READ_QUEUE

log = logging.getLogger("kqlib.queue")

RIDE = 0.04  # seconds that a riding ack waits for another commit to ride on; its own is on its way within 50 ms
# Seconds. The client repeats a request that was not answered. An error that comes later may be the answer to the repeated
# request, while the first one was stored.
ASKED_ONCE = 0.5
TRY_AGAIN = 0.02  # seconds after a commit that failed
STUCK = 40.0  # seconds: a coordinator that is away for a while answers, or refuses, before


class GivenUp(Exception):  # noqa: N818 - it ends a thread, and nobody else sees it
    """The consumer of this commit was left behind."""


class Sent(NamedTuple):
    """The state of one partition in a commit."""

    partition: Partition
    version: int  # of the ledger
    ahead: range  # offsets whose attempts it counts ahead
    state: Stored


class Commits:
    """The commits of one consumer."""

    def __init__(self, assigned: Assigned, notes: PartitionNotes) -> None:
        self.assigned = assigned
        self.notes = notes
        self.given_up = False
        self._began: float | None = None
        self._consumer: Any = None

    def stuck(self) -> bool:
        """Has a commit been on its way for too long?"""
        return self._began is not None and time.monotonic() - self._began > STUCK

    def run(self) -> bool:
        """Commit every ledger that changed, if a verb waits for one of them or a riding ack has waited long enough."""
        now, assigned = time.monotonic(), self.assigned
        with assigned.changed:
            changed, due = self.due(now)
            if not due or now < assigned.next_try:
                return not due
            sent = self.send(changed, now)
        errors = self._commit([TopicPartition(*p.at, floor, metadata=text) for p, _, _, (floor, text) in sent])
        answered_first = time.monotonic() - now < ASKED_ONCE
        with assigned.changed:
            self.answered(sent, errors, now, answered_first)
        return not errors

    def due(self, now: float) -> tuple[list[Partition], bool]:
        """The partitions whose ledgers changed; and must they be committed now? `changed` is held."""
        partitions = self.assigned.partitions.values()
        changed = [p for p in partitions if p.version > p.saved and not p.frozen and not p.dropped]
        return changed, any(p.awaited > p.saved or now - (p.dirty_since or now) >= RIDE for p in changed)

    def send(self, partitions: list[Partition], now: float) -> list[Sent]:
        """The states of these partitions for one commit, which is under way from now on. `changed` is held."""
        sent = list[Sent]()
        for partition in partitions:
            ledger, ahead = partition.ahead.state()
            partition.ahead.sent(ahead)
            text = ledger.text(partition.terms.write_version)
            sent.append(Sent(partition, partition.version, ahead, (ledger.floor, text)))
        self._consumer = self.assigned.consumer
        self._began = now
        self.assigned.under_way = set(partitions)
        return sent

    def answered(self, sent: list[Sent], errors: dict[Place, KafkaError], began: float, answered_first: bool) -> None:
        """Do what follows from the answer: these errors, and for the other partitions none. `changed` is held."""
        assigned = self.assigned
        self._began = None
        if self.given_up:
            raise GivenUp
        assigned.under_way = set()
        new = any(not each.partition.saved for each in sent)
        for partition, version, ahead, state in sent:
            if (refused := errors.get(partition.at)) is None:
                partition.committed = state
                partition.ahead.stored(ahead, began)
                self._succeeded(partition, version, began)
            else:
                if not (answered_first and _refused(refused)):
                    partition.unsure = version
                self._failed(partition, refused)
        assigned.committed.notify_all()
        if new or errors:
            assigned.changed.notify_all()
        if errors:
            assigned.next_try = time.monotonic() + TRY_AGAIN

    def _commit(self, parts: list[TopicPartition]) -> dict[Place, KafkaError]:
        """Commit these states. Returns the errors by partition; the next commit carries the whole state again."""
        try:
            answer = self._consumer.commit(offsets=parts, asynchronous=False)
        except KafkaException as error:
            return {(part.topic, part.partition): first(error) for part in parts}
        return {(part.topic, part.partition): part.error for part in answer if part.error is not None}

    def _succeeded(self, partition: Partition, version: int, now: float) -> None:
        partition.saved = max(partition.saved, version)
        partition.saved_at = now
        partition.dirty_since = None if partition.version == version else now
        self.assigned.trouble = ""
        self.notes.committed(partition)

    def _failed(self, partition: Partition, error: KafkaError) -> None:
        assigned, at = self.assigned, partition.at
        assigned.complain(error)
        if error.code() in GIVE_UP and assigned.partitions.get(at) is partition:
            assigned.drop(at, assigned.trouble)
            assigned.broken[at] = self._why_not(at, error)

    def _why_not(self, at: Place, error: KafkaError) -> NotAllowed:
        """Why nothing can be committed there any more."""
        if error.code() not in RIGHTS:
            return NotAllowed(f"The state of '{at[0]}' could not be committed: {self.assigned.trouble}")
        right = READ_GROUP if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else READ_QUEUE
        safe = "What was done there and not stored comes again."
        return not_allowed(right.of(at[0], self.assigned.site), self.assigned.cluster, safe)

    def close(self) -> None:
        """The commit of the consumer that was left behind has returned after all: close that consumer, on its own thread."""
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()


def _refused(error: KafkaError) -> bool:
    """Is it certain that this was not stored?

    An error of the client itself (below 0) says only that no answer came. But a client with a fatal error sends no commit.
    """
    if error.code() == KafkaError._FATAL:
        return True
    return error.code() >= 0 and error.code() != KafkaError.REQUEST_TIMED_OUT
