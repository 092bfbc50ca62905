"""Fetching: leads the Consumer to what each owner needs next, reads it, and stops while too much is here already.

In:  the member and its owners. Out: records in owners. Runs on the member's thread.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kqlib.queue.loader import ANEW, At
from kqlib.queue.owner import Owner
from kqlib.queue.said import fatal

if TYPE_CHECKING:
    from kqlib.queue.member import Member

log = logging.getLogger("kqlib.queue")

QUICK = 0.001  # seconds in poll() while leases are open and things move
CALM = 0.02  # otherwise
IDLE = 0.1  # after a second in which nothing moved
MOST_CACHED, MOST_BYTES = 6_000, 64_000_000  # read and not yet done (two large claims): then no more is taken
REST = 0.2  # seconds of that until fetching is paused, which throws away what the client has; it resumes at half
FULL = "too much is in memory: items that are out, wait or are ready; more is read when some are done"
FAR = 1_000  # offsets: a gap that is read over rather than sought over
MANY = 500  # records at once, or as many as somebody claims at once
PAUSE = 0.1  # seconds without a record: a topic that is made anew takes longer than that to be read on (seen: 0.4)
SETTINGS: dict[str, Any] = {  # of the site's consumer
    "group.protocol": "consumer",
    "enable.partition.eof": True,  # its offset lies past a transaction's marks, which are no items
    "isolation.level": "read_committed",
    "max.poll.interval.ms": 120_000,  # one whose thread stands still has no partitions after that; a transaction may take 50 s
    "socket.nagle.disable": True,  # a commit after a pause took 45 ms, and 1 without waiting for the last packet's answer
    "fetch.wait.max.ms": 100,  # a seek, and the word that the log ends here, wait for the last answer
    "fetch.queue.backoff.ms": 5,  # after a full buffer; by default a second without a record
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
}


class Fetch:
    """The member's reading side."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.paused: set[At] = set()
        self.many = MANY
        self._full_since: float | None = None  # since when nobody needs a record; None: somebody does
        self._more = False  # the client has more than was taken from it

    def aim(self) -> None:
        """Lead the consumer to what each owner needs next."""
        full_ones = self._full_ones()
        for at, owner in list(self.member.owners.items()):
            with self.member.changed:
                target, full = owner.target(), at in full_ones
                owner.full = FULL if full else ""
                lost = owner.position >= 0 and not owner.position <= target <= owner.position + FAR
            consumer, again = self.member.consumer, not full and at in self.paused
            try:
                if owner.position < 0 or lost or (again and owner.position != target):
                    consumer.seek(TopicPartition(*at, target))
                    owner.position = target
                    self._wake(at)
                if full and at not in self.paused and not self._resting():
                    consumer.pause([TopicPartition(*at)])
                    self.paused.add(at)
                elif again:
                    consumer.resume([TopicPartition(*at)])
                    self.paused.discard(at)
                    self._wake(at)
            except KafkaException as error:  # just assigned, or just taken away: the next round tries again
                log.debug("seek on %s: %s", at, error)

    def _wake(self, at: At) -> None:
        """After a seek and a resume librdkafka's fetcher sleeps on for up to a second (seen: 1,005 ms); an answer wakes it (10 ms)."""
        self.member.consumer.get_watermark_offsets(TopicPartition(*at), timeout=0.5)

    def _full_ones(self) -> set[At]:
        """Those of which enough is here. If all are, nothing is taken: a moment later somebody may have claimed it."""
        with self.member.changed:
            owners = self.member.owners
            full = {at for at, owner in owners.items() if self._full(owner, at in self.paused)}
            since = self._full_since or time.monotonic()
            self._full_since = since if full and len(full) == len(owners) else None
        return full

    def _resting(self) -> bool:
        """Is nothing to be taken now? For a moment: whoever takes nothing hears nothing of the group either."""
        return self._full_since is not None and time.monotonic() - self._full_since < REST

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
        calm = self._calm(leases or not self.member._subscribed <= self.member.joined, now - self.member._active)
        resting = self._resting()
        if asked or (self._more and not resting):
            calm = 0 if now >= self.member.next_try else QUICK
        if self.member.consumer is None or not self.member._subscribed:
            self.member.wake.wait(0.05 if not asked else 0)
            if self.member.consumer is not None and (message := self.member.consumer.poll(0)) is not None:
                self._arrive([message])
            return
        if resting:
            self.member.wake.wait(calm)
            return
        messages = []
        if starving and (message := self.member.consumer.poll(calm)) is not None:
            messages.append(message)
        elif not starving:
            self.member.wake.wait(calm)
            self.member.commits.run()  # before anything else: somebody waits for it
        if messages or not starving:
            messages += self.member.consumer.consume(self.many, 0)  # what is there; to wait for more would be latency
        self._more = len(messages) >= self.many
        if messages:
            self.member._active = now if starving else self.member._active
            self._arrive(messages)

    @staticmethod
    def _calm(open_: bool, quiet: float) -> float:
        return QUICK if open_ and quiet < 0.1 else CALM if open_ or quiet < 1 else IDLE

    def _arrive(self, messages: list[Any]) -> None:
        by: dict[At, list[Any]] = defaultdict(list)
        for message in messages:
            by[message.topic(), message.partition()].append(message)
        self._doubt(by)
        with self.member.changed:
            for at, batch in by.items():
                if at[0] is None and fatal(
                    said := KafkaException(batch[0].error())
                ):  # about the client, not a partition
                    raise said
                owner = self.member.owners.get(at)
                if owner is not None and owner.position >= 0:
                    self._arrive_at(owner, batch)
            self.member.changed.notify_all()

    def _doubt(self, by: dict[At, list[Any]]) -> None:
        """After a pause it is asked whether this is still the same topic: the client reads on in one that was made anew."""
        now, paused = time.monotonic(), dict[At, Owner]()
        for at, batch in by.items():
            if (owner := self.member.owners.get(at)) and any(message.error() is None for message in batch):
                if now - owner.heard_at > PAUSE:
                    paused[at] = owner
                owner.heard_at = now
        if paused and (there := self.member.ids_of({topic for topic, _ in paused})) is not None:
            with self.member.changed:
                for at, owner in paused.items():
                    if there.get(at[0]) != owner.ledger.topic:
                        self.member.reload(owner, ANEW)

    def _arrive_at(self, owner: Owner, batch: list[Any]) -> None:
        records: list[Any] = []
        for message in batch:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF and owner.arrive(records):
                records = []
                owner.end_seen(message.offset())
        if not owner.arrive(records):
            self.member.reload(owner, "its log begins anew")

    def look_at_gaps(self) -> None:
        """Offsets without a record: transactions' marks, or what retention took before anybody read it. Where the log begins tells."""
        for at, owner in list(self.member.owners.items()):
            if owner.gaps:
                try:
                    low, _ = self.member.consumer.get_watermark_offsets(TopicPartition(*at), timeout=1.0)
                except KafkaException as error:  # the next round asks again
                    log.debug("the bounds of %s: %s", at, error)
                    continue
                with self.member.changed:
                    owner.log_begins(low)
