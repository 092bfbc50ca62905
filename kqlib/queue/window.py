"""The records of one partition that are in memory, and the offset to read next.

In:  records in the log's order, from `position` on, and the log's end. Out: which offsets are new, found or gone; `target()`.
No Kafka here. The record of an open item can be missing: at the start, and after it was dropped to free memory.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kqlib.queue.item import Record

RECORD_OVERHEAD = 1_000  # bytes that a record takes in memory beside its data


class Arrived(NamedTuple):
    """What a part of the log showed, as offsets."""

    new: list[int]  # records that were never read before
    found: list[int]  # records that were missing
    gone: list[int]  # they were missing, and the log does not have them any more


class Window:
    """The records of one partition that are in memory."""

    def __init__(self, head: int, missing: Iterable[int]) -> None:
        self.head = head  # everything below was read, or need not be
        self.position = -1  # where the consumer reads next; -1: it must seek to `target` first
        self.bytes = 0
        self.records: dict[int, Record] = {}
        self.missing = set(missing)  # open items whose records must be read
        self._missing = sorted(self.missing)  # the same as a heap, with some that are found already
        self._not_there: set[int] = set()  # missing ones that were not in the log at the first look
        self.gaps: deque[tuple[int, int]] = deque(maxlen=1_000)  # at the head: no record from here to there

    def arrive(self, records: Sequence[Record]) -> Arrived | None:
        """Take records as the log has them, from `position` on. None: it is another log, which begins anew."""
        offsets = [record.offset() for record in records]
        if self.position == self.head and offsets == list(range(self.head, self.head + len(offsets))):
            self.position = self.head = self.head + len(offsets)  # the usual case: all new, one after another
            self._keep(offsets, records)
            return Arrived(offsets, [], [])
        arrived = Arrived([], [], [])
        for offset, record in zip(offsets, records, strict=True):
            if offset < self.position:
                return None
            arrived.gone.extend(self._nothing_between(self.position, offset))
            self.position = offset + 1
            if offset >= self.head:
                self.head = offset + 1
                arrived.new.append(offset)
            elif offset in self.missing:
                self.missing.discard(offset)
                self._not_there.discard(offset)
                arrived.found.append(offset)
            else:
                continue
            self._keep([offset], [record])
        return arrived

    def end_seen(self, offset: int) -> Arrived:
        """The log ends here. What lies between is no record: a transaction's mark, or an aborted record."""
        if offset < self.position:
            return Arrived([], [], [])
        gone = self._nothing_between(self.position, offset)
        self.position = offset
        self.head = max(self.head, offset)
        return Arrived([], [], gone)

    def _nothing_between(self, start: int, end: int) -> list[int]:
        """Note that there is no record from start to end. Returns the missing ones that two looks did not find: they are gone."""
        if (unread := max(start, self.head)) < end:
            self.gaps.append((unread, end))
        missing = self.missing
        if end - start <= len(missing):  # never more looks than offsets that were read
            passed = [offset for offset in range(start, end) if offset in missing]
        else:  # a set that was large stays slow to walk over when it is empty
            passed = [offset for offset in missing if start <= offset < end] if missing else []
        gone = []
        for offset in passed:
            if offset in self._not_there:
                self._not_there.discard(offset)
                missing.discard(offset)
                gone.append(offset)
            else:
                self._not_there.add(offset)  # `target` leads here once more: one look does not make a loss
                heapq.heappush(self._missing, offset)
        return gone

    def target(self) -> int:
        """Where to read next: the first missing record, else the head."""
        while self._missing and self._missing[0] not in self.missing:
            heapq.heappop(self._missing)
        return self._missing[0] if self._missing else self.head

    def read_again(self, offset: int) -> None:
        """Have the record at this offset read again."""
        self.missing.add(offset)
        heapq.heappush(self._missing, offset)

    def skip(self, below: int) -> None:
        """Need nothing below this offset any more."""
        self.missing = {offset for offset in self.missing if offset >= below}
        self.head = max(self.head, below)

    def forget(self, offsets: Iterable[int]) -> None:
        """Drop these records."""
        pop = self.records.pop
        self.bytes -= _bytes([record for offset in offsets if (record := pop(offset, None)) is not None])

    def _keep(self, offsets: Sequence[int], records: Sequence[Record]) -> None:
        self.records.update(zip(offsets, records, strict=True))
        self.bytes += _bytes(records)


def _bytes(records: Sequence[Record]) -> int:
    """About how much memory these take."""
    return RECORD_OVERHEAD * len(records) + sum([len(record.value() or b"") for record in records])
