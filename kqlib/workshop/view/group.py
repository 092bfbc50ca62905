"""A group: members left, partitions right, a straight line from each partition to the member that has it.

In:  `Member` and `Slot` values. Out: `group(members, slots, title="scores") -> Picture`. Its twin:

    scores · 3 members, 1 idle · 4 partitions · lag 12
    member  p0 (lag 3) · p1 (lag 9)
    member  p2 · p3, busy
    member  idle
    nobody  p4

A member without a partition stands alone and says idle; one that is busy does not poll. Behind a partition its lag is a bar:
what is in the log and not yet committed. Members need no name: which of them has which partition is different on every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kqlib.text import clean, count, cut
from kqlib.workshop.view.picture import (
    BIG,
    EDGE,
    NORMAL,
    SMALL,
    WIDE,
    Picture,
    clock,
    fit,
    headline,
    headline_width,
    pad,
    sheet,
    tag,
    text,
    width,
)

T = TypeVar("T")
MOST, ENDS = 24, 10  # more of a side than 24: the first and the last ten
LONGEST_TITLE, LONGEST_NAME = 100, 60
ROW, HIGH = 30, 22  # from one row to the next; a box
TOP = 28
LEFT, MIDDLE = 130, 110  # how wide a member's box is, and the room for lines
NAMED = 74  # how wide a partition's box is, with a name like p0
BAR = 180  # the longest lag
STYLE = (
    ".box{fill:currentColor;fill-opacity:.05;stroke:currentColor;stroke-opacity:.5}"
    ".idle{fill:none;stroke-dasharray:4 3}.lag{fill:currentColor;fill-opacity:.4}"
    ".hold{stroke:currentColor;stroke-opacity:.6;stroke-width:1.5}"
)


@dataclass(frozen=True)
class Member:
    """A member of a group and the names of its partitions. busy: it does not poll at the moment."""

    name: str = ""
    holds: Sequence[str] = ()
    busy: bool = False

    @property
    def words(self) -> str:
        """Its name, or what it is."""
        return cut(clean(self.name), LONGEST_NAME) or "member"


@dataclass(frozen=True)
class Slot:
    """A partition as a group sees it: its name and its lag; None where nobody asked."""

    name: str
    lag: int | None = None

    @property
    def words(self) -> str:
        """Its name on one line."""
        return cut(clean(self.name), LONGEST_NAME)


def group(members: Iterable[Member], slots: Iterable[Slot], title: str = "group") -> Picture:
    """The picture of a group: who has what, who has nothing, how far behind each partition is."""
    every, parts = list(members), list(slots)
    title, rest = cut(clean(title), LONGEST_TITLE), _counts(every, parts)
    sentence = f"{title} · {rest}"
    return Picture(_draw(every, parts, title, rest), "\n".join([sentence, *_twin(every, parts)]), sentence)


# --- the words ---------------------------------------------------------------------------------------------------------


def _counts(members: Sequence[Member], slots: Sequence[Slot]) -> str:
    """'3 members, 1 idle · 4 partitions · lag 12'."""
    idle, busy = sum(not member.holds for member in members), sum(member.busy for member in members)
    words = count(len(members), "member") + (f", {idle} idle" if idle else "") + (f", {busy} busy" if busy else "")
    lags = [slot.lag for slot in slots if slot.lag is not None]
    return f"{words} · {count(len(slots), 'partition')}" + (f" · lag {sum(lags):,}" if lags else "")


def _twin(members: Sequence[Member], slots: Sequence[Slot]) -> list[str]:
    """A line a member, and one for what nobody has."""
    lags = {slot.name: f"{slot.words} (lag {slot.lag:,})" if slot.lag else slot.words for slot in slots}
    rows = [
        (
            member.words,
            (" · ".join(lags[name] for name in member.holds if name in lags) or "idle") + ", busy" * member.busy,
        )
        for member in _ends(members)
    ]
    orphans = [lags[slot.name] for slot in _ends(slots) if not any(slot.name in member.holds for member in members)]
    rows += [("nobody", " · ".join(orphans))] if orphans else []
    wide = max((len(name) for name, _ in rows), default=0)
    more = [_left_out(members, "member"), _left_out(slots, "partition")]
    return [*(f"{pad(name, wide)}  {held}" for name, held in rows), *filter(None, more)]


def _ends(every: Sequence[T]) -> list[T]:
    """All of them, or of too many the first and the last ten."""
    return [*every] if len(every) <= MOST else [*every[:ENDS], *every[-ENDS:]]


def _left_out(every: Sequence[object], noun: str) -> str:
    """'… 76 more partitions in between'."""
    hidden = len(every) - len(_ends(every))
    return f"… {count(hidden, f'more {noun}')} in between" if hidden else ""


# --- the drawing -------------------------------------------------------------------------------------------------------


def _draw(members: Sequence[Member], slots: Sequence[Slot], title: str, rest: str) -> str:
    """The SVG: two columns of boxes, lines between them, bars behind."""
    name = fit(title, BIG, WIDE - 2 * EDGE - headline_width("", rest), bold=True)
    left, right = _ends(members), _ends(slots)
    high = ROW * max(len(left), len(right), 1)
    wide = max([NAMED, *(min(LEFT, width(slot.words, NORMAL, bold=True) + 16) for slot in right)])
    x = EDGE + LEFT + MIDDLE
    places = {slot.name: _middle(at, len(right), high) for at, slot in enumerate(right)}
    parts = [headline(name, rest)]
    for at, member in enumerate(left):
        y = _middle(at, len(left), high)
        parts += [_line(y, x, places[held]) for held in member.holds if held in places]
        parts.append(_box(member, y))
    longest = max([slot.lag or 0 for slot in slots], default=0)
    bar = min(BAR, WIDE - EDGE - x - wide - 12 - width(f"{longest:,}", NORMAL))
    held_names = {held for member in members for held in member.holds}
    for slot in right:
        parts.append(_slot(slot, (x, places[slot.name], wide), bar / max(longest, 1)))
        if slot.name not in held_names:
            parts.append(text(x - 6, places[slot.name] + 3, "nobody", SMALL, anchor="end"))
    more = [words for words in (_left_out(members, "member"), _left_out(slots, "partition")) if words]
    parts += [text(EDGE, TOP + high + 12 + 16 * at, words, kind="faint") for at, words in enumerate(more)]
    reach = x + wide + (0 if longest == 0 else 12 + bar + width(f"{longest:,}", NORMAL))
    full = max(reach, EDGE + headline_width(name, rest)) + EDGE
    return sheet(full, TOP + high + 16 * len(more) + EDGE, f"{title} · {rest}", parts, STYLE)


def _middle(at: int, many: int, high: float) -> float:
    """The middle of one of so many rows that share a height."""
    return TOP + high * (at + 0.5) / many


def _line(y: float, x: float, place: float) -> str:
    """From a member to a partition."""
    return tag("line", x1=EDGE + LEFT, y1=y, x2=x, y2=place, class_="hold")


def _box(member: Member, y: float) -> str:
    """A member, and what is special about it."""
    kind = "box" if member.holds else "box idle"
    parts = [tag("rect", x=EDGE, y=y - HIGH / 2, width=LEFT, height=HIGH, rx=6, class_=kind)]
    said = "busy" if member.busy else "" if member.holds else "idle"
    room = LEFT - 16 - (width(said, NORMAL) + 22 if said else 0)
    parts.append(text(EDGE + 8, y + 3.5, fit(member.words, NORMAL, room, bold=True), kind="bold"))
    parts.append(text(EDGE + LEFT - 8, y + 3.5, said, anchor="end") if said else "")
    parts.append(clock(EDGE + LEFT - 44, y) if member.busy else "")
    return "".join(parts)


def _slot(slot: Slot, place: tuple[float, float, float], unit: float) -> str:
    """A partition, and its lag as a bar behind it, so many pixels an offset; the place is x, y and width."""
    x, y, wide = place
    parts = [tag("rect", x=x, y=y - HIGH / 2, width=wide, height=HIGH, rx=4, class_="box")]
    parts.append(text(x + 8, y + 3.5, fit(slot.words, NORMAL, wide - 16, bold=True), kind="bold"))
    if slot.lag:
        bar = max(2.0, slot.lag * unit)
        parts.append(tag("rect", x=x + wide + 4, y=y - 6, width=bar, height=12, rx=2, class_="lag"))
        parts.append(text(x + wide + 10 + bar, y + 3.5, f"{slot.lag:,}"))
    return "".join(parts)
