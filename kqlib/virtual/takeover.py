"""Taking a partition over: fence whoever had it, read what is stored, say that it is ours now.

In:  a partition that the group gave to this node. Out: a shelf with its states, the pen that writes for it, up to where the log
must be read, and when the first answer may leave: at once if the owner before has left, else when its last proof is over.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from kqlib.errors import NotAllowed, TopicMissing, Unreachable
from kqlib.kafka.cluster import Kafka
from kqlib.queue import state
from kqlib.queue.item import Out
from kqlib.topic_rules import DEAD_MORE_BYTES, RECORD_BYTES
from kqlib.virtual.names import OFFSETS, PARTITIONS
from kqlib.virtual.partmap import Owner, record
from kqlib.virtual.pen import Fenced, Pen
from kqlib.virtual.readers import reader
from kqlib.virtual.shelf import Shelf
from kqlib.virtual.states import Place

FRESH = 1.0  # seconds that a proof holds; a new owner waits as long before it answers
PATIENCE = 60.0  # seconds for the states of one partition
OWNER = json.dumps(["owner"]).encode()


@dataclass(frozen=True)
class Ours:
    """What is known of this node and its topics."""

    cluster: Kafka
    topic: str
    topic_id: str
    partitions: int
    limit: int  # bytes of a record that is put
    keep: float
    node: str
    url: str
    most: int = RECORD_BYTES + DEAD_MORE_BYTES  # bytes of any record


@dataclass(frozen=True)
class Taken:
    """A partition that was taken over."""

    shelf: Shelf
    pen: Pen
    end: int  # the log must be read so far before anything is answered
    ready: float  # nor before this moment, on the monotonic clock
    epoch: int


def counts(cluster: Kafka, topic: str) -> tuple[str, int]:
    """The data topic's id and how many partitions it has; `NotAllowed` if its two companions do not fit to it."""
    names = [topic, topic + OFFSETS, topic + PARTITIONS]
    found = state.topic_ids(cluster, names)
    for name in names:
        if name not in found:
            raise TopicMissing(topic=name)
    data, offsets, lines = (len(found[name][1]) for name in names)
    if data != offsets:
        raise NotAllowed(
            f"'{topic}' has {data} partitions and '{topic}{OFFSETS}' has {offsets}: what a queue's consumers have done stands beside "
            f"its records, so the two counts are one. Nothing is served. Give the smaller one as many; if '{topic}' grew, its queues "
            "have moved: copy them into new topics instead"
        )
    if lines != 1:
        raise NotAllowed(
            f"'{topic}{PARTITIONS}' has {lines} partitions and must have one: its records are read in one order"
        )
    return found[topic][0], data


def policies(cluster: Kafka, topic: str) -> None:
    """`NotAllowed` if Kafka would forget what has to stay: of each queue all but its last item, or what a consumer has done."""
    wanted = {topic: "delete", topic + OFFSETS: "compact", topic + PARTITIONS: "compact"}
    admin, asked = cluster.admin, {ConfigResource(ResourceType.TOPIC, name): name for name in wanted}
    for resource, future in admin.describe_configs(list(asked), request_timeout=5).items():
        policy = ""
        with suppress(KafkaException, TimeoutError):  # who may not look has to trust whoever deploys
            policy = str(future.result(6)["cleanup.policy"].value)
        name = asked[resource]
        if policy not in ("", wanted[name]):
            right = f"cleanup.policy={wanted[name]}"
            raise NotAllowed(
                f"'{name}' has cleanup.policy={policy} and must have {wanted[name]}: else Kafka forgets what has to stay. Nothing is "
                f"served. kq kafka configs --alter --entity-type topics --entity-name {name} --add-config {right}"
            )


def take_over(ours: Ours, partition: int, mine: int | None = None, left: Callable[[], bool] = lambda: False) -> Taken:
    """Fence, read, say so. mine: it was this node's before, as that owner; if another came since, it is `Fenced` instead.

    left: returns True once this node has lost the partition. Then this raises `Fenced` and fences no other node.
    """
    topic_id, many = counts(ours.cluster, ours.topic)
    if (topic_id, many) != (ours.topic_id, ours.partitions):
        raise NotAllowed(f"'{ours.topic}' is not the topic that this node began with: {many} partitions now")
    at, beside = (ours.topic, partition), (ours.topic + OFFSETS, partition)
    if mine is not None:
        last = _read(ours.cluster, beside, Shelf(Place(*at, ours.partitions)))
        if last.get("node") != ours.node and last.get("epoch", 0) > mine:
            raise Fenced("another node has it")
    pen = Pen(ours.cluster, ours.topic, partition, ours.most)
    pen.connect()
    if left():
        raise Fenced("this node has given it up")
    pen.begin()  # from here on nobody else writes for it
    fenced = time.monotonic()
    end = state.ends(ours.cluster, [at])[at]
    shelf = Shelf(Place(*at, ours.partitions, topic_id, ours.limit, ours.keep, ours.most))
    before = _read(ours.cluster, beside, shelf)
    if before and before["topic"] != topic_id:
        raise NotAllowed(
            f"'{ours.topic}' was deleted and made again, and '{ours.topic}{OFFSETS}' is of the older one: make both anew"
        )
    epoch = before.get("epoch", 0) + 1
    owner = Owner(ours.node, ours.url, epoch)
    pen.write([said(ours, partition, epoch), _line(ours, partition, owner, epoch)])
    shelf.now = pen.now
    quiet = not before or before["left"] or before["node"] == ours.node
    return Taken(shelf, pen, end, 0.0 if quiet else fenced + FRESH, epoch)


def said(ours: Ours, partition: int, epoch: int, left: bool = False) -> Out:
    """The record that says who writes for a partition; written again it proves that this is still so."""
    value = {"node": ours.node, "url": ours.url, "epoch": epoch, "topic": ours.topic_id, "left": left}
    return Out(ours.topic + OFFSETS, json.dumps(value).encode(), OWNER, None, partition)


def farewell(ours: Ours, partition: int, epoch: int) -> list[Out]:
    """The last records of an owner that leaves in good order: nobody has to wait until its proof is over."""
    return [said(ours, partition, epoch, left=True), _line(ours, partition, None, epoch)]


def _line(ours: Ours, partition: int, owner: Owner | None, epoch: int) -> Out:
    """A line of T.partitions."""
    key, value = record(partition, owner, epoch)
    return Out(ours.topic + PARTITIONS, value, key, None, 0)


def _read(cluster: Kafka, beside: tuple[str, int], shelf: Shelf) -> dict[str, Any]:
    """Every state of a partition into the shelf; who owned it before."""
    lows, ends = state.bounds(cluster, [beside])
    position, owner, deadline = lows[beside], {}, time.monotonic() + PATIENCE
    states = reader(cluster, "load")
    states.assign([TopicPartition(*beside, position)])  # a number: "from the beginning" takes half a second longer
    try:
        while position < ends[beside]:
            if time.monotonic() > deadline:
                raise Unreachable(address=cluster.bootstrap, why=f"'{beside[0]}' could not be read to its end")
            came = states.poll(0.1)
            for message in [came, *states.consume(500, 0)] if came is not None else []:
                position = max(position, message.offset() + (message.error() is None))
                if message.error() is not None or not message.key():
                    continue
                if message.key() == OWNER:
                    owner = json.loads(message.value())
                else:
                    shelf.load(message.key(), message.value(), message.timestamp()[1] / 1000)
    finally:
        states.close()
    return owner
