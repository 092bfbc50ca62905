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

from kqlib.text import clean, count
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture, aligned
from kqlib.workshop.view.svg import AMBER, NORMAL, RED, box, fit, tag, text, width

Counts = tuple[int, int, int]  # lost, once, doubled
Place = tuple[str, str]  # an order and a crash point

WORDS = ("lost", "once", "doubled")
CELL, GAP = 120, 6  # a cell's width, and the space between cells
NAME = 150  # an order's name is at most so wide
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
    canvas = Canvas(title, _counted(orders, crashes, counts), y=46.0)
    names = [width(clean(order), NORMAL, bold=True) for order in orders]
    left = min(NAME, max(names, default=0)) + EDGE + 10
    wide = min(CELL, (WIDE - EDGE - left) / max(1, len(crashes)) - GAP)
    tallest = max([1, *(sum(cell) for cell in counts.values())])
    twin = [["", *(f"after {point}" for point in crashes)]]
    for at, point in enumerate(crashes):
        x = left + at * (wide + GAP)
        words = fit(f"killed after {point}", NORMAL, wide)
        canvas.add(text(x + wide / 2, canvas.y - 8, words, anchor="middle"), right=x + wide)
    for order in orders:
        canvas.add(text(EDGE, canvas.y + HIGH / 2 + 4, fit(order, NORMAL, left - EDGE, bold=True), kind="bold"))
        twin.append([order])
        for at, point in enumerate(crashes):
            cell, mine = counts.get((order, point)), (order, point) == chosen
            twin[-1].append(f"[{_in_words(cell)}]" if mine else _in_words(cell))
            canvas.add(*_cell(cell, mine, left + at * (wide + GAP), canvas.y, wide, unit=BAR / tallest))
        canvas.y += HIGH + GAP
    return canvas.picture(aligned(twin), STYLE)


def _counted(orders: Sequence[str], crashes: Sequence[str], counts: Mapping[Place, Counts]) -> str:
    """'4 orders, 4 crash points · items lost in 2 cells, doubled in 1'."""
    cells = [counts.get((order, point)) for order in orders for point in crashes]
    words = f"{count(len(orders), 'order')}, {count(len(crashes), 'crash point')}"
    if there := [cell for cell in cells if cell is not None]:
        lost, doubled = (sum(cell[at] > 0 for cell in there) for at in (0, 2))
        words += f" · items lost in {count(lost, 'cell')}, doubled in {doubled}"
    return words + (f" · {cells.count(None)} not run yet" if None in cells else "")


def _in_words(cell: Counts | None) -> str:
    """'once 9, doubled 1'."""
    if cell is None:
        return "not run"
    return ", ".join(f"{word} {n}" for word, n in zip(WORDS, cell, strict=True) if n) or "no items"


def _cell(cell: Counts | None, chosen: bool, x: float, y: float, wide: float, *, unit: float) -> list[str]:
    """A cell: its three bars, `unit` pixels an item; or that it was not run."""
    kind = "cell" + (" none" if cell is None else "") + (" chosen" if chosen else "")
    frame = box(x, y, wide, HIGH, kind)
    if cell is None:
        return [frame, text(x + wide / 2, y + HIGH / 2 + 3, "not run", kind="faint", anchor="middle")]
    return [frame, *_bars(cell, x, y + HIGH - 14, wide / 3, unit)]


def _bars(cell: Counts, x: float, foot: float, step: float, unit: float) -> list[str]:
    """The three bars of a cell, `unit` pixels an item; none where the number is 0."""
    parts = []
    for at, (word, n) in enumerate(zip(WORDS, cell, strict=True)):
        middle = x + step * (at + 0.5)
        high = max(4.0, unit * n) if n else 0.0
        if n:
            parts.append(tag("rect", x=middle - THICK / 2, y=foot - high, width=THICK, height=high, class_=word))
        loud = "bold" if n and word != "once" else "faint" if not n else ""
        parts.append(text(middle, foot - high - 3, fit(str(n), NORMAL, step), kind=loud, anchor="middle"))
        parts.append(text(middle, foot + 10, word, NORMAL, "" if n else "faint", anchor="middle"))
    return parts
