"""Why a log: every writer calls every reader, beside everybody knows one log.

In:  how many writers and readers, or their names.
Out: `links(4, 5) -> Picture`. Its twin:

    4 writers, 5 readers · 20 connections point to point, 9 through a log
    point to point  4 × 5 = 20  one more reader: 4 more connections, and every writer changes
    through a log   4 + 5 = 9   one more reader: 1 more connection, and no writer changes
"""

from __future__ import annotations

from collections.abc import Sequence

from kqlib.text import clean, count
from kqlib.workshop.view.picture import (
    BIG,
    BLUE,
    EDGE,
    SMALL,
    WIDE,
    Canvas,
    Picture,
    aligned,
    box,
    fit,
    line,
    tag,
    text,
)

MOST = 12  # dots on a side
HALF = (WIDE - 2 * EDGE) / 2 - 12  # one of the two drawings
STEP = 22  # from one dot to the next
DOT = 4
NAMED, PLAIN = 94, 30  # space beside the dots
CELLS, CELL = 4, 14  # the log: a lane of so many cells
STYLE = (
    ".call{stroke:currentColor;stroke-opacity:.5}.end{fill:currentColor}"
    f".cell{{fill:{BLUE}}}.frame{{fill:currentColor;fill-opacity:.04;stroke:currentColor;stroke-opacity:.25}}"
)

Names = int | Sequence[str]
Point = tuple[float, float]


def links(writers: Names, readers: Names) -> Picture:
    """The picture of n × m calls beside n + m."""
    left, right = _Side("writer", writers), _Side("reader", readers)
    n, m = left.total, right.total
    calls, log = f"{n} × {m} = {n * m}", f"{n} + {m} = {n + m}"
    changes = "every writer changes" if n != 1 else "the writer changes"
    canvas = Canvas(
        f"{left.words}, {right.words}", f"{count(n * m, 'connection')} point to point, {n + m} through a log"
    )
    twin = aligned(
        [
            ["point to point", calls, f"one more reader: {count(n, 'more connection')}, and {changes}"],
            ["through a log", log, "one more reader: 1 more connection, and no writer changes"],
        ]
    )
    high = max(left.high, right.high, STEP)
    for name, counted, x in (("point to point", calls, EDGE), ("through a log", log, WIDE - EDGE - HALF)):
        canvas.add(box(x, 28, HALF, high + 56, "frame", rx=8))
        canvas.add(text(x + 12, 46, name, BIG, "bold"), text(x + HALF - 12, 46, counted, BIG, "bold", anchor="end"))
        y = 62
        starts = left.points(x + left.space, y + (high - left.high) / 2)
        ends = right.points(x + HALF - right.space, y + (high - right.high) / 2)
        if counted == log:
            canvas.add(*_through_a_log(starts, ends, x + (left.space + HALF - right.space) / 2, y + high / 2))
        else:
            canvas.add(*(line(*start, *end, "call") for start in starts for end in ends))
        canvas.add(*(tag("circle", cx=cx, cy=cy, r=DOT, class_="end") for cx, cy in [*starts, *ends]))
        canvas.add(*left.labels(starts, -1), text(x + 12, y + high + 14, "writers", kind="faint"))
        canvas.add(*right.labels(ends, 1), text(x + HALF - 12, y + high + 14, "readers", kind="faint", anchor="end"))
    canvas.right, canvas.y = WIDE, 28 + high + 56 + EDGE - 2
    return canvas.picture([*twin, *left.list(), *right.list()], STYLE)


class _Side:
    """Writers or readers: how many there are, and their names, if they have any."""

    def __init__(self, role: str, who: Names) -> None:
        self.role = role
        self.names = [] if isinstance(who, int) else [clean(name) for name in who]
        self.total = who if isinstance(who, int) else len(who)
        self.drawn = min(self.total, MOST)
        self.words = count(self.total, role)
        self.high = STEP * (self.drawn + (self.total > MOST))
        self.space = NAMED if self.names else PLAIN

    def list(self) -> list[str]:
        """The names as a line of the twin."""
        return [f"{self.role}s: {', '.join(self.names)}"] if self.names else []

    def points(self, x: float, y: float) -> Sequence[Point]:
        """Where the dots are."""
        return [(x, y + STEP * (place + 0.5)) for place in range(self.drawn)]

    def labels(self, points: Sequence[Point], side: int) -> Sequence[str]:
        """Names beside the dots, to the left (-1) or right (1), and how many are left out."""
        anchor = "end" if side < 0 else None
        labels = [
            text(x + side * 2 * DOT, y + 3.5, fit(name, 10, self.space - 3 * DOT), anchor=anchor)
            for (x, y), name in zip(points, self.names, strict=False)
        ]
        if self.total > MOST:
            x, y = points[-1]
            labels.append(text(x, y + STEP + 3, f"… {self.total - MOST} more", SMALL, "faint", anchor="middle"))
        return labels


def _through_a_log(starts: Sequence[Point], ends: Sequence[Point], x: float, y: float) -> list[str]:
    """A lane in the middle, a line from each writer to it and from it to each reader."""
    half = CELLS * (CELL + 2) / 2
    return [
        *(line(*start, x - half - 2, y, "call") for start in starts),
        *(line(x + half + 2, y, *end, "call") for end in ends),
        *(box(x - half + at * (CELL + 2) + 1, y - 9, CELL, 18, "cell", rx=3) for at in range(CELLS)),
        text(x, y + 23, "log", anchor="middle"),
    ]
