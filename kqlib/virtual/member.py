"""This node in its group: one thread owns the Consumer, and starts a server for each partition that the group assigns.

In:  assignments and revocations, records of the data topic and of T.partitions. Out: partition servers, which get those records.
confluent-kafka serialises a Consumer, so no other thread calls it. Partitions are dropped inside the callbacks. Nothing is committed
to the group: what a consumer of a virtual queue has done is stored in T.offsets.
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
from kqlib.queue.answers import fatal
from kqlib.queue.assignment_check import AssignmentCheck
from kqlib.queue.clients import hears, leave
from kqlib.virtual.fetcher import reader
from kqlib.virtual.names import PARTITIONS
from kqlib.virtual.ownership import PartitionMap
from kqlib.virtual.partition import BACKLOG, PartitionServer

log = logging.getLogger("kqlib.virtual")

MANY = 500  # records at once
BLOCK = 0.05  # seconds in poll()
LEAVE = 3.0  # seconds for a server to finish what it has begun
# Seconds for a member to give up what the group revokes. After that the group removes it, and it joins again. With Kafka's default
# the others wait 300 s for the partitions of a member that missed a revocation (`kqlib.queue.assignment_check`).
OUT = LEAVE + 2.0
# Another node has fenced this one, and the group still assigns the partition to this one: it takes the partition back after so many
# seconds. A node that was stopped learns sooner that it is out of the group: its overdue heartbeat is refused at once.
AGAIN = 1.0
SOON = 0.2  # seconds, the same after a transaction that failed
FREE = 10.0  # seconds for which a partition without an owner is asked for
LOOK = 5.0  # seconds between two checks that a client still knows a broker
DEAF = 15.0  # seconds without an answer after which a new client is asked
ASK = 1.0  # seconds for an answer


class GroupMember:
    """This node in its group."""

    def __init__(
        self,
        cluster: Kafka,
        partitions: PartitionMap,
        node: str,
        serve: Callable[[int, int | None], PartitionServer],
    ) -> None:
        """serve: starts the server of a partition; its second argument is the epoch in which this node owned it before."""
        self.cluster, self.map, self.node, self._serve = cluster, partitions, node, serve
        self.topic, self.group = partitions.topic, f"kq-virtual-{partitions.topic}"
        self.servers: dict[int, PartitionServer] = {}
        self.joined = threading.Event()  # the group has given us something, or nothing
        self.ticked = time.monotonic()  # the last round of the thread
        self._answered = self._look = self.ticked
        self._paused: set[int] = set()
        self._free = 0, 0.0  # how many partitions have no owner, and since when
        self._asked = 0.0  # when the group was asked for them
        self._over: dict[int, float] = {}  # partitions whose server ended by itself, and since when
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kq-virtual-member", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._make_clients()
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Give everything up in good order."""
        self._stop.set()
        if self._thread.ident:
            self._thread.join(seconds)

    def _make_clients(self) -> None:
        """The consumer of the group; and a second one in no group, which follows T.partitions."""
        self._assignment_check = AssignmentCheck(self.cluster, self.group, 2 * OUT)
        more = {
            **self._assignment_check.settings(),
            "group.id": self.group,
            "client.id": f"kq-virtual-{self.node}",  # so that `groups.assignment` shows which node has what
            "group.protocol": "consumer",
            "max.poll.interval.ms": int(OUT * 1000),
            "enable.partition.eof": True,  # its offset lies past a transaction's marks
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "socket.nagle.disable": True,
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 16_384,
        }
        self._consumer: Any = Consumer(self.cluster.client(**more))
        self._map_reader: Any = reader(self.cluster, wait=100)  # else an idle node sends 200 fetches a second
        self._map_reader.assign([TopicPartition(self.topic + PARTITIONS, 0, 0)])

    # --- the thread ---

    def _run(self) -> None:
        self._join()
        while not self._stop.is_set():
            try:
                self._round()
            except KafkaException as error:
                log.info("member: %s", error, extra={"topic": self.topic})
                if fatal(error):
                    self._begin_anew("the client reports that it is dead")
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
        batches: dict[int, list[Any]] = defaultdict(list)
        for message in [] if first is None else [first, *self._consumer.consume(MANY, 0)]:
            if fatal(message.error()):
                raise KafkaException(message.error())
            if message.partition() is not None and message.topic() == self.topic:
                batches[message.partition()].append(message)
        for partition, batch in batches.items():
            if server := self.servers.get(partition):
                server.arrive(batch)
        for message in self._map_reader.consume(MANY, 0):
            if message.error() is None:
                self.map.update(message.offset(), message.key(), message.value())
        self._pace()
        self._ask_for_free()
        self._replace_ended()
        self._check_clients()
        if self._assignment_check.missed(self._consumer, {(self.topic, number) for number in self.servers}):
            self._begin_anew("it missed what the coordinator gave or took")
        self.ticked = time.monotonic()

    def _pace(self) -> None:
        """Stop reading a partition whose server has much to do; go on when it has less."""
        for partition, server in self.servers.items():
            if server.backlog > BACKLOG and partition not in self._paused:
                self._consumer.pause([TopicPartition(self.topic, partition)])
                self._paused.add(partition)
            elif server.backlog < BACKLOG // 2 and partition in self._paused:
                self._consumer.resume([TopicPartition(self.topic, partition)])
                self._paused.discard(partition)

    def _ask_for_free(self) -> None:
        """Send the heartbeat at once while a partition has no owner. The next one might come five seconds later."""
        now, free = time.monotonic(), self.map.partitions - len(self.map.owners)
        if free != self._free[0]:
            self._free = free, now
        if free and now - self._free[1] < FREE and now - self._asked > SOON:
            self._asked = now
            self._join()  # to subscribe again does that

    def _replace_ended(self) -> None:
        """Start a new server, which reads everything again, where one ended by itself and the partition is still ours."""
        now = time.monotonic()
        for partition, server in list(self.servers.items()):
            owner = self.map.owners.get(partition)
            if server.state == "serving" and owner and owner.node != self.node and owner.epoch > server.epoch:
                server.drop("another node has taken it over")  # it is idle: no failed write shows that it is fenced
            if server.state not in ("lost", "broken"):
                continue
            since = self._over.setdefault(partition, now)
            if now - since < (AGAIN if server.state == "lost" else SOON):
                continue
            self._over.pop(partition, None)
            self._consumer.seek(TopicPartition(self.topic, partition, OFFSET_BEGINNING))
            mine = server.epoch if server.state == "broken" and server.epoch else None
            self.servers[partition] = self._serve(partition, mine)

    def _check_clients(self) -> None:
        """Make new clients if one of these knows no broker any more, while a new one does: it never recovers."""
        now = time.monotonic()
        if now < self._look:
            return
        if all(hears(client, ASK) for client in (self._consumer, self._map_reader)):
            self._answered = now
        elif now - self._answered > DEAF:
            self.cluster.renew()
            if hears(self.cluster.admin, ASK):
                self._begin_anew("its clients know no broker any more")
        self._look = time.monotonic() + LOOK

    def _begin_anew(self, why: str) -> None:
        """Join the group again with other clients. The group decides who gets what this node had."""
        log.warning("%s; joining anew", why, extra={"topic": self.topic, "reason": why})
        for server in self.servers.values():
            server.drop(why)
        left = self._consumer, self._map_reader
        self._make_clients()
        self._answered = time.monotonic()
        for forgotten in (self.servers, self._paused, self._over, self.joined):
            forgotten.clear()
        self._join()
        for each in left:  # last: their callbacks see that they are not ours any more
            leave(each)

    # --- the group: inside poll(), on this thread; callbacks of a consumer that was left are ignored ---

    def _on_assign(self, consumer: Any, parts: list[Any]) -> None:
        if consumer is not self._consumer:
            return
        ours = [part.partition for part in parts if part.topic == self.topic]
        log.info("assigned %s", ours, extra={"topic": self.topic, "partitions": ours})
        for partition in ours:
            if older := self.servers.pop(partition, None):
                older.drop("it was assigned anew")
            self.servers[partition] = self._serve(partition, None)
            self._paused.discard(partition)
            self._over.pop(partition, None)
        starts = self._starts(ours)
        consumer.incremental_assign([TopicPartition(self.topic, number, starts[number]) for number in ours])
        if ours:
            consumer.resume([TopicPartition(self.topic, partition) for partition in ours])  # a pause outlives a revoke
        self.joined.set()

    def _starts(self, partitions: list[int]) -> dict[int, int]:
        """The first offset of each log. OFFSET_BEGINNING gives the same records, half a second later."""
        with suppress(KqError):
            lows, _ = state.bounds(self.cluster, [(self.topic, number) for number in partitions], 1.0)
            return {number: low for (_, number), low in lows.items()}
        return dict.fromkeys(partitions, OFFSET_BEGINNING)

    def _on_revoke(self, consumer: Any, parts: list[Any]) -> None:
        if consumer is not self._consumer:
            return
        ours = [part.partition for part in parts]
        log.info("revoked %s", ours, extra={"topic": self.topic, "partitions": ours})
        self._give_up(ours)
        consumer.incremental_unassign(parts)

    def _give_up(self, partitions: list[int]) -> None:
        """End these servers at the same time: each finishes what it has begun, and writes that it has left."""
        leaving = [server for partition in partitions if (server := self.servers.pop(partition, None))]
        for server in leaving:
            server.leave()
        deadline = time.monotonic() + LEAVE
        for server in leaving:
            server.join(max(0.0, deadline - time.monotonic()))

    def _on_lost(self, consumer: Any, parts: list[Any]) -> None:
        """This node was removed from the group: another node has these partitions by now."""
        if consumer is not self._consumer:
            return
        ours = [part.partition for part in parts]
        log.warning("lost %s", ours, extra={"topic": self.topic, "partitions": ours})
        for part in parts:
            if server := self.servers.pop(part.partition, None):
                server.drop("this node was out of its group for too long")

    def _finish(self) -> None:
        try:
            self._give_up(list(self.servers))
            self._consumer.close()
            self._map_reader.close()
        except Exception:
            log.exception("leaving the group")
