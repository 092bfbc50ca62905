"""Which offsets of one partition belong to which queue, and the records that are in memory. Pure.

In:  records as they are read, states of consumers. Out: a queue's n-th record, how many it has, its consumers' states.
A partition may hold tens of thousands of queues. So this is small: 8 bytes a record, about 300 bytes a queue, and a consumer's
state as the stored bytes. A place counts a queue's records from the first one that was read; it never changes.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kqlib.errors import NotAllowed
from kqlib.queue.item import OURS, Record

KEY = "kq-key"  # header: the key of an item; the record's own key is its queue
PUT = "kq-put"  # header: see `put_keys`
HIDDEN = {*OURS, KEY}
BYTES = 8_000_000  # of records in memory, a partition
ROUGHLY = 400  # bytes that a record takes beside its data


@dataclass(slots=True)
class QueueEntry:
    """One queue: its offsets, how many of them have left the log, and its consumers."""

    offsets: array[int]
    gone: int = 0
    consumers: dict[str, StoredState] | None = None

    @property
    def end(self) -> int:
        """The place after its last record."""
        return self.gone + len(self.offsets)

    def offset(self, place: int) -> int:
        """The offset of the record at a place."""
        return self.offsets[place - self.gone]

    def place(self, offset: int) -> int:
        """The place of its first record at this offset or later."""
        return self.gone + bisect_left(self.offsets, offset)


@dataclass(slots=True)
class StoredState:
    """A consumer's state as it was stored, and when."""

    value: bytes
    at: float  # seconds since 1970
    done: int | None = None  # the queue's end - its depth for this consumer, once that was counted


class QueueIndex:
    """Queue -> its offsets, for one partition."""

    def __init__(self) -> None:
        self.head = 0  # everything below was read
        self.entries: dict[str, QueueEntry] = {}
        self.marks: dict[str, int] = {}  # deleted queues: what lies below is gone

    def add(self, queue: str | None, offset: int) -> bool:
        """A record as it was read, in the log's order. False: it belongs to no queue, or to a deleted one."""
        if offset < self.head:
            raise NotAllowed(f"records are read in order: {offset} comes after {self.head - 1}")
        self.head = offset + 1
        if queue is None or offset < self.marks.get(queue, 0):
            return False
        self._entry(queue).offsets.append(offset)
        return True

    def read_to(self, end: int) -> None:
        """Up to here there are no more records: marks of transactions, aborted records."""
        self.head = max(self.head, end)

    def _entry(self, queue: str) -> QueueEntry:
        found = self.entries.get(queue)
        if found is None:
            found = self.entries[queue] = QueueEntry(array("q"))
        return found

    def store(self, queue: str, consumer: str, state: StoredState | None) -> None:
        """Keep a consumer's state; None: the consumer is gone."""
        if state is not None:
            entry = self._entry(queue)
            entry.consumers = entry.consumers or {}
            entry.consumers[consumer] = state
        elif (known := self.entries.get(queue)) is not None and known.consumers is not None:
            known.consumers.pop(consumer, None)
            known.consumers = known.consumers or None
            self._drop_if_empty(queue, known)

    def delete(self, queue: str, end: int) -> None:
        """The queue is gone up to here, and all its consumers; a later record begins it anew."""
        self.marks[queue] = max(end, self.marks.get(queue, 0))
        entry = self.entries.pop(queue, None)
        if entry is not None and (later := entry.offsets[bisect_left(entry.offsets, end) :]):
            self.entries[queue] = QueueEntry(later)

    def trim(self, low: int) -> None:
        """The log begins here now: retention, or `delete_records`."""
        self.head = max(self.head, low)
        for queue, entry in list(self.entries.items()):
            if entry.offsets and entry.offsets[0] < low:
                many = bisect_left(entry.offsets, low)
                entry.gone += many
                del entry.offsets[:many]
                for state in (entry.consumers or {}).values():
                    state.done = None  # what it had not done yet may be gone
                self._drop_if_empty(queue, entry)

    def _drop_if_empty(self, queue: str, entry: QueueEntry) -> None:
        if not entry.offsets and entry.consumers is None:
            del self.entries[queue]

    def names(self, prefix: str = "", after: str = "", limit: int = 100) -> list[str]:
        """Names of queues in order, a page of them."""
        return heapq.nsmallest(limit, (name for name in self.entries if name > after and name.startswith(prefix)))

    def stored(self, queue: str, consumer: str) -> StoredState | None:
        """A consumer's state; None: there is none."""
        entry = self.entries.get(queue)
        return entry.consumers.get(consumer) if entry and entry.consumers else None

    def consumers(self) -> Iterator[tuple[str, str, StoredState]]:
        """Every consumer of every queue."""
        for queue, entry in list(self.entries.items()):
            for consumer, state in list((entry.consumers or {}).items()):
                yield queue, consumer, state


class StoredRecord(NamedTuple):
    """A record, reduced to what an answer shows."""

    offset: int
    data: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    created: int  # milliseconds since 1970
    put: bytes | None = None  # the header kq-put, which is not among the headers: copies of a record do not have it

    @classmethod
    def of(cls, message: Record) -> StoredRecord:
        """The same of a consumer's message."""
        all_headers = message.headers() or ()
        headers = tuple(each for each in all_headers if each[0] != PUT)
        key, put = (next((value for name, value in all_headers if name == ours), None) for ours in (KEY, PUT))
        return cls(message.offset(), message.value(), key, headers, message.timestamp()[1], put)

    @property
    def own_headers(self) -> dict[str, bytes | None]:
        """The headers it was put with."""
        return {name: value for name, value in self.headers if name not in HIDDEN}

    @property
    def size(self) -> int:
        """Roughly the bytes that it takes."""
        taken = sum(len(name) + len(value or b"") for name, value in self.headers)
        return ROUGHLY + len(self.data or b"") + taken


class RecordCache:
    """The records that were read last, by offset. Older ones are fetched again.

    They are kept as plain tuples, which Python's garbage collector takes off its list. As objects, 100,000 of them made each full
    collection 0.1 s longer, and all requests waited for that.
    """

    def __init__(self, most: int = BYTES) -> None:
        self._most, self._bytes = most, 0
        self._records: OrderedDict[int, tuple[Any, ...]] = OrderedDict()

    def add(self, record: StoredRecord) -> None:
        """Keep it; the oldest go."""
        if record.offset in self._records:
            return
        self._records[record.offset] = tuple(record)
        self._bytes += record.size
        while self._bytes > self._most and len(self._records) > 1:
            self._bytes -= StoredRecord(*self._records.popitem(last=False)[1]).size

    def get(self, offset: int) -> StoredRecord | None:
        """The record; None: it is not in memory."""
        found = self._records.get(offset)
        return None if found is None else StoredRecord(*found)
