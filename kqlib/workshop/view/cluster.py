"""The cluster: a broker is a room, a replica is a small lane in it.

In:  `Broker` and `Partition` values. A broker that is missing from the list, as Kafka leaves out one that is down, is dead.
Out: `cluster(brokers, partitions, title="football") -> Picture`. Its twin:

    football · 3 brokers, 1 dead · 2 partitions, 1 without a leader
    broker 1 ◆  ★p0=10 epoch 3 · p1=7 out of ISR
    broker 2    p0=10
    broker 3 ✕  p0=4 out of ISR · p1=9
    no leader, so nobody can write or read: p1

The leader has a star and a solid top edge, a replica out of ISR is faded and says so, a dead broker is a dashed room with ✕,
the controller wears ◆. `=10` is the replica's end: the offset that its next record will get.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kqlib.text import clean, count, cut
from kqlib.workshop.view.legend import Item, flow
from kqlib.workshop.view.picture import (
    BIG,
    EDGE,
    NORMAL,
    RED,
    SMALL,
    WIDE,
    Picture,
    cross,
    diamond,
    fit,
    headline,
    headline_width,
    pad,
    sheet,
    star,
    tag,
    text,
    width,
)

MOST, ENDS = 24, 10  # more partitions than 24: the first and the last ten
LONGEST_TITLE = 100
MOST_NAMES = 8  # partitions without a leader that are named
GAP, HEAD = 8, 28  # between rooms, and around replicas; a room's first line
LOW, HIGH = 20, 30  # a replica without and with words
ROOMIEST = 260  # one broker alone does not fill the page
STYLE = (
    ".room{fill:currentColor;fill-opacity:.04;stroke:currentColor;stroke-opacity:.45}"
    ".down{fill:none;stroke-opacity:.7;stroke-dasharray:5 4}"
    ".replica{fill:none;stroke:currentColor;stroke-opacity:.45}.has{fill:currentColor;fill-opacity:.13}"
    ".out{opacity:.7}.out .replica{stroke-dasharray:2 2;stroke-opacity:.8}"
    ".edge{stroke:currentColor;stroke-width:3;stroke-linecap:round}"
)


@dataclass(frozen=True)
class Broker:
    """A broker as the cluster sees it."""

    id: int
    alive: bool = True
    controller: bool = False


@dataclass(frozen=True)
class Partition:
    """A partition: who leads, who has a copy, who is in sync. `ends`: broker -> offset of its copy's next record."""

    topic: str
    number: int
    leader: int | None
    replicas: Sequence[int]
    isr: Sequence[int]
    epoch: int | None = None
    ends: Mapping[int, int] | None = None

    def __post_init__(self) -> None:
        if self.leader is not None and self.leader < 0:  # Kafka's way to say nobody
            object.__setattr__(self, "leader", None)

    def end(self, broker: int) -> int | None:
        """The end of one copy, if it is known."""
        return (self.ends or {}).get(broker)

    def said(self, broker: int) -> str:
        """One copy in words: 'epoch 3' for the leader's, 'out of ISR'; nothing for an ordinary one."""
        words = [f"epoch {self.epoch}"] if broker == self.leader and self.epoch is not None else []
        words += [] if broker in self.isr else ["out of ISR"]
        return ", ".join(words)


def cluster(brokers: Iterable[Broker], partitions: Iterable[Partition], title: str = "cluster") -> Picture:
    """The picture of a cluster: which broker holds, leads and lags behind in what."""
    every = sorted(partitions, key=lambda partition: (partition.topic, partition.number))
    rooms = _rooms(brokers, every)
    shown = every if len(every) <= MOST else [*every[:ENDS], *every[-ENDS:]]
    name = _namer(every)
    leaderless = [name(partition) for partition in every if partition.leader is None]
    notes = [*_left_out(every, shown), *_leaderless(leaderless)]
    title, rest = cut(clean(title), LONGEST_TITLE), _counts(rooms, every)
    sentence = f"{title} · {rest}"
    copies = [_copies(room, shown, name) for room in rooms]
    svg = _draw(rooms, copies, notes, title, rest)
    return Picture(svg, "\n".join([sentence, *_twin(rooms, copies), *notes]), sentence)


# --- the words ---------------------------------------------------------------------------------------------------------


def _rooms(brokers: Iterable[Broker], partitions: Sequence[Partition]) -> list[Broker]:
    """Every broker by id, with those that only a partition still speaks of: they are dead."""
    found = {broker: Broker(broker, alive=False) for partition in partitions for broker in partition.replicas}
    found |= {broker.id: broker for broker in brokers}
    return [found[broker] for broker in sorted(found)]


def _counts(rooms: Sequence[Broker], partitions: Sequence[Partition]) -> str:
    """'3 brokers, 1 dead · 2 partitions, 1 without a leader'."""
    dead = sum(not broker.alive for broker in rooms)
    lost = sum(partition.leader is None for partition in partitions)
    words = count(len(rooms), "broker") + (f", {dead} dead" if dead else "")
    return f"{words} · {count(len(partitions), 'partition')}" + (f", {lost} without a leader" if lost else "")


def _namer(partitions: Sequence[Partition]) -> Callable[[Partition], str]:
    """How partitions are called: 'p0' where all are of one topic, else 'football-0'."""
    alone = len({partition.topic for partition in partitions}) <= 1
    return lambda partition: f"p{partition.number}" if alone else f"{clean(partition.topic)}-{partition.number}"


def _left_out(every: Sequence[Partition], shown: Sequence[Partition]) -> list[str]:
    """'… 76 more partitions'."""
    hidden = len(every) - len(shown)
    return [f"… {count(hidden, 'more partition')} in between"] if hidden else []


def _leaderless(names: Sequence[str]) -> list[str]:
    """Which partitions nobody leads, and what that means."""
    if not names:
        return []
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return [f"no leader, so nobody can write or read: {', '.join([*names[:MOST_NAMES], *more])}"]


@dataclass(frozen=True)
class _Copy:
    """One replica as its room shows it; `full` is how much of its partition's longest copy it has, 0 to 1."""

    name: str
    leads: bool
    in_sync: bool
    said: str
    end: int | None
    full: float

    @property
    def words(self) -> str:
        """'★p0=10 epoch 3'."""
        end = "" if self.end is None else f"={self.end}"
        return f"{'★' if self.leads else ''}{self.name}{end}{' ' + self.said if self.said else ''}"


def _copies(room: Broker, partitions: Sequence[Partition], name: Callable[[Partition], str]) -> list[_Copy]:
    """The replicas in a room."""
    copies = []
    for partition in partitions:
        if room.id in partition.replicas:
            end, longest = partition.end(room.id), max((partition.ends or {}).values(), default=0)
            full = end / longest if end and longest else 0.0
            leads, in_sync = partition.leader == room.id, room.id in partition.isr
            copies.append(_Copy(name(partition), leads, in_sync, partition.said(room.id), end, full))
    return copies


def _twin(rooms: Sequence[Broker], copies: Sequence[Sequence[_Copy]]) -> list[str]:
    """A line a broker."""
    names = [f"broker {room.id}{'' if room.alive else ' ✕'}{' ◆' if room.controller else ''}" for room in rooms]
    wide = max((len(name) for name in names), default=0)
    held = [" · ".join(copy.words for copy in inside) or "no replica" for inside in copies]
    return [f"{pad(name, wide)}  {words}" for name, words in zip(names, held, strict=True)]


# --- the drawing -------------------------------------------------------------------------------------------------------


def _draw(
    rooms: Sequence[Broker], copies: Sequence[Sequence[_Copy]], notes: Sequence[str], title: str, rest: str
) -> str:
    """The SVG: rooms in rows, then what has to be said, then what the signs mean."""
    name = fit(title, BIG, WIDE - 2 * EDGE - headline_width("", rest), bold=True)
    in_a_row = len(rooms) if 1 < len(rooms) <= 4 else 3 if len(rooms) <= 9 else 4
    wide = min(ROOMIEST, (WIDE - 2 * EDGE - GAP * (in_a_row - 1)) / in_a_row)
    chips = _Chips.of(copies, wide - 2 * GAP)
    parts, y = [headline(name, rest)], 28.0
    for first in range(0, len(rooms), in_a_row):
        row = range(first, min(first + in_a_row, len(rooms)))
        high = HEAD + max(chips.height(len(copies[at])) for at in row)
        for at in row:
            x = EDGE + (at - first) * (wide + GAP)
            parts += [_room(rooms[at], x, y, wide, high), *chips.draw(copies[at], x + GAP, y + HEAD)]
        y += high + GAP
    said = flow([*map(_note, notes)], y)
    legend = flow(_legend(rooms, copies), said.y)
    right = EDGE + min(in_a_row, len(rooms)) * (wide + GAP) - GAP
    right = max(right, EDGE + headline_width(name, rest), said.wide, legend.wide)
    return sheet(right + EDGE, legend.y + 2, f"{title} · {rest}", [*parts, *said.parts, *legend.parts], STYLE)


def _room(broker: Broker, x: float, y: float, wide: float, high: float) -> str:
    """A broker's room and its name."""
    walls = tag("rect", x=x, y=y, width=wide, height=high, rx=8, class_="room" if broker.alive else "down room")
    words = f"broker {broker.id}"
    parts = [walls, text(x + GAP, y + 18, words, BIG, "bold")]
    x += GAP + width(words, BIG, bold=True) + 10
    if not broker.alive:
        parts.append(tag("g", cross(x, y + 14, 4), style=f"color:{RED}") + text(x + 9, y + 18, "dead"))
        x += 45
    if broker.controller:
        parts.append(diamond(x, y + 14))
    return "".join(parts)


@dataclass(frozen=True)
class _Chips:
    """The replicas of all rooms, equally large: how wide, how high, how many side by side."""

    columns: int
    wide: float
    high: int

    @classmethod
    def of(cls, copies: Sequence[Sequence[_Copy]], room: float) -> _Chips:
        """As many side by side as their words leave room for."""
        every = [copy for inside in copies for copy in inside]
        least = max((max(_long(copy), width(copy.said, SMALL) + 12) for copy in every), default=room)
        columns = max(1, int((room + GAP) // (least + GAP)))
        return cls(columns, (room - GAP * (columns - 1)) / columns, HIGH if any(copy.said for copy in every) else LOW)

    def height(self, n: int) -> float:
        """How high so many replicas get."""
        return max(1, math.ceil(n / self.columns)) * (self.high + GAP)

    def draw(self, copies: Sequence[_Copy], x: float, y: float) -> list[str]:
        """A room's replicas; a room without one says so."""
        if not copies:
            return [text(x, y + 12, "no replica", kind="faint")]
        across, down = self.wide + GAP, self.high + GAP
        places = [(x + at % self.columns * across, y + at // self.columns * down) for at in range(len(copies))]
        return [self._chip(copy, *place) for copy, place in zip(copies, places, strict=True)]

    def _chip(self, copy: _Copy, x: float, y: float) -> str:
        """One replica: a lane filled as far as its copy goes, star and name left, end right, words below."""
        end = "" if copy.end is None else str(copy.end)
        room = self.wide - 12 - (14 if copy.leads else 0) - (width(end, NORMAL) + 6 if end else 0)
        parts = [tag("rect", x=x, y=y, width=self.wide, height=self.high, rx=4, class_="replica")]
        if copy.full:
            parts.append(tag("rect", x=x, y=y, width=self.wide * copy.full, height=self.high, rx=4, class_="has"))
        if copy.leads:
            edge = tag("line", x1=x + 2, y1=y, x2=x + self.wide - 2, y2=y, class_="edge")
            parts.append(edge + star(x + 11, y + 10.5))
        parts.append(text(x + (20 if copy.leads else 6), y + 14, fit(copy.name, NORMAL, room, True), kind="bold"))
        parts.append(text(x + self.wide - 6, y + 14, end, anchor="end") if end else "")
        parts.append(text(x + 6, y + 25, copy.said, SMALL) if copy.said else "")
        return tag("g", *parts, class_=None if copy.in_sync else "out")


def _long(copy: _Copy) -> float:
    """How wide a replica's first line gets; a long topic's name is cut to what one column has."""
    end = 0 if copy.end is None else width(str(copy.end), NORMAL) + 6
    return width(copy.name, NORMAL, bold=True) + (14 if copy.leads else 0) + end + 12


def _note(words: str) -> Item:
    """A line below the rooms: with a red cross where something does not work."""
    if words.startswith("…"):
        return Item.words(words)
    words = fit(words, NORMAL, WIDE - 2 * EDGE - 14)
    return Item.sign(lambda x, y: tag("g", cross(x, y), style=f"color:{RED}"), words)


def _legend(rooms: Sequence[Broker], copies: Sequence[Sequence[_Copy]]) -> list[Item]:
    """What the signs mean: those that are there."""
    every = [copy for inside in copies for copy in inside]
    items = [Item.sign(star, "leader")] if any(copy.leads for copy in every) else []
    items += [Item.sign(diamond, "controller")] if any(room.controller for room in rooms) else []
    if any(copy.end is not None for copy in every):
        items.append(Item.words("number: the copy's end (its next offset)"))
    return items
