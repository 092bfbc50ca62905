"""The crash table: orders of a step, each killed at every point, and what became of the items.

In:  names of orders and of crash points; for each pair how many items were lost, written once, doubled (no entry: not run yet).
Out: `crash(orders, crashes, counts) -> Picture`. Its twin:

    crash table · 2 orders, 2 crash points · items lost in 1 cell, doubled in 1
                   after write        after commit
    at-most-once   once 10            lost 1, once 9
    at-least-once  once 9, doubled 1  once 10

Three bars a cell, in this order: lost (red), once (grey), doubled (amber), each with its word below and its number on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kqlib.text import clean, count, cut
from kqlib.workshop.view.picture import (
    AMBER,
    EDGE,
    NORMAL,
    RED,
    SMALL,
    WIDE,
    Picture,
    columns,
    fit,
    headline,
    headline_width,
    pad,
    sheet,
    tag,
    text,
    width,
)

Counts = tuple[int, int, int]  # lost, once, doubled
Place = tuple[str, str]  # an order and a crash point

WORDS = ("lost", "once", "doubled")
LONGEST = 60  # of a title
CELL, GAP = 120, 6  # a cell's width, and the space between cells
NAME = 150  # an order's name gets no more
HIGH, BAR, THICK = 62, 30, 14  # a cell, its longest bar, a bar's thickness
STYLE = (
    ".cell{fill:currentColor;fill-opacity:.04;stroke:currentColor;stroke-opacity:.25}"
    ".none{fill:none;stroke-dasharray:4 3;stroke-opacity:.5}.chosen{stroke-opacity:1;stroke-width:2}"
    f".lost{{fill:{RED}}}.once{{fill:currentColor;fill-opacity:.45}}.doubled{{fill:{AMBER}}}"
)


def crash(
    orders: Sequence[str],
    crashes: Sequence[str],
    counts: Mapping[Place, Counts],
    title: str = "crash table",
    chosen: Place | None = None,
) -> Picture:
    """The picture of what each order made of each crash. `chosen`: a cell to point at."""
    grid = _Grid(orders, crashes, counts, chosen)
    title, rest = cut(clean(title), LONGEST), grid.counted()
    sentence = f"{title} · {rest}"
    return Picture(_draw(grid, title, rest), "\n".join([sentence, *_twin(grid)]), sentence)


@dataclass(frozen=True)
class _Grid:
    """What was asked for: rows, columns, what is in the cells, which one is pointed at."""

    orders: Sequence[str]
    crashes: Sequence[str]
    counts: Mapping[Place, Counts]
    chosen: Place | None

    def row(self, order: str) -> list[tuple[Counts | None, bool]]:
        """A row's cells, and whether each is the chosen one."""
        return [(self.counts.get((order, point)), (order, point) == self.chosen) for point in self.crashes]

    def counted(self) -> str:
        """'4 orders, 4 crash points · items lost in 2 cells, doubled in 1'."""
        there = [cell for order in self.orders for cell, _ in self.row(order) if cell is not None]
        lost, doubled = (sum(cell[at] > 0 for cell in there) for at in (0, 2))
        words = f"{count(len(self.orders), 'order')}, {count(len(self.crashes), 'crash point')}"
        left = len(self.orders) * len(self.crashes) - len(there)
        found = f" · items lost in {count(lost, 'cell')}, doubled in {doubled}" if there else ""
        return f"{words}{found}" + (f" · {left} not run yet" if left else "")


# --- the words ---------------------------------------------------------------------------------------------------------


def _said(cell: Counts | None) -> str:
    """'once 9, doubled 1'."""
    if cell is None:
        return "not run"
    return ", ".join(f"{word} {n}" for word, n in zip(WORDS, cell, strict=True) if n) or "no items"


def _twin(grid: _Grid) -> list[str]:
    """A line an order; the chosen cell in brackets."""
    lines = [["", *(f"after {clean(point)}" for point in grid.crashes)]]
    for order in grid.orders:
        said = [f"[{_said(cell)}]" if mine else _said(cell) for cell, mine in grid.row(order)]
        lines.append([clean(order), *said])
    wide = [max(map(columns, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(pad, line, wide)).rstrip() for line in lines]


# --- the drawing -------------------------------------------------------------------------------------------------------


def _draw(grid: _Grid, title: str, rest: str) -> str:
    """The SVG: crash points on top, a row an order."""
    names = [width(clean(order), NORMAL, bold=True) for order in grid.orders]
    left = min(NAME, max(names, default=0)) + EDGE + 10
    wide = min(CELL, (WIDE - EDGE - left) / max(1, len(grid.crashes)) - GAP)
    places = [left + at * (wide + GAP) for at in range(len(grid.crashes))]
    tallest = max((sum(cell) for cell in grid.counts.values()), default=0)
    parts, y = [headline(title, rest)], 46.0
    for x, point in zip(places, grid.crashes, strict=True):
        parts.append(text(x + wide / 2, y - 8, fit(f"killed after {point}", NORMAL, wide), anchor="middle"))
    for order in grid.orders:
        parts.append(text(EDGE, y + HIGH / 2 + 4, fit(order, NORMAL, left - EDGE, bold=True), kind="bold"))
        for x, (cell, mine) in zip(places, grid.row(order), strict=True):
            kind = "cell" + (" none" if cell is None else "") + (" chosen" if mine else "")
            parts.append(tag("rect", x=x, y=y, width=wide, height=HIGH, rx=4, class_=kind))
            parts += _bars(cell, x, y, wide, tallest) if cell else [_missing(x, y, wide)]
        y += HIGH + GAP
    right = max(left + len(places) * (wide + GAP) - GAP, EDGE + headline_width(title, rest))
    return sheet(right + EDGE, y + 2, f"{title} · {rest}", parts, STYLE)


def _missing(x: float, y: float, wide: float) -> str:
    """A cell that was not run."""
    return text(x + wide / 2, y + HIGH / 2 + 3, "not run", kind="faint", anchor="middle")


def _bars(cell: Counts, x: float, y: float, wide: float, tallest: int) -> list[str]:
    """The three bars of a cell; none where the number is 0."""
    parts, foot, step = [], y + HIGH - 14, wide / 3
    for at, (word, n) in enumerate(zip(WORDS, cell, strict=True)):
        middle = x + step * (at + 0.5)
        high = max(4.0, BAR * n / max(1, tallest)) if n else 0.0
        if n:
            parts.append(tag("rect", x=middle - THICK / 2, y=foot - high, width=THICK, height=high, class_=word))
        loud = "bold" if n and word != "once" else "faint" if not n else ""
        parts.append(text(middle, foot - high - 3, fit(str(n), NORMAL, step), kind=loud, anchor="middle"))
        parts.append(text(middle, foot + 10, word, SMALL, "" if n else "faint", anchor="middle"))
    return parts
