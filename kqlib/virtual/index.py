"""The index: which offsets of one partition belong to which queue, and what is remembered of each queue's consumers.

In:  records' queues and offsets as they are read, states of consumers. Out: a queue's n-th record, how many it has. Pure.
Small, since a partition may hold tens of thousands of queues: eight bytes a record, about 300 a queue, a consumer's state as the
bytes that were stored. A place is counted from the first record that this index saw of the queue, and never changes while it lives.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from kqlib.errors import NotAllowed


@dataclass(slots=True)
class Entry:
    """One queue: its offsets, how many of them have left the log, and its consumers."""

    offsets: array[int]
    gone: int = 0
    consumers: dict[str, Stored] | None = None

    @property
    def end(self) -> int:
        """The place after its last record."""
        return self.gone + len(self.offsets)

    def offset(self, place: int) -> int:
        """Where its record of that place is."""
        return self.offsets[place - self.gone]

    def place(self, offset: int) -> int:
        """The place of its first record at this offset or later."""
        return self.gone + bisect_left(self.offsets, offset)


@dataclass(slots=True, frozen=True)
class Stored:
    """A consumer's state as it was stored, and when."""

    value: bytes
    at: float  # seconds since 1970


class Index:
    """Queue -> its offsets, for one partition."""

    def __init__(self, low: int = 0) -> None:
        self.head = low  # everything below was seen
        self.entries: dict[str, Entry] = {}
        self.marks: dict[str, int] = {}  # deleted queues: what lies below is gone
        self.strange = 0  # records that belong to no queue of this partition

    def add(self, queue: str | None, offset: int) -> bool:
        """A record as it was read, in the log's order; False: it is nobody's, or of a deleted queue."""
        if offset < self.head:
            raise NotAllowed(f"records are read in order: {offset} comes after {self.head - 1}")
        self.head = offset + 1
        if queue is None:
            self.strange += 1
            return False
        if offset < self.marks.get(queue, 0):
            return False
        self.entry(queue).offsets.append(offset)
        return True

    def seen(self, to: int) -> None:
        """Up to here there is nothing more: transactions' marks, aborted records."""
        self.head = max(self.head, to)

    def entry(self, queue: str) -> Entry:
        """The queue's entry, made if there is none."""
        found = self.entries.get(queue)
        if found is None:
            found = self.entries[queue] = Entry(array("q"))
        return found

    def get(self, queue: str) -> Entry | None:
        """The queue's entry; None: there is no such queue."""
        return self.entries.get(queue)

    def store(self, queue: str, consumer: str, stored: Stored | None) -> None:
        """A consumer's state; None: it is gone."""
        if stored is None:
            entry = self.entries.get(queue)
            if entry is None or entry.consumers is None:
                return
            entry.consumers.pop(consumer, None)
            entry.consumers = entry.consumers or None
            self._tidy(queue, entry)
        else:
            entry = self.entry(queue)
            if entry.consumers is None:
                entry.consumers = {}
            entry.consumers[consumer] = stored

    def delete(self, queue: str, end: int) -> None:
        """The queue is gone up to here, and all its consumers; what comes later begins it anew."""
        self.marks[queue] = max(end, self.marks.get(queue, 0))
        entry = self.entries.pop(queue, None)
        if entry is not None and (later := entry.offsets[bisect_left(entry.offsets, end) :]):
            self.entries[queue] = Entry(later)

    def trim(self, low: int) -> None:
        """The log begins here now: retention, or `delete_records`."""
        self.head = max(self.head, low)
        for queue, entry in list(self.entries.items()):
            if entry.offsets and entry.offsets[0] < low:
                many = bisect_left(entry.offsets, low)
                entry.gone += many
                del entry.offsets[:many]
                self._tidy(queue, entry)

    def _tidy(self, queue: str, entry: Entry) -> None:
        """A queue without records and without consumers is no queue."""
        if not entry.offsets and entry.consumers is None:
            del self.entries[queue]

    def names(self, prefix: str = "", after: str = "", limit: int = 100) -> list[str]:
        """Names of queues in order, a page of them."""
        return heapq.nsmallest(limit, (name for name in self.entries if name > after and name.startswith(prefix)))

    def stored(self, queue: str, consumer: str) -> Stored | None:
        """A consumer's state; None: there is none."""
        entry = self.entries.get(queue)
        return entry.consumers.get(consumer) if entry and entry.consumers else None

    def consumers(self) -> Iterator[tuple[str, str, Stored]]:
        """Every consumer of every queue."""
        for queue, entry in list(self.entries.items()):
            for consumer, stored in list((entry.consumers or {}).items()):
                yield queue, consumer, stored
