"""Who had which item, and how each delivery ended: recorded while a promise is tried, for its picture.

In:  claims and their ends. Out: the deliveries of one item. Time is a count of what happened, never seconds. So it is the same in
every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kqlib.workshop.promises.adapter import Claim
from kqlib.workshop.view.deliveries import Delivery

How = Literal["ack", "release", "expired", "killed", "refused", "open"]


@dataclass
class Lease:
    """An item with a worker: from when to when (None: still), and how that ended."""

    item: str
    worker: str
    attempt: int
    start: int
    end: int | None = None
    how: How = "open"
    over: float | None = None  # seconds on the clock when a lease of known length ends


class History:
    """The leases of one trial. clock: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._leases: list[Lease] = []
        self._of: dict[tuple[str, int], Lease] = {}  # a worker's claim -> its lease
        self._at = 0

    def time_passed(self) -> None:
        """Leases whose time is over have ended now."""
        self._at += 1
        self._expire()

    def claimed(self, claim: Claim, seconds: float | None) -> None:
        """A worker got an item, for so many seconds if it asked for that."""
        start = self._next()
        before = sum(each.item == claim.data and each.start != each.end for each in self._leases)
        over = None if seconds is None else self._clock() + seconds
        lease = Lease(claim.data, claim.worker, claim.attempt or before + 1, start, over=over)
        self._leases.append(lease)
        self._of[claim.worker, claim.number] = lease

    def extended(self, claim: Claim, seconds: float) -> None:
        """A lease ends later."""
        self._expire()
        self._of[claim.worker, claim.number].over = self._clock() + seconds

    def ended(self, claim: Claim, how: How) -> None:
        """A verb ended a lease. One that was refused after the lease's end stands alone."""
        at = self._next()
        lease = self._of[claim.worker, claim.number]
        if lease.how == "open":
            self._end(lease, how)
        else:
            self._leases.append(Lease(lease.item, lease.worker, lease.attempt, at, at, how))

    def ends_before(self, claim: Claim) -> set[How]:
        """How the earlier deliveries of this item ended."""
        this = self._of[claim.worker, claim.number]
        return {each.how for each in self._leases if each.item == claim.data and each is not this}

    def killed(self, worker: str) -> None:
        """A worker is gone, and with it its leases."""
        self._next()
        for lease in self._leases:
            if lease.worker == worker:
                self._end(lease, "killed")

    def deliveries(self, item: str | None = None) -> tuple[str, tuple[Delivery, ...]]:
        """An item and its deliveries. Without a name: of the item that was delivered most often."""
        items = [each.item for each in self._leases]
        item = item if item in items else max(items, key=items.count, default="")
        leases = [each for each in self._leases if each.item == item]
        times = sorted({time for each in leases for time in (each.start, each.end) if time is not None})
        found = []
        for each in leases:
            row = f"worker {each.worker}, too late" if each.start == each.end else f"worker {each.worker}"
            end = len(times) if each.end is None else times.index(each.end)
            found.append(Delivery(row, each.attempt, times.index(each.start), end, each.how))
        return item, tuple(found)

    def _next(self) -> int:
        """When the next event happens."""
        self._expire()
        self._at += 1
        return self._at

    def _expire(self) -> None:
        for lease in self._leases:
            if lease.over is not None and lease.over <= self._clock():
                self._end(lease, "expired")

    def _end(self, lease: Lease, how: How) -> None:
        if lease.how == "open":
            lease.end, lease.how = self._at, how
