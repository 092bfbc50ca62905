"""The audit grid: a lane a partition, a cell an item at its offset, and what became of it.

In:  (partition, offset, verdict) for each item, in any order; verdicts are the audit's (`spark/verdict.py`), as words.
Out: `grid(items) -> Picture`. Its twin:

    football · 2 partitions · 9 items · 6 once, 1 doubled, 2 missing
    p0  once 0…2 · missing 3 · once 4
    p1  once 0 · missing 1 · doubled 2 · once 3

A cell says how often its item came to an end: ✓ once, 2 doubled (amber), 0 missing (red). ✕ is a dead letter, ↩ one that was put
back; an outline waits, a blue one is in somebody's hands, a dashed one was purged (?: its result may have been removed). An offset
without an item has no cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kqlib.text import clean, count, cut
from kqlib.workshop.view.legend import Item, flow
from kqlib.workshop.view.picture import (
    AMBER,
    BLUE,
    EDGE,
    NORMAL,
    RED,
    SMALL,
    Picture,
    check_mark,
    cross,
    headline,
    headline_width,
    sheet,
    tag,
    text,
    width,
)

LONGEST = 40  # of a title
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

Place = tuple[int, int, str]


def grid(items: Iterable[Place], title: str = "audit") -> Picture:
    """The picture of what became of each item: `grid((i.partition, i.offset, i.verdict) for i in …)`."""
    lanes: dict[int, dict[int, str]] = {}
    for partition, offset, verdict in items:
        if verdict not in KINDS:
            raise ValueError(f"{verdict!r} is no verdict; there are {', '.join(KINDS)}")
        lanes.setdefault(partition, {})[offset] = verdict
    all_ = _All({number: dict(sorted(lanes[number].items())) for number in sorted(lanes)})
    title, rest = cut(clean(title), LONGEST), all_.counted()
    sentence = f"{title} · {rest}"
    twin = [f"p{number}  {_said(list(_runs(lane)))}" for number, lane in all_.lanes.items()]
    return Picture(_draw(all_, title, sentence), "\n".join([sentence, *twin]), sentence)


@dataclass(frozen=True)
class _All:
    """Each partition's items, by offset."""

    lanes: Mapping[int, Mapping[int, str]]

    def found(self) -> dict[str, int]:
        """How many have which verdict; what is right first, what is wrong next."""
        seen = Counter(verdict for lane in self.lanes.values() for verdict in lane.values())
        return {verdict: seen[verdict] for verdict in dict.fromkeys((*ORDER, *KINDS)) if seen[verdict]}

    def counted(self) -> str:
        """'2 partitions · 9 items · 6 once, 1 doubled, 2 missing'."""
        found = self.found()
        return " · ".join(filter(None, [self.size(), ", ".join(f"{n:,} {verdict}" for verdict, n in found.items())]))

    def size(self) -> str:
        """'2 partitions · 9 items'."""
        return f"{count(len(self.lanes), 'partition')} · {count(sum(map(len, self.lanes.values())), 'item')}"


def _said(runs: Sequence[str]) -> str:
    """The runs of a lane, the first forty."""
    hidden = len(runs) - RUNS
    return " · ".join([*runs[:RUNS], *([f"… {hidden:,} more"] if hidden > 0 else [])])


def _runs(lane: Mapping[int, str]) -> Iterator[str]:
    """'once 0…2', 'missing 3': neighbours with one verdict together."""
    first = last = -1
    said = ""
    for offset, verdict in lane.items():
        if said and (verdict != said or offset != last + 1):
            yield _run(said, first, last)
            said = ""
        if not said:
            first, said = offset, verdict
        last = offset
    if said:
        yield _run(said, first, last)


def _run(verdict: str, first: int, last: int) -> str:
    return f"{verdict} {first}" if first == last else f"{verdict} {first}…{last}"


# --- the drawing -------------------------------------------------------------------------------------------------------


def _draw(all_: _All, title: str, sentence: str) -> str:
    """The SVG: lanes one below the other, each in as many lines as it needs; what the signs mean, and how many there are."""
    size = all_.size()
    parts, y, right = [headline(title, size)], 28.0, EDGE + headline_width(title, size)
    for partition, lane in all_.lanes.items():
        parts.append(text(EDGE, y + 12, f"p{partition}", kind="bold"))
        low = min(lane)
        lines = 0
        for line, offset, verdict in (((each - low) // ACROSS, each, lane[each]) for each in lane):
            if line >= MOST:
                break
            x, lines = LEFT + (offset - low) % ACROSS * (CELL + GAP), max(lines, line + 1)
            parts += _cell(x, y + line * (CELL + GAP), verdict)
            right = max(right, x + CELL)
        for line in range(lines):
            parts.append(
                text(LEFT - 5, y + line * (CELL + GAP) + 11, str(low + line * ACROSS), SMALL, "faint", anchor="end")
            )
        y += lines * (CELL + GAP)
        if hidden := sum((each - low) // ACROSS >= MOST for each in lane):
            parts.append(text(LEFT, y + 10, f"… {hidden:,} more", kind="faint"))
            y += 14
        y += 6
    legend = flow([_meaning(*each) for each in all_.found().items()], y + 2)
    return sheet(max(right, legend.wide) + EDGE, legend.y + 2, sentence, [*parts, *legend.parts], STYLE)


def _meaning(verdict: str, n: int) -> Item:
    """A cell, and its verdict as a word: '6 once'."""
    words = f"{n:,} {verdict}"
    return Item(
        lambda x, y: "".join(_cell(x, y, verdict)) + text(x + CELL + 5, y + 12, words),
        CELL + 5 + width(words, NORMAL),
    )


def _cell(x: float, y: float, verdict: str) -> list[str]:
    """One item."""
    kind, sign = KINDS[verdict]
    box = tag("rect", x=x, y=y, width=CELL, height=CELL, rx=3, class_=f"cell {kind}")
    middle, base = x + CELL / 2, y + CELL / 2
    if sign == "✓":
        return [box, check_mark(middle, base)]
    if sign == "✕":
        return [box, cross(middle, base)]
    if not sign:
        return [box]
    white = "fill:#fff" if kind == "missing" else None  # by style: a rule of the sheet beats an attribute
    return [box, tag("text", sign, x=middle, y=base + 3.5, text_anchor="middle", class_="bold", style=white)]
