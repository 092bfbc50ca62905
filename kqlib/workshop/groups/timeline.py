"""What happened in a group over time, and what each change cost: pure, from recorded events.

In:  `Event`s (a member was assigned, revoked, crashed, …) and `Change`s (a change, from its cause until the group was settled).
Out: `Timeline`: for each change how many partitions stood still, and the picture with a row a member.

Time is cut into columns, a change and the state after it in turn, and is not drawn to scale: seconds differ on every run,
what came before what does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import Literal

from kqlib.errors import NotAllowed
from kqlib.workshop.groups.values import Part
from kqlib.workshop.view.picture import Picture
from kqlib.workshop.view.timeline import Block, Column, Row, timeline as drawn

What = Part | Literal["busy", "in"]
OVER = {"left", "crashed", "failed"}
MOST = 7  # changes that fit into a picture


@dataclass(frozen=True)
class Event:
    """Something that happened to a member: joined, assigned, revoked, lost, busy, back, left, crashed, failed."""

    at: float
    member: str
    what: str
    partitions: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Change:
    """A change: from its cause until each working member had what the broker assigned."""

    what: str
    start: float
    end: float


@dataclass(frozen=True)
class Span:
    """From when to when a member held a partition, was busy, or was in the group at all."""

    member: str
    what: What
    start: float
    end: float = inf

    def over(self, start: float, end: float) -> bool:
        """Was it so all that time?"""
        return self.start <= start and end < self.end


@dataclass(frozen=True, repr=False)
class Stop:
    """What a change cost: of the partitions that had an owner before, how many stood still. `orphans` had no owner then."""

    what: str
    before: int
    partitions: int
    orphans: int = 0

    def __repr__(self) -> str:
        return f"{self.what}: {self.partitions} of {self.before} stood still{self.waiting}"

    @property
    def waiting(self) -> str:
        """' (2 had no owner)'."""
        return f" ({self.orphans} had no owner)" if self.orphans else ""


@dataclass(frozen=True, repr=False)
class Timeline:
    """What the members of a group held over time; its repr is the picture in words."""

    group: str
    members: tuple[str, ...]
    spans: tuple[Span, ...]
    changes: tuple[Change, ...]
    crashes: tuple[Event, ...] = ()

    @classmethod
    def of(
        cls, group: str, events: Iterable[Event], changes: Iterable[Change], members: Iterable[str] = ()
    ) -> Timeline:
        """From what was recorded; members: their order in the picture, else that of their first events."""
        every = sorted(events, key=lambda event: event.at)
        members = tuple(dict.fromkeys([*members, *(event.member for event in every)]))
        crashes = tuple(event for event in every if event.what == "crashed")
        return cls(group, members, tuple(_spans(every)), tuple(changes), crashes)

    @property
    def stops(self) -> list[Stop]:
        """What each change cost, in order."""
        return [self._stop(at) for at in range(len(self.changes))]

    def last(self, changes: int = 1) -> Timeline:
        """Only the last so many changes, and the state before them."""
        if isinstance(changes, bool) or not isinstance(changes, int) or changes < 1:
            raise NotAllowed(f"how many changes back? A number from 1 on, not {changes!r}")
        before, kept = self.changes[:-changes], self.changes[-changes:]
        begin = [Change("", before[-1].end, before[-1].end)] if before else []
        since = begin[0].start if begin else -inf
        there = {span.member for span in self.spans if span.end > since}
        members = tuple(name for name in self.members if name in there)
        return Timeline(self.group, members, self.spans, (*begin, *kept), self.crashes)

    def draw(self) -> Picture:
        """A row a member, a block a partition held, a gap where it stood still, ✕ a crash. Seven changes fit into it."""
        if len(self.changes) > MOST:
            return self.last(MOST - 1).draw()
        columns: list[Column] = []
        moments: list[tuple[float, float]] = []
        for change, stop in zip(self.changes, self.stops, strict=True):
            if change.what:  # a change without words is only the state that was before
                note = f"{stop.partitions} of {stop.before}{stop.waiting}" if stop.before else ""
                columns.append(Column(change.what, note))
                moments.append((change.start, change.end))
            columns.append(Column())
            moments.append((change.end, change.end))
        return drawn(columns, [self._row(name, moments) for name in self.members], self.group)

    def __repr__(self) -> str:
        return self.draw().text

    def _stop(self, at: int) -> Stop:
        """What was held when the change before was over, and what of it was not held throughout this one."""
        change, since = self.changes[at], self.changes[at - 1].end if at else -inf
        held = [span for span in self.spans if isinstance(span.what, tuple) and at and span.over(since, since)]
        gone = [span for span in held if not span.over(since, change.end)]
        known = {span.what for span in self.spans if isinstance(span.what, tuple) and at and span.start <= since}
        owned = {span.what for span in held}
        return Stop(change.what, len(owned), len({span.what for span in gone}), len(known - owned))

    def _row(self, name: str, moments: Sequence[tuple[float, float]]) -> Row:
        """A member's blocks, in columns."""
        mine = [span for span in self.spans if span.member == name]
        columns = {span: [at for at, when in enumerate(moments) if span.over(*when)] for span in mine}
        held = sorted((s for s in mine if isinstance(s.what, tuple)), key=lambda span: (span.start, -span.end))
        blocks = [Block(first, last) for span in held for first, last in _stretches(columns[span])]
        there, busy = (
            frozenset(at for span in mine if span.what == word for at in columns[span]) for word in ("in", "busy")
        )
        died = [event.at for event in self.crashes if event.member == name]
        crashed = frozenset(at for at, (start, end) in enumerate(moments) for when in died if start <= when < end)
        return Row(name, blocks, there, busy, crashed)


def _stretches(columns: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring columns as first and last: [1, 2, 3, 5] is (1, 3), (5, 5)."""
    for _, group in groupby(enumerate(columns), lambda pair: pair[1] - pair[0]):
        stretch = [column for _, column in group]
        yield stretch[0], stretch[-1]


def _spans(events: Sequence[Event]) -> Iterator[Span]:
    """From when to when each member held each partition, was busy, was there."""
    begun: dict[tuple[str, What], float] = {}
    for event in events:
        begins, ends = _changes(event, [what for member, what in begun if member == event.member])
        for what in ends:
            if (start := begun.pop((event.member, what), None)) is not None:
                yield Span(event.member, what, start, event.at)
        for what in begins:
            begun.setdefault((event.member, what), event.at)
    for (member, what), start in begun.items():
        yield Span(member, what, start)


def _changes(event: Event, has: Sequence[What]) -> tuple[Sequence[What], Sequence[What]]:
    """What begins and what ends with an event."""
    begins: dict[str, Sequence[What]] = {"joined": ["in"], "busy": ["busy"], "assigned": event.partitions}
    ends: dict[str, Sequence[What]] = {"back": ["busy"], "revoked": event.partitions, "lost": event.partitions}
    return begins.get(event.what, []), has if event.what in OVER else ends.get(event.what, [])
