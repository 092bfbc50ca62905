"""Membership: the one thread of a node that owns its Consumer, and gives each partition of ours to a keeper.

In:  what the group gives and takes, records of the data topic, lines of T.partitions. Out: keepers that know all of it.
As in `kqlib.queue`: confluent-kafka serialises a Consumer, so no other thread calls it, and partitions are dropped inside the
callbacks. Nothing is committed to the group: what a consumer has done stands in T.offsets.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from kqlib.errors import KqError
from kqlib.kafka.clients import Consumer
from kqlib.kafka.cluster import Kafka
from kqlib.queue import state
from kqlib.queue.clients import hears, leave
from kqlib.queue.heartbeats import Heartbeats
from kqlib.queue.said import fatal
from kqlib.virtual.keeper import BACKLOG, Keeper
from kqlib.virtual.names import PARTITIONS
from kqlib.virtual.partmap import PartitionMap
from kqlib.virtual.readers import reader

log = logging.getLogger("kqlib.virtual")

MANY = 500  # records at once
BLOCK = 0.05  # seconds in poll()
LEAVE = 3.0  # seconds for a keeper to finish what it has begun
# seconds for a member to give up what the group takes from it. Then the group puts it out, and it joins again. By default the others
# wait 300 s for their share of a member that did not hear of it (`kqlib.queue.heartbeats`).
OUT = LEAVE + 2.0
# seconds before this node takes a partition back that another node has fenced, while the group still assigns it to this node.
# A node that was stopped learns in less time that it is out of the group: its overdue heartbeat is refused at once.
AGAIN = 1.0
SOON = 0.2  # seconds, the same after a transaction that failed
LOOK = 5.0  # seconds between two questions whether a client still hears anybody
DEAF = 15.0  # seconds without an answer after which a new client is asked
ASK = 1.0  # seconds for an answer


class Member:
    """This node in its group."""

    def __init__(self, cluster: Kafka, topic: str, group: str, partitions: PartitionMap, node: str) -> None:
        self.cluster, self.topic, self.group, self.map, self.node = cluster, topic, group, partitions, node
        self.keepers: dict[int, Keeper] = {}
        self.make: Callable[[int, int | None], Keeper] = lambda *_: NotImplemented
        self.left: Callable[[Keeper], list[Any]] = lambda _: []
        self.joined = threading.Event()  # the group has said what is ours, if anything is
        self.ticked = time.monotonic()  # its last round
        self._heard = self._look = self.ticked
        self._paused: set[int] = set()
        self._over: dict[int, float] = {}  # partitions whose keeper ended by itself, and since when
        self._stop = threading.Event()
        self._consumer = self._made()
        self._lines = self._follow()
        self._thread = threading.Thread(target=self._run, name="kq-virtual-member", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Give everything up in good order."""
        self._stop.set()
        self._thread.join(seconds)

    def _made(self) -> Any:
        self._heartbeats = Heartbeats(self.cluster, self.group, 2 * OUT)
        more = {
            **self._heartbeats.settings(),
            "group.id": self.group,
            "client.id": f"kq-virtual-{self.node}",  # so that `groups.assignment` says which node has what
            "group.protocol": "consumer",
            "max.poll.interval.ms": int(OUT * 1000),
            "enable.partition.eof": True,  # its offset lies past a transaction's marks
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "socket.nagle.disable": True,
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 16_384,
        }
        return Consumer(self.cluster.client(**more))

    def _follow(self) -> Any:
        """A second consumer, in no group, reads T.partitions to its end again and again."""
        lines = reader(self.cluster, "map")
        lines.assign([TopicPartition(self.topic + PARTITIONS, 0, 0)])
        return lines

    # --- the thread ---

    def _run(self) -> None:
        self._join()
        while not self._stop.is_set():
            try:
                self._round()
            except KafkaException as error:
                log.info("member: %s", error)
                if fatal(error):
                    self._begin_anew("the client says that it is dead")
                self._stop.wait(0.05)
            except Exception:  # a bug in one round must not end the next
                log.exception("member")
                self._stop.wait(0.5)
        self._finish()

    def _join(self) -> None:
        how = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
        self._consumer.subscribe([self.topic], **how)

    def _round(self) -> None:
        first = self._consumer.poll(BLOCK)
        messages = [] if first is None else [first, *self._consumer.consume(MANY, 0)]
        by: dict[int, list[Any]] = defaultdict(list)
        for message in messages:
            if fatal(message.error()):
                raise KafkaException(message.error())
            if message.partition() is not None and message.topic() == self.topic:
                by[message.partition()].append(message)
        for partition, batch in by.items():
            if keeper := self.keepers.get(partition):
                keeper.arrive(batch)
        self._pace()
        self._renew()
        self._hear()
        self._listen()
        if self._heartbeats.missed(self._consumer, {(self.topic, number) for number in self.keepers}):
            self._begin_anew("it missed what the coordinator gave or took")
        self.ticked = time.monotonic()

    def _hear(self) -> None:
        for message in self._lines.consume(MANY, 0):
            if message.error() is None:
                self.map.heard(message.offset(), message.key(), message.value())

    def _pace(self) -> None:
        """Stop reading a partition whose keeper has much to do; go on when it has less."""
        for partition, keeper in self.keepers.items():
            if keeper.backlog > BACKLOG and partition not in self._paused:
                self._consumer.pause([TopicPartition(self.topic, partition)])
                self._paused.add(partition)
            elif keeper.backlog < BACKLOG // 2 and partition in self._paused:
                self._consumer.resume([TopicPartition(self.topic, partition)])
                self._paused.discard(partition)

    def _renew(self) -> None:
        """A keeper that ended by itself: another one, which reads everything again, if the partition is still ours."""
        now = time.monotonic()
        for partition, keeper in list(self.keepers.items()):
            owner = self.map.owners.get(partition)
            if keeper.state == "serving" and owner and owner.node != self.node and owner.epoch > keeper.epoch:
                keeper.drop(
                    "another node has taken it over"
                )  # an idle owner writes nothing, so no failed write shows that it is fenced
            if keeper.state not in ("lost", "broken"):
                continue
            since = self._over.setdefault(partition, now)
            if now - since < (AGAIN if keeper.state == "lost" else SOON):
                continue
            self._over.pop(partition, None)
            self._consumer.seek(TopicPartition(self.topic, partition, OFFSET_BEGINNING))
            mine = keeper.epoch if keeper.state == "broken" and keeper.epoch else None
            self.keepers[partition] = self.make(partition, mine)

    def _listen(self) -> None:
        """Do both clients still know somebody? If not, and a new one does, they never will again."""
        now = time.monotonic()
        if now < self._look:
            return
        if all(hears(client, ASK) for client in (self._consumer, self._lines)):
            self._heard = now
        elif now - self._heard > DEAF:
            self.cluster.renew()
            if hears(self.cluster.admin, ASK):
                self._begin_anew("its clients heard of no broker any more")
        self._look = time.monotonic() + LOOK

    def _begin_anew(self, why: str) -> None:
        """Other clients, and the group once more; what it had goes to whoever the group says, this node or another."""
        log.warning("%s; joining anew", why)
        for keeper in self.keepers.values():
            keeper.drop(why)
        left = self._consumer, self._lines
        self._consumer, self._lines, self._heard = self._made(), self._follow(), time.monotonic()
        for forgotten in (self.keepers, self._paused, self._over, self.joined):
            forgotten.clear()
        self._join()
        for each in left:  # last: their callbacks find that they are ours no more
            leave(each)

    # --- the group: inside poll(), on this thread; a consumer that was left behind is not listened to ---

    def _on_assign(self, consumer: Any, parts: list[Any]) -> None:
        if consumer is not self._consumer:
            return
        ours = [part.partition for part in parts if part.topic == self.topic]
        log.info("assigned %s", ours)
        for partition in ours:
            if older := self.keepers.pop(partition, None):
                older.drop("it was assigned anew")
            self.keepers[partition] = self.make(partition, None)
            self._paused.discard(partition)
            self._over.pop(partition, None)
        starts = self._starts(ours)
        consumer.incremental_assign([TopicPartition(self.topic, number, starts[number]) for number in ours])
        if ours:
            consumer.resume([TopicPartition(self.topic, partition) for partition in ours])  # a pause outlives a revoke
        self.joined.set()

    def _starts(self, partitions: list[int]) -> dict[int, int]:
        """Where their logs begin. To be read from 'the beginning' takes half a second longer, and is as right."""
        with suppress(KqError):
            lows, _ = state.bounds(self.cluster, [(self.topic, number) for number in partitions], 1.0)
            return {number: low for (_, number), low in lows.items()}
        return dict.fromkeys(partitions, OFFSET_BEGINNING)

    def _on_revoke(self, consumer: Any, parts: list[Any]) -> None:
        if consumer is not self._consumer:
            return
        log.info("revoked %s", [part.partition for part in parts])
        self._give_up([part.partition for part in parts])
        consumer.incremental_unassign(parts)

    def _give_up(self, partitions: list[int]) -> None:
        """All at once: each finishes what it has begun, and writes that it has left."""
        leaving = [keeper for partition in partitions if (keeper := self.keepers.pop(partition, None))]
        for keeper in leaving:
            keeper.leave(self.left(keeper))
        deadline = time.monotonic() + LEAVE
        for keeper in leaving:
            keeper.join(max(0.0, deadline - time.monotonic()))

    def _on_lost(self, consumer: Any, parts: list[Any]) -> None:
        """The group goes on without us: another node has them by now."""
        if consumer is not self._consumer:
            return
        log.warning("lost %s", [part.partition for part in parts])
        for part in parts:
            if keeper := self.keepers.pop(part.partition, None):
                keeper.drop("this node was out of its group for too long")

    def _finish(self) -> None:
        try:
            self._give_up(list(self.keepers))
            self._consumer.close()
            self._lines.close()
        except Exception:
            log.exception("leaving the group")
