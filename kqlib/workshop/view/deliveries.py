"""The deliveries of one item: which worker had it when, and how each delivery ended.

In:  `Delivery` values: worker, attempt, from when to when (any unit), how it ended, what was done in it.
Out: `deliveries(them, title="INT-MIL") -> Picture`. Its twin:

    INT-MIL · 2 deliveries, 2 workers
    first life   ¹read, work, write ✕ killed
    second life  ²read, work, write, commit ✓ ack

Time goes to the right, a worker is a row (two deliveries at once are two lines of it), a delivery is a block with its attempt and
what was done. At its end are a sign and a word:
✓ ack · ↩ release · ⏱ expired · ✕ killed · ⛔ refused · … open. In a history of several items an item is a row (`rows="item"`):
↻ restart is a worker that left, ✗ wrong is a delivery that must not be, ? missing is one that must be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kqlib.text import clean, count
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture, aligned
from kqlib.workshop.view.svg import (
    BIG,
    NORMAL,
    SUPERSCRIPT,
    box,
    check_mark,
    clock,
    cross,
    fit,
    number,
    path,
    red,
    tag,
    text,
    width,
)

ENDS = {"ack": "✓", "release": "↩", "expired": "⏱", "killed": "✕", "refused": "⛔", "open": "…"}
ENDS |= {"restart": "↻", "wrong": "✗", "missing": "?"}
BAD = {"killed", "refused", "expired", "wrong", "missing"}
NAME = 120  # pixels of a worker's name
HIGH, ROW = 24, 34  # a block, and from one row to the next
TAIL = 62  # space for the sign and its word after a block
STYLE = (
    ".held{fill:currentColor;fill-opacity:.06;stroke:currentColor;stroke-opacity:.6}"
    ".time{stroke:currentColor;stroke-opacity:.2}"
)


@dataclass(frozen=True)
class Delivery:
    """One worker had the item once: `attempt` counts from 1, `end` is how it ended, `did` what was done meanwhile."""

    worker: str
    attempt: int
    begin: float
    until: float
    end: str = "ack"
    did: str = ""

    def __post_init__(self) -> None:
        if self.end not in ENDS:
            raise ValueError(f"a delivery ends in {', '.join(ENDS)}, not in {self.end!r}")
        if not self.begin <= self.until:
            raise ValueError(f"a delivery cannot end ({self.until}) before it begins ({self.begin})")

    @property
    def words(self) -> str:
        """'²read, work ✕ killed'."""
        return f"{str(self.attempt).translate(SUPERSCRIPT)}{clean(self.did)} {ENDS[self.end]} {self.end}"


def deliveries(them: Iterable[Delivery], title: str = "one item", rows: str = "worker") -> Picture:
    """The picture of an item's deliveries, a row a worker; or of several items, a row an item."""
    every = sorted(them, key=lambda each: (each.begin, each.attempt))
    held_by: dict[str, list[Delivery]] = {}
    for each in every:
        held_by.setdefault(each.worker, []).append(each)
    counts = f"{count(len(every), 'delivery', 'deliveries')}, {count(len(held_by), rows)}"
    canvas = Canvas(title, counts, y=30.0)
    left = min(NAME, max((width(worker, NORMAL, bold=True) for worker in held_by), default=0)) + EDGE + 10
    first = min((each.begin for each in every), default=0.0)
    last = max((each.until for each in every), default=1.0)
    scale = (WIDE - EDGE - TAIL - left) / ((last - first) or 1.0)
    for worker, held in held_by.items():
        canvas.add(text(EDGE, canvas.y + HIGH / 2 + 4, fit(worker, NORMAL, left - EDGE, bold=True), kind="bold"))
        for line in _lines(held):
            middle = canvas.y + HIGH / 2
            canvas.add(tag("line", x1=left, x2=WIDE - EDGE, y1=middle, y2=middle, class_="time"))
            for each in line:
                x, wide = left + (each.begin - first) * scale, (each.until - each.begin) * scale
                canvas.add(*_block(each, x, canvas.y, max(wide, 14.0)))
            canvas.y += ROW
    canvas.add(text(left, canvas.y + 6, "time →", NORMAL, "faint"), right=WIDE)
    canvas.y += 12
    return canvas.picture(
        aligned((worker, " · ".join(each.words for each in held)) for worker, held in held_by.items()), STYLE
    )


def _lines(held: Iterable[Delivery]) -> list[list[Delivery]]:
    """A row's deliveries in as few lines as they need: two at the same time are one below the other."""
    lines: list[list[Delivery]] = []
    for each in held:
        line = next((line for line in lines if line[-1].until <= each.begin), None)
        if line is None:
            lines.append([each])
        else:
            line.append(each)
    return lines


def _block(one: Delivery, x: float, y: float, wide: float) -> list[str]:
    """A block: its attempt in bold, what was done, and after it how it ended."""
    middle, attempt = y + HIGH / 2, str(one.attempt)
    begin = 12 + width(attempt, NORMAL, bold=True)
    parts = [
        box(x, y, wide, HIGH, "paper"),
        box(x, y, wide, HIGH, "held"),
        text(x + 6, middle + 4, attempt, kind="bold"),
    ]
    if one.did and wide - begin - 6 > 20:
        parts.append(text(x + begin, middle + 4, fit(one.did, NORMAL, wide - begin - 6)))
    parts.append(tag("rect", x=x + wide + 1, y=y, width=width(one.end, NORMAL) + 18, height=HIGH, class_="paper"))
    sign = _sign(one.end, x + wide + 9, middle)
    return [*parts, red(sign) if one.end in BAD else sign, text(x + wide + 17, middle + 3, one.end, NORMAL)]


def _sign(end: str, x: float, y: float) -> str:
    """How an end is drawn around a point: not every font has these signs."""
    match end:
        case "ack":
            return check_mark(x, y)
        case "killed" | "wrong":
            return cross(x, y)
        case "expired":
            return clock(x, y)
        case "release" | "restart":
            again = f"M{number(x + 3)} {number(y - 2.5)}a4 4 0 1 0 1 2.5m-1 -5.5v3h-3"
            return path(again if end == "restart" else f"M{number(x + 4)} {number(y - 3)}v3h-8m3 -3l-3 3l3 3")
        case "refused":
            bar = tag("line", x1=x - 2.5, x2=x + 2.5, y1=y, y2=y, class_="line", stroke_width=2)
            return tag("circle", cx=x, cy=y, r=4.5, class_="line", stroke_width=1.5) + bar
    return text(x, y + 3, ENDS[end], BIG, anchor="middle")
