"""Commits: every ledger that changed, in one call, on the member's thread.

In:  the member and its owners. Out: what is stored, known to those who wait for it.
The call cannot be bounded: librdkafka's never returns when its consumer has lost every broker for good (librdkafka 5301). Then
another thread notices (`stuck`), the member leaves this consumer behind with its thread, and joins anew with another. Nothing that is
left behind can be written later: its member is out of the group, and nobody polls it in again.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kqlib.errors import NotAllowed
from kqlib.queue.loader import At
from kqlib.queue.partition import Partition
from kqlib.queue.rights import READ_GROUP, READ_QUEUE
from kqlib.queue.said import GIVE_UP, RIGHTS, first, not_allowed

if TYPE_CHECKING:
    from kqlib.queue.member import Member

log = logging.getLogger("kqlib.queue")

RIDE = 0.04  # seconds that a riding ack waits for another commit to ride on; its own is on its way within 50 ms
SURE = 0.5  # seconds: an error that comes later may be the answer to a second request, and the first one was stored
STUCK = 40.0  # seconds: a coordinator that is away for a while is answered for, or refused, before


class GivenUp(Exception):  # noqa: N818 - it ends a thread, and nobody else sees it
    """The consumer of this commit was left behind."""


class Commits:
    """The commits of one consumer."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.given_up = False
        self.under_way: set[Partition] = set()  # whose states a commit carries now
        self._began: float | None = None
        self._consumer: Any = None

    def stuck(self) -> bool:
        """Has a commit been on its way for too long?"""
        return self._began is not None and time.monotonic() - self._began > STUCK

    def run(self) -> bool:
        """Commit every ledger that changed, if somebody waits for one of them or a riding ack has waited long enough."""
        now, member = time.monotonic(), self.member
        with member.changed:
            unsaved = ((at, owner) for at, owner in member.owners.items() if owner.version > owner.saved)
            dirty = [(at, owner, owner.version) for at, owner in unsaved if not owner.frozen and not owner.dropped]
            due = any(o.wanted > o.saved or now - (o.dirty_since or now) >= RIDE for _, o, _ in dirty)
            if not due or now < member.next_try:
                return not due
            parts = [
                TopicPartition(*at, o.ledger.floor, metadata=o.ledger.text(o.terms.write_version)) for at, o, _ in dirty
            ]
            self._consumer, self._began = member.consumer, now
            self.under_way = {owner for _, owner, _ in dirty}
        try:
            said = self._consumer.commit(offsets=parts, asynchronous=False)
            errors = {(part.topic, part.partition): part.error for part in said if part.error is not None}
        except KafkaException as error:  # written or not: the next one carries the whole state again
            errors = {at: first(error) for at, _, _ in dirty}
        sure = time.monotonic() - now < SURE
        with member.changed:
            self._began, self.under_way = None, set()
            if self.given_up:
                raise GivenUp
            new = any(not owner.saved for _, owner, _ in dirty)
            for part, (at, owner, version) in zip(parts, dirty, strict=True):
                if at not in errors:
                    owner.committed = (part.offset, part.metadata)
                elif not (sure and _refused(errors[at])):
                    owner.unsure = version
                self._done(at, owner, version, errors.get(at), now)
            member.committed.notify_all()
            if new or errors:
                member.changed.notify_all()
        if errors:
            member.next_try = time.monotonic() + 0.02
        return not errors

    def _done(self, at: At, owner: Partition, version: int, error: KafkaError | None, now: float) -> None:
        member = self.member
        if error is not None:
            member.complain(error)
            if error.code() in GIVE_UP and member.owners.get(at) is owner:
                member._drop(at, member.trouble)
                member.broken[at] = self._why_not(at, error)
            return
        owner.saved = max(owner.saved, version)
        owner.saved_at = now
        owner.dirty_since = None if owner.version == version else now
        member.note(at, owner)
        member.trouble = ""
        self._note(at, owner, version)

    def _note(self, at: At, owner: Partition, version: int) -> None:
        """What others must know of this state, once. A note that could not be written goes with the next commit."""
        member, topic = self.member, owner.ledger.topic

        def failed(error: KafkaError) -> None:
            owner.noted, owner.purged_version = False, 0
            member.complain(error)

        if not owner.noted:
            owner.noted, key = True, (member.site, at[0], "state", at[1])
            if member.notes.get(*key) != topic:  # missing, it is lost: from now on
                member.notes.post([(key, topic)], member.sender, failed)
        if owner.purged and owner.purged_version <= version:
            owner.purged_version = 1 << 62  # said once
            note = ((member.site, at[0], "purged", at[1]), {"topic": topic, "offset": owner.purged})
            member.notes.post([note], member.sender, failed)

    def _why_not(self, at: At, error: KafkaError) -> NotAllowed:
        """Why nothing can be committed there any more."""
        if error.code() not in RIGHTS:
            return NotAllowed(f"The state of '{at[0]}' could not be committed: {self.member.trouble}")
        right = READ_GROUP if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else READ_QUEUE
        safe = "What was done there and not stored comes again."
        return not_allowed(right.of(at[0], self.member.site), self.member.cluster, safe)

    def bury(self) -> None:
        """The consumer that was left behind has come back after all: out with it, on its own thread."""
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()


def _refused(error: KafkaError | None) -> bool:
    """Did the coordinator refuse the commit? An error of the client itself (below 0) says only that no answer came."""
    return error is not None and error.code() >= 0 and error.code() != KafkaError.REQUEST_TIMED_OUT
