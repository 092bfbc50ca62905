"""One partition's log as this process has read it: which records are here, which must be read (again), where to read next.

In:  records in the log's order from `position` on, and the log's end. Out: `target`, where to go on reading; hooks for an owner.
No Kafka here. An open item's record may be missing: at the start, or because it was given up for space.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence

from kqlib.queue.item import Record

ROUGHLY = 1_000  # bytes that a record takes beside its data


class Reading:
    """What is here of one partition's log."""

    def __init__(self, head: int, missing: Iterable[int]) -> None:
        self.head = head  # up to here everything was read, or need not be
        self.position = -1  # where the consumer reads next; -1: it must be led to `target` first
        self.bytes = 0
        self.records: dict[int, Record] = {}
        self._missing = sorted(missing)  # a heap
        self._sought = set(self._missing)
        self._not_there: set[int] = set()  # read over once and not found
        self.gaps: deque[tuple[int, int]] = deque(
            maxlen=1_000
        )  # at the log's head there was no record from here to there

    # --- what an owner does with it ---

    def _new(self, offsets: Sequence[int]) -> None:
        """Records at the log's head."""

    def _found(self, offset: int) -> None:
        """A record that was missing."""

    def _gone(self, offset: int) -> None:
        """A record that was missing, and that the log does not have any more."""

    def _read(self) -> None:
        """Something was read."""

    def arrive(self, records: Sequence[Record]) -> bool:
        """Records as the log has them, from `position` on. False: it is another log, which begins anew."""
        offsets = [record.offset() for record in records]
        if self.position == self.head and offsets == list(range(self.head, self.head + len(offsets))):
            self.position = self.head = self.head + len(offsets)  # the usual case: all of them new, one after another
            self._keep(offsets, records)
            self._new(offsets)
        else:
            for offset, record in zip(offsets, records, strict=True):
                if not self._one(offset, record):
                    return False
        self._read()
        return True

    def _one(self, offset: int, record: Record) -> bool:
        if offset != self.position:
            if offset < self.position:
                return False
            self.nothing_between(self.position, offset)
        self.position = offset + 1
        if offset >= self.head:
            self.head = offset + 1
            self._keep([offset], [record])
            self._new([offset])
        elif offset in self._sought:
            self._sought.discard(offset)
            self._not_there.discard(offset)
            self._keep([offset], [record])
            self._found(offset)
        return True

    def end_seen(self, offset: int) -> None:
        """The log ends here; what lies between is no record (a transaction's mark, an aborted one)."""
        if offset < self.position:
            return
        self.nothing_between(self.position, offset)
        self.position = offset
        self.head = max(self.head, offset)
        self._read()

    def nothing_between(self, start: int, end: int) -> None:
        """Read from start to end, and there was no record. An open one that is not found twice is lost."""
        if (unread := max(start, self.head)) < end:
            self.gaps.append((unread, end))
        sought = self._sought
        if end - start <= len(sought):  # never more looks than offsets that are read over
            gone = [offset for offset in range(start, end) if offset in sought]
        else:  # a set that was large stays slow to walk over when it is empty
            gone = [offset for offset in sought if start <= offset < end] if sought else []
        for offset in gone:
            if offset not in self._not_there:
                self._not_there.add(offset)  # `target` leads there once more: a loss is never declared on one look
                heapq.heappush(self._missing, offset)
                continue
            self._sought.discard(offset)
            self._not_there.discard(offset)
            self._gone(offset)

    def target(self) -> int:
        """Where to read next: the first open record that is not here, else the log's end."""
        while self._missing and self._missing[0] not in self._sought:
            heapq.heappop(self._missing)
        return self._missing[0] if self._missing else self.head

    def _seek(self, offset: int) -> None:
        """This one must be read again."""
        self._sought.add(offset)
        heapq.heappush(self._missing, offset)

    def _keep(self, offsets: Sequence[int], records: Sequence[Record]) -> None:
        self.records.update(zip(offsets, records, strict=True))
        self.bytes += _bytes(records)

    def _forget(self, offsets: Iterable[int]) -> None:
        pop = self.records.pop
        self.bytes -= _bytes([record for offset in offsets if (record := pop(offset, None)) is not None])


def _bytes(records: Sequence[Record]) -> int:
    """What these take here, roughly."""
    return ROUGHLY * len(records) + sum([len(record.value() or b"") for record in records])
