"""A group over time: a row a member, a block a partition held, a gap where nobody worked on it, ✕ a crash.

In:  `Column`s (a change has words, the state after it has none) and `Row`s with `Block`s from column to column.
Out: `timeline(columns, rows, title="scores") -> Picture`. Its twin:

    scores over time · 3 members · 2 changes
                 ann, ben join       cem joins
    ann                         ■■■  ■■·        ■■
    ben                         ■■■  ■■·        ■■
    cem                                         ■■
    stood still                      2 of 6

Time runs to the right and is not to scale. ■ is a partition that a member works on, □ one that a busy member holds, · one that
it had before and let go of in this change, – a member with nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from kqlib.text import clean, count, cut
from kqlib.workshop.view.legend import Item, flow
from kqlib.workshop.view.picture import (
    BIG,
    EDGE,
    NORMAL,
    RED,
    SMALL,
    WIDE,
    Picture,
    columns,
    cross,
    fit,
    headline,
    headline_width,
    pad,
    sheet,
    tag,
    text,
    width,
)

LONGEST_TITLE, LONGEST_NAME = 100, 60
MOST = 14  # columns
TOP, HEAD = 28, 20  # where the columns begin; their words
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
    """A partition in a member's hands, from column to column."""

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
    every, members = list(columns), list(rows)
    title = cut(clean(title), LONGEST_TITLE)
    changes = sum(bool(column.words) for column in every)
    times, members = _latest(every, members)
    earlier = changes - sum(bool(column.words) for column in times)
    more = f"… {count(earlier, 'earlier change')}" if earlier else ""
    rest = f"{count(len(members), 'member')} · {count(changes, 'change')}"
    sentence = f"{title} over time · {rest}"
    twin = [sentence, *_twin(times, members), *([more] if more else [])]
    return Picture(_draw(times, members, (f"{title} over time", rest), more), "\n".join(twin), sentence)


def _latest(times: list[Column], rows: list[Row]) -> tuple[list[Column], list[Row]]:
    """As many columns as can be read, the last ones, beginning with a state."""
    first = max(0, len(times) - MOST)
    while first and first < len(times) and times[first].words:
        first += 1

    def moved(columns: frozenset[int]) -> frozenset[int]:
        return frozenset(at - first for at in columns if at >= first)

    def shown(row: Row) -> Row:
        blocks = [Block(max(0, b.first - first), b.last - first) for b in row.blocks if b.last >= first]
        return Row(row.name, blocks, moved(row.there), moved(row.busy), moved(row.crashed))

    return times[first:], [shown(row) for row in rows]


# --- the words ---------------------------------------------------------------------------------------------------------


def _twin(times: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """A table: a line a member, a column a change or a state."""
    notes = [STILL, *(column.note for column in times)] if any(column.note for column in times) else None
    lines = [["", *(cut(clean(column.words), LONGEST_NAME) for column in times)]]
    lines += [
        [cut(clean(row.name), LONGEST_NAME), *(_glyphs(row, at, times) for at in range(len(times)))] for row in rows
    ]
    lines += [notes] if notes else []
    wide = [max(map(columns, cells)) for cells in zip(*lines, strict=True)]
    return ["  ".join(map(pad, line, wide)).rstrip() for line in lines]


def _glyphs(row: Row, at: int, times: Sequence[Column]) -> str:
    """A member in one column."""
    held = ("□" if at in row.busy else "■") * row.held(at)
    if not times[at].words:
        return held or ("–" if at in row.there else "")
    if at in row.crashed:
        return "✕"
    return held + "·" * max(0, row.held(at - 1) - row.held(at)) if at else held


# --- the drawing -------------------------------------------------------------------------------------------------------


def _draw(times: Sequence[Column], rows: Sequence[Row], head: tuple[str, str], more: str) -> str:
    """The SVG: bands for the changes, then each member's blocks."""
    title, rest = head
    name = fit(title, BIG, WIDE - 2 * EDGE - headline_width("", rest), bold=True)
    edges = _edges(times)
    lanes = [_lanes(row.blocks) for row in rows]
    tall = [max(LEAST, STEP * (max(lane, default=0) + 1) + 8) for lane in lanes]
    low = TOP + HEAD + sum(tall)
    parts = [headline(name, rest)]
    for at, column in enumerate(times):
        if column.words:
            x, wide = edges[at], edges[at + 1] - edges[at]
            parts.append(tag("rect", x=x, y=TOP, width=wide, height=low - TOP, class_="change"))
            parts.append(text(x + wide / 2, TOP + 13, fit(column.words, SMALL, wide - 4), SMALL, anchor="middle"))
            parts.append(
                text(x + wide / 2, low + 13, fit(column.note, NORMAL, wide), anchor="middle") if column.note else ""
            )
    y = float(TOP + HEAD)
    for row, lane, high in zip(rows, lanes, tall, strict=True):
        parts.append(tag("line", x1=EDGE, y1=y, x2=edges[-1], y2=y, class_="rule"))
        parts.append(text(EDGE, y + high / 2 + 3.5, fit(row.name, NORMAL, NAME - 6, bold=True), kind="bold"))
        parts += [*_bars(row, lane, edges, y + 5), *_words(row, times, edges, y + high / 2)]
        y += high
    if any(column.note for column in times):
        parts.append(text(EDGE, low + 13, STILL, kind="faint"))
        low += 18
    legend = flow([*_legend(rows), *([Item.words(more)] if more else [])], low + 4)
    right = max(edges[-1], EDGE + headline_width(name, rest), legend.wide)
    return sheet(right + EDGE, legend.y + 2, f"{title} · {rest}", [*parts, *legend.parts], STYLE)


def _edges(times: Sequence[Column]) -> list[float]:
    """Where each column begins, and where the last one ends; narrower where there are many."""
    wide = [
        float(min(WIDEST, max(CHANGE, width(clean(column.words), SMALL) + 8)) if column.words else STATE)
        for column in times
    ]
    room = WIDE - 2 * EDGE - NAME
    part = min(1.0, room / sum(wide)) if wide else 1.0
    edges = [float(EDGE + NAME)]
    for each in wide:
        edges.append(edges[-1] + each * part)
    return edges


def _lanes(blocks: Sequence[Block]) -> list[int]:
    """A lane for each block, the first that is free."""
    ends: list[int] = []
    found = []
    for block in blocks:
        lane = next((lane for lane, end in enumerate(ends) if end < block.first), len(ends))
        ends[lane : lane + 1] = [block.last]
        found.append(lane)
    return found


def _bars(row: Row, lanes: Sequence[int], edges: Sequence[float], y: float) -> list[str]:
    """A member's blocks."""
    parts = []
    for block, lane in zip(row.blocks, lanes, strict=True):
        for first, last, busy in _pieces(block, row.busy):
            x, kind = edges[first], "waits" if busy else "held"
            parts.append(tag("rect", x=x, y=y + STEP * lane, width=edges[last + 1] - x, height=BAR, rx=2, class_=kind))
    return parts


def _words(row: Row, times: Sequence[Column], edges: Sequence[float], y: float) -> list[str]:
    """What there is to say where a member has no block: idle, or dead."""
    parts = []
    for at, column in enumerate(times):
        if at in row.there and not column.words and not row.held(at):
            parts.append(text((edges[at] + edges[at + 1]) / 2, y + 3.5, "idle", anchor="middle"))
        if at in row.crashed:
            parts.append(tag("g", cross(edges[at] + 8, y, 4), style=f"color:{RED}"))
    return parts


def _pieces(block: Block, busy: frozenset[int]) -> list[tuple[int, int, bool]]:
    """A block, cut where its member gets busy and where it is back."""
    pieces: list[tuple[int, int, bool]] = []
    for at in range(block.first, block.last + 1):
        if pieces and pieces[-1][2] == (at in busy):
            pieces[-1] = (pieces[-1][0], at, pieces[-1][2])
        else:
            pieces.append((at, at, at in busy))
    return pieces


def _legend(rows: Sequence[Row]) -> list[Item]:
    """What the signs mean: those that are there."""
    signs = {"held": "a partition"} | ({"waits": "held by a busy member"} if any(row.busy for row in rows) else {})
    items = [Item.sign(partial(_chip, kind), words) for kind, words in signs.items()]
    if any(row.crashed for row in rows):
        items.append(Item.sign(lambda x, y: tag("g", cross(x, y), style=f"color:{RED}"), "crashed"))
    return items


def _chip(kind: str, x: float, y: float) -> str:
    """A short block around a point."""
    return tag("rect", x=x - 6, y=y - BAR / 2, width=10, height=BAR, rx=2, class_=kind)
