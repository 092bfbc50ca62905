"""Attempts that are counted ahead: the commit that stores the acks of one claim counts the attempts of the next one too.

In:  what a partition holds, which states are sent and stored. Out: the state to commit; which claims need no commit of their own.
Attempts are stored before a worker sees an item, here one commit earlier. So an item may be counted once, and once only, although no
worker has seen it: only where claims are large, since a crash counts for whole claims anyway. Pure and not locked.
"""

from __future__ import annotations

from kqlib.queue.leases import Claimed
from kqlib.queue.ledger import Ledger
from kqlib.queue.order import Order
from kqlib.queue.terms import Terms

COUNT_FROM = 100  # items of one claim
FEW = 3  # attempts at most: then one that nobody made would bury an item, or send it out alone
NOTHING = range(0)
# Seconds for which a commit allows a claim. A process that stood still for longer may have lost the partition: its claim is committed.
COUNTED_FOR = 0.5


class Ahead:
    """What the next claim from one partition will take, if it is like the last one."""

    def __init__(self, terms: Terms, ledger: Ledger, order: Order) -> None:
        self.ledger = ledger
        self.order = order
        self.counted = NOTHING  # offsets whose first attempt is stored, although they were not claimed then
        self.took = 0  # how many the last claim took
        self._since = 0.0  # when the commit began that stored it
        most = terms.max_attempts
        self._may = terms.order == "any" and (most is None or most > FEW)

    def state(self) -> tuple[Ledger, range]:
        """The state to commit, and what it counts ahead."""
        if self.took < COUNT_FROM or not self._may or self.order.back or not self.order.fresh:
            return self.ledger, NOTHING
        ledger = self.ledger.copy()
        offsets = self.order.row(self.took)
        given = len(ledger.claim(offsets))
        return ledger, range(offsets[0], offsets[given - 1] + 1) if given else NOTHING

    def sent(self, counted: range) -> None:
        """A state is on its way. It may be stored or not: only what the last one counts as well is certain."""
        if self.counted:
            self.counted = range(max(self.counted.start, counted.start), min(self.counted.stop, counted.stop))

    def stored(self, counted: range, since: float) -> None:
        """The state that was sent at this time is stored."""
        self.counted = counted
        self._since = since

    def covers(self, claimed: Claimed, now: float) -> bool:
        """Are the attempts of this claim stored, by a commit that is new enough to show that the partition is still ours?"""
        if not self.counted or self.expired(now):
            return False
        inside = self.counted.start <= min(claimed.offsets) and max(claimed.offsets) < self.counted.stop
        return inside and max(claimed.attempts) == 1

    def expired(self, now: float) -> bool:
        """Is the commit too old to allow a claim?"""
        return now - self._since > COUNTED_FOR
