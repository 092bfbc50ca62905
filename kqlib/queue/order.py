"""In which order the items of one partition are handed out, and which of them must wait.

In:  offsets of new and of open items, whose records are in the window; keys and times in these records. Out: the next ones.
Pure and not locked. An item that is not leased is in one of these places:

    fresh       new: it was read and lies at or above the ledger's top
    back        open and ready: released, expired, due, or its key became free. These go first, the older offset before the newer
    later       open, and due later
    waiting     open, while another item of its key is busy (order="key")

`Ahead`: the commit of one claim's acks also counts the attempts of the next claim, which then needs no commit of its own. If that
claim never comes, an attempt is counted that nobody made. So only for large claims: there a crash counts all items anyway.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Container, Iterable, Sequence
from itertools import islice

from kqlib.errors import KqError, Unreachable
from kqlib.queue.arguments import LONGEST_DELAY
from kqlib.queue.item import for_site, held_back
from kqlib.queue.leases import Claimed
from kqlib.queue.ledger import Ledger
from kqlib.queue.terms import Terms, warn_once
from kqlib.queue.window import Window

BURY_AGAIN_AFTER = 20.0  # seconds until an item that could not be buried is tried again
UNBURIED = f"what failed for good cannot be buried: it waits, and is tried again every {BURY_AGAIN_AFTER:.0f} s. {{}}"
CLOCK_DIFFERENCE = 60.0  # seconds that two machines' clocks may differ before a warning
TOO_FAR = (
    "the header kq-due of the item at offset {} names a moment {:.0f} hours from now. A delay is at most {:.0f} s, so the "
    "item waits that long. Correct the clock of the machine that put it, or choose a shorter delay"
)

COUNT_FROM = 100  # items of the smallest claim, from one partition, that is counted ahead
FEW = 3  # max_attempts: with so few, one that nobody made buries an item or sends it out alone
NOTHING = range(0)
# Seconds for which a commit allows a claim. A process that stood still for longer may have lost the partition: its claim is committed.
COUNTED_FOR = 0.5


class Order:
    """The items of one partition that are not leased."""

    def __init__(self, terms: Terms, ledger: Ledger, window: Window, ending: Container[int]) -> None:
        """ending: the items that a transaction acks or buries now."""
        self.terms = terms
        self.ledger = ledger
        self.window = window
        self.ending = ending
        self.fresh: deque[int] = deque()
        self.back: list[int] = []  # a heap
        self.later: list[tuple[float, int]] = []  # a heap: due at, offset
        self._busy: dict[bytes, int] = {}  # key -> the offset that is leased, or is the next one
        self._waiting: dict[bytes, deque[int]] = {}
        # Batches of fresh ones: the offset behind each, and when it came.
        self._arrivals: deque[tuple[int, float]] = deque()
        self._due_at: dict[int, float] = {}  # when delayed items are due, once that was computed
        # Items that could not be buried: why, and was the item given up?
        self._aside: dict[int, tuple[KqError, bool]] = {}

    def add(self, offsets: list[int]) -> None:
        """Add new items, in the log's order."""
        if offsets:
            self.fresh.extend(offsets)
            self._arrived_at(self.fresh[0])
            self._arrivals.append((offsets[-1] + 1, self.terms.clock()))

    def ready(self, offset: int) -> None:
        """Put an open item that is not leased into its place."""
        key = self._key(offset)
        if key is not None and self._busy.setdefault(key, offset) != offset:
            self._due(offset)  # its delay begins now, and not when its key is free
            self._waiting.setdefault(key, deque()).append(offset)
        else:
            self._place(offset)

    def _place(self, offset: int) -> None:
        at = self._due(offset)
        if at > self.terms.clock():
            heapq.heappush(self.later, (at, offset))
        else:
            heapq.heappush(self.back, offset)

    def come_back(self, offset: int, delay: float) -> None:
        """Put an item whose lease ended to the front, or make it due later."""
        self._aside.pop(offset, None)
        if delay:
            heapq.heappush(self.later, (self.terms.clock() + delay, offset))
        else:
            heapq.heappush(self.back, offset)

    def keep_why(self, offset: int, why: KqError, given_up: bool) -> None:
        """Remember why this item, which is due later, could not be buried. given_up: it only waits to be buried."""
        self._aside[offset] = why, given_up
        warn_once(self.terms, type(why).__name__, UNBURIED.format(why))

    def why_aside(self) -> str:
        """Why an item waits that could not be buried; '' if there is none."""
        return next((UNBURIED.format(why) for why, _ in self._unburied().values()), "")

    def stuck(self) -> dict[int, KqError]:
        """The items that were given up and cannot be buried until a right or a topic is mended; and why."""
        return {
            offset: why
            for offset, (why, given_up) in self._unburied().items()
            if given_up and offset not in self.ending and not isinstance(why, Unreachable)
        }

    def _unburied(self) -> dict[int, tuple[KqError, bool]]:
        if self._aside:
            later = {offset for _, offset in self.later}
            self._aside = {each: why for each, why in self._aside.items() if each in later or each in self.ending}
        return self._aside

    def done(self, offsets: Sequence[int]) -> None:
        """Forget these. The next item of each of their keys may be handed out."""
        if self.terms.order == "key":
            for offset in offsets:
                self._free(offset)
        if self._due_at:
            for offset in offsets:
                self._due_at.pop(offset, None)

    def _free(self, offset: int) -> None:
        record = self.window.records.get(offset)
        key = record.key() if record is not None else None
        if key is None or self._busy.get(key) != offset:
            return
        waiting = self._waiting.get(key)
        while waiting:
            following = waiting.popleft()
            if self.ledger.attempts(following) is not None:
                self._busy[key] = following
                self._place(following)
                return
        self._waiting.pop(key, None)
        del self._busy[key]

    def purge(self, below: int) -> None:
        """Forget all places below."""
        while self.fresh and self.fresh[0] < below:
            self.window.forget([self.fresh.popleft()])
        self.later = [entry for entry in self.later if entry[1] >= below]
        heapq.heapify(self.later)

    def discard(self, offset: int) -> None:
        """Forget the place of this one: nobody waits until it is due."""
        self.later = [entry for entry in self.later if entry[1] != offset]
        heapq.heapify(self.later)

    # --- the next one ---

    def tidy(self, now: float) -> None:
        """Make ready what became due."""
        while self.later and self.later[0][0] <= now:
            heapq.heappush(self.back, heapq.heappop(self.later)[1])

    def next_due(self) -> float:
        """When `tidy` will find something."""
        return self.later[0][0] if self.later else float("inf")

    def due_now(self, offsets: set[int]) -> None:
        """Make these due at once, if they are due later."""
        self.later = [(at if offset not in offsets else 0.0, offset) for at, offset in self.later]
        heapq.heapify(self.later)

    def row(self, most: int) -> list[int]:
        """The next fresh items, up to the first that cannot be handed out now."""
        records, row = self.window.records, list[int]()
        by_key, keys = self.terms.order == "key", set[bytes]()
        for offset in islice(self.fresh, min(most, len(self.fresh))):
            record = records[offset]
            if record.headers() and (self.foreign(offset) or self._due(offset) > self.terms.clock()):
                break
            if by_key and (key := record.key()) is not None:
                if key in self._busy or key in keys:
                    break
                keys.add(key)
            row.append(offset)
        return row

    def gone_out(self, offsets: Sequence[int]) -> None:
        """Remove these fresh items: they were handed out."""
        for _ in offsets:
            self.fresh.popleft()
        if self.terms.order == "key":
            self._busy |= {key: offset for offset in offsets if (key := self._key(offset)) is not None}

    def pass_over(self) -> bool:
        """Pass over the next fresh item. Another site's is done, any other stays open. False: the ledger is full."""
        offset = self.fresh[0]
        if self.foreign(offset):
            self.window.forget([self.fresh.popleft()])
            self.ledger.skip(offset + 1)
        elif self.ledger.pass_over([offset]):
            self.ready(self.fresh.popleft())
        else:
            return False
        return True

    # --- what a record says ---

    def _key(self, offset: int) -> bytes | None:
        return self.window.records[offset].key() if self.terms.order == "key" else None

    def foreign(self, offset: int) -> bool:
        """Is it only for another site, which has put it back?"""
        headers = self.window.records[offset].headers()
        return bool(headers) and not for_site(headers, self.terms.site)

    def _due(self, offset: int) -> float:
        """When it is due by its headers, on our clock: at its moment, but not later than its delay after it was read.

        The headers of another client may name any moment. The longest delay of a put holds for them too.
        """
        if (known := self._due_at.get(offset)) is not None:
            return known
        headers = self.window.records[offset].headers()
        if not headers or (held := held_back(headers)) is None:
            return 0.0
        (moment, delay), now = held, self.terms.clock()
        came = self._arrived_at(offset)
        ahead, most = moment - time.time(), (now if came is None else came) + delay
        if ahead > LONGEST_DELAY + CLOCK_DIFFERENCE:
            warn_once(self.terms, "due", TOO_FAR.format(offset, ahead / 3600, LONGEST_DELAY))
        self._due_at[offset] = at = min(now + ahead, most)
        return at

    def _arrived_at(self, offset: int) -> float | None:
        """When the batch with this offset, or the next batch, was read. Batches before it are forgotten."""
        while self._arrivals and self._arrivals[0][0] <= offset:
            self._arrivals.popleft()
        return self._arrivals[0][1] if self._arrivals else None

    # --- numbers ---

    @property
    def cached(self) -> int:
        """How many are in `fresh` or `back`."""
        return len(self.fresh) + len(self.back)

    def fresh_items(self) -> int:
        """How many fresh ones are items of this site."""
        return sum(not self.foreign(offset) for offset in self.fresh)

    def not_ready(self) -> Iterable[int]:
        """Those that are due later or wait for their key."""
        yield from (offset for _, offset in self.later)
        for waiting in self._waiting.values():
            yield from waiting


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
        """A state is sent, and perhaps not stored: certain is only what the one before counts too."""
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
