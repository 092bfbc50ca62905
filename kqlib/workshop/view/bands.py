"""Ratios as bands on a scale of powers of ten: how many times as much as the first way, and how sure that is.

In:  rows: a name, the band (its ends; None: open), and the band in words; perhaps what was measured. Out: `bands(rows) -> Picture`.
Its twin names the bands only, and so it is the same on every run:

    seconds for each item, compared with 'batches' · 2 ways
    flush after each  at least 20 ×
    acks=1            between 1/2 and 2 ×

With `measured` a row also has a dot and its figure. That is for a live view and not for what is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kqlib.text import count
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture, aligned
from kqlib.workshop.view.svg import AMBER, BLUE, NORMAL, box, fit, line, tag, text, width

NAME, ROW, HEAD = 190, 20, 46  # pixels: the most for a name, the height of a row, what is above the rows
FIGURE = 140  # pixels for the words or the figure beside a band
STYLE = (
    f".band{{fill:{BLUE};fill-opacity:.25;stroke:{BLUE}}}.open{{fill:{BLUE};fill-opacity:.5;stroke:{BLUE}}}"
    f".same{{stroke:currentColor;stroke-opacity:.7}}.grid{{stroke:currentColor;stroke-opacity:.15}}.dot{{fill:{AMBER}}}"
)


@dataclass(frozen=True)
class Band:
    """One way: its band, the band in words, and for a live view the ratio that was measured and its figure."""

    name: str
    low: float | None
    high: float | None
    words: str
    measured: float | None = None
    figure: str = ""


def bands(rows: Sequence[Band], title: str) -> Picture:
    """The picture of these bands."""
    canvas = Canvas(title, count(len(rows), "way"))
    ends = [end for row in rows for end in (row.low, row.high, row.measured) if end]
    low, high = math.floor(math.log10(min([*ends, 0.5]))), math.ceil(math.log10(max([*ends, 2])))
    left = EDGE + min(NAME, max((width(row.name, NORMAL) for row in rows), default=0)) + 10
    right = WIDE - EDGE - FIGURE

    def place(value: float) -> float:
        return left + (right - left) * (min(max(math.log10(value), low), high) - low) / (high - low)

    bottom = HEAD + ROW * len(rows)
    for power in range(low, high + 1):
        x = place(10.0**power)
        canvas.add(line(x, HEAD - 6, x, bottom, "grid" if power else "same"))
        canvas.add(text(x, HEAD - 10, f"{10**power:,} ×" if power >= 0 else f"1/{10**-power:,}", anchor="middle"))
    for at, row in enumerate(rows):
        y = HEAD + ROW * at
        start, end = place(row.low or 10.0**low), place(row.high or 10.0**high)
        canvas.add(text(EDGE, y + 12, fit(row.name, NORMAL, left - EDGE - 6)))
        canvas.add(box(start, y + 3, max(end - start, 2), ROW - 7, "band" if row.low and row.high else "open"))
        if row.measured:
            canvas.add(tag("circle", cx=place(row.measured), cy=y + ROW / 2 - 0.5, r=4, class_="dot"))
        canvas.add(text(right + 10, y + 12, fit(row.figure or row.words, NORMAL, WIDE - EDGE - right - 10)))
    canvas.right, canvas.y = WIDE - EDGE, bottom + 4
    return canvas.picture(aligned((row.name, row.words) for row in rows), STYLE)
