"""What is known of one partition's queues, and looking at it: depths, consumers, what is still needed. Pure, as `shelf`.

In:  states as they were stored, the index. Out: numbers; and in `Writes` what is to be stored.

What is stored in T.offsets (keys and values are JSON, beside the data partition of the same number):
    ["owner"]                      {"node": id, "url": address, "epoch": 3, "topic": id, "left": false}   who writes here
    ["consumer", queue, consumer]  {"tracked": 41}                              a cursor: the last offset it has done
    ["consumer", queue, consumer]  {"floor", "state", "at", "order", "most"}    work with leases: see `work`
    ["deleted", queue]             {"end": 77}                                  the queue is gone up to here
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.queue.item import Out
from kqlib.topic_rules import DEAD_MORE_BYTES, RECORD_BYTES
from kqlib.virtual import work as works
from kqlib.virtual.cache import Cache
from kqlib.virtual.errors import NotFound
from kqlib.virtual.index import Entry, Index, Stored
from kqlib.virtual.names import OFFSETS
from kqlib.virtual.work import Name, Work


@dataclass
class Writes:
    """What must be committed before an answer is given."""

    outs: list[Out] = field(default_factory=list)
    woken: set[str] = field(default_factory=set)  # queues that others may get something of now
    places: dict[int, int] = field(default_factory=dict)  # once committed: the offset of each


@dataclass(frozen=True)
class Place:
    """Which partition this is, and of what."""

    topic: str
    partition: int
    partitions: int
    topic_id: str = "-"
    limit: int = RECORD_BYTES  # bytes of a record that is put
    keep: float = 7 * 24 * 3600.0  # seconds that an idle consumer is remembered
    most: int = RECORD_BYTES + DEAD_MORE_BYTES  # bytes of any record: a dead letter has room for its story


class States:
    """Queues, consumers and their states, in one partition."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self.place, self.clock = place, clock
        self.now: Callable[[], float] = (
            time.time
        )  # seconds since 1970; a node's own clock may be wrong, so it takes Kafka's
        self.index, self.cache = Index(), Cache()
        self.works: dict[Name, Work] = {}

    def load(self, key: bytes, value: bytes | None, at: float) -> None:
        """A record of T.offsets."""
        kind, *name = json.loads(key)
        if kind == "consumer":
            self.index.store(name[0], name[1], None if value is None else Stored(value, at))
        elif kind == "deleted" and value is not None:
            self.index.marks[name[0]] = json.loads(value)["end"]

    # --- looking ---

    def depth(self, queue: str, consumer: str) -> int:
        """How many records are not done, for this consumer; for one that nobody knows, all."""
        entry, work = self.index.get(queue), self.works.get((queue, consumer))
        if entry is None:
            return 0
        said = self._said(queue, consumer)
        if said is None:
            return len(entry.offsets)
        if work is not None:
            return work.depth(entry)
        return entry.end - entry.place(said["tracked"] + 1) if "tracked" in said else works.left(said, entry)

    def consumer(self, queue: str, consumer: str) -> dict[str, Any]:
        """What is known of a consumer."""
        stored = self.index.stored(queue, consumer)
        if stored is None:
            raise NotFound(f"'{queue}' has no consumer '{consumer}'")
        tracked, work = works.parsed(stored.value).get("tracked"), self.works.get((queue, consumer))
        counts = work.counts() if work else {"claimed": 0, "delayed": 0}
        return {
            "consumer": consumer,
            "kind": "ledger" if tracked is None else "cursor",
            "tracked": tracked,
            "depth": self.depth(queue, consumer),
            "claimed": counts["claimed"],
            "delayed": counts["delayed"],
            "idle": max(0.0, self.now() - stored.at),
        }

    def queue(self, queue: str) -> dict[str, Any]:
        """What is known of a queue; its depth is that of its slowest consumer."""
        entry = self._entry(queue)
        offsets = entry.offsets
        depth = max((self.depth(queue, consumer) for consumer in entry.consumers or ()), default=len(offsets))
        first, last = (offsets[0], offsets[-1]) if offsets else (None, None)
        said = {"queue": queue, "partition": self.place.partition, "records": len(offsets), "depth": depth}
        return said | {"first": first, "last": last}

    def consumers(self, queue: str) -> list[dict[str, Any]]:
        """What is known of its consumers."""
        return [self.consumer(queue, name) for name in sorted(self._entry(queue).consumers or {})]

    def needed(self) -> int:
        """The lowest offset that some queue of this partition still needs."""
        return min((self._needed(queue, entry) for queue, entry in self.index.entries.items()), default=self.index.head)

    def _needed(self, queue: str, entry: Entry) -> int:
        if not entry.offsets:
            return self.index.head
        if entry.consumers is None:
            return entry.offsets[0]
        places = []
        for consumer in entry.consumers:
            said = self._said(queue, consumer) or {}
            if "tracked" in said:
                places.append(entry.place(said["tracked"] + 1))
            else:
                places.append(said["floor"] - works.top(said) + entry.place(said["at"]))
        first = max(entry.gone, min(places))
        return entry.offset(first) if first < entry.end else self.index.head

    def tracked(self, queue: str, consumer: str) -> int | None:
        """The last offset that a cursor has done; None: none yet."""
        said = self._said(queue, consumer)
        if said is not None and "tracked" not in said:
            raise NotAllowed(f"'{consumer}' works on '{queue}' with leases: claim, or read under another name")
        return said["tracked"] if said else None

    # --- states ---

    def _entry(self, queue: str) -> Entry:
        entry = self.index.get(queue)
        if entry is None:
            raise NotFound(f"there is no queue '{queue}': it appears with its first record")
        return entry

    def _said(self, queue: str, consumer: str) -> dict[str, Any] | None:
        stored = self.index.stored(queue, consumer)
        return None if stored is None else works.parsed(stored.value)

    def _store(self, queue: str, consumer: str, said: dict[str, Any], out: Writes) -> None:
        value = self._state(out, ["consumer", queue, consumer], said)
        self.index.store(queue, consumer, Stored(value or b"", self.now()))

    def _state(self, out: Writes, key: list[str], said: dict[str, Any] | None) -> bytes | None:
        value = None if said is None else json.dumps(said, separators=(",", ":")).encode()
        out.outs.append(Out(self.place.topic + OFFSETS, value, json.dumps(key).encode(), None, self.place.partition))
        return value
