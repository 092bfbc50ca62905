"""What holds for every partition of a queue in this process: its terms, and what it did in the last minute. Pure."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kqlib.queue import ledger_text

log = logging.getLogger("kqlib.queue")
WHAT = ("puts", "claims", "acks")
MINUTE = 60
_warned: set[tuple[str, str, str]] = set()


class Rates:
    """How many puts, claims and acks there were in each of the last sixty seconds. Thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[str, deque[list[int]]] = {what: deque() for what in WHAT}  # [second, how many]
        self._lock = threading.Lock()

    def note(self, what: str, many: int, now: float) -> None:
        """So many of them happened now."""
        second = int(now)
        with self._lock:
            counts = self._counts[what]
            if counts and counts[-1][0] == second:
                counts[-1][1] += many
                return
            counts.append([second, many])
            while counts[0][0] <= second - MINUTE:
                counts.popleft()

    def a_second(self, now: float) -> dict[str, float]:
        """How many a second, on average over the last minute."""
        since = int(now) - MINUTE
        with self._lock:
            return {
                what: sum(many for second, many in counts if second > since) / MINUTE
                for what, counts in self._counts.items()
            }


@dataclass(frozen=True)
class Terms:
    """What was agreed for a queue of a site."""

    queue: str
    site: str
    order: str = "any"
    max_attempts: int | None = 5
    clock: Callable[[], float] = time.monotonic
    rates: Rates = field(default_factory=Rates, compare=False)
    write_version: int = ledger_text.VERSION  # of the committed text


def warn_once(terms: Terms, what: str, text: str) -> None:
    """Log a warning of this kind once in a process."""
    if (kind := (terms.queue, terms.site, what)) not in _warned:
        _warned.add(kind)
        fields = {"site": terms.site, "queue": terms.queue, "reason": text}
        log.warning("'%s', site '%s': %s", terms.queue, terms.site, text, extra=fields)
