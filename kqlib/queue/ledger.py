"""The ledger: all that a queue remembers of one partition for one site, as numbers and as one small text.

In:  offsets that are handed out, acked, given back. Out: what is open, and `text()`, which is committed beside the floor.
Pure: no Kafka, no clock, no items. `partition` keeps leases and due times, which end with its process.

    floor       everything below is done: Kafka's committed offset, so it is not in the text
    top         the highest offset ever handed out or passed over, + 1
    open        what between them is not done, as runs: (start, end, attempts); runs that touch differ in attempts
    attempts    how often it was handed out: 0 not yet (its key was busy, it is due later), 15 means 15 or more

Its text (`ledger_text`) always fits beside the floor, because what goes into it is budgeted. A run of n costs the bytes of its gap
and at most n more, whatever is acked in it later. For pieces of length l take at most l bytes. A new gap of g takes at most g: that
many were acked there. So no ack makes `_cost` larger, and what would not fit is not handed out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kqlib.errors import NotAllowed
from kqlib.queue import ledger_text
from kqlib.queue.ledger_text import MOST, RUN_BYTES, State, number_bytes

RESERVED = 2  # so that the first open item can always be tried again
BUDGET = RUN_BYTES - RESERVED  # bytes for runs


@dataclass(eq=False, repr=False)
class Ledger:
    """One partition's state for one site: `claim`, `ack`, `text`."""

    floor: int = 0
    top: int = 0
    epoch: int = 0
    topic: str = "-"
    leader: int = -1  # the leader epoch under which the log was read: none of the records below top has a higher one
    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _attempts: list[int] = field(default_factory=list)
    _cost: int = 0  # an upper bound: counted again only when something does not fit

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= self.top:
            raise NotAllowed(f"a ledger's floor and top are 0 <= floor <= top, not {self.floor} and {self.top}")

    # --- what is asked ---

    @property
    def open(self) -> int:
        """How many offsets below top are not done."""
        return sum(self._ends) - sum(self._starts)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """(start, end, attempts) of what is open, lowest first."""
        return zip(self._starts, self._ends, self._attempts, strict=True)

    def attempts(self, offset: int) -> int | None:
        """How often it was handed out; None: it is not open."""
        at = bisect_right(self._starts, offset) - 1
        return self._attempts[at] if at >= 0 and offset < self._ends[at] else None

    def open_until(self, offset: int) -> int:
        """The first offset from here on that is not open."""
        for start, end, _ in self.runs():
            if start <= offset < end:
                offset = end
        return offset

    def space(self) -> int:
        """How many new offsets in a row fit now."""
        return max(0, self._bytes_left(1 << 62) - 5)  # 5: the bytes of a gap before them

    # --- what changes it ---

    def claim(self, offsets: Sequence[int]) -> list[int]:
        """Hand out these, in rising order: which attempt it is for each. What does not fit is left out, and all behind it."""
        new = next((at for at, offset in enumerate(offsets) if offset >= self.top), len(offsets))
        given: list[int] = []
        for offset in offsets[:new]:
            attempt = self._again(offset, +1)
            if attempt is None:
                return given
            given.append(attempt)
        return given + [1] * self._append(offsets[new:], 1)

    def pass_over(self, offsets: Sequence[int]) -> int:
        """Keep these new ones open without handing them out, in rising order; how many of them fit."""
        return self._append(offsets, 0)

    def ack(self, offsets: Iterable[int]) -> int:
        """These are done; how many of them were open."""
        done, start, end = 0, 0, 0
        for offset in offsets:
            if offset == end:
                end += 1
                continue
            done += self._remove(start, end)
            start, end = offset, offset + 1
        done += self._remove(start, end)
        self._settle()
        return done

    def give_back(self, offset: int) -> bool:
        """Take back the attempt of a hand-out that was for nothing. False: the text has no space for that, so it counts."""
        return bool(self.attempts(offset)) and self._again(offset, -1) is not None

    def skip(self, to: int) -> None:
        """Skip to this offset: from top on there are no records, or another site's."""
        self.top = max(self.top, to)
        self._settle()

    def purge(self, below: int) -> int:
        """Count everything below as done, handed out or not; how many were open."""
        done = 0
        while self._starts and self._starts[0] < below:
            done += self._remove(self._starts[0], min(self._ends[0], below))
        if below > self.top:  # nobody here has read these records
            self.leader = -1
        self.skip(below)
        return done

    def cut(self, end: int) -> int:
        """Forget everything from this offset on: the log was cut off here, and new records are new. How many were open."""
        gone = self._remove(end, self.top)
        self.top = min(self.top, end)
        self._settle()
        return gone

    def reopen(self, start: int, end: int, attempts: int, most: int) -> list[tuple[int, int]]:
        """Reopen these, as far as they lie below top; at most so many. The ranges that were not open before."""
        new, left = list[tuple[int, int]](), most
        end = min(end, self.top)
        while start < end and left > 0:
            at = bisect_right(self._starts, start) - 1
            if at >= 0 and start < self._ends[at]:  # open already
                start = self._ends[at]
                continue
            next_ = self._starts[at + 1] if at + 1 < len(self._starts) else end
            stop = min(end, next_, start + left)
            self._put(at + 1, start, stop, attempts)
            self._join(at + 1)
            self._join(at)
            new.append((start, stop))
            left -= stop - start
            start = stop
        self._settle()
        self._cost = self._counted()
        return new

    def may_reopen(self) -> int:
        """How many may be reopened now: half of the budget stays for what is handed out."""
        return max(0, BUDGET // 2 - self._counted() - 10)  # 10: two gaps

    def copy(self) -> Ledger:
        """A copy that changes on its own."""
        state = (list(self._starts), list(self._ends), list(self._attempts), self._cost)
        return Ledger(self.floor, self.top, self.epoch, self.topic, self.leader, *state)

    # --- the runs ---

    def _append(self, offsets: Sequence[int], attempts: int) -> int:
        """New offsets at the top, as many as fit; what is left out between them is nothing to do."""
        taken = 0
        while taken < len(offsets):
            start = offsets[taken]
            if start < self.top:
                raise NotAllowed(f"offsets rise, and new ones begin at {self.top}: not {start}")
            row = _row(offsets, taken)
            touches = bool(self._ends) and self._ends[-1] == start and self._attempts[-1] == attempts
            gap = 0 if touches else number_bytes(start - self._ends[-1]) if self._ends else 1
            fits = min(row, self._bytes_left(gap + row) - gap)
            if fits <= 0:
                break
            if touches:
                self._ends[-1] = start + fits
            else:
                self._put(len(self._starts), start, start + fits, attempts)
            self._cost += gap + fits
            self.top = start + fits
            taken += fits
            if fits < row:
                break
        self._settle()
        return taken

    def _again(self, offset: int, by: int) -> int | None:
        """Count one attempt more or less for an open offset; None: it does not fit."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset >= self._ends[at]:
            raise NotAllowed(f"offset {offset} is not open")
        start = self._starts[at]
        end = self._ends[at]
        attempts = self._attempts[at]
        if attempts == MOST:  # 15 or more: nobody knows how many
            return MOST
        pieces = (start < offset) + (offset + 1 < end)  # each has a gap of its own, one byte
        reserve = RESERVED if by > 0 and offset == self._starts[0] else 0
        if pieces > self._bytes_left(pieces) + reserve:
            return None
        self._cost += pieces
        self._drop(at)
        if offset + 1 < end:
            self._put(at, offset + 1, end, attempts)
        self._put(at, offset, offset + 1, attempts + by)
        if start < offset:
            self._put(at, start, offset, attempts)
            at += 1
        self._join(at)
        self._join(at - 1)
        return attempts + by

    def _remove(self, start: int, end: int) -> int:
        """Remove start..end from the runs; how many were in them."""
        removed = 0
        while start < end:
            at = bisect_right(self._starts, start) - 1
            if at < 0 or start >= self._ends[at]:  # not open: on to the next run
                if at + 1 == len(self._starts):
                    break
                start = self._starts[at + 1]
                continue
            upto, last = min(end, self._ends[at]), self._ends[at]
            removed += upto - start
            if upto < last:
                if self._starts[at] < start:
                    self._put(at + 1, upto, last, self._attempts[at])
                    self._ends[at] = start
                else:
                    self._starts[at] = upto
            elif self._starts[at] < start:
                self._ends[at] = start
            else:
                self._drop(at)
            start = upto
        return removed

    def _put(self, at: int, start: int, end: int, attempts: int) -> None:
        self._starts.insert(at, start)
        self._ends.insert(at, end)
        self._attempts.insert(at, attempts)

    def _drop(self, at: int) -> None:
        del self._starts[at], self._ends[at], self._attempts[at]

    def _join(self, at: int) -> None:
        """Run `at` and the next become one, if they touch and are alike."""
        if 0 <= at < len(self._starts) - 1:
            touch = self._ends[at] == self._starts[at + 1] and self._attempts[at] == self._attempts[at + 1]
            if touch:
                self._ends[at] = self._ends[at + 1]
                self._drop(at + 1)

    def _settle(self) -> None:
        self.floor = self._starts[0] if self._starts else self.top

    def _bytes_left(self, needed: int) -> int:
        """How many bytes are left; counted anew only if the known bound is too large."""
        if self._cost + needed > BUDGET:
            self._cost = self._counted()
        return BUDGET - self._cost

    def _counted(self) -> int:
        before, cost = self.floor, 0
        for start, end, _ in self.runs():
            cost += number_bytes(start - before) + end - start
            before = end
        return cost

    # --- the text ---

    def text(self, version: int = ledger_text.VERSION) -> str:
        """The state as it is committed beside the floor; an older version, while older readers are about."""
        state = State(self.floor, self.top, self.epoch, self.topic, list(self.runs()), self.leader)
        return ledger_text.write(state, version)

    @classmethod
    def read(cls, text: str, floor: int) -> Ledger:
        """The ledger that wrote this text beside this floor. Anything else is `LedgerCorrupt`: never a guess."""
        state = ledger_text.read(text, floor)
        ledger = cls(floor, state.top, state.epoch, state.topic, state.leader)
        for run in state.runs:
            ledger._put(len(ledger._starts), *run)
        ledger._cost = ledger._counted()
        if ledger._cost > BUDGET + RESERVED:
            raise ledger_text.corrupt("nothing in this version writes it: it is more than claims may leave open")
        return ledger

    def __repr__(self) -> str:
        runs = ", ".join(f"{start}–{end - 1}×{attempts}" for start, end, attempts in list(self.runs())[:8])
        return f"Ledger(floor={self.floor}, top={self.top}, open=[{runs}{', …' * (len(self._starts) > 8)}])"


def _row(offsets: Sequence[int], at: int) -> int:
    """How many from here on follow one another without a gap."""
    start, last = offsets[at], len(offsets) - 1
    if offsets[last] - start == last - at:  # the usual case: all of them
        return last - at + 1
    row = 1
    while offsets[at + row] == start + row:
        row += 1
    return row
