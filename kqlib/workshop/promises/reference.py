"""What a queue of one partition should be: a list. `explore` runs a reader's queue beside it, and the tests run kqlib's own.

In:  verbs, the time. Out: which item a claim must give, how many items are not done. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

LEASE, DELAY = 30.0, 900.0  # seconds


class Terms(NamedTuple):
    """What a queue agreed."""

    order: str
    most: int | None  # attempts


@dataclass(eq=False)
class Entry:
    """An item that was put."""

    value: bytes
    key: bytes | None
    delayed: bool = False  # by its put
    due: float = 0.0
    deaths: int = 0
    attempts: int = 0
    state: str = "waiting"  # waiting, out, done, dead
    inherited: bool = False  # it had attempts when its owner took over
    item: Any = None  # as it was last handed out
    deadline: float = 0.0


class Reference:
    """A queue's items, in the order in which they were put."""

    def __init__(self, terms: Terms, now: float) -> None:
        self.terms = terms
        self.now = now
        self.entries: list[Entry] = []
        self.alone: Entry | None = None
        self.buried = 0  # by the last claim

    def put(self, value: bytes, key: bytes | None, later: bool = False, deaths: int = 0) -> None:
        """It goes last."""
        self.entries.append(Entry(value, key, later, self.now + DELAY if later else 0.0, deaths))

    def all(self, *states: str) -> list[Entry]:
        """Those in these states, the oldest first. A lease that has ended is one no more."""
        for entry in self.entries:
            if entry.state == "out" and entry.deadline <= self.now:
                self.came_back(entry)
        return [entry for entry in self.entries if entry.state in states]

    @property
    def depth(self) -> int:
        """How many are not done."""
        return len(self.all("waiting", "out"))

    def came_back(self, entry: Entry, delay: float = 0.0) -> None:
        """It is not out any more."""
        entry.state, entry.due = "waiting", self.now + delay if delay else 0.0

    def _ready(self) -> Iterator[Entry]:
        busy = set[bytes]()
        for entry in self.all("waiting", "out"):
            free = self.terms.order == "any" or entry.key is None or entry.key not in busy
            busy |= {entry.key} if entry.key is not None else set()
            if free and entry.state == "waiting" and entry.due <= self.now:
                yield entry

    def claim(self) -> Entry | None:
        """Hand the next one out. On the way, those whose attempts are used up are buried."""
        self.buried = 0
        if self.alone in self.all("out"):
            return None
        most = self.terms.most
        for entry in list(self._ready()):
            if most is not None and entry.attempts >= most:
                self.bury(entry)
                self.buried += 1
                continue
            alone = most is not None and entry.inherited and entry.attempts + 1 >= most - 1
            if alone and (self.buried or self.all("out")):
                return None
            self.alone = entry if alone else self.alone
            entry.attempts += 1
            entry.state, entry.deadline = "out", self.now + LEASE
            return entry
        return None

    def bury(self, entry: Entry) -> None:
        """It becomes a dead letter."""
        entry.state = "dead"
        entry.deaths += 1

    def new_owner(self, counted: bool) -> None:
        """All leases and delays of releases are void. counted: the attempts in hand count."""
        for entry in self.all("out"):
            entry.attempts -= not counted
            entry.state = "waiting"
        self.alone = None
        for entry in self.all("waiting"):
            entry.inherited = entry.attempts > 0
        self.read_now()

    def read_now(self) -> None:
        """An owner reads the items now for the first time. Delays of puts begin: only the site's own clock was moved."""
        for entry in self.all("waiting"):
            entry.due = self.now + DELAY if entry.delayed else 0.0
