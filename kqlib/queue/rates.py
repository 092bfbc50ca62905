"""How many a second, over the last minute: puts, claims, acks of one queue in this process.

In:  how many of what, now. Out: rates. Pure, thread-safe.
"""

from __future__ import annotations

import threading
from collections import deque

WHAT = ("puts", "claims", "acks")
MINUTE = 60


class Rates:
    """Counts of the last sixty seconds, a second each."""

    def __init__(self) -> None:
        self._counts: dict[str, deque[list[int]]] = {what: deque() for what in WHAT}  # [second, how many]
        self._one = threading.Lock()

    def note(self, what: str, many: int, now: float) -> None:
        """So many of them happened now."""
        second = int(now)
        with self._one:
            counts = self._counts[what]
            if counts and counts[-1][0] == second:
                counts[-1][1] += many
                return
            counts.append([second, many])
            while counts[0][0] <= second - MINUTE:
                counts.popleft()

    def a_second(self, now: float) -> dict[str, float]:
        """How many a second, over the last minute."""
        since = int(now) - MINUTE
        with self._one:
            return {
                what: sum(many for second, many in counts if second > since) / MINUTE
                for what, counts in self._counts.items()
            }
