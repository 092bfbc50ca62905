"""What a topic or a cluster looks like now, as plain values: the bridge from Kafka to the pictures of `view`.

In:  a cluster and names. Out: messages (`records`), lanes and brokers for `view.log` and `view.cluster`, and where each
broker's own copy of a partition ends (`copies`).
"""

from __future__ import annotations

from struct import unpack_from
from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed
from kqlib.kafka.reading import bounds, committed, records
from kqlib.workshop import view

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.workshop.cluster import Cluster

MOST = 100_000  # records; beyond, a picture of each of them is not what is needed
__all__ = ["brokers", "copies", "in_sync", "lanes", "records"]


def lanes(cluster: Kafka, topic: str, group: str | None = None) -> list[view.Lane]:
    """A topic's partitions for `view.log`; with a group, its commits as floors and what lies below them as done."""
    there = bounds(cluster, topic)
    if (total := sum(end - low for low, end in there.values())) > MOST:
        raise NotAllowed(f"'{topic}' holds up to {total:,} records; a picture is for {MOST:,} at most")
    found = records(cluster, topic, there)
    floors = committed(cluster, group, topic, found) if group else {}
    return [
        view.Lane(
            number,
            records=[
                view.Record(
                    m.offset(),
                    m.key(),
                    "done" if m.offset() < floors.get(number, 0) else "waiting",
                    note="" if m.value() is not None else "∅",
                )
                for m in found[number]
            ],
            low=low,
            end=end,
            floor=floors.get(number),
        )
        for (_, number), (low, end) in sorted(there.items())
    ]


def brokers(cluster: Kafka, topic: str) -> tuple[list[view.Broker], list[view.Partition]]:
    """The brokers and a topic's replicas for `view.cluster`; brokers that a partition names and nobody sees are down."""
    up, found = set(cluster.brokers), cluster.partitions(topic)
    partitions = [
        view.Partition(
            topic,
            number,
            part.leader if part.leader in up else None,
            tuple(sorted(part.replicas)),
            tuple(sorted(part.isrs)),
        )
        for number, part in found.items()
    ]
    everyone = up | {number for part in partitions for number in part.replicas}
    return [view.Broker(number, number in up) for number in sorted(everyone)], partitions


def in_sync(cluster: Kafka, topic: str) -> int:
    """The smallest number of in-sync replicas of a topic's partitions."""
    return min(len(partition.isrs) for partition in cluster.partitions(topic).values())


def copies(cluster: Cluster, topic: str, partition: int = 0) -> dict[int, int]:
    """Where a partition ends in each broker's own files: broker -> the offset of its next record. No broker is asked."""
    ends: dict[int, int] = {}
    for number, broker in cluster._brokers.items():
        folder = broker.node.data / f"{topic}-{partition}"
        if not folder.is_dir():
            continue
        log = b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))
        at = ends[number] = 0
        while at + 27 <= len(log):  # a batch: its first offset, its length, …, how many records follow the first
            first, length, more = unpack_from(">qi11xi", log, at)
            at, ends[number] = at + 12 + length, first + more + 1
    return ends
