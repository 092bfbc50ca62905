"""Fetching: leads the Consumer to what each owner needs next, reads it, and stops while too much is here already.

In:  the member and its owners. Out: records in owners. Runs on the member's thread.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kqlib.queue.loader import At
from kqlib.queue.owner import Owner

if TYPE_CHECKING:
    from kqlib.queue.member import Member

log = logging.getLogger("kqlib.queue")

QUICK, CALM = 0.001, 0.02  # seconds in poll(): while leases are open and things move; otherwise
MOST_CACHED, MOST_BYTES = (
    20_000,
    64_000_000,
)  # of records read and not yet done: then fetching stops, and resumes at half
FAR = 1_000  # offsets: a gap that is read over rather than sought over
MANY = 500  # records at once


class Fetch:
    """The member's reading side."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.paused: set[At] = set()

    def aim(self) -> None:
        """Lead the consumer to what each owner needs next."""
        for at, owner in list(self.member.owners.items()):
            with self.member.changed:
                target, full = owner.target(), self._full(owner, at in self.paused)
                lost = owner.position >= 0 and not owner.position <= target <= owner.position + FAR
            try:
                if owner.position < 0 or lost:
                    self.member.consumer.seek(TopicPartition(*at, target))
                    owner.position = target
                if full and at not in self.paused:
                    self.member.consumer.pause([TopicPartition(*at)])
                    self.paused.add(at)
                elif not full and at in self.paused:
                    self.member.consumer.seek(TopicPartition(*at, target))
                    owner.position = target
                    self.member.consumer.resume([TopicPartition(*at)])
                    self.paused.discard(at)
            except KafkaException as error:  # just assigned, or just taken away: the next round tries again
                log.debug("seek on %s: %s", at, error)

    def _full(self, owner: Owner, paused: bool) -> bool:
        share = 2 if paused else 1
        total = sum(each.bytes for each in self.member.owners.values())
        if total > MOST_BYTES and not paused:
            for each in self.member.owners.values():
                each.drop_payloads()
        if owner.target() < owner.head:
            return False  # an open item is needed, whatever it weighs
        return owner.cached > MOST_CACHED / share or total > MOST_BYTES / share

    def read(self) -> None:
        """Fetch; wait where something can come from."""
        self.member.wake.clear()
        with self.member.changed:
            starving = any(
                count and not any(owner.claimable() for owner in self.member.owners_of(topic))
                for topic, count in self.member.hungry.items()
            )
            asked = self.member.endings.asked() or any(o.wanted > o.saved for o in self.member.owners.values())
            leases = any(owner.leases for owner in self.member.owners.values())
        now = time.monotonic()
        calm = (
            QUICK
            if (leases or not self.member._subscribed <= self.member.joined) and now - self.member._active < 0.1
            else CALM
        )
        if asked:
            calm = 0 if now >= self.member._next_try else QUICK
        if self.member.consumer is None or not self.member._subscribed:
            self.member.wake.wait(0.05 if not asked else 0)
            if self.member.consumer is not None:
                self.member.consumer.poll(0)
            return
        messages = []
        if starving:
            messages = [message] if (message := self.member.consumer.poll(calm)) is not None else []
        else:
            self.member.wake.wait(calm)
        messages += self.member.consumer.consume(
            MANY, 0
        )  # what is there already; to wait until it fills would be latency
        if messages:
            self.member._active = now if starving else self.member._active
            self._arrive(messages)

    def _arrive(self, messages: list[Any]) -> None:
        by: dict[At, list[Any]] = defaultdict(list)
        for message in messages:
            by[message.topic(), message.partition()].append(message)
        with self.member.changed:
            for at, batch in by.items():
                owner = self.member.owners.get(at)
                if owner is not None and owner.position >= 0:
                    self._arrive_at(at, owner, batch)
            self.member.changed.notify_all()

    def _arrive_at(self, at: At, owner: Owner, batch: list[Any]) -> None:
        records: list[Any] = []
        for message in batch:
            error = message.error()
            if error is None:
                if not records and message.offset() < owner.position:  # the log was reset under us: ask what it is now
                    self.member.reload(owner, "its log begins anew")
                    return
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                owner.arrive(records)
                records = []
                owner.end_seen(message.offset())
        owner.arrive(records)
