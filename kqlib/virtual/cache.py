"""Records at hand: those of one partition that were read last, up to so many bytes. Pure.

In:  records as a consumer gives them. Out: `Kept` values by offset; what is not here any more is fetched again by its offset.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from kqlib.queue.item import OURS, Headers, Record

KEY = "kq-key"  # header: the key of an item; the record's own key is its queue
HIDDEN = {*OURS, KEY}
BYTES = 8_000_000
ROUGHLY = 400  # bytes that a record takes beside its data


@dataclass(slots=True, frozen=True)
class Kept:
    """A record, reduced to what is answered with."""

    offset: int
    data: bytes | None
    key: bytes | None
    headers: Headers
    created: int  # milliseconds since 1970

    @property
    def own(self) -> dict[str, bytes | None]:
        """The headers it was put with."""
        return {name: value for name, value in self.headers if name not in HIDDEN}


@dataclass(slots=True, frozen=True)
class Nth:
    """The same as the n-th record of its queue, in the words of `queue.item.Record`."""

    n: int
    kept: Kept

    def offset(self) -> int:
        """Which of its queue's it is."""
        return self.n

    def key(self) -> bytes | None:
        """The item's key."""
        return self.kept.key

    def value(self) -> bytes | None:
        """Its data."""
        return self.kept.data

    def headers(self) -> Headers:
        """All headers."""
        return self.kept.headers

    def timestamp(self) -> tuple[int, int]:
        """When it was put."""
        return 1, self.kept.created


def kept(record: Record) -> Kept:
    """A consumer's message as it is kept."""
    headers = record.headers() or []
    key = next((value for name, value in headers if name == KEY), None)
    return Kept(record.offset(), record.value(), key, headers, record.timestamp()[1])


class Cache:
    """The records that were read last."""

    def __init__(self, most: int = BYTES) -> None:
        self._most, self._bytes = most, 0
        self._records: dict[int, Kept] = {}
        self._order: deque[int] = deque()

    def add(self, record: Kept) -> None:
        """Keep it; the oldest go."""
        if record.offset in self._records:
            return
        self._records[record.offset] = record
        self._order.append(record.offset)
        self._bytes += _size(record)
        while self._bytes > self._most and len(self._order) > 1:
            self._bytes -= _size(self._records.pop(self._order.popleft()))

    def get(self, offset: int) -> Any:
        """The record; None: not here."""
        return self._records.get(offset)

    def clear(self) -> None:
        """Keep nothing."""
        self._records.clear()
        self._order.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)


def _size(record: Kept) -> int:
    return ROUGHLY + len(record.data or b"") + sum(len(name) + len(value or b"") for name, value in record.headers)
