"""The line: in which order the items of one partition are looked at, and which of them cannot go out now.

In:  records as they are read; keys and times in them. Out: the next one to hand out; the others are passed over in the ledger.
Not locked and no Kafka, as `owner`, which adds leases.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kqlib.queue.item import DUE, SITE
from kqlib.queue.lease import Claimed
from kqlib.queue.ledger import Ledger
from kqlib.queue.rates import Rates
from kqlib.queue.reading import Reading


@dataclass(frozen=True)
class Terms:
    """What holds for every partition of a queue."""

    queue: str
    site: str
    order: str = "any"
    max_attempts: int | None = 5
    clock: Callable[[], float] = time.monotonic
    rates: Rates = field(default_factory=Rates, compare=False)


class Line(Reading):
    """Who comes next."""

    def __init__(self, terms: Terms, ledger: Ledger, missing: list[int]) -> None:
        super().__init__(ledger.top, missing)
        self.terms, self.ledger = terms, ledger
        self.blocked = ""
        self._loading = terms.order == "key" and bool(missing)
        self._fresh: deque[int] = deque()
        self._back: list[int] = []
        self._later: list[tuple[float, int]] = []
        self._busy: dict[bytes, int] = {}
        self._waiting: dict[bytes, deque[int]] = {}

    def changed(self) -> None:
        """The ledger is no longer what is committed."""

    def _hand_out(self, claimed: Claimed, pending: list[int]) -> None:
        """Have the ledger count what was chosen so far: it takes offsets in rising order."""

    # --- records come in ---

    def _new(self, offsets: Iterable[int]) -> None:
        self._fresh.extend(offsets)

    def _found(self, offset: int) -> None:
        if not self._loading:
            self._ready(offset)

    def _read(self) -> None:
        self._loaded()
        self._skip()

    def left(self) -> int:
        """How many items are not done, of all that was read."""
        return self.ledger.open + sum(not self._foreign(offset) for offset in self._fresh)

    @property
    def cached(self) -> int:
        """Records that were read and not handed out yet."""
        return len(self._fresh) + len(self._back)

    def drop_payloads(self) -> None:
        """Records of items that are not ready now are read again when they are."""
        waiting = (offset for line in self._waiting.values() for offset in line)
        for offset in [*(offset for _, offset in self._later), *waiting]:
            if self.terms.order == "any" and offset in self.records:  # with "key" the key is needed
                self._forget([offset])

    def _loaded(self) -> None:
        """With order="key" only the records tell which keys are busy: nothing goes out before all that is open was read."""
        if self._loading and not self._sought:
            self._loading = False
            for start, end, _ in list(self.ledger.runs()):
                for offset in range(start, end):
                    self._ready(offset)

    # --- places ---

    def _ready(self, offset: int) -> None:
        """An open item that nobody has: into its place."""
        key = self._key(offset)
        if key is not None and self._busy.setdefault(key, offset) != offset:
            self._waiting.setdefault(key, deque()).append(offset)
        else:
            self._place(offset)

    def _place(self, offset: int) -> None:
        at = self._due(offset)
        if at > self.terms.clock():
            heapq.heappush(self._later, (at, offset))
        else:
            heapq.heappush(self._back, offset)

    def _key(self, offset: int) -> bytes | None:
        return self.records[offset].key() if self.terms.order == "key" else None

    def _due(self, offset: int) -> float:
        """When its header allows it, on our clock."""
        headers = self.records[offset].headers()
        if headers:
            for name, value in headers:
                if name == DUE and value and value.isdigit() and len(value) < 16:
                    return self.terms.clock() + int(value) / 1000 - time.time()
        return 0.0

    def _early(self, offset: int) -> bool:
        return self._due(offset) > self.terms.clock()

    def _foreign(self, offset: int) -> bool:
        """Put back by another site, for itself."""
        headers = self.records[offset].headers()
        return bool(headers) and any(n == SITE and v != self.terms.site.encode() for n, v in headers or ())

    def _free(self, offset: int) -> None:
        """Its key is free: the next of that key is ready."""
        record = self.records.get(offset)
        key = record.key() if record is not None else None
        if key is None or self._busy.get(key) != offset:
            return
        line = self._waiting.get(key)
        while line:
            following = line.popleft()
            if self.ledger.attempts(following) is not None:
                self._busy[key] = following
                self._place(following)
                return
        self._waiting.pop(key, None)
        del self._busy[key]

    def _skip(self) -> None:
        """Nothing new is left: up to the head there is nothing to do."""
        if not self._fresh and self.ledger.top < self.head:
            self.ledger.skip(self.head)
            self.changed()

    def waiting(self) -> Iterator[int]:
        """Offsets whose key is busy."""
        return (offset for line in self._waiting.values() for offset in line)

    # --- who comes next ---

    def _plain(self, most: int) -> list[int]:
        """New ones that need no second look: no order to keep, nothing in their headers."""
        fresh, records, taken = self._fresh, self.records, list[int]()
        while fresh and len(taken) < most and self.terms.order == "any" and not records[fresh[0]].headers():
            taken.append(fresh.popleft())
        return taken

    def _next_fresh(self, claimed: Claimed, pending: list[int]) -> int | None:
        """The next new one that can go out; others are passed over, which the ledger must have room for."""
        while self._fresh and not self.blocked:
            offset = self._fresh[0]
            key = self._key(offset)
            plain = not self.records[offset].headers() or (not self._foreign(offset) and not self._early(offset))
            if plain and (key is None or key not in self._busy):
                if key is not None:
                    self._busy[key] = offset
                return self._fresh.popleft()
            self._hand_out(claimed, pending)  # the ledger takes offsets in rising order
            if not self.blocked:
                self._pass(offset)
        return None

    def _pass(self, offset: int) -> None:
        """A new one that does not go out now: another site's is done, else it stays open."""
        if self._foreign(offset):
            self._forget([self._fresh.popleft()])
            self.ledger.skip(offset + 1)
        elif self.ledger.pass_over([offset]):
            self._ready(self._fresh.popleft())
        else:
            self.blocked = "the ledger is full of items that are due later or whose key is busy"
            return
        self.changed()

    def _put_back(self, offsets: list[int]) -> None:
        """Looked at and not handed out: to where it was."""
        for offset in reversed(offsets):
            if offset >= self.ledger.top:
                self._fresh.appendleft(offset)
                if (key := self._key(offset)) is not None and self._busy.get(key) == offset:
                    del self._busy[key]
            else:
                heapq.heappush(self._back, offset)
