"""The deliveries of one item: who had it when, and how each of them let go of it.

In:  `Delivery` values: worker, attempt, from when to when (any unit), how it ended, what was done in it.
Out: `deliveries(them, title="INT-MIL") -> Picture`. Its twin:

    INT-MIL · 2 deliveries, 2 workers
    first life   ¹read, work, write ✕ killed
    second life  ²read, work, write, commit ✓ ack

Time goes to the right, a worker is a row, a delivery a block with its attempt and what was done; at its end stands a sign and a word:
✓ ack · ↩ release · ⏱ expired · ✕ killed · ⛔ refused · … open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kqlib.text import clean, count, cut
from kqlib.workshop.view.picture import (
    BIG,
    EDGE,
    NORMAL,
    RED,
    SMALL,
    WIDE,
    Picture,
    check_mark,
    clock,
    columns,
    cross,
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

ENDS = {"ack": "✓", "release": "↩", "expired": "⏱", "killed": "✕", "refused": "⛔", "open": "…"}
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
LONGEST, NAME = 60, 120  # of a title, in characters; of a worker's name, in pixels
HIGH, ROW = 24, 34  # a block, and from one row to the next
TAIL = 62  # room for the sign and its word after a block
STYLE = (
    ".held{fill:currentColor;fill-opacity:.06;stroke:currentColor;stroke-opacity:.6}"
    ".time{stroke:currentColor;stroke-opacity:.2}"
)


@dataclass(frozen=True)
class Delivery:
    """One worker had the item once: `attempt` counts from 1, `end` is how it let go, `did` what was done meanwhile."""

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


def deliveries(them: Iterable[Delivery], title: str = "one item") -> Picture:
    """The picture of an item's deliveries, a row a worker."""
    every = sorted(them, key=lambda each: (each.begin, each.attempt))
    rows: dict[str, list[Delivery]] = {}
    for each in every:
        rows.setdefault(each.worker, []).append(each)
    title = cut(clean(title), LONGEST)
    rest = f"{count(len(every), 'delivery', 'deliveries')}, {count(len(rows), 'worker')}"
    wide = max(map(columns, map(clean, rows)), default=0)
    lines = [f"{pad(clean(worker), wide)}  {' · '.join(map(_said, held))}" for worker, held in rows.items()]
    sentence = f"{title} · {rest}"
    return Picture(_draw(rows, title, rest), "\n".join([sentence, *lines]), sentence)


def _said(one: Delivery) -> str:
    """'²read, work ✕ killed'."""
    did = f"{clean(one.did)} " if one.did else " "
    return f"{str(one.attempt).translate(RAISED)}{did}{ENDS[one.end]} {one.end}"


def _draw(rows: dict[str, list[Delivery]], title: str, rest: str) -> str:
    """The SVG: a row a worker, time to the right."""
    every = [each for held in rows.values() for each in held]
    left = min(NAME, max((width(clean(worker), NORMAL, bold=True) for worker in rows), default=0)) + EDGE + 10
    first, last = min((e.begin for e in every), default=0.0), max((e.until for e in every), default=1.0)
    scale = (WIDE - EDGE - TAIL - left) / ((last - first) or 1.0)
    parts, y = [headline(title, rest)], 30.0
    for worker, held in rows.items():
        middle = y + HIGH / 2
        parts.append(text(EDGE, middle + 4, fit(worker, NORMAL, left - EDGE, bold=True), kind="bold"))
        parts.append(tag("line", x1=left, x2=WIDE - EDGE, y1=middle, y2=middle, class_="time"))
        for each in held:
            parts += _block(each, left + (each.begin - first) * scale, y, (each.until - each.begin) * scale)
        y += ROW
    parts.append(text(left, y + 6, "time →", SMALL, "faint"))
    return sheet(max(WIDE, EDGE * 2 + headline_width(title, rest)), y + 14, f"{title} · {rest}", parts, STYLE)


def _block(one: Delivery, x: float, y: float, wide: float) -> list[str]:
    """A block: its attempt in bold, what was done, and after it how it ended."""
    wide, middle = max(wide, 14.0), y + HIGH / 2
    attempt = str(one.attempt)
    inside = wide - 12 - width(attempt, NORMAL, bold=True) - 6
    paper = tag("rect", x=x, y=y, width=wide, height=HIGH, rx=4, class_="paper")
    parts = [paper, tag("rect", x=x, y=y, width=wide, height=HIGH, rx=4, class_="held")]
    parts.append(text(x + 6, middle + 4, attempt, kind="bold"))
    if one.did and inside > 20:
        parts.append(text(x + 12 + width(attempt, NORMAL, bold=True), middle + 4, fit(one.did, NORMAL, inside)))
    parts.append(tag("rect", x=x + wide + 1, y=y, width=width(one.end, SMALL) + 18, height=HIGH, class_="paper"))
    sign = _sign(one.end)(x + wide + 9, middle)
    parts.append(tag("g", sign, style=f"color:{RED}") if one.end in {"killed", "refused", "expired"} else sign)
    parts.append(text(x + wide + 17, middle + 3, one.end, SMALL))
    return parts


def _sign(end: str) -> Callable[[float, float], str]:
    """How an end is drawn: not every font has these signs."""
    return {"ack": check_mark, "killed": cross, "expired": clock, "release": _back, "refused": _barred}.get(end, _dots)


def _back(x: float, y: float) -> str:
    """A ↩ around a point."""
    path = f"M{number(x + 4)} {number(y - 3)}v3h-8m3 -3l-3 3l3 3"
    return tag("path", d=path, class_="line", stroke_width=1.5)


def _barred(x: float, y: float) -> str:
    """A ⛔ around a point."""
    return tag("circle", cx=x, cy=y, r=4.5, class_="line", stroke_width=1.5) + tag(
        "line", x1=x - 2.5, x2=x + 2.5, y1=y, y2=y, class_="line", stroke_width=2
    )


def _dots(x: float, y: float) -> str:
    """A … around a point."""
    return text(x, y + 3, "…", BIG, anchor="middle")
