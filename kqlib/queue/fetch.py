"""Fetching: the consumer seeks to what each partition needs next, and reads it. It pauses while too much is in memory.

In:  the partitions of this process. Out: their records. Runs on the session's thread.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from kqlib.queue import clients
from kqlib.queue.answers import fatal
from kqlib.queue.assigned import RECREATED, Assigned
from kqlib.queue.commits import RIDE
from kqlib.queue.item import Place
from kqlib.queue.partition import Partition

log = logging.getLogger("kqlib.queue")

# Seconds that one round waits
BUSY = 0.001  # while leases are open and something moves
CALM = 0.02  # otherwise
IDLE = 0.1  # after a second in which nothing moved
UNSUBSCRIBED = 0.05  # while no queue is claimed from
MOST_CACHED = 24_000  # records of a partition that are read and not handed out: then no more is taken
MOST_BYTES = 64_000_000  # of a queue, read and not yet done: then no more of it is taken
# Seconds with too much in memory until fetching is paused: a pause throws away what the client has. It resumes at half.
REST = 0.2
FULL = "too much is in memory: items that are out, wait or are ready; more is read when some are done"
SHORTEST_SEEK = 1_000  # offsets: a gap up to this is read, and not skipped by a seek
MANY = 500  # records at once, or as many as a verb claims at once
QUIET = 0.1  # seconds without a record: to read on in a topic that was created again takes longer (seen: 0.4)
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
        self.assigned = assigned
        self._commit = commit
        self.paused = assigned.paused
        self.many = MANY
        self._full_since: float | None = None  # since when all partitions are full; None: one is not
        self._rests = False  # nothing is taken in this round
        self._more = False  # the client has more records than were taken

    def aim(self) -> None:
        """Seek to the record that each partition needs next; pause those of which enough is here."""
        full_ones = self.full_ones()
        woken = list[TopicPartition]()
        self._rests = self._resting()  # once a round: asked twice, a round could neither pause what is full nor rest
        for at, partition in list(self.assigned.partitions.items()):
            window, full, consumer = partition.window, at in full_ones, self.assigned.consumer
            again = not full and at in self.paused
            with self.assigned.changed:
                target = window.target()
                near = 0 <= window.position <= target <= window.position + SHORTEST_SEEK
            try:
                if not near or (again and window.position != target):
                    consumer.seek(TopicPartition(*at, target, leader_epoch=partition.ledger.leader))
                    window.position = target
                    woken.append(TopicPartition(*at, 0))
                if full and at not in self.paused and not self._rests:
                    consumer.pause([TopicPartition(*at)])
                    self.paused.add(at)
                elif again:
                    consumer.resume([TopicPartition(*at)])
                    self.paused.discard(at)
                    woken.append(TopicPartition(*at, 0))
            except KafkaException as error:  # just assigned, or just taken away: the next round tries again
                log.debug("seek on %s: %s", at, error, extra={"queue": at[0], "partition": at[1]})
        if woken:
            self._wake(woken)

    def _wake(self, parts: list[TopicPartition]) -> None:
        """After a seek and a resume librdkafka's fetcher sleeps on for up to a second (seen: 1,005 ms); an answer wakes it (10 ms).

        The question is sent at once, and its answer is not waited for: that took 36 ms, and no commit went out meanwhile.
        """
        with suppress(KafkaException):  # it is always over before the answer comes
            self.assigned.consumer.offsets_for_times(parts, timeout=0.001)

    def full_ones(self) -> set[Place]:
        """The partitions of which enough is in memory; `full` of each says why. If all are full, nothing is read for a moment."""
        with self.assigned.changed:
            partitions, total = self.assigned.partitions, self._bytes()
            heavy = {topic for topic, _ in partitions.keys() - self.paused if total[topic] > MOST_BYTES}
            for (topic, _), partition in partitions.items() if heavy else ():
                if topic in heavy:
                    partition.drop_payloads()
            total = self._bytes() if heavy else total
            full = {
                at for at, partition in partitions.items() if self._full(partition, at in self.paused, total[at[0]])
            }
            for at, partition in partitions.items():
                partition.full = FULL if at in full else ""
            since = self._full_since or time.monotonic()
            self._full_since = since if full and len(full) == len(partitions) else None
        return full

    def _bytes(self) -> dict[str, int]:
        """What each queue has in memory: it has a limit of its own."""
        total = defaultdict[str, int](int)  # asked in each round: a Counter costs as much as all the rest
        for (topic, _), partition in self.assigned.partitions.items():
            total[topic] += partition.window.bytes
        return total

    def _resting(self) -> bool:
        """Are all partitions full? Then nothing is read, but only for a moment: changes of the group arrive in poll()."""
        return self._full_since is not None and time.monotonic() - self._full_since < REST

    def _full(self, partition: Partition, paused: bool, total: int) -> bool:
        share = 2 if paused else 1
        if partition.window.target() < partition.window.head:
            return False  # an open item is needed, whatever it weighs
        return partition.order.cached > MOST_CACHED / share or total > MOST_BYTES / share

    def read(self) -> None:
        """Wait for records or for work, and take the records in."""
        assigned = self.assigned
        assigned.wake.clear()
        with assigned.changed:
            now = time.monotonic()
            starving = self._starving()
            asked = any(p.awaited > p.saved and not p.frozen for p in assigned.partitions.values())
            pause = self._pause(now, asked)
        if assigned.consumer is None or not assigned.subscribed:
            self._wait_unsubscribed(0 if asked else UNSUBSCRIBED)
        elif self._rests:
            assigned.wake.wait(pause)
        else:
            messages = self._next(starving, pause)
            self._more = len(messages) >= self.many
            if messages:
                assigned.active = now if starving else assigned.active
                self._arrive(messages)

    def _starving(self) -> bool:
        """Does a claim wait while nothing of its queue can be claimed?"""
        assigned = self.assigned
        return any(
            count and not any(partition.claimable() for partition in assigned.partitions_of(topic))
            for topic, count in assigned.hungry.items()
        )

    def _pause(self, now: float, asked: bool) -> float:
        """How many seconds this round may wait. asked: a verb waits for a commit."""
        assigned, partitions = self.assigned, self.assigned.partitions.values()
        if asked or (self._more and not self._rests):
            return 0 if now >= assigned.next_try else BUSY
        quiet = now - assigned.active
        if any(partition.leases for partition in partitions) or not assigned.subscribed <= assigned.joined:
            pause = BUSY if quiet < 0.1 else CALM
        else:
            pause = CALM if quiet < 1 else IDLE
        riding = [p.dirty_since for p in partitions if p.dirty_since and not p.frozen]
        if riding:  # its commit is to be on its way in time
            pause = min(pause, max(BUSY, min(riding) + RIDE - now, assigned.next_try - now))
        return pause

    def _wait_unsubscribed(self, seconds: float) -> None:
        """Without a subscription only the group's own calls arrive in poll()."""
        self.assigned.wake.wait(seconds)
        if self.assigned.consumer is not None and (message := self.assigned.consumer.poll(0)) is not None:
            self._arrive([message])

    def _next(self, starving: bool, pause: float) -> list[Any]:
        """The next records. If a claim starves, wait for the first one in poll(), else for what other threads ask for."""
        first = list[Any]()
        if starving:
            if (message := self.assigned.consumer.poll(pause)) is None:
                return []
            first = [message]
        else:
            self.assigned.wake.wait(pause)
            self._commit()  # before anything else: a verb waits for it
        return [*first, *self.assigned.consumer.consume(self.many, 0)]  # to wait for more would be latency

    def _arrive(self, messages: list[Any]) -> None:
        by: dict[Place, list[Any]] = defaultdict(list)
        for message in messages:
            by[message.topic(), message.partition()].append(message)
        for error in [each.error() for at in by if at[0] is None for each in by[at]]:  # about the client
            self.assigned.complain(error)
            if fatal(error):
                raise KafkaException(error)
        self._doubt(by)
        with self.assigned.changed:
            for at, batch in by.items():
                partition = self.assigned.partitions.get(at)
                if partition is not None and partition.window.position >= 0:
                    self._arrive_at(partition, batch)
            self.assigned.changed.notify_all()

    def _doubt(self, by: dict[Place, list[Any]]) -> None:
        """After a pause, ask whether the topic is still the same: the client would read on in a topic that was created again."""
        now, paused = time.monotonic(), dict[Place, Partition]()
        for at, batch in by.items():
            if (partition := self.assigned.partitions.get(at)) and any(message.error() is None for message in batch):
                if now - partition.arrived_at > QUIET:
                    paused[at] = partition
                partition.arrived_at = now
        if paused and (there := self.assigned.ids_of({topic for topic, _ in paused})) is not None:
            with self.assigned.changed:
                for at, partition in paused.items():
                    if there.get(at[0]) != partition.ledger.topic:
                        self.assigned.reload(partition, RECREATED)

    def _arrive_at(self, partition: Partition, batch: list[Any]) -> None:
        records: list[Any] = []
        for message in batch:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF and partition.arrive(records):
                records = []
                partition.end_seen(message.offset())
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self.assigned.complain(error)
        if not partition.arrive(records):
            self.assigned.reload(partition, "its log begins anew, or goes on from where it was cut off")
        # Else records of a later leader may be below a purge mark, not read yet.
        elif partition.window.position >= partition.window.head:
            partition.ledger.leader = max(partition.ledger.leader, _leader(batch))

    def look_at_gaps(self) -> None:
        """Look at offsets without a record. Above the log's beginning they are transactions' marks; below, retention took the records.

        One question for all partitions: one question each takes 100 ms, and no commit is made meanwhile.
        """
        gaps = {at: partition for at, partition in self.assigned.partitions.items() if partition.window.gaps}
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
                    gaps[part.topic, part.partition].losses.log_begins(part.offset)


def _leader(batch: list[Any]) -> int:
    """The leader epoch of the last record; -1: none is known."""
    last = next((message for message in reversed(batch) if message.error() is None), None)
    return -1 if last is None or (epoch := last.leader_epoch()) is None else epoch
