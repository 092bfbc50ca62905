"""The audit grid: a lane a partition, a cell an item at its offset, and what became of it.

In:  (partition, offset, verdict) for each item, in any order; verdicts are the audit's (`spark/audit.py`), as words.
Out: `grid(items) -> Picture`. Its twin:

    football · 2 partitions · 9 items · 6 once, 1 doubled, 2 missing
    p0  once 0…2 · missing 3 · once 4
    p1  once 0 · missing 1 · doubled 2 · once 3

A cell says how often its item came to an end: ✓ once, 2 doubled (amber), 0 missing (red). ✕ is a dead letter, ↩ one that was put
back; an outline waits, a blue one is claimed, a dashed one was purged (?: its result may have been removed). An offset
without an item has no cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from kqlib.text import count
from kqlib.workshop.view.picture import EDGE, Canvas, Picture, aligned, item
from kqlib.workshop.view.svg import AMBER, BLUE, NORMAL, RED, box, check_mark, cross, tag, text

ACROSS, MOST, RUNS = 32, 12, 40  # cells of a line; lines of a partition; pieces of it in the twin
CELL, GAP, LEFT = 16, 2, 52  # a cell, the space between cells, where they begin
# verdict: its class, its sign
KINDS = {
    "once": ("ended", "✓"),
    "doubled": ("doubled", "2"),
    "missing": ("missing", "0"),
    "dead": ("dead", "✕"),
    "redriven": ("ended", "↩"),
    "purged": ("purged", ""),
    "removed": ("purged", "?"),
    "in flight": ("flight", ""),
    "waiting": ("open", ""),
    "another site's": ("ended", "–"),
}
ORDER = ("once", "doubled", "missing")  # then the others, as they stand above
STYLE = (
    ".cell{stroke:currentColor;stroke-opacity:.35}.open{fill:none;stroke-opacity:.7}.ended{fill:currentColor;fill-opacity:.1}"
    f".doubled{{fill:{AMBER};fill-opacity:.35;stroke:{AMBER};stroke-opacity:1}}.missing{{fill:{RED}}}"
    f".dead{{fill:none;stroke:{RED};stroke-opacity:1}}.flight{{fill:{BLUE}}}.purged{{fill:none;stroke-dasharray:2 2}}"
)


def grid(items: Iterable[tuple[int, int, str]], title: str = "audit") -> Picture:
    """The picture of what became of each item: `grid((i.partition, i.offset, i.verdict) for i in …)`."""
    lanes: dict[int, dict[int, str]] = {}
    for partition, offset, verdict in sorted(items):
        if verdict not in KINDS:
            raise ValueError(f"{verdict!r} is no verdict; there are {', '.join(KINDS)}")
        lanes.setdefault(partition, {})[offset] = verdict
    seen = Counter(verdict for lane in lanes.values() for verdict in lane.values())
    found = {verdict: seen[verdict] for verdict in dict.fromkeys((*ORDER, *KINDS)) if seen[verdict]}
    size = f"{count(len(lanes), 'partition')} · {count(seen.total(), 'item')}"
    canvas = Canvas(title, size)
    for partition, lane in lanes.items():
        _draw_lane(canvas, partition, lane)
    canvas.y += 2
    canvas.legend(item(partial(_swatch, verdict), CELL + 5, f"{n:,} {verdict}") for verdict, n in found.items())
    canvas.counts = " · ".join(filter(None, [size, ", ".join(f"{n:,} {verdict}" for verdict, n in found.items())]))
    return canvas.picture(aligned((f"p{partition}", _in_words(lane)) for partition, lane in lanes.items()), STYLE)


def _in_words(lane: Mapping[int, str]) -> str:
    """'once 0…2 · missing 3': neighbours with one verdict together, the first forty pieces."""
    runs: list[tuple[str, int, int]] = []
    for offset, verdict in lane.items():
        if runs and runs[-1][0] == verdict and runs[-1][2] == offset - 1:
            runs[-1] = (verdict, runs[-1][1], offset)
        else:
            runs.append((verdict, offset, offset))
    words = [
        f"{verdict} {first}" if first == last else f"{verdict} {first}…{last}" for verdict, first, last in runs[:RUNS]
    ]
    return " · ".join([*words, *([f"… {len(runs) - RUNS:,} more"] if len(runs) > RUNS else [])])


def _draw_lane(canvas: Canvas, partition: int, lane: Mapping[int, str]) -> None:
    """A partition's items, in as many lines as it needs."""
    canvas.add(text(EDGE, canvas.y + 12, f"p{partition}", kind="bold"))
    low, lines, hidden = min(lane), 0, 0
    for offset, verdict in lane.items():
        line, place = divmod(offset - low, ACROSS)
        if line >= MOST:
            hidden += 1
            continue
        x, lines = LEFT + place * (CELL + GAP), line + 1
        canvas.add(*_cell(verdict, x, canvas.y + line * (CELL + GAP)), right=x + CELL)
    for line in range(lines):
        y = canvas.y + line * (CELL + GAP) + 11
        canvas.add(text(LEFT - 5, y, str(low + line * ACROSS), NORMAL, "faint", anchor="end"))
    canvas.y += lines * (CELL + GAP)
    if hidden:
        canvas.add(text(LEFT, canvas.y + 10, f"… {hidden:,} more", kind="faint"))
        canvas.y += 14
    canvas.y += 6


def _swatch(verdict: str, x: float, y: float) -> str:
    return "".join(_cell(verdict, x, y))


def _cell(verdict: str, x: float, y: float) -> tuple[str, str]:
    """One item: its box and its sign."""
    kind, sign = KINDS[verdict]
    frame, middle = box(x, y, CELL, CELL, f"cell {kind}", rx=3), y + CELL / 2
    x += CELL / 2
    if sign == "✓":
        return frame, check_mark(x, middle)
    if sign == "✕":
        return frame, cross(x, middle)
    white = "fill:#fff" if kind == "missing" else None  # by style: a rule of the sheet beats an attribute
    word = tag("text", sign, x=x, y=middle + 3.5, text_anchor="middle", class_="bold", style=white)
    return frame, word if sign else ""
