"""Questions about a queue that any process may ask: its depth, its first items, a purge, its numbers.

In:  a site and a queue's name. Out: answers from the topic, the committed states and kq.queues; nobody's items are touched.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kqlib.errors import NotAllowed, TopicMissing
from kqlib.queue import state
from kqlib.queue.item import Item

if TYPE_CHECKING:
    from kqlib.queue.queue import Queue
    from kqlib.queue.site import Site

PATIENCE = 10.0


def place(id: Any) -> tuple[str, int, int]:  # noqa: A002 - the word of Item
    """topic, partition and offset of an item's id."""
    found = re.fullmatch(r"([a-zA-Z0-9._-]+)/(\d{1,9})/(\d{1,18})", id) if isinstance(id, str) else None
    if not found:
        raise NotAllowed(f"an item's id is topic/partition/offset, like 'football/3/41', not {id!r}")
    return found[1], int(found[2]), int(found[3])


def seen(site: Site, queue: str) -> dict[int, tuple[state.Seen, int]]:
    """Every partition as it is now, and the purge mark that still counts for it."""
    cluster = site.cluster
    ids = state.topic_ids(cluster, [queue])
    if queue not in ids:
        raise TopicMissing(topic=queue)
    site._notes.catch_up()
    found = site._looker.look([(queue, number) for number in ids[queue][1]])
    return {number: (each, _mark(site, queue, number, each.topic_id)) for (_, number), each in sorted(found.items())}


def _mark(site: Site, queue: str, partition: int, topic_id: str) -> int:
    mark = site._notes.mark(site.name, queue, partition, topic_id)
    return mark if mark > site._notes.mark(site.name, queue, partition, topic_id, kind="purged") else 0


def depth(site: Site, queue: str, own: Mapping[int, int] | None = None) -> int:
    """How many items are not acked. own: partitions of which this process knows it exactly."""
    known = own or {}
    return sum(
        known[number] if number in known else state.depth_of(each, mark, f"'{queue}', partition {number}")
        for number, (each, mark) in seen(site, queue).items()
    )


def purge(site: Site, queue: str) -> None:
    """A mark for each partition at its present end; owners see it within a second."""
    marks = [
        ((site.name, queue, "purge", number), {"topic": each.topic_id, "offset": each.end})
        for number, (each, _) in seen(site, queue).items()
    ]
    site._notes.write(marks, site._sender())


def peek(site: Site, queue: str, n: int) -> list[Item]:
    """The first n items that are not done, partition by partition, read by a consumer in no group."""
    open_ones: dict[int, list[tuple[int, int]]] = {}
    for number, (each, mark) in seen(site, queue).items():
        ledger = state.ledger_from(each, False, "earliest", f"'{queue}', partition {number}")
        ledger.purge(max(each.low, mark))
        ranges = [(start, end) for start, end, _ in ledger.runs()] + [(ledger.top, each.end)]
        open_ones[number] = [(start, end) for start, end in ranges if start < end]
    reader = Consumer(site.cluster.client(group_id="kqlib-peek", group_protocol="classic", enable_partition_eof=True))
    try:
        found: list[Item] = []
        for number, ranges in open_ones.items():
            for start, end in ranges:
                if len(found) < n:
                    found += _read(reader, (queue, number), start, end, n - len(found))
        return found
    finally:
        reader.close()


def _read(reader: Any, at: tuple[str, int], start: int, end: int, most: int) -> list[Item]:
    reader.assign([TopicPartition(*at, start)])
    found: list[Item] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < most and time.monotonic() < deadline:
        message = reader.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                break
            continue
        if message.offset() >= end:
            break
        found.append(Item(*at, message, 0, 0.0, 0, 0))
    return found


def stats(queue: Queue) -> dict[str, Any]:
    """The numbers of a queue: of all its partitions, then of what this process has."""
    member = queue._member
    with member.changed:
        owners = member.owners_of(queue.name)
        counts = [owner.counts() for owner in owners]
        own: dict[str, Any] = {name: sum(each[name] for each in counts) for name in ("claimed", "delayed", "lost")}
        own |= {"partitions": len(owners), "blocked": next((o.blocked for o in owners if o.blocked), "")}
    first = peek(queue.site, queue.name, 1)
    oldest = time.time() - min(item.created.timestamp() for item in first) if first else None
    dead = depth(queue.site, f"{queue.name}.dead") if queue.dead_facts else None
    return {"depth": queue.depth(), "dead": dead, "oldest": oldest, **own}
