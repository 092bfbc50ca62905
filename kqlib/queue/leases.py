"""The leases of one partition: which items are handed out, and until when.

In:  claims, deadlines on the site's clock. Out: a lease by offset; which leases have ended. Pure.
"""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kqlib.queue.item import Job

NEVER = float("inf")
LISTED = 10_000  # offsets that may be listed beyond twice the leases, until the list is made anew


@dataclass(slots=True)
class Lease:
    """The lease of the items of one claim: until when they belong to the thread that claimed them."""

    number: int
    deadline: float = NEVER  # NEVER until the claim is committed
    thread: int = field(default_factory=threading.get_ident)
    job: Job | None = None  # of `work`: then the lease is of one item alone

    def at_work(self, closing: int | None) -> bool:
        """Does a thread work on it? Not before it is handed out. The thread that closes the site does not count."""
        if self.deadline == NEVER:
            return False
        return self.job.begun if self.job else self.thread != closing


class Claimed(NamedTuple):
    """What one claim took from one partition."""

    lease: Lease
    offsets: list[int]
    attempts: list[int]  # of each


class Leases(dict[int, Lease]):
    """The leases by offset, and when they end."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0  # of the last claim
        self._ends: list[tuple[float, list[int]]] = []  # a heap; the offsets of one claim are one entry
        self._listed = 0  # offsets in there

    def new(self) -> Lease:
        """A lease for a claim that begins."""
        self.numbers += 1
        return Lease(self.numbers)

    def ends_at(self, deadline: float, offsets: list[int]) -> None:
        """End these leases at this time, unless they are extended."""
        heapq.heappush(self._ends, (deadline, offsets))
        self._listed += len(offsets)

    def extend(self, offset: int, deadline: float) -> None:
        """Move the deadline only; the number stays, so both values of the item ack."""
        self[offset] = replace(self[offset], deadline=deadline)
        self.ends_at(deadline, [offset])

    def ended(self, now: float) -> set[int]:
        """The offsets whose leases have ended since the last call; they are still here."""
        over: set[int] = set()
        while self._ends and self._ends[0][0] <= now:
            _, offsets = heapq.heappop(self._ends)
            self._listed -= len(offsets)
            for offset in offsets:
                if (lease := self.get(offset)) is None:
                    continue
                if lease.deadline > now:  # extended, or another lease
                    self.ends_at(lease.deadline, [offset])
                else:
                    over.add(offset)
        if self._listed > 2 * len(self) + LISTED:  # what was acked is still listed
            self._ends = [(lease.deadline, [offset]) for offset, lease in self.items()]
            self._listed = len(self._ends)
            heapq.heapify(self._ends)
        return over

    def next_end(self) -> float:
        """When `ended` may find something."""
        return self._ends[0][0] if self._ends else NEVER

    def of_thread(self, thread: int) -> list[int]:
        """The offsets of this thread's claims that are not committed yet."""
        return [offset for offset, lease in self.items() if lease.deadline == NEVER and lease.thread == thread]
