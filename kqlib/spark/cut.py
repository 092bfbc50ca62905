"""A consistent look at a queue that goes on working: the ledger first, then the ends of everything that it says something about.

In:  a cluster, a queue, a site. Out: `Cut`: what the ledger said, and up to where items, results and dead letters are read; and
`unseen`: of which items the result may have been removed before.

Whoever says in the ledger that an item is done has written its result or its dead letter before, or with it. So what the ledger
calls done has its record below an end that is asked for afterwards; the other way round a worker that is faster than the
audit would look like one that loses items. Purge marks are read after the ledger for the same reason: an owner applies a mark
only once it is in kq.queues. And the ends are those of what is written, not of what is committed: a transaction's offsets may be
visible a moment before its records are, so `take` waits until what was open then has ended (the broker sees to that, 20 s).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kqlib.errors import NotAllowed, NotInTime, TopicMissing
from kqlib.kafka import Kafka, reading
from kqlib.kafka.reading import patient
from kqlib.queue import reader as readers
from kqlib.queue import state
from kqlib.queue.dead import DEAD
from kqlib.queue.ledger import Ledger
from kqlib.queue.notes import QUEUES
from kqlib.queue.reader import Reader

PATIENCE = 45.0  # seconds until open transactions have ended
SKEW = 3600  # seconds by which clocks may differ
ALWAYS = 2**40  # a time in seconds that is later than all of them

Ends = dict[str, dict[int, int]]  # topic -> partition -> offset


@dataclass(frozen=True)
class Part:
    """One partition as the ledger has it. `end`: of the log, when the ledger was read."""

    seen: state.Seen
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
        """How many offsets left the log before the site was done with them. Of a site that never committed nobody knows."""
        low, committed = self.seen.low, self.seen.committed
        if committed is None or not self.seen.metadata:  # no state, or a stock consumer's: below its offset all is done
            return max(0, low - committed) if committed is not None else 0
        unseen = max(0, low - max(self.ledger.top, self.mark))
        return unseen + sum(self.mark <= offset < low for offset, _ in self.open)

    @property
    def open(self) -> list[tuple[int, int]]:
        """Every offset that is open, with how often it was handed out."""
        return [(offset, tries) for start, end, tries in self.ledger.runs() for offset in range(start, end)]

    @property
    def row(self) -> tuple[Any, ...]:
        """It as `frames.LEDGER` has it, after queue, site and partition."""
        its = self.ledger
        bounds = (self.seen.low, its.floor, its.top, self.seen.end)
        open_ones = [{"offset": offset, "attempts": tries} for offset, tries in self.open]
        return (self.seen.topic_id, its.epoch, *bounds, self.mark, self.depth, open_ones)


@dataclass(frozen=True)
class Cut:
    """What is judged together: the ledger, and then the bounds of every topic, `lows` and `ends`."""

    parts: dict[int, Part]
    lows: Ends
    ends: Ends
    taken: float = field(default_factory=time.time)


def take(cluster: Kafka, queue: str, site: str, topics: Sequence[str]) -> Cut:
    """The ledger now, and the ends of the queue's topic and of these after it."""
    parts = states(cluster, queue, site)
    wanted = [(topic, number) for topic in dict.fromkeys([queue, *topics]) for number in cluster.partitions(topic)]
    ends = settled(cluster, wanted)
    lows, _ = state.bounds(cluster, wanted, 10)
    return Cut(parts, _by_topic(lows), _by_topic(ends))


def states(cluster: Kafka, queue: str, site: str) -> dict[int, Part]:
    """What a site's ledger says of each partition, then the purge marks."""
    ids = state.topic_ids(cluster, [queue])
    if queue not in ids:
        raise TopicMissing(topic=queue)
    looker = state.Looker(cluster, site, wait=False)
    try:
        found = looker.look([(queue, number) for number in ids[queue][1]])
    finally:
        looker.close()
    marks = purged(cluster, queue, site)
    parts = {}
    for (_, number), seen in found.items():
        ledger = state.ledger_from(seen, "earliest", f"'{queue}', partition {number}")
        said = marks.get(number, {})
        parts[number] = Part(seen, ledger, said["offset"] if said.get("topic") == seen.topic_id else 0)
    return parts


def purged(cluster: Kafka, queue: str, site: str) -> dict[int, dict[str, Any]]:
    """The purge marks of a site's queue, from kq.queues: read without a thread that stays, and without making the topic."""
    found: dict[int, dict[str, Any]] = {}
    with suppress(TopicMissing):
        for record in reading.records(cluster, QUEUES).get(0, []):
            with suppress(ValueError, TypeError, KeyError):  # somebody else's line
                said, key = json.loads(record.value() or b"null"), json.loads(record.key())
                if key[:3] == [site, queue, "purge"]:
                    found[key[3]] = _later(found.get(key[3]), said)
    return found


def _later(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any]:
    """Two marks of one topic: the farther one counts."""
    if new is None:
        return {}
    if old and old.get("topic") == new["topic"] and old["offset"] > new["offset"]:
        return old
    return new


def unseen(cluster: Kafka, seen: Cut, queue: str, results: str, *, keyed: bool, known: Ends) -> dict[int, int]:
    """Up to which time an item of each partition may have an ending that was removed before it was read; 0: none was.

    What is removed is older than the first record that is left, and an ending is newer than its item. known: up to where topics
    were read before. keyed: the results have their items' ids as keys, so that compaction keeps one of each.
    """
    reader = Reader(cluster)
    try:
        gone = {
            topic: {n: _until(reader, (topic, n), known.get(topic, {}).get(n, 0), low, seen) for n, low in lows.items()}
            for topic, lows in seen.lows.items()
            if topic != queue
        }
    finally:
        reader.close()
    whole = max(gone[results].values(), default=0) if keyed or not _compacted(cluster, results) else ALWAYS
    letters = gone.get(queue + DEAD) or {0: 0}  # a letter has its item's partition
    return {number: max(whole, letters.get(number % len(letters), 0)) for number in seen.lows[queue]}


def _until(reader: Reader, at: tuple[str, int], known: int, low: int, seen: Cut) -> int:
    """Up to which time items may have endings among the records of this partition that were removed unread."""
    if low <= known:
        return 0
    end = seen.ends[at[0]][at[1]]
    first, whole = reader.read(at, low, end, 1) if low < end else ([], True)
    if not first and not whole:
        raise NotInTime(seconds=readers.PATIENCE, why=f"the first record of {at[0]}/{at[1]}", last="nothing came")
    return (first[0].timestamp()[1] // 1000 if first else int(seen.taken)) + SKEW


def _compacted(cluster: Kafka, topic: str) -> bool:
    """Does this topic keep the last record of a key only?"""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    admin, asked = cluster.admin, ConfigResource(ResourceType.TOPIC, topic)
    with suppress(KafkaException):  # who may not ask takes it for Kafka's default
        settings = admin.describe_configs([asked], request_timeout=10)[asked].result(11)
        return "compact" in (settings["cleanup.policy"].value or "")
    return False


def settled(cluster: Kafka, wanted: list[tuple[str, int]], seconds: float = PATIENCE) -> dict[tuple[str, int], int]:
    """The ends of what is written now, once everything below them is committed or taken back."""
    ends = _written(cluster, wanted)
    deadline = time.monotonic() + seconds
    while behind := [at for at, end in state.ends(cluster, wanted, 10).items() if end < ends[at]]:
        if time.monotonic() > deadline:
            topic, number = behind[0]
            why = f"an open transaction in '{topic}', partition {number} to end"
            raise NotInTime(seconds=seconds, why=why, last="its producer neither commits nor aborts it")
        time.sleep(0.02)
    return ends


def _written(cluster: Kafka, wanted: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The ends with open transactions."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    admin = cluster.admin  # held while it works
    asked = {TopicPartition(*at): OffsetSpec.latest() for at in wanted}
    how: dict[str, Any] = {"isolation_level": IsolationLevel.READ_UNCOMMITTED, "request_timeout": 10}

    def ask() -> dict[tuple[str, int], int]:
        found = admin.list_offsets(asked, **how) if asked else {}
        return {(part.topic, part.partition): future.result(11).offset for part, future in found.items()}

    answer: dict[tuple[str, int], int] = patient(ask, 10)
    return answer


def _by_topic(flat: dict[tuple[str, int], int]) -> Ends:
    found: Ends = {}
    for (topic, number), offset in flat.items():
        found.setdefault(topic, {})[number] = offset
    return found


def unread(topic: str, known: dict[int, int], lows: dict[int, int]) -> None:
    """`NotAllowed` where the log begins after what was read of it: those records were never seen."""
    for number, offset in sorted(known.items()):
        if (low := lows.get(number, 0)) > offset:
            raise NotAllowed(passed(f"'{topic}', partition {number}", offset, low))


def passed(where: str, at: int, low: int) -> str:
    """What it means that retention has passed a reader, in a sentence."""
    return (
        f"{where} was read up to offset {at} and begins at {low} now: retention has deleted {low - at} records that nobody has read "
        "here, and no restart brings them back. Either accept the gap, and say so, or begin anew from what is left; and keep "
        "records longer than the reader may stand still (retention.ms)"
    )
