"""What much of everything costs: a state as full as it gets, a site with 1,000 partitions. Each row doubles and prints the ratio.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. A ratio of 2 is linear, 4 is quadratic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kqlib.queue import fetch
from kqlib.queue.ledger import Ledger
from kqlib.queue.partition import Partition
from kqlib.queue.terms import Terms

RUNS, PARTITIONS, LOOKS = (
    1_500,
    1_000,
    20,
)  # runs: of one item each, with something done between them; a state holds few more


class Record:
    """A record as the log has it."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"value"

    def headers(self) -> None:
        return None


def taken_over(runs: int, there: bool = True) -> None:
    """A new owner reads so many open runs again, gives them out and has them acked; or finds that they are gone."""
    ledger = Ledger()
    ledger.claim(range(2 * runs))
    ledger.ack(range(1, 2 * runs, 2))
    owner = Partition(Terms("football", "here", max_attempts=None), 0, ledger)
    for _ in range(2):  # what is missing is looked for twice
        owner.window.position = 0
        for offset in range(not there, 2 * runs, 2):
            owner.arrive([Record(offset)])
    while (claimed := owner.claim(100)).offsets:
        owner.start(claimed, 30.0)
        owner.ack(claimed.offsets)
    if ledger.floor != 2 * runs:
        raise AssertionError(f"{ledger} after {runs} runs")


def site(partitions: int, weight: int = 0) -> None:
    """What the site's thread decides again and again: of which partitions enough is in memory."""
    owners = {
        ("football", number): Partition(Terms("football", "here"), number, Ledger()) for number in range(partitions)
    }
    for owner in owners.values():
        owner.window.bytes = weight
    assigned: Any = SimpleNamespace(changed=threading.RLock(), partitions=owners, paused=set())
    looks = fetch.Fetch(assigned, print)
    for _ in range(LOOKS):
        looks.full_ones()


def measured() -> dict[str, float]:
    """One round."""
    rows: dict[str, tuple[Callable[[int], None], int]] = {
        f"{RUNS:,} open runs read, claimed, acked": (taken_over, RUNS),
        f"{RUNS:,} open runs that are gone": (lambda runs: taken_over(runs, there=False), RUNS),
        f"{PARTITIONS:,} partitions, little in memory": (site, PARTITIONS),
        f"{PARTITIONS:,} partitions, memory full": (lambda many: site(many, fetch.MOST_BYTES), PARTITIONS),
    }
    found: dict[str, float] = {}
    for name, (work, many) in rows.items():
        half, whole = _seconds(work, many // 2), _seconds(work, many)
        found[f"{name}, × for twice as many (≤ 3)"] = whole / half
        found[f"{name}, ms"] = whole * 1e3
    return found


def _seconds(work: Callable[[int], None], many: int) -> float:
    """CPU seconds: it is one thread's, and neighbours do not count."""
    start = time.thread_time()
    work(many)
    return time.thread_time() - start
