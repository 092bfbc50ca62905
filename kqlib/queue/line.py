"""The line: in which order the items of one partition are looked at, and which of them cannot go out now.

In:  records as they are read; keys and times in them. Out: the next one to hand out; the others are passed over in the ledger.
Not locked and no Kafka, as `owner`, which adds leases.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kqlib.queue import ledger_text
from kqlib.queue.arguments import LONGEST_DELAY
from kqlib.queue.item import for_site, held_back
from kqlib.queue.lease import Claimed
from kqlib.queue.ledger import Ledger
from kqlib.queue.rates import Rates
from kqlib.queue.reading import Reading

log = logging.getLogger("kqlib.queue")
TOO_FAR = (
    "the header kq-due of the item at offset {} names a moment {:.0f} hours from now. A delay is at most {:.0f} s, so the "
    "item waits that long. Correct the clock of the machine that put it, or choose a shorter delay"
)
CLOCKS = 60.0  # seconds that two machines' clocks may differ before it is worth a warning
_warned: set[tuple[str, str, str]] = set()


def warn_once(queue: str, site: str, what: str, text: str) -> None:
    """A warning of each kind once a process."""
    if (kind := (queue, site, what)) not in _warned:
        _warned.add(kind)
        log.warning("'%s', site '%s': %s", queue, site, text)


@dataclass(frozen=True)
class Terms:
    """What holds for every partition of a queue."""

    queue: str
    site: str
    order: str = "any"
    max_attempts: int | None = 5
    clock: Callable[[], float] = time.monotonic
    rates: Rates = field(default_factory=Rates, compare=False)
    write_version: int = ledger_text.VERSION  # of the committed text


class View(NamedTuple):
    """What an owner knows of its partition: up to `head` all of it, beyond nothing."""

    ledger: Ledger
    fresh: int
    head: int


class Line(Reading):
    """Who comes next."""

    def __init__(self, terms: Terms, ledger: Ledger, missing: list[int]) -> None:
        super().__init__(ledger.top, missing)
        self.terms, self.ledger = terms, ledger
        self.blocked = ""
        self._loading = terms.order == "key" and bool(missing)
        self._fresh: deque[int] = deque()
        # fresh records came in batches: the offset behind each, and when
        self._came: deque[tuple[int, float]] = deque()
        self._due_at: dict[int, float] = {}  # of delayed items that were looked at
        self._back: list[int] = []
        self._later: list[tuple[float, int]] = []
        self._busy: dict[bytes, int] = {}
        self._waiting: dict[bytes, deque[int]] = {}

    def changed(self) -> None:
        """The ledger is no longer what is committed."""

    def _hand_out(self, claimed: Claimed, pending: list[int]) -> None:
        """Have the ledger count what was chosen so far: it takes offsets in rising order."""

    # --- records come in ---

    def _new(self, offsets: Sequence[int]) -> None:
        if offsets:
            self._fresh.extend(offsets)
            self._came_until(self._fresh[0])
            self._came.append((offsets[-1] + 1, self.terms.clock()))

    def _found(self, offset: int) -> None:
        if not self._loading:
            self._ready(offset)

    def _read(self) -> None:
        self._loaded()
        self._skip()

    def view(self) -> View:
        """What is known of the partition: what is open, how many items are read beyond that, and where reading goes on."""
        return View(self.ledger.copy(), sum(not self._foreign(offset) for offset in self._fresh), self.head)

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
        """When its headers allow it, on our clock: at its moment, but never later than its own delay after it came.

        A record of another client may name any moment; it waits for the longest delay that a put may have, and no longer.
        """
        if (known := self._due_at.get(offset)) is not None:
            return known
        headers = self.records[offset].headers()
        if not headers or (held := held_back(headers)) is None:
            return 0.0
        (moment, delay), now = held, self.terms.clock()
        came = self._came_until(offset)
        ahead, most = moment - time.time(), (now if came is None else came) + delay
        if ahead > LONGEST_DELAY + CLOCKS:
            warn_once(self.terms.queue, self.terms.site, "due", TOO_FAR.format(offset, ahead / 3600, LONGEST_DELAY))
        self._due_at[offset] = at = min(now + ahead, most)
        return at

    def _came_until(self, offset: int) -> float | None:
        """Forget the batches that lie before this offset; when the next one came, which has it or follows it."""
        while self._came and self._came[0][0] <= offset:
            self._came.popleft()
        return self._came[0][1] if self._came else None

    def _early(self, offset: int) -> bool:
        return self._due(offset) > self.terms.clock()

    def _foreign(self, offset: int) -> bool:
        """Put back by another site, for itself."""
        headers = self.records[offset].headers()
        return bool(headers) and not for_site(headers, self.terms.site)

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
