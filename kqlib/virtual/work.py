"""One consumer's work on one queue: the same partition as in `kqlib.queue`, over that queue's n-th record instead of an offset.

In:  the stored state, the queue's entry in the index, records. Out: leases, attempts, and the state to store. Pure, not locked.
It lives only while something is leased or waits for its time; between two calls the stored bytes are all there is.

    floor, state   the ledger's, in its own text form (`kqlib.queue.ledger`), over n
    at             an offset: the records below it are those with n < top. So n is found again when the log's beginning is gone
    order, most    the terms of its first claim; most 0: for ever
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.queue.ledger import Ledger
from kqlib.queue.partition import Claimed, Partition
from kqlib.queue.terms import Terms
from kqlib.virtual.cache import Kept, Nth
from kqlib.virtual.index import Entry

FEED = 200  # records read ahead of a claim at most
Name = tuple[str, str]  # queue, consumer
Clock = Callable[[], float]
Take = Callable[[int], Kept | None]  # the record at an offset, if it is here


@dataclass(frozen=True)
class Asked:
    """What a claim says of the terms; None: whatever holds."""

    order: str | None = None
    max_attempts: int | None = None  # 0: for ever


class Work(Partition):
    """What one consumer has of one queue."""

    def __init__(self, terms: Terms, partition: int, entry: Entry, ledger: Ledger, base: int) -> None:
        self.base = base  # n of the record at place 0
        super().__init__(terms, partition, ledger, low=min(max(0, base + entry.gone), ledger.top))
        self.stored = -1  # the version that was stored last

    def place(self, n: int) -> int:
        """Where the index has it."""
        return n - self.base

    def kept(self, n: int) -> Kept:
        """Its record, which is at hand."""
        record = self.records[n]
        assert isinstance(record, Nth)  # whatever was fed
        return record.kept

    # --- records ---

    def feed(self, entry: Entry, most: int, take: Take) -> tuple[int, list[int]]:
        """Read what a claim of `most` needs: how many came, and which offsets are not at hand."""
        came, missing = 0, []
        for n in self._wanted(entry, most):
            offset = entry.offset(self.place(n))
            record = take(offset)
            if record is None:
                missing.append(offset)
            elif not missing:  # in order: what comes after a gap would be taken for the end of it
                self.window.position = n
                self.arrive([Nth(n, record)])
                came += 1
        return came, missing

    def _wanted(self, entry: Entry, most: int) -> list[int]:
        end = self.base + entry.end
        open_ = sorted(self.window.missing)[: None if self._loading else most]
        fresh = range(
            self.window.head, min(end, self.window.head + min(FEED, max(0, most - self.order.cached - len(open_))))
        )
        return open_ + ([] if self._loading else list(fresh))

    def take(self, entry: Entry, most: int, take: Take) -> tuple[list[Claimed], list[int]]:
        """Up to `most` items, as they were claimed; and the offsets that must be fetched first."""
        given: list[Claimed] = []
        while most > 0:
            came, missing = self.feed(entry, most, take)
            claimed = self.claim(most)
            if some := len(claimed.offsets):
                given.append(claimed)
                most -= some
            if missing:
                return given, missing
            if self.blocked or not (came or some):
                break
        return given, []

    # --- verbs ---

    def held(self, n: int, epoch: int, number: int) -> str:
        """Why this receipt does not hold; '' if it does."""
        return self.why_not(n, epoch, number)

    def depth(self, entry: Entry) -> int:
        """How many of the queue's records are not done."""
        return self.ledger.open + max(0, self.base + entry.end - self.ledger.top)

    @property
    def cold(self) -> bool:
        """Is everything that must be known in what is stored?"""
        return not (self.leases or self.ending or self.order.later)

    # --- what is stored ---

    def dump(self, entry: Entry, head: int) -> dict[str, Any]:
        """The state to store."""
        last, first = self.place(self.ledger.top) - 1, entry.offsets[0] if entry.offsets else head
        at = entry.offset(last) + 1 if last >= entry.gone else first
        terms = {"order": self.terms.order, "most": self.terms.max_attempts or 0}
        return {"floor": self.ledger.floor, "state": self.ledger.text(), "at": at, **terms}


def new(name: Name, asked: Asked, partition: int, entry: Entry, *, topic_id: str, clock: Clock) -> Work:
    """A consumer's first claim: n = 0 is the first record that is there. Its epochs begin above any of an earlier life."""
    most = 0 if name[0].endswith(".dead") else 5 if asked.max_attempts is None else asked.max_attempts
    terms = Terms(name[0], name[1], asked.order or "any", most or None, clock)
    epoch = time.time_ns() // 1000
    return Work(terms, partition, entry, Ledger(0, 0, epoch, topic_id), -entry.gone)


def load(name: Name, said: dict[str, Any], partition: int, entry: Entry, clock: Clock) -> Work:
    """The work as it was stored, with a new epoch: receipts of an earlier one no longer hold."""
    ledger = Ledger.read(said["state"], said["floor"])
    ledger.epoch += 1
    terms = Terms(name[0], name[1], said["order"], said["most"] or None, clock)
    return Work(terms, partition, entry, ledger, ledger.top - entry.place(said["at"]))


def left(said: dict[str, Any], entry: Entry) -> int:
    """How many records are not done, by a stored state alone."""
    ledger = Ledger.read(said["state"], said["floor"])
    base = ledger.top - entry.place(said["at"])
    ledger.purge(min(max(0, base + entry.gone), ledger.top))
    return ledger.open + max(0, base + entry.end - ledger.top)


def agree(said: dict[str, Any], asked: Asked) -> None:
    """A consumer's terms are those of its first claim."""
    for what, have, want in (("order", said["order"], asked.order), ("max_attempts", said["most"], asked.max_attempts)):
        if want is not None and want != have:
            raise NotAllowed(
                f"this consumer's {what} is {have!r} since its first claim, not {want!r}. Delete the consumer to begin anew"
            )


def receipt(n: int, epoch: int, number: int) -> str:
    """What a caller shows with each verb."""
    return f"{n}.{epoch}.{number}"


def parts(text: str) -> tuple[int, int, int]:
    """A receipt's numbers."""
    numbers = text.split(".")
    if len(numbers) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in numbers):
        raise NotAllowed(f"a receipt is what claim gave with an item, not {text!r}")
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


def parsed(value: bytes) -> dict[str, Any]:
    """A stored state."""
    said: dict[str, Any] = json.loads(value)
    return said


def top(said: dict[str, Any]) -> int:
    """Up to which n a stored state has looked."""
    return Ledger.read(said["state"], said["floor"]).top
