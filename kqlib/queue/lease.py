"""Until when what was claimed belongs to whoever claimed it, and how whoever handles an item learns how it ended.

In:  numbers, deadlines. Out: plain values, which an `Owner` keeps by offset.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kqlib.queue.owner import Owner


@dataclass(slots=True, eq=False)
class Handled:
    """A handler of `work` has this item; how a verb of this process ended it, the handler's own or `work`'s."""

    owner: Owner
    offset: int
    ended: str = ""  # "done", "released", "buried"; "" while it runs, and for ever if its lease was lost
    begun: bool = False  # the handler runs, or has run

    def begin(self) -> bool:
        """The handler begins. False: its partition is being given up, and it may not. A drain asks in the other order."""
        self.begun = True
        return not (self.owner.leaving or self.owner.dropped)

    def holds(self, now: float) -> bool:
        """Is the lease still the one that it was handled with?"""
        lease = self.owner.leases.get(self.offset)
        return lease is not None and lease.handled is self and lease.deadline > now and not self.owner.dropped


@dataclass(slots=True)
class Lease:
    """Until when a batch belongs to whoever claimed it. Shared by the items of one claim."""

    number: int
    deadline: float  # inf until the claim is committed
    thread: int = field(default_factory=threading.get_ident)
    handled: Handled | None = None  # `work` has it for a handler: then the lease is this item's alone

    def at_work(self, closing: int | None) -> bool:
        """Does somebody work on it? Not what nobody was given yet, and not for the thread that closes: it is here."""
        if self.deadline == float("inf"):
            return False
        return self.handled.begun if self.handled else self.thread != closing


class Claimed(NamedTuple):
    """What one claim took from one partition."""

    lease: Lease
    offsets: list[int]
    attempts: list[int]  # which one it is, of each
