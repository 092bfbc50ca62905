"""What one consumer has of one queue: a ledger of kqlib.queue over the queue's n-th record instead of an offset. Pure.

In:  the stored state, the queue's entry in the index, records. Out: claims, and the state to store.
It lives only while something is leased or delayed. Else the stored state is enough:

    floor, state   the ledger's floor and its text (`kqlib.queue.ledger`), over n
    at             an offset: the records below it are those with n < top. It gives n when the log's beginning is gone
    order, most    the terms of its first claim; most 0: for ever
    held           only of an owner that left: its number, the last lease's number, and of each lease n, number and seconds left
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.queue.item import Headers
from kqlib.queue.leases import NEVER, Lease
from kqlib.queue.ledger import Ledger
from kqlib.queue.partition import Claimed, Partition
from kqlib.queue.terms import Terms
from kqlib.virtual.index import QueueEntry, StoredRecord

AHEAD = 200  # records that are read for one claim, at most
Name = tuple[str, str]  # queue, consumer
RecordAt = Callable[[int], StoredRecord | None]  # the record at an offset; None: it is not in memory


@dataclass(slots=True, frozen=True)
class NthRecord:
    """The n-th record of a queue, as `kqlib.queue` reads records."""

    n: int
    stored: StoredRecord

    def offset(self) -> int:
        """Its number in its queue."""
        return self.n

    def key(self) -> bytes | None:
        """The item's key."""
        return self.stored.key

    def value(self) -> bytes | None:
        """Its data."""
        return self.stored.data

    def headers(self) -> Headers:
        """All headers."""
        return list(self.stored.headers)

    def timestamp(self) -> tuple[int, int]:
        """When it was put."""
        return 1, self.stored.created


class ConsumerLedger:
    """One consumer's claims on one queue."""

    def __init__(self, terms: Terms, partition: int, entry: QueueEntry, ledger: Ledger, base: int) -> None:
        self.base = base  # n of the record at place 0 of the index
        self.partition = Partition(terms, partition, ledger, low=min(max(0, base + entry.gone), ledger.top))
        self.stored_version = -1

    @classmethod
    def new(cls, terms: Terms, partition: int, entry: QueueEntry, topic_id: str) -> ConsumerLedger:
        """Of a first claim: n = 0 is the first record that is there. Its epochs begin above any of an earlier consumer."""
        return cls(terms, partition, entry, Ledger(0, 0, time.time_ns() // 1000, topic_id), -entry.gone)

    @classmethod
    def load(cls, terms: Terms, partition: int, entry: QueueEntry, state: dict[str, Any]) -> ConsumerLedger:
        """As it was stored, with a new epoch: receipts of an earlier one no longer hold."""
        ledger = Ledger.read(state["state"], state["floor"])
        ledger.epoch += 1
        return cls(terms, partition, entry, ledger, ledger.top - entry.place(state["at"]))

    def state(self, entry: QueueEntry, head: int) -> dict[str, Any]:
        """The state to store."""
        ledger, terms = self.partition.ledger, self.partition.terms
        last, first = ledger.top - self.base - 1, entry.offsets[0] if entry.offsets else head
        at = entry.offset(last) + 1 if last >= entry.gone else first
        return {
            "floor": ledger.floor,
            "state": ledger.text(),
            "at": at,
            "order": terms.order,
            "most": terms.max_attempts or 0,
        }

    def held(self, owner: int) -> list[Any]:
        """The leases that are out, for the next owner. owner: the number of this one."""
        leases, now = self.partition.leases, self.partition.terms.clock()
        out = [
            [n, lease.number, round(lease.deadline - now, 3)] for n, lease in leases.items() if lease.deadline < NEVER
        ]
        return [owner, leases.numbers, out]

    def hold(self, held: list[Any], passed: float) -> None:
        """Go on with the leases of the owner before: its receipts hold. passed: seconds since it left."""
        partition, now = self.partition, self.partition.terms.clock()
        partition.ledger.epoch -= 1
        partition.leases.numbers = held[1]
        for n, number, left in held[2]:
            if partition.ledger.attempts(n) is not None:
                partition.leases[n] = Lease(number, now + left - passed)
                partition.leases.ends_at(now + left - passed, [n])

    def take(self, entry: QueueEntry, most: int, record_at: RecordAt) -> tuple[list[Claimed], list[int]]:
        """Claim up to `most` items; and the offsets that must be fetched before more can be claimed."""
        claims: list[Claimed] = []
        while most > 0:
            came, missing = self._read(entry, most, record_at)
            claimed = self.partition.claim(most)
            if claimed.offsets:
                claims.append(claimed)
                most -= len(claimed.offsets)
            if missing:
                return claims, missing
            if self.partition.blocked or not (came or claimed.offsets):
                break
        return claims, []

    def _read(self, entry: QueueEntry, most: int, record_at: RecordAt) -> tuple[int, list[int]]:
        """Read what a claim of `most` needs: how many records came, and which offsets are not in memory."""
        partition, window = self.partition, self.partition.window
        loading = partition._loading
        open_ = sorted(window.missing)[: None if loading else most]
        ahead = 0 if loading else min(AHEAD, max(0, most - partition.order.cached - len(open_)))
        return self._read_these(
            entry, [*open_, *range(window.head, min(self.base + entry.end, window.head + ahead))], record_at
        )

    def fetch(self, entry: QueueEntry, numbers: list[int], record_at: RecordAt) -> list[int]:
        """Read these open items, of which the owner before had the records; the offsets that are not in memory."""
        return self._read_these(entry, sorted(self.partition.window.missing.intersection(numbers)), record_at)[1]

    def _read_these(self, entry: QueueEntry, numbers: list[int], record_at: RecordAt) -> tuple[int, list[int]]:
        came, missing = 0, list[int]()
        for n in numbers:
            offset = entry.offset(n - self.base)
            record = record_at(offset)
            if record is None:
                missing.append(offset)
            elif not missing:  # in order: a record after a gap would be taken for the next one
                self.partition.window.position = n
                self.partition.arrive([NthRecord(n, record)])
                came += 1
        return came, missing

    def record(self, n: int) -> StoredRecord:
        """An item's record, which is in memory."""
        record = self.partition.window.records[n]
        assert isinstance(record, NthRecord)
        return record.stored

    def depth(self, entry: QueueEntry) -> int:
        """How many of the queue's records are not done."""
        ledger = self.partition.ledger
        return ledger.open + max(0, self.base + entry.end - ledger.top)

    @property
    def floor_place(self) -> int:
        """The place in the index below which all is done."""
        return self.partition.ledger.floor - self.base

    @property
    def idle(self) -> bool:
        """Nothing is leased or delayed: the stored state is enough."""
        return not (self.partition.leases or self.partition.ending or self.partition.order.later)


def done_place(entry: QueueEntry, state: dict[str, Any]) -> int:
    """The queue's end - its depth for a consumer of which only the stored state is there. It stays when records come."""
    if "tracked" in state:
        return entry.place(state["tracked"] + 1)
    ledger = Ledger.read(state["state"], state["floor"])
    base = ledger.top - entry.place(state["at"])
    ledger.purge(min(max(0, base + entry.gone), ledger.top))
    return ledger.top - base - ledger.open


def check_terms(state: dict[str, Any], order: str | None, max_attempts: int | None) -> None:
    """The terms of a consumer are those of its first claim. None: whatever they are."""
    for what, now, asked in (("order", state["order"], order), ("max_attempts", state["most"], max_attempts)):
        if asked is not None and asked != now:
            raise NotAllowed(
                f"this consumer's {what} is {now!r} since its first claim, not {asked!r}. Delete the consumer to begin anew"
            )
