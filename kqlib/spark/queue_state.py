"""A queue as one consistent state while workers run: the site's ledger first, then the ends of the topics.

In:  a cluster, a queue, a site.
Out: `QueueState`: the ledger of each partition, and the bounds of the topics of items, results and dead letters.
     `unseen`: which items may have lost their result before it was read.

A worker writes a result or a dead letter before it marks the item as done, or in the same transaction. So the ends are read after the
ledger: then every item that the ledger calls done has its record below an end. In the other order a fast worker would look like one
that loses items. Purge marks are read after the ledger too, since an owner applies a mark only once it is in kq.queues.
The offsets of a transaction are visible shortly before its records are. So `read_state` takes the ends of all that is written, and
waits until the transactions that were open then have ended (the broker ends them after 20 s).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kqlib.errors import NotInTime, TopicMissing
from kqlib.kafka import Kafka, reading
from kqlib.queue import notes, state
from kqlib.queue.broker_settings import topic_settings
from kqlib.queue.dead import DEAD
from kqlib.queue.incidents import Seen
from kqlib.queue.ledger import Ledger
from kqlib.topic_rules import QUEUES

PATIENCE = 45.0  # seconds until open transactions have ended
CLOCKS = 3600  # seconds by which clocks may differ
NEVER = 2**40  # a time in seconds after all others

Ends = dict[str, dict[int, int]]  # topic -> partition -> offset


@dataclass(frozen=True)
class PartitionState:
    """The ledger of one partition. `mark`: everything below it was purged."""

    seen: Seen
    ledger: Ledger
    mark: int = 0

    @property
    def depth(self) -> int:
        """How many items are not done."""
        ledger = self.ledger.copy()
        ledger.purge(max(self.seen.low, self.mark))
        return ledger.open + max(0, self.seen.end - ledger.top)

    @property
    def gone(self) -> int:
        """How many offsets left the log before the site was done with them; 0 if the site never committed."""
        low, committed = self.seen.low, self.seen.committed
        if committed is None:
            return 0
        if not self.seen.metadata:  # a plain consumer's commit: everything below it is done
            return max(0, low - committed)
        not_handed_out = max(0, low - max(self.ledger.top, self.mark))
        return not_handed_out + sum(self.mark <= offset < low for offset, _ in self.open)

    @property
    def open(self) -> list[tuple[int, int]]:
        """Every open offset with its attempts."""
        return [(offset, attempts) for start, end, attempts in self.ledger.runs() for offset in range(start, end)]


@dataclass(frozen=True)
class QueueState:
    """The ledger of each partition, and then the bounds of each topic."""

    parts: dict[int, PartitionState]
    lows: Ends
    ends: Ends
    taken: float = field(default_factory=time.time)


def read_state(cluster: Kafka, queue: str, site: str, topics: Sequence[str]) -> QueueState:
    """The ledger now, and after it the bounds of these topics."""
    parts = ledgers(cluster, queue, site)
    bounds = committed_bounds(cluster, topics)
    lows: Ends = {topic: {} for topic in topics}
    ends: Ends = {topic: {} for topic in topics}
    for (topic, number), (low, end) in bounds.items():
        lows[topic][number], ends[topic][number] = low, end
    return QueueState(parts, lows, ends)


def ledgers(cluster: Kafka, queue: str, site: str) -> dict[int, PartitionState]:
    """A site's ledger of each partition, then the purge marks."""
    ids = state.topic_ids(cluster, [queue])
    if queue not in ids:
        raise TopicMissing(topic=queue)
    looker = state.Looker(cluster, site, wait=False)
    try:
        found = looker.look([(queue, number) for number in ids[queue][1]])
    finally:
        looker.close()
    marks = purge_marks(cluster, queue, site)
    parts = {}
    for (_, number), seen in sorted(found.items()):
        ledger = state.ledger_from(seen, "earliest", f"'{queue}', partition {number}")
        mark = marks.get(number, {})
        parts[number] = PartitionState(seen, ledger, mark["offset"] if mark.get("topic") == seen.topic_id else 0)
    return parts


def purge_marks(cluster: Kafka, queue: str, site: str) -> dict[int, dict[str, Any]]:
    """The purge marks of a site's queue in kq.queues. Nothing is created, and no thread is started."""
    found: dict[int, dict[str, Any]] = {}
    with suppress(TopicMissing):
        for record in reading.records(cluster, QUEUES).get(0, []):
            with suppress(ValueError, TypeError, KeyError):  # not a record of ours
                mark, key = json.loads(record.value() or b"null"), json.loads(record.key())
                if key[:3] == [site, queue, "purge"]:
                    found[key[3]] = notes.merged(found.get(key[3]), mark) or {}
    return found


def committed_bounds(cluster: Kafka, topics: Sequence[str]) -> dict[reading.Place, tuple[int, int]]:
    """The bounds of these topics. The ends are those of now; it waits until everything below them is committed or aborted."""
    written = reading.bounds(cluster, *topics, isolation_level="read_uncommitted")
    deadline = time.monotonic() + PATIENCE
    while True:
        committed = reading.bounds(cluster, *topics)
        behind = [at for at, (_, end) in committed.items() if at in written and end < written[at][1]]
        if not behind:
            return {at: (committed[at][0], end) for at, (_, end) in written.items()}
        if time.monotonic() > deadline:
            why = f"an open transaction in '{behind[0][0]}', partition {behind[0][1]} to end"
            raise NotInTime(seconds=PATIENCE, why=why, last="its producer neither commits nor aborts it")
        time.sleep(0.02)


# --- what retention or compaction removed before it was read ------------------------------------------------------------


def unseen(cluster: Kafka, seen: QueueState, queue: str, results: str, *, keyed: bool, known: Ends) -> dict[int, int]:
    """For each partition a time: the result or dead letter of an item put before it may have been removed unread. 0: of none.

    known: up to where the topics were read before. keyed: the key of a result is the id of its item, so compaction keeps one of each.
    A removed record is older than the first one that is left, and it is newer than its item.
    """
    until = {
        topic: {
            number: _removed_until(cluster, (topic, number), known.get(topic, {}).get(number, 0), low, seen)
            for number, low in lows.items()
        }
        for topic, lows in seen.lows.items()
        if topic != queue
    }
    whole = max(until[results].values(), default=0) if keyed or not _compacted(cluster, results) else NEVER
    letters = until.get(queue + DEAD) or {0: 0}  # a dead letter is in the partition of its item
    return {number: max(whole, letters.get(number % len(letters), 0)) for number in seen.lows[queue]}


def _removed_until(cluster: Kafka, at: reading.Place, known: int, low: int, seen: QueueState) -> int:
    """Up to what time items may have had results in the part of this partition that was removed unread."""
    if low <= known:
        return 0
    first = next(reading.read(cluster, {at: low}, {at: seen.ends[at[0]][at[1]]}), None)
    return (first.timestamp()[1] // 1000 if first else int(seen.taken)) + CLOCKS


def _compacted(cluster: Kafka, topic: str) -> bool:
    """Is this topic compacted? Without the right to ask, Kafka's default is assumed: no."""
    return "compact" in topic_settings(cluster, [topic]).get(topic, {}).get("cleanup.policy", "")
