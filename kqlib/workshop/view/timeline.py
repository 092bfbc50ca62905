"""A group over time: a row a member, a block a partition held, a gap where nobody worked on it, ✕ a crash.

In:  `Column`s (a change has words, the state after it has none) and `Row`s with `Block`s from column to column.
Out: `timeline(columns, rows, title="scores") -> Picture`. Its twin:

    scores over time · 3 members · 2 changes
                 ann, ben join       cem joins
    ann                         ■■■  ■■·        ■■
    ben                         ■■■  ■■·        ■■
    cem                                         ■■
    stood still                      2 of 6

Time runs to the right and is not to scale. ■ is a partition that a member works on, □ one that a busy member holds. · is one that
it had before this change. – is a member with nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from kqlib.text import count
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Draw, Picture, aligned, named, sign_item
from kqlib.workshop.view.svg import NORMAL, box, cross, fit, line, red, tag, text, width

HEAD = 20  # above the rows, for the columns' words
NAME = 78  # how wide the names are
STATE, CHANGE, WIDEST = 62, 62, 130  # a state, a change, one with many words
BAR, STEP, LEAST = 7, 10, 24  # a block, from one to the next, a row
STILL = "stood still"
STYLE = (
    ".change{fill:currentColor;fill-opacity:.07}.held{fill:currentColor;fill-opacity:.55}"
    ".waits{fill:none;stroke:currentColor;stroke-opacity:.8;stroke-dasharray:3 2}.rule{stroke:currentColor;stroke-opacity:.2}"
)


@dataclass(frozen=True)
class Column:
    """A change, with words and what it cost, or without words the state after it."""

    words: str = ""
    note: str = ""


@dataclass(frozen=True)
class Block:
    """A partition that a member holds, from column to column."""

    first: int
    last: int


@dataclass(frozen=True)
class Row:
    """A member: its blocks, and the columns in which it is there at all, is busy, crashes."""

    name: str
    blocks: Sequence[Block] = ()
    there: frozenset[int] = frozenset()
    busy: frozenset[int] = frozenset()
    crashed: frozenset[int] = frozenset()

    def held(self, column: int) -> int:
        """How many partitions it holds then."""
        return sum(block.first <= column <= block.last for block in self.blocks)


def timeline(columns: Iterable[Column], rows: Iterable[Row], title: str = "group") -> Picture:
    """The picture of a group over time: who held how much, and in which change that stood still."""
    times, members = list(columns), list(rows)
    changes = sum(bool(column.words) for column in times)
    title = f"{named(title)} over time"
    canvas = Canvas(title, f"{count(len(members), 'member')} · {count(changes, 'change')}")
    _draw(canvas, times, members)
    canvas.legend(_legend(members))
    return canvas.picture(_twin(times, members), STYLE)


def _twin(times: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """A table: a line a member, a column a change or a state."""
    lines = [["", *(named(column.words) for column in times)]]
    for row in rows:
        lines.append([named(row.name), *(_glyphs(row, at, column) for at, column in enumerate(times))])
    if any(column.note for column in times):
        lines.append([STILL, *(column.note for column in times)])
    return aligned(lines)


def _glyphs(row: Row, at: int, column: Column) -> str:
    """A member in one column."""
    held = ("□" if at in row.busy else "■") * row.held(at)
    if not column.words:
        return held or ("–" if at in row.there else "")
    if at in row.crashed:
        return "✕"
    return held + "·" * max(0, row.held(at - 1) - row.held(at))


# --- the drawing -------------------------------------------------------------------------------------------------------


def _draw(canvas: Canvas, times: Sequence[Column], rows: Sequence[Row]) -> None:
    """Bands for the changes, then each member's blocks."""
    edges = _edges(times)
    lanes = [_lanes(row.blocks) for row in rows]
    tall = [max(LEAST, STEP * (max(lane, default=0) + 1) + 8) for lane in lanes]
    low = canvas.y + HEAD + sum(tall)
    for at, column in enumerate(times):
        if column.words:
            x, wide = edges[at], edges[at + 1] - edges[at]
            canvas.add(tag("rect", x=x, y=canvas.y, width=wide, height=low - canvas.y, class_="change"))
            words, note = fit(column.words, NORMAL, wide - 4), fit(column.note, NORMAL, wide)
            canvas.add(text(x + wide / 2, canvas.y + 13, words, NORMAL, anchor="middle"))
            canvas.add(text(x + wide / 2, low + 13, note, anchor="middle") if note else "")
    canvas.right = max(canvas.right, edges[-1])
    y = canvas.y + HEAD
    for row, lane, high in zip(rows, lanes, tall, strict=True):
        canvas.add(line(EDGE, y, edges[-1], y, "rule"))
        canvas.add(text(EDGE, y + high / 2 + 3.5, fit(row.name, NORMAL, NAME - 6, bold=True), kind="bold"))
        canvas.add(*_bars(row, lane, edges, y + 5), *_words(row, times, edges, y + high / 2))
        y += high
    if any(column.note for column in times):
        canvas.add(text(EDGE, low + 13, STILL, kind="faint"))
        low += 18
    canvas.y = low + 4


def _edges(times: Sequence[Column]) -> list[float]:
    """Where each column begins, and where the last one ends; narrower where there are many."""
    wide = []
    for column in times:
        words = max(width(column.words, NORMAL), width(column.note, NORMAL)) + 8
        wide.append(min(WIDEST, max(CHANGE, words)) if column.words else STATE)
    part = min(1.0, (WIDE - 2 * EDGE - NAME) / (sum(wide) or 1))
    return [*accumulate((each * part for each in wide), initial=float(EDGE + NAME))]


def _lanes(blocks: Sequence[Block]) -> list[int]:
    """A lane for each block, the first that is free."""
    ends: list[int] = []
    found = []
    for block in blocks:
        lane = next((lane for lane, end in enumerate(ends) if end < block.first), len(ends))
        ends[lane : lane + 1] = [block.last]
        found.append(lane)
    return found


def _bars(row: Row, lanes: Sequence[int], edges: Sequence[float], y: float) -> Iterator[str]:
    """A member's blocks, cut where the member gets busy and where it is back."""
    for block, lane in zip(row.blocks, lanes, strict=True):
        for busy, piece in groupby(range(block.first, block.last + 1), row.busy.__contains__):
            columns = list(piece)
            x, end = edges[columns[0]], edges[columns[-1] + 1]
            yield box(x, y + STEP * lane, end - x, BAR, "waits" if busy else "held", rx=2)


def _words(row: Row, times: Sequence[Column], edges: Sequence[float], y: float) -> Iterator[str]:
    """What there is to say where a member has no block: idle, or dead."""
    for at, column in enumerate(times):
        if at in row.there and not column.words and not row.held(at):
            yield text((edges[at] + edges[at + 1]) / 2, y + 3.5, "idle", anchor="middle")
        if at in row.crashed:
            yield red(cross(edges[at] + 8, y, 4))


def _legend(rows: Sequence[Row]) -> list[tuple[Draw, float]]:
    """What the signs mean: those that are there."""
    items = [sign_item(lambda x, y: box(x - 6, y - BAR / 2, 10, BAR, "held", rx=2), "a partition")]
    if any(row.busy for row in rows):
        items.append(sign_item(lambda x, y: box(x - 6, y - BAR / 2, 10, BAR, "waits", rx=2), "held by a busy member"))
    if any(row.crashed for row in rows):
        items.append(sign_item(lambda x, y: red(cross(x, y)), "crashed"))
    return items
