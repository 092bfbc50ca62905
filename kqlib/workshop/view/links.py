"""Why a log: n × m connections point to point, beside n + m connections through a log.

In:  the names of writers and readers. Out: `links(writers, readers) -> Picture`. Its twin:

    2 writers, 3 readers · 6 connections point to point, 5 through a log
    point to point  2 × 3 = 6  one more reader: 2 more connections, and every writer changes
    through a log   2 + 3 = 5  one more reader: 1 more connection, and no writer changes
    writers: Arsenal, Chelsea
    readers: scoreboard, ticker, radio
"""

from __future__ import annotations

from collections.abc import Sequence

from kqlib.text import clean, count
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture, aligned
from kqlib.workshop.view.svg import BIG, BLUE, NORMAL, box, fit, line, tag, text

HALF = (WIDE - 2 * EDGE) / 2 - 12  # one of the two drawings
STEP, DOT = 22, 4  # from one dot to the next; its radius
NAMED = 94  # space for a name and its dot
CELLS, CELL = 4, 14  # the log: a lane of so many cells
STYLE = (
    ".call{stroke:currentColor;stroke-opacity:.5}.end{fill:currentColor}"
    f".cell{{fill:{BLUE}}}.frame{{fill:currentColor;fill-opacity:.04;stroke:currentColor;stroke-opacity:.25}}"
)

Point = tuple[float, float]


def links(writers: Sequence[str], readers: Sequence[str]) -> Picture:
    """The picture of n × m calls beside n + m."""
    n, m = len(writers), len(readers)
    calls, log = f"{n} × {m} = {n * m}", f"{n} + {m} = {n + m}"
    counts = f"{count(n * m, 'connection')} point to point, {n + m} through a log"
    canvas = Canvas(f"{count(n, 'writer')}, {count(m, 'reader')}", counts)
    high = STEP * max(n, m, 1)
    _frame(canvas, writers, readers, EDGE, ("point to point", calls))
    _frame(canvas, writers, readers, WIDE - EDGE - HALF, ("through a log", log))
    canvas.right, canvas.y = WIDE, canvas.y + high + 56 + EDGE - 2
    changes = "every writer changes" if n != 1 else "the writer changes"
    table = [
        ("point to point", calls, f"one more reader: {count(n, 'more connection')}, and {changes}"),
        ("through a log", log, "one more reader: 1 more connection, and no writer changes"),
    ]
    sides = (("writers", writers), ("readers", readers))
    names = [f"{role}: {', '.join(map(clean, who))}" for role, who in sides if who]
    return canvas.picture([*aligned(table), *names], STYLE)


def _frame(canvas: Canvas, writers: Sequence[str], readers: Sequence[str], x: float, heading: tuple[str, str]) -> None:
    """One of the two drawings: dots on both sides and the lines between them."""
    high, y = STEP * max(len(writers), len(readers), 1), canvas.y + 34
    canvas.add(box(x, canvas.y, HALF, high + 56, "frame", rx=8))
    canvas.add(text(x + 12, y - 16, heading[0], BIG, "bold"))
    canvas.add(text(x + HALF - 12, y - 16, heading[1], BIG, "bold", anchor="end"))
    starts = [(x + NAMED, each) for each in _heights(len(writers), y, high)]
    ends = [(x + HALF - NAMED, each) for each in _heights(len(readers), y, high)]
    if heading[0] == "through a log":
        canvas.add(*_through_a_log(starts, ends, x + HALF / 2, y + high / 2))
    else:
        canvas.add(*(line(*start, *end, "call") for start in starts for end in ends))
    canvas.add(*(tag("circle", cx=cx, cy=cy, r=DOT, class_="end") for cx, cy in [*starts, *ends]))
    for role, names, places, side, anchor in (
        ("writers", writers, starts, -2 * DOT, "end"),
        ("readers", readers, ends, 2 * DOT, None),
    ):
        for name, (cx, cy) in zip(names, places, strict=True):
            canvas.add(text(cx + side, cy + 3.5, fit(name, NORMAL, NAMED - 3 * DOT), anchor=anchor))
        foot = (x + 12, None) if anchor else (x + HALF - 12, "end")
        canvas.add(text(foot[0], y + high + 14, role, kind="faint", anchor=foot[1]))


def _heights(many: int, y: float, high: float) -> list[float]:
    """The middles of so many dots, around the middle of their frame."""
    return [y + (high - STEP * many) / 2 + STEP * (place + 0.5) for place in range(many)]


def _through_a_log(starts: Sequence[Point], ends: Sequence[Point], x: float, y: float) -> list[str]:
    """A lane in the middle, a line from each writer to it and from it to each reader."""
    half = CELLS * (CELL + 2) / 2
    return [
        *(line(*start, x - half - 2, y, "call") for start in starts),
        *(line(x + half + 2, y, *end, "call") for end in ends),
        *(box(x - half + at * (CELL + 2) + 1, y - 9, CELL, 18, "cell", rx=3) for at in range(CELLS)),
        text(x, y + 23, "log", anchor="middle"),
    ]
