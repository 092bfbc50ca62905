"""What one partition lost: items that no worker gets. And how they are put back.

In:  offsets that left the log before they were done, incidents that were noted, a rewind. Out: incidents to note; items to read again.
Pure. `incidents` says which kinds there are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from kqlib.queue import incidents
from kqlib.queue.incidents import Incident
from kqlib.queue.ledger import Ledger
from kqlib.queue.window import Window


class Losses:
    """The losses of one partition, and its incidents."""

    def __init__(self, ledger: Ledger, window: Window, items: int) -> None:
        self.ledger = ledger
        self.window = window
        self.items = items  # left the log before they were done, and no incident says so yet
        self.between = (ledger.floor, ledger.floor)  # the first of these offsets, and the one behind the last
        self.chosen = 0  # items that on_lost="latest" skipped
        self.incidents: list[Incident] = []
        self.version = 0  # of the ledger: the incidents are noted when it is committed
        self.unnoted = False  # a rewind changed the incidents, and that is not noted yet

    def add(self, start: int, end: int) -> None:
        """These left the log before they were done."""
        if start < end:
            first, last = self.between if self.items else (start, end)
            self.between = (min(first, start), max(last, end))
            self.items += end - start

    def log_begins(self, low: int) -> None:
        """Count the gaps below the log's beginning: retention took them before they were read."""
        for start, end in self.window.gaps:
            self.add(start, min(end, low))
        self.window.gaps.clear()

    def take_over(self, known: Sequence[Incident], gone: int) -> None:
        """Begin with these incidents, which say that so many items left the log. Of the others `on_lost` decided."""
        self.incidents = list(known)
        self.chosen = max(0, self.items - gone)
        self.items = 0

    def become_incident(self, after: int) -> bool:
        """Make an incident, later than `after`, of what no incident says yet. False: there is nothing."""
        if not self.items:
            return False
        lost = Incident("removed", *self.between, self.items, int(time.time() * 1000))
        self.items = 0
        self.incidents = incidents.together(self.incidents, [lost], after)
        return True

    def rewind(self, upto: int, back: bool) -> bool:
        """End the incidents up to this time: put their items back, as far as the ledger has space now, or forget them."""
        left = [each for each in self.incidents if each.at > upto]
        for each in self.incidents:
            if back and each.at <= upto and each.why == "skipped" and (rest := self._reopen(each)):
                left.append(rest)
        changed = left != self.incidents
        self.incidents = sorted(left, key=lambda each: each.at) if changed else self.incidents
        return changed

    def _reopen(self, incident: Incident) -> Incident | None:
        """Put its items back; the rest that does not fit yet. What is open already was put back before a crash."""
        for start, end, attempts in incident.runs():
            most = self.ledger.may_reopen()
            new = self.ledger.reopen(start, end, attempts, most)
            for offset in (offset for first, last in new for offset in range(first, last)):
                self.window.read_again(offset)
            if sum(last - first for first, last in new) == most:
                return replace(incident, start=self.ledger.open_until(start)).from_(0)
        return None
