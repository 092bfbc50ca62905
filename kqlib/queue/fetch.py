"""Fetching: the consumer seeks to what each partition needs next, and reads it. It pauses while too much is in memory.

In:  the partitions of this process. Out: their records. Runs on the session's thread.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from kqlib.queue import clients
from kqlib.queue.answers import fatal
from kqlib.queue.assigned import ANEW, Assigned, At
from kqlib.queue.commits import RIDE
from kqlib.queue.partition import Partition

log = logging.getLogger("kqlib.queue")

QUICK = 0.001  # seconds in poll() while leases are open and things move
CALM = 0.02  # otherwise
IDLE = 0.1  # after a second in which nothing moved
MOST_CACHED = 6_000  # records of a partition that are read and not handed out (two large claims): then no more is taken
MOST_BYTES = 64_000_000  # of a queue, read and not yet done: then no more of it is taken
REST = 0.2  # seconds of that until fetching is paused, which throws away what the client has; it resumes at half
FULL = "too much is in memory: items that are out, wait or are ready; more is read when some are done"
FAR = 1_000  # offsets: a gap that is read over rather than sought over
MANY = 500  # records at once, or as many as a verb claims at once
PAUSE = 0.1  # seconds without a record: a topic that is made anew takes longer than that to be read on (seen: 0.4)
SETTINGS: dict[str, Any] = {  # of the site's consumer
    **clients.SETTINGS,
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
    """What one consumer reads. commit: called before records are taken in, since a verb may wait for it."""

    def __init__(self, assigned: Assigned, commit: Callable[[], object]) -> None:
        self.assigned, self._commit = assigned, commit
        self.paused = assigned.paused
        self.many = MANY
        self._full_since: float | None = None  # since when no partition needs a record; None: one does
        self._rests = False  # nothing is taken in this round
        self._more = False  # the client has more than was taken from it

    def aim(self) -> None:
        """Seek to the record that each partition needs next; pause those of which enough is here."""
        full_ones, woken = self.full_ones(), list[TopicPartition]()
        self._rests = self._resting()  # once a round: asked twice, a round could neither pause what is full nor rest
        for at, owner in list(self.assigned.owners.items()):
            with self.assigned.changed:
                target, full = owner.target(), at in full_ones
                lost = owner.window.position >= 0 and not owner.window.position <= target <= owner.window.position + FAR
            consumer, again = self.assigned.consumer, not full and at in self.paused
            try:
                if owner.window.position < 0 or lost or (again and owner.window.position != target):
                    consumer.seek(TopicPartition(*at, target, leader_epoch=owner.ledger.leader))
                    owner.window.position = target
                    woken.append(TopicPartition(*at, 0))
                if full and at not in self.paused and not self._rests:
                    consumer.pause([TopicPartition(*at)])
                    self.paused.add(at)
                elif again:
                    consumer.resume([TopicPartition(*at)])
                    self.paused.discard(at)
                    woken.append(TopicPartition(*at, 0))
            except KafkaException as error:  # just assigned, or just taken away: the next round tries again
                log.debug("seek on %s: %s", at, error)
        if woken:
            self._wake(woken)

    def _wake(self, parts: list[TopicPartition]) -> None:
        """After a seek and a resume librdkafka's fetcher sleeps on for up to a second (seen: 1,005 ms); an answer wakes it (10 ms).

        One question for all of them: one a partition took 70 ms each, and the site's thread stood for minutes.
        """
        try:
            self.assigned.consumer.offsets_for_times(parts, timeout=0.5)
        except KafkaException as error:
            log.debug("no answer to wake the fetcher: %s", error)

    def full_ones(self) -> set[At]:
        """The partitions of which enough is in memory; `owner.full` says so. If all are, nothing is read: soon some may be claimed."""
        with self.assigned.changed:
            owners, total = self.assigned.owners, self._bytes()
            heavy = {topic for topic, _ in owners.keys() - self.paused if total[topic] > MOST_BYTES}
            for (topic, _), owner in owners.items() if heavy else ():
                if topic in heavy:
                    owner.drop_payloads()
            total = self._bytes() if heavy else total
            full = {at for at, owner in owners.items() if self._full(owner, at in self.paused, total[at[0]])}
            for at, owner in owners.items():
                owner.full = FULL if at in full else ""
            since = self._full_since or time.monotonic()
            self._full_since = since if full and len(full) == len(owners) else None
        return full

    def _bytes(self) -> dict[str, int]:
        """What each queue has in memory: it has a limit of its own."""
        total = defaultdict[str, int](int)  # asked in each round: a Counter costs as much as all the rest
        for (topic, _), owner in self.assigned.owners.items():
            total[topic] += owner.window.bytes
        return total

    def _resting(self) -> bool:
        """Is nothing to be read now? For a moment only: without poll() the group's changes do not arrive."""
        return self._full_since is not None and time.monotonic() - self._full_since < REST

    def _full(self, owner: Partition, paused: bool, total: int) -> bool:
        share = 2 if paused else 1
        if owner.target() < owner.window.head:
            return False  # an open item is needed, whatever it weighs
        return owner.order.cached > MOST_CACHED / share or total > MOST_BYTES / share

    def read(self) -> None:
        """Wait for records or for work, and take the records in."""
        self.assigned.wake.clear()
        with self.assigned.changed:
            starving = any(
                count and not any(owner.claimable() for owner in self.assigned.owners_of(topic))
                for topic, count in self.assigned.hungry.items()
            )
            asked = any(o.awaited > o.saved and not o.frozen for o in self.assigned.owners.values())
            leases = any(owner.leases for owner in self.assigned.owners.values())
            riding = [o.dirty_since for o in self.assigned.owners.values() if o.dirty_since and not o.frozen]
        now = time.monotonic()
        calm = self._calm(leases or not self.assigned.subscribed <= self.assigned.joined, now - self.assigned.active)
        if riding:  # its commit is to be on its way in time
            calm = min(calm, max(QUICK, min(riding) + RIDE - now, self.assigned.next_try - now))
        if asked or (self._more and not self._rests):
            calm = 0 if now >= self.assigned.next_try else QUICK
        if self.assigned.consumer is None or not self.assigned.subscribed:
            self.assigned.wake.wait(0.05 if not asked else 0)
            if self.assigned.consumer is not None and (message := self.assigned.consumer.poll(0)) is not None:
                self._arrive([message])
            return
        if self._rests:
            self.assigned.wake.wait(calm)
            return
        messages = []
        if starving and (message := self.assigned.consumer.poll(calm)) is not None:
            messages.append(message)
        elif not starving:
            self.assigned.wake.wait(calm)
            self._commit()  # before anything else: a verb waits for it
        if messages or not starving:
            messages += self.assigned.consumer.consume(self.many, 0)  # what is there; to wait for more would be latency
        self._more = len(messages) >= self.many
        if messages:
            self.assigned.active = now if starving else self.assigned.active
            self._arrive(messages)

    @staticmethod
    def _calm(open_: bool, quiet: float) -> float:
        return QUICK if open_ and quiet < 0.1 else CALM if open_ or quiet < 1 else IDLE

    def _arrive(self, messages: list[Any]) -> None:
        by: dict[At, list[Any]] = defaultdict(list)
        for message in messages:
            by[message.topic(), message.partition()].append(message)
        for error in [each.error() for at in by if at[0] is None for each in by[at]]:  # about the client
            self.assigned.complain(error)
            if fatal(error):
                raise KafkaException(error)
        self._doubt(by)
        with self.assigned.changed:
            for at, batch in by.items():
                owner = self.assigned.owners.get(at)
                if owner is not None and owner.window.position >= 0:
                    self._arrive_at(owner, batch)
            self.assigned.changed.notify_all()

    def _doubt(self, by: dict[At, list[Any]]) -> None:
        """After a pause, ask whether the topic is still the same: the client reads on in a topic that was made anew."""
        now, paused = time.monotonic(), dict[At, Partition]()
        for at, batch in by.items():
            if (owner := self.assigned.owners.get(at)) and any(message.error() is None for message in batch):
                if now - owner.arrived_at > PAUSE:
                    paused[at] = owner
                owner.arrived_at = now
        if paused and (there := self.assigned.ids_of({topic for topic, _ in paused})) is not None:
            with self.assigned.changed:
                for at, owner in paused.items():
                    if there.get(at[0]) != owner.ledger.topic:
                        self.assigned.reload(owner, ANEW)

    def _arrive_at(self, owner: Partition, batch: list[Any]) -> None:
        records: list[Any] = []
        for message in batch:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF and owner.arrive(records):
                records = []
                owner.end_seen(message.offset())
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self.assigned.complain(error)
        if not owner.arrive(records):
            self.assigned.reload(owner, "its log begins anew, or goes on from where it was cut off")
        # below a purge mark there may be records of a later leader that are not read yet
        elif owner.window.position >= owner.window.head:
            owner.ledger.leader = max(owner.ledger.leader, _leader(batch))

    def look_at_gaps(self) -> None:
        """Offsets without a record: transactions' marks, or what retention took before anybody read it. Where the log begins tells.

        One question for all partitions: one each takes 100 ms, and no commit is made meanwhile.
        """
        gaps = {at: owner for at, owner in self.assigned.owners.items() if owner.window.gaps}
        if not gaps:
            return
        try:
            asked = [TopicPartition(*at, OFFSET_BEGINNING) for at in gaps]
            found = self.assigned.consumer.offsets_for_times(asked, timeout=1.0)
        except KafkaException as error:  # the next round asks again
            log.debug("where the logs begin: %s", error)
            return
        with self.assigned.changed:
            for part in found:
                if part.error is None:
                    gaps[part.topic, part.partition].log_begins(part.offset)


def _leader(batch: list[Any]) -> int:
    """The leader epoch of the last record; -1: none is known."""
    last = next((message for message in reversed(batch) if message.error() is None), None)
    return -1 if last is None or (epoch := last.leader_epoch()) is None else epoch
