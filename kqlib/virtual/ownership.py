"""How a node takes a partition over, proves that it still has it, and gives it up; and the map that names the owners.

In:  a partition that the group gave to this node. Out: its store, and the writer that has fenced every other node. If the owner before
has left in good order, the first answer may be given at once; else only when that owner's last proof has expired.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from kqlib.errors import NotAllowed, NotInTime, TopicMissing, Unreachable
from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import read
from kqlib.queue import state
from kqlib.queue.broker_settings import record_limits, topic_settings
from kqlib.queue.item import Out
from kqlib.topic_rules import DEAD_MORE_BYTES
from kqlib.virtual.names import OFFSETS, PARTITIONS
from kqlib.virtual.store import ItemStore, Place
from kqlib.virtual.writer import Fenced, PartitionWriter

FRESH = 1.0  # seconds that a proof holds; a new owner waits as long before it answers
OWNER = json.dumps(["owner"]).encode()


@dataclass(frozen=True)
class Owner:
    """The owner of a partition: a node's id, its address, and how many owners there were, itself included."""

    node: str
    url: str
    epoch: int


class PartitionMap:
    """Partition -> its owner, as T.partitions says it. The greater version is the newer map. Pure."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic, self.partitions, self.version = topic, partitions, -1
        self.owners: dict[int, Owner] = {}

    def update(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Take in a record of T.partitions; one at an offset below the version is known already."""
        if offset <= self.version:
            return
        with suppress(ValueError, TypeError, KeyError):  # a record of another program
            partition, owner = int(key or b""), json.loads(value or b"null")
            if owner is None or not owner["url"]:
                self.owners.pop(partition, None)
            else:
                self.owners[partition] = Owner(owner["node"], owner["url"], owner["epoch"])
        self.version = offset

    def answer(self) -> dict[str, Any]:
        """The map as JSON."""
        known = {number: asdict(owner) for number, owner in list(self.owners.items())}
        owners = {str(number): known.get(number) for number in range(self.partitions)}
        return {"topic": self.topic, "partitions": self.partitions, "version": self.version, "owners": owners}


@dataclass(frozen=True)
class Taken:
    """A partition that was taken over."""

    store: ItemStore
    writer: PartitionWriter
    end: int  # the log must be read up to here before anything is answered
    ready: float  # and nothing is answered before this moment, on the monotonic clock
    epoch: int
    left: int = 0  # the epoch of the owner before, if it left in good order: its leases go on


class Ownership:
    """Takes partitions over for one node, and makes the records that say so. `NotAllowed` if its topics cannot be served."""

    def __init__(self, cluster: Kafka, topic: str, node: str, keep: float) -> None:
        """keep: seconds that an idle consumer is remembered."""
        self.cluster, self.topic, self.node, self.keep = cluster, topic, node, keep
        self.url = ""  # the node's address
        self.topic_id, self.partitions = _counts(cluster, topic)
        _check_policies(cluster, topic)
        self.most = record_limits(cluster, [topic])[topic]  # bytes of any record
        # bytes of a record that is put: a dead letter carries more than its item
        self.limit = max(1, self.most - DEAD_MORE_BYTES)

    def check(self) -> None:
        """`NotAllowed` if the topics are not any more what they were at the start."""
        topic_id, many = _counts(self.cluster, self.topic)
        if (topic_id, many) != (self.topic_id, self.partitions):
            raise NotAllowed(f"'{self.topic}' is not the topic that this node began with: {many} partitions now")

    def check_all(self) -> None:
        """The same, and `NotAllowed` if Kafka would forget what has to stay."""
        self.check()
        _check_policies(self.cluster, self.topic)

    def take_over(self, partition: int, mine: int | None = None, left: Callable[[], bool] = lambda: False) -> Taken:
        """Fence other nodes, read what is stored, write that this node is the owner.

        mine: the epoch in which this node was the owner until now. If another one came since, this raises `Fenced` instead.
        left: returns True once this node has lost the partition. Then this raises `Fenced` and fences no other node.
        """
        self.check()
        if mine is not None:
            last = self._read(ItemStore(Place(self.topic, partition, self.partitions)))
            if last.get("node") != self.node and last.get("epoch", 0) > mine:
                raise Fenced("another node has it")
        writer = PartitionWriter(self.cluster, self.topic, partition, self.most)
        writer.connect()
        if left():
            raise Fenced("this node has given it up")
        writer.begin()  # from here on no other node writes for it
        fenced, at = time.monotonic(), (self.topic, partition)
        end = state.ends(self.cluster, [at])[at]
        store = ItemStore(Place(*at, self.partitions, self.topic_id, self.limit, self.keep, self.most))
        before = self._read(store)
        if before and before["topic"] != self.topic_id:
            raise NotAllowed(
                f"'{self.topic}' was deleted and made again, and '{self.topic}{OFFSETS}' is of the older one: make both anew"
            )
        epoch = before.get("epoch", 0) + 1
        writer.write([self.proof(partition, epoch), self._map_record(partition, epoch, self.url)])
        store.now = writer.now
        quiet = not before or before["left"] or before["node"] == self.node
        return Taken(
            store, writer, end, 0.0 if quiet else fenced + FRESH, epoch, left=epoch - 1 if before.get("left") else 0
        )

    def proof(self, partition: int, epoch: int, left: bool = False) -> Out:
        """The record that names the owner of a partition; written again it proves that this is still so."""
        value = asdict(Owner(self.node, self.url, epoch)) | {"topic": self.topic_id, "left": left}
        return Out(self.topic + OFFSETS, json.dumps(value).encode(), OWNER, None, partition)

    def farewell(self, partition: int, epoch: int) -> list[Out]:
        """The last records of an owner that leaves in good order: the next one need not wait until its proof is over."""
        return [self.proof(partition, epoch, left=True), self._map_record(partition, epoch, "")]

    def _map_record(self, partition: int, epoch: int, url: str) -> Out:
        """A record of T.partitions; without an address nobody owns the partition."""
        value = asdict(Owner(self.node if url else "", url, epoch))
        return Out(self.topic + PARTITIONS, json.dumps(value).encode(), str(partition).encode(), None, 0)

    def _read(self, store: ItemStore) -> dict[str, Any]:
        """Read every state of a partition into its store; the owner before."""
        at = (self.topic + OFFSETS, store.place.partition)
        owner: dict[str, Any] = {}
        lows, ends = state.bounds(self.cluster, [at])
        try:
            for message in read(self.cluster, lows, ends):
                if message.key() == OWNER:
                    owner = json.loads(message.value())
                elif message.key():
                    store.load(message.key(), message.value(), message.timestamp()[1] / 1000)
        except NotInTime:
            raise Unreachable(address=self.cluster.bootstrap, why=f"'{at[0]}' could not be read to its end") from None
        return owner


def _counts(cluster: Kafka, topic: str) -> tuple[str, int]:
    """The data topic's id and how many partitions it has; `NotAllowed` if its two companions do not fit."""
    names = [topic, topic + OFFSETS, topic + PARTITIONS]
    found = state.topic_ids(cluster, names)
    for name in names:
        if name not in found:
            raise TopicMissing(topic=name)
    data, offsets, owners = (len(found[name][1]) for name in names)
    if data != offsets:
        raise NotAllowed(
            f"'{topic}' has {data} partitions and '{topic}{OFFSETS}' has {offsets}: what a queue's consumers have done stands beside "
            f"its records, so the two counts are one. Nothing is served. Give the smaller one as many; if '{topic}' grew, its queues "
            "have moved: copy them into new topics instead"
        )
    if owners != 1:
        raise NotAllowed(
            f"'{topic}{PARTITIONS}' has {owners} partitions and must have one: its records are read in one order"
        )
    return found[topic][0], data


def _check_policies(cluster: Kafka, topic: str) -> None:
    """`NotAllowed` if Kafka would forget what has to stay: items, or what a consumer has done."""
    right = {topic: "delete", topic + OFFSETS: "compact", topic + PARTITIONS: "compact"}
    for name, settings in topic_settings(cluster, list(right), 5).items():  # a user who may not look trusts the plan
        if (policy := settings["cleanup.policy"]) not in ("", right[name]):
            raise NotAllowed(
                f"'{name}' has cleanup.policy={policy} and must have {right[name]}: else Kafka forgets what has to stay. Nothing is "
                f"served. kq kafka configs --alter --entity-type topics --entity-name {name} --add-config "
                f"cleanup.policy={right[name]}"
            )
