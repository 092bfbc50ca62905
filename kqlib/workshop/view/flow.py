"""Why a log at all: everybody calls everybody, beside everybody knows one log.

In:  how many writers and readers, or their names.
Out: `links(4, 5) -> Picture`. Its twin:

    4 writers, 5 readers · 20 connections point to point, 9 through a log
    point to point  4 × 5 = 20  one more reader: 4 more connections, and every writer changes
    through a log   4 + 5 = 9   one more reader: 1 more connection, and no writer changes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kqlib.text import clean, count
from kqlib.workshop.view.picture import BIG, BLUE, EDGE, SMALL, WIDE, Picture, fit, headline, pad, sheet, tag, text

MOST = 12  # dots on a side; of more the first ones, and '… 8 more'
HALF = (WIDE - 2 * EDGE) / 2 - 12  # one of the two drawings
STEP = 22  # from one dot to the next
DOT = 4
NAMED, PLAIN = 94, 30  # room beside the dots
CELLS, CELL = 4, 14  # the log: a lane of so many cells
STYLE = (
    ".call{stroke:currentColor;stroke-opacity:.5}.end{fill:currentColor}"
    f".cell{{fill:{BLUE}}}.frame{{fill:currentColor;fill-opacity:.04;stroke:currentColor;stroke-opacity:.25}}"
)

Names = int | Sequence[str]
Point = tuple[float, float]
Lines = Callable[[Sequence[Point], Sequence[Point], Point], list[str]]


def links(writers: Names, readers: Names) -> Picture:
    """The picture of n × m calls beside n + m."""
    left, right = _Side.of("writer", writers), _Side.of("reader", readers)
    n, m = left.total, right.total
    title, rest = f"{left.words}, {right.words}", f"{count(n * m, 'connection')} point to point, {n + m} through a log"
    calls, log = f"{n} × {m} = {n * m}", f"{n} + {m} = {n + m}"
    wide = max(len(calls), len(log))
    changes = "every writer changes" if n != 1 else "the writer changes"
    twin = [
        f"{title} · {rest}",
        f"point to point  {pad(calls, wide)}  one more reader: {count(n, 'more connection')}, and {changes}",
        f"through a log   {pad(log, wide)}  one more reader: 1 more connection, and no writer changes",
        *left.list(),
        *right.list(),
    ]
    return Picture(_draw(left, right, (calls, log), title, rest), "\n".join(twin), twin[0])


@dataclass(frozen=True)
class _Side:
    """Writers or readers: how many there are, and the names of those that are drawn, if they have any."""

    role: str
    total: int
    names: Sequence[str]

    @classmethod
    def of(cls, role: str, who: Names) -> _Side:
        """A number is enough; with names the picture tells a story."""
        if isinstance(who, int):
            return cls(role, who, ())
        return cls(role, len(who), tuple(map(clean, who)))

    @property
    def words(self) -> str:
        """'4 writers'."""
        return count(self.total, self.role)

    @property
    def drawn(self) -> int:
        """How many get a dot."""
        return min(self.total, MOST)

    @property
    def high(self) -> int:
        """The height of the column: its dots, and a line if some are left out."""
        return STEP * (self.drawn + (self.total > MOST))

    @property
    def room(self) -> int:
        """The space beside the dots."""
        return NAMED if self.names else PLAIN

    def list(self) -> list[str]:
        """The names as a line of the twin."""
        return [f"{self.role}s: {', '.join(self.names)}"] if self.names else []


def _draw(left: _Side, right: _Side, counts: tuple[str, str], title: str, rest: str) -> str:
    """The SVG: two frames side by side, each with the same writers and readers."""
    high = max(left.high, right.high, STEP)
    parts = [headline(title, rest)]
    drawings = (("point to point", _calls, EDGE), ("through a log", _log, WIDE - EDGE - HALF))
    for (name, lines, x), said in zip(drawings, counts, strict=True):
        parts.append(tag("rect", x=x, y=28, width=HALF, height=high + 56, rx=8, class_="frame"))
        parts.append(text(x + 12, 46, name, BIG, "bold"))
        parts.append(text(x + HALF - 12, 46, said, BIG, "bold", anchor="end"))
        parts += _connected(left, right, (x, 62, high), lines)
    return sheet(WIDE, 28 + high + 56 + EDGE, f"{title} · {rest}", parts, STYLE)


def _connected(left: _Side, right: _Side, place: tuple[float, float, float], lines: Lines) -> list[str]:
    """Dots on both sides and the lines between them; the place is x, y and height."""
    x, y, high = place
    writers = _points(left, x + left.room, y + (high - left.high) / 2)
    readers = _points(right, x + HALF - right.room, y + (high - right.high) / 2)
    middle = (x + (left.room + HALF - right.room) / 2, y + high / 2)
    dots = [tag("circle", cx=cx, cy=cy, r=DOT, class_="end") for cx, cy in [*writers, *readers]]
    sides = [*_labels(left, writers, "end", x, y + high), *_labels(right, readers, None, x + HALF, y + high)]
    return [*lines(writers, readers, middle), *dots, *sides]


def _points(side: _Side, x: float, y: float) -> list[Point]:
    """Where a side's dots are."""
    return [(x, y + STEP * (place + 0.5)) for place in range(side.drawn)]


def _labels(side: _Side, points: Sequence[Point], anchor: str | None, x: float, y: float) -> list[str]:
    """Names beside the dots, what is left out under them, and whose side it is at the foot."""
    beside = -2 * DOT if anchor else 2 * DOT
    room = side.room - 3 * DOT
    names = [
        text(cx + beside, cy + 3.5, fit(name, 10, room), anchor=anchor)
        for (cx, cy), name in zip(points, side.names, strict=False)
    ]
    hidden = side.total - side.drawn
    if hidden:
        cx, cy = points[-1]
        names.append(text(cx, cy + STEP + 3, f"… {hidden} more", SMALL, "faint", anchor="middle"))
    foot = x + 12 if anchor else x - 12
    return [*names, text(foot, y + 14, f"{side.role}s", kind="faint", anchor=None if anchor else "end")]


def _calls(writers: Sequence[Point], readers: Sequence[Point], middle: Point) -> list[str]:
    """A line from each writer to each reader."""
    return [_line(writer, reader) for writer in writers for reader in readers]


def _log(writers: Sequence[Point], readers: Sequence[Point], middle: Point) -> list[str]:
    """A lane in the middle, a line from each writer to it and from it to each reader."""
    x, y = middle
    half = CELLS * (CELL + 2) / 2
    cells = [
        tag("rect", x=x - half + at * (CELL + 2) + 1, y=y - 9, width=CELL, height=18, rx=3, class_="cell")
        for at in range(CELLS)
    ]
    ins = [_line(writer, (x - half - 2, y)) for writer in writers]
    outs = [_line((x + half + 2, y), reader) for reader in readers]
    return [*ins, *outs, *cells, text(x, y + 23, "log", anchor="middle")]


def _line(start: Point, end: Point) -> str:
    """A straight connection."""
    return tag("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], class_="call")
