"""A curve: how numbers go, step by step (standings by round, lag by what happened).

In:  for each line its name and its numbers, one a step; what a step is; what happened at which step, in a word.
Out: `curve({"ARS": [3, 4], "CHE": [0, 3]}) -> Picture`. Its twin:

    points after each round · 2 lines, 4 rounds
    round  1  2  3  4
    ARS    3  4  7  7
    CHE    0  3  4  7
    round 3: cup final

The first line is the one that the picture is about: it is thick and blue. Each has its name at its end, and so needs no legend.
Of more than twelve steps the twin gives the numbers at the ticks. Drawn here and not by matplotlib: so it has few bytes, the same
ones whatever is installed, and turns dark with its page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kqlib.text import clean, count, cut
from kqlib.workshop.view.picture import (
    AMBER,
    BLUE,
    EDGE,
    NORMAL,
    SMALL,
    WIDE,
    Picture,
    columns,
    fit,
    headline,
    headline_width,
    number,
    pad,
    sheet,
    tag,
    text,
    width,
)

LONGEST, NAME = 60, 120  # of a title, in characters; of a line's name, in pixels
TOP, HIGH, FOOT = 44, 150, 34  # what is above the curves, their height, what is below
NUMBERS = 12  # of more steps the twin says some
APART = 11.0  # between two names at the right
STYLE = (
    ".grid{stroke:currentColor;stroke-opacity:.15}.curve{fill:none;stroke:currentColor;stroke-opacity:.55;stroke-width:1.5}"
    f".first{{stroke:{BLUE};stroke-opacity:1;stroke-width:2.5}}.event{{stroke:{AMBER};stroke-width:2}}"
)


def curve(
    lines: Mapping[str, Sequence[float]],
    title: str = "curve",
    *,
    step: str = "step",
    first: int = 1,
    events: Mapping[int, str] | None = None,
) -> Picture:
    """The picture of these lines. step: what one is called; first: the number of the first one; events: a word at a step."""
    plot = _Plot({clean(name): list(line) for name, line in lines.items()}, clean(step), first, events or {})
    title, rest = cut(clean(title), LONGEST), plot.counted()
    sentence = f"{title} · {rest}"
    return Picture(_draw(plot, title, rest), "\n".join([sentence, *_twin(plot)]), sentence)


@dataclass(frozen=True)
class _Plot:
    """What was asked for."""

    lines: Mapping[str, Sequence[float]]
    step: str
    first: int
    events: Mapping[int, str]

    @property
    def steps(self) -> int:
        """How many there are: of the longest line."""
        return max(map(len, self.lines.values()), default=0)

    @property
    def scale(self) -> list[float]:
        """The ticks of the upright axis, from the lowest up; 0 is among them."""
        seen = [value for line in self.lines.values() for value in line]
        low, high = min([0, *seen]), max([0, *seen])
        pace = _pace((high - low) / 4)
        bottom, top = math.floor(low / pace), max(math.ceil(high / pace), 1)
        return [at * pace for at in range(bottom, top + 1)]

    @property
    def ticks(self) -> list[int]:
        """The steps with a number below: a dozen at most, the last one always."""
        pace = next(
            each
            for each in (step * 10**zeros for zeros in range(9) for step in (1, 2, 5))
            if self.steps / each <= NUMBERS
        )
        last = self.first + self.steps - 1
        found = [each for each in range(self.first, last + 1) if each == self.first or each % pace == 0]
        if found and found[-1] != last:
            found = [each for each in found if last - each >= pace / 2 or each == self.first] + [last]
        return list(dict.fromkeys(found))

    def counted(self) -> str:
        """'2 lines, 4 rounds'."""
        return f"{count(len(self.lines), 'line')}, {count(self.steps, self.step)}"

    def happened(self) -> list[tuple[int, str]]:
        """What happened within the picture, in order."""
        within = range(self.first, self.first + self.steps)
        return sorted((at, clean(word)) for at, word in self.events.items() if at in within)


def _pace(rough: float) -> float:
    """The next round number: 1, 2 or 5, and zeros."""
    ten = 1.0
    while ten * 10 <= rough:
        ten *= 10
    return next(ten * each for each in (1, 2, 5, 10) if ten * each >= rough or each == 10)


# --- the words ---------------------------------------------------------------------------------------------------------


def _said(value: float) -> str:
    """A number without a needless point."""
    return f"{value:,.1f}".removesuffix(".0")


def _twin(plot: _Plot) -> list[str]:
    """A line for the steps, one for each line's numbers, and what happened."""
    rows = [[plot.step, *map(str, plot.ticks)]]
    for name, line in plot.lines.items():
        known = [line[at - plot.first] if at - plot.first < len(line) else None for at in plot.ticks]
        rows.append([name, *("" if value is None else _said(value) for value in known)])
    wide = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    said = [
        "  ".join(pad(cell, w, right=at > 0) for at, (cell, w) in enumerate(zip(row, wide, strict=True)))
        for row in rows
    ]
    return [*(line.rstrip() for line in said), *(f"{plot.step} {at}: {word}" for at, word in plot.happened())]


# --- the drawing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Room:
    """Where numbers are in the picture."""

    plot: _Plot
    left: float
    right: float

    def x(self, step: int) -> float:
        """A step's place."""
        return self.left + (self.right - self.left) * (step - self.plot.first) / max(1, self.plot.steps - 1)

    def y(self, value: float) -> float:
        """A number's height."""
        scale = self.plot.scale
        return TOP + HIGH - HIGH * (value - scale[0]) / (scale[-1] - scale[0])


def _draw(plot: _Plot, title: str, rest: str) -> str:
    """The SVG: a thin grid, the lines, their names at the right, bars where something happened."""
    names = max((min(NAME, width(name, NORMAL, bold=True)) for name in plot.lines), default=0)
    numbers = max(width(_said(value), SMALL) for value in plot.scale)
    room = _Room(plot, EDGE + numbers + 6, WIDE - EDGE - names - 8)
    parts = [headline(title, rest), *_grid(room), *_events(room)]
    for at, line in reversed(list(enumerate(plot.lines.values()))):  # the first one on top
        places = [(room.x(plot.first + n), room.y(value)) for n, value in enumerate(line)]
        points = " ".join(f"{number(float(x))},{number(float(y))}" for x, y in places)
        parts.append(tag("polyline", points=points, class_="curve" if at else "curve first"))
    wide = max(WIDE, EDGE + headline_width(title, rest) + EDGE)
    return sheet(wide, TOP + HIGH + FOOT, f"{title} · {rest}", [*parts, *_names(room)], STYLE)


def _grid(room: _Room) -> list[str]:
    """A line for each tick of the scale, numbers at the left and below."""
    parts, foot = [], TOP + HIGH
    for value in room.plot.scale:
        y = room.y(value)
        parts.append(tag("line", x1=room.left, y1=y, x2=room.right, y2=y, class_="grid"))
        parts.append(text(room.left - 5, y + 3, _said(value), SMALL, anchor="end"))
    for step in room.plot.ticks:
        parts.append(text(room.x(step), foot + 13, str(step), SMALL, anchor="middle"))
    return [*parts, text(room.left, foot + 26, room.plot.step, kind="faint")]


def _events(room: _Room) -> list[str]:
    """An upright bar and its word for each; a word that would touch the one before stands a line higher."""
    parts, free = [], 0.0
    for step, word in room.plot.happened():
        x, wide = room.x(step), width(word, NORMAL)
        place = min(max(x - wide / 2, room.left), WIDE - EDGE - wide)
        place = max(place, free)
        parts.append(tag("line", x1=x, y1=TOP - 4, x2=x, y2=TOP + HIGH, class_="event"))
        parts.append(text(place, TOP - 9, fit(word, NORMAL, WIDE - EDGE - place)))
        free = place + wide + 8
    return parts


def _names(room: _Room) -> list[str]:
    """Each line's name where it ends, moved apart where two end side by side."""
    ends = sorted((room.y(line[-1]), at, name) for at, (name, line) in enumerate(room.plot.lines.items()) if len(line))
    parts, free = [], 0.0
    for y, at, name in ends:
        place = max(y, free)
        x = room.x(room.plot.first + len(room.plot.lines[name]) - 1) + 6
        parts.append(text(x, place + 3.5, fit(name, NORMAL, WIDE - EDGE - x, bold=not at), kind="" if at else "bold"))
        free = place + APART
    return parts
