"""What happened to a partition's items without us: another program's commit, records that left the log before they were done.

In:  our last committed state, what the cluster shows now. Out: incidents, as they are kept in `kq.queues` until they are dealt with.
Pure: no Kafka. An incident is kept until `kq queue rewind` puts its items back or forgets it. One of a commit is also forgotten
when its offsets have left the log. At most MOST of a partition are kept; then the oldest is dropped.

    skipped     another program's commit moved past these items: nobody gets them, and they are in the log
    again       another program's commit moved back: these items are done, and come again
    removed     records that left the log (retention, `kafka-delete-records`) before they were done
    cut         items that were open beyond the log's new end: a broker that lacked them became leader

Items are offsets: a transaction's marks among them look like items. Where our last state is not known, or is older than the commit
that was overwritten (a process that was killed: by at most `partition_notes.NOTE_EVERY` seconds), they are at most so many.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from kqlib.errors import LedgerCorrupt
from kqlib.queue.ledger import Ledger

MOST = 20
WHAT = {
    "skipped": "skipped by another program's commit",
    "again": "came again: another program's commit moved back",
    "removed": "left the log before they were done",
    "cut": "were cut off with the end of the log before they were done",
}
Stored = tuple[int, str]  # a state of ours as it was committed: floor and text
Run = tuple[int, int, int]  # from, to, attempts


def stored_ledger(stored: Stored) -> Ledger:
    """The ledger that was stored."""
    floor, text = stored
    return Ledger.read(text, floor)


@dataclass(frozen=True)
class Seen:
    """One partition as the cluster shows it."""

    topic_id: str
    low: int
    end: int  # of what is committed; behind an open transaction nothing is in the queue yet
    committed: int | None  # None: no commit
    metadata: str
    leader: int = -1  # the leader epoch of the broker that answered
    kept: int = 1 << 62  # up to here the log is the one that the state describes
    known: bool = False  # the notes, if they were given, had a state of this very topic before the commit was asked for


@dataclass(frozen=True)
class Incident:
    """What happened to the offsets from `start` to before `end`."""

    why: str
    start: int
    end: int
    items: int
    at: int  # when it was noticed: milliseconds since 1970
    state: Stored | None = None  # our last one before it; None: none is known

    @property
    def lost(self) -> int:
        """How many items no worker will get."""
        return self.items if self.why != "again" else 0

    def runs(self) -> Iterator[Run]:
        """Which items these are, and the attempts of each; without our last state, all from `start` to `end`."""
        ledger = stored_ledger(self.state) if self.state else Ledger(self.start, self.start)
        for start, end, attempts in [*ledger.runs(), (ledger.top, self.end, 0)]:
            begin, stop = max(start, self.start), min(end, self.end)
            if begin < stop:
                yield begin, stop, attempts

    def from_(self, low: int) -> Incident | None:
        """The rest of it from this offset on: below, records left the log or were put back. None: nothing is left."""
        if self.why in ("removed", "cut"):
            return self
        if self.why == "again":
            return self if self.end > low else None
        cut = replace(self, start=max(low, self.start))
        cut = replace(cut, items=sum(end - start for start, end, _ in cut.runs()))
        return cut if cut.items else None

    def has(self, offset: int) -> bool:
        """Is this one of its items?"""
        if not self.start <= offset < self.end or self.why == "cut":  # what has these offsets now is another item
            return False
        return self.why == "again" or any(start <= offset < end for start, end, _ in self.runs())

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {"why": self.why, "from": self.start, "to": self.end, "items": self.items, "at": self.at / 1000}

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.at / 1000))
        items = f"{self.items:,} item{'s' * (self.items != 1)}"
        return f"{items} {WHAT[self.why]}, seen at {when} (offsets {self.start} to {self.end - 1})"


# --- what is found when a partition is taken over ------------------------------------------------------------------------


def found(seen: Seen, ledger: Ledger, last: Stored | None, mark: int, now: int) -> list[Incident]:
    """The new incidents. ledger: the state from which the next owner goes on. mark: up to where the queue was purged."""
    strange = seen.committed is not None and not seen.metadata
    before = stored_ledger(last) if strange and last else ledger.copy()
    before.purge(mark)
    happened = foreign(seen, last, mark, now) if strange else cut_off(seen, ledger.top, mark, now)
    return [*happened, *removed(before, seen.low, now)]


def newest(topic_id: str, *states: Stored | None) -> Stored | None:
    """The newest of these states of this very topic: of the highest epoch, and of two of one epoch the first."""
    found: list[tuple[int, Stored]] = []
    for state in filter(None, states):
        with suppress(LedgerCorrupt):  # written by a newer kqlib
            if (ledger := stored_ledger(state)).topic == topic_id:
                found.append((ledger.epoch, state))
    return max(found, key=lambda each: each[0], default=(0, None))[1]


def foreign(seen: Seen, last: Stored | None, mark: int, now: int) -> list[Incident]:
    """What another program's commit did, beside our last state."""
    to = max(seen.low, min(seen.committed or 0, seen.end))
    ledger = stored_ledger(last) if last else Ledger(seen.low, seen.low)
    skipped = Incident("skipped", ledger.floor, to, 0, now, last).from_(max(seen.low, mark))
    open_above = sum(end - max(start, to) for start, end, _ in ledger.runs() if end > to)
    done = max(0, ledger.top - to) - open_above
    again = Incident("again", to, ledger.top, done, now, last) if done > 0 else None
    return [each for each in (skipped, again) if each]


def cut_off(seen: Seen, end: int, mark: int, now: int) -> list[Incident]:
    """What our last commit had open beyond the log's new end. Records that nobody had read leave no trace."""
    if seen.committed is None:
        return []
    committed = Ledger.read(seen.metadata, seen.committed)
    if committed.topic != seen.topic_id:
        return []
    committed.purge(mark)
    top, state = committed.top, (seen.committed, seen.metadata)
    items = committed.cut(end)
    return [Incident("cut", end, top, items, now, state)] if items else []


def removed(ledger: Ledger, low: int, now: int) -> list[Incident]:
    """What left the log below `low` before it was done: what was open, and what nobody had read."""
    open_ = sum(min(end, low) - start for start, end, _ in ledger.runs() if start < low)
    items = open_ + max(0, low - ledger.top)
    return [Incident("removed", ledger.floor, low, items, now, (ledger.floor, ledger.text()))] if items else []


def last(note: Any) -> Stored | None:
    """Our last state, from its note."""
    with suppress(TypeError, KeyError):  # there is none, or another program's line
        return int(note["floor"]), str(note["text"])
    return None


# --- as they are kept ----------------------------------------------------------------------------------------------------


def noted(note: Any, topic_id: str, low: int = 0) -> list[Incident]:
    """The incidents of a note, if they are of this very topic, without what has left the log since."""
    found: list[Incident] = []
    if isinstance(note, dict) and note.get("topic") == topic_id:
        with suppress(TypeError, ValueError, LedgerCorrupt):  # a line that another program wrote
            for each in note.get("incidents", ()):
                state = tuple(each["state"]) if each.get("state") else None
                found.append(Incident(**{**each, "state": state}))
            return [left for each in found if (left := each.from_(low))]
    return []


def note(topic_id: str, incidents: Sequence[Incident]) -> dict[str, Any] | None:
    """The note of these incidents; None deletes it."""
    return {"topic": topic_id, "incidents": [asdict(each) for each in incidents]} if incidents else None


def together(before: Sequence[Incident], new: Sequence[Incident], after: int = 0) -> list[Incident]:
    """New ones behind the others, each later than they and than `after`: a rewind's mark reaches up to a time.

    One that was found beside the same state replaces the older one: its finder died before its first commit.
    """
    found = [each for each in before if not any(each.state and _same(each, other) for other in new)]
    for each in new:
        known = next((other for other in before if other.state and _same(each, other)), None)
        if known and replace(each, at=known.at) == known:
            found.append(known)
            continue
        after = max([after, *(other.at for other in [*before, *found])])
        late, last = replace(each, at=max(each.at, after + 1)), found[-1] if found else None
        if last and last.why == late.why == "removed" and not (last.state or late.state):
            start, end = min(last.start, late.start), max(last.end, late.end)
            found[-1] = replace(late, start=start, end=end, items=last.items + late.items)
        else:
            found.append(late)
    return sorted(found, key=lambda each: each.at)[-MOST:]


def _same(one: Incident, other: Incident) -> bool:
    return (one.why, one.state) == (other.why, other.state)
