"""Lanes drawn: rows of cells and marks become the SVG of a log.

In:  the rows of lane.py and the letters of letters.py.
Out: `draw(rows, lettering, …) -> str`. A lane that is too long for a row goes on in the next one. Every word has a place of
its own: a mark's word that would touch its neighbour moves a little, else one line down.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from kqlib.text import Key
from kqlib.workshop.view.lane import STATES, Cell, Mark, More, Record, Row, State, Step
from kqlib.workshop.view.legend import Drawn, Item, flow
from kqlib.workshop.view.letters import MOST_KEYS, Lettering
from kqlib.workshop.view.picture import (
    AMBER,
    BIG,
    BLUE,
    EDGE,
    NORMAL,
    RED,
    SMALL,
    WIDE,
    check_mark,
    clock,
    cross,
    escape,
    fit,
    headline,
    headline_width,
    number,
    sheet,
    tag,
    text,
    width,
)

HIGH = 30  # of a cell
AIR = 6  # between two cells: room for a bar
ROOMY, TIGHT = 34, 28  # from one cell to the next; the second where the first would need more than one row
ABOVE = 11  # a cell's offset stands above it
LINE = 11  # from one line of marks' words to the next
NUDGE = 10  # a mark's word may stand so far beside its bar
STYLE = (
    ".waiting rect,.due rect,.done rect,.gone rect{fill:none;stroke:currentColor;stroke-opacity:.7}"
    f".claimed rect{{fill:{BLUE}}}.dead rect{{fill:{RED}}}.claimed,.dead{{color:#fff}}"
    ".due rect{stroke-dasharray:3 2}"
    ".done rect{fill:currentColor;fill-opacity:.12;stroke-opacity:.25}.done text,.done path{opacity:.7}"
    ".gone rect{fill:url(#gone);stroke-opacity:.3}"
    f".bar{{stroke:currentColor;stroke-width:2}}.committed{{stroke:{AMBER};stroke-width:3}}"
)
HATCHING = (
    "<defs><pattern id='gone' width='6' height='6' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>"
    "<line y2='6' stroke='currentColor' stroke-opacity='.4' stroke-width='2'/></pattern></defs>"
)
MEANING: dict[State, str] = {
    "waiting": "waiting",
    "claimed": "claimed (attempt)",
    "due": "due later",
    "done": "done",
    "dead": "dead letter",
    "gone": "gone from the log",
}

# Okabe and Ito's eight, told apart by colour-blind readers too; grey instead of their black, which dark paper would hide
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")
DEEP = {"#0072B2"}  # white letters on this one, dark ones on the others


def draw(rows: Sequence[Row], lettering: Lettering, title: str, rest: str, *, legend: bool, by_key: bool) -> str:
    """The SVG of a log."""
    looks = _Looks(lettering, by_key)
    grid = _Grid.of(rows, lettering)
    title_fits = fit(title, BIG, WIDE - 2 * EDGE - headline_width("", rest), bold=True)
    parts, y, wide = [headline(title_fits, rest)], 30.0, EDGE + headline_width(title_fits, rest)
    for row in rows:
        drawn = _row(row, grid, looks, y)
        parts += drawn.parts
        y, wide = drawn.y, max(wide, drawn.wide)
    if legend:
        for items in (looks.states(rows), looks.keys()):
            drawn = flow(items, y)
            parts += drawn.parts
            y, wide = drawn.y, max(wide, drawn.wide)
    return sheet(wide + EDGE, y + 2, f"{title} · {rest}", [HATCHING, *parts], STYLE)


# --- where things stand ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Grid:
    """The columns of all lanes: where they begin, how far apart, how many in a row."""

    left: float
    pitch: float

    @classmethod
    def of(cls, rows: Sequence[Row], lettering: Lettering) -> _Grid:
        """Roomy if every lane fits into one row, else tight; never so tight that an offset or a letter does not fit."""
        left = EDGE + max((width(row.name, BIG, bold=True) for row in rows), default=0) + 12
        cells = [step for row in rows for step in row.steps if isinstance(step, Cell) and step.first == step.last]
        offset = max((width(cell.offsets, SMALL) + 4 for cell in cells), default=0)
        worn = [lettering[cell.record.key] for cell in cells if cell.record and not cell.gone]
        letter = max((width(key, BIG, bold=True) + 2 * AIR for key in worn), default=0)
        least = math.ceil(max(TIGHT, offset, letter))
        roomy = cls(left, max(ROOMY, least))
        one_row = all(sum(roomy.slots(step) for step in row.steps) <= roomy.per_row for row in rows)
        return roomy if one_row else cls(left, least)

    @property
    def per_row(self) -> int:
        """Cells in a row."""
        return int((WIDE - EDGE - self.left) // self.pitch)

    def slots(self, step: Step) -> int:
        """How many cells wide a step is; marks stand between cells."""
        if isinstance(step, Mark):
            return 0
        if isinstance(step, More):
            return math.ceil((width(step.words, NORMAL) + 2 * AIR) / self.pitch)
        return 1 if step.first == step.last else max(2, math.ceil((width(step.offsets, SMALL) + AIR) / self.pitch))

    def lines(self, steps: Iterable[Step]) -> list[list[tuple[int, Step]]]:
        """Steps with the slot they stand at, a list a row. A mark goes with the cell that it stands before."""
        lines: list[list[tuple[int, Step]]] = [[]]
        marks: list[Step] = []
        at = 0
        for step in steps:
            if isinstance(step, Mark):
                marks.append(step)
                continue
            if at + self.slots(step) > self.per_row:
                lines.append([])
                at = 0
            lines[-1] += [(at, mark) for mark in marks] + [(at, step)]
            marks, at = [], at + self.slots(step)
        lines[-1] += [(at, mark) for mark in marks]
        return lines

    def x(self, slot: int) -> float:
        """The left edge of a slot."""
        return self.left + slot * self.pitch


# --- a lane ------------------------------------------------------------------------------------------------------------


def _row(row: Row, grid: _Grid, looks: _Looks, y: float) -> Drawn:
    """A lane, in as many lines as it needs."""
    if not row.name:
        return Drawn([text(EDGE, y + 10, row.words, kind="faint")], EDGE + width(row.words, NORMAL), y + 26)
    parts = [text(EDGE, y + ABOVE + 19, row.name, BIG, "bold")]
    wide = 0.0
    for line in grid.lines(row.steps):
        cells = [(grid.x(at), step) for at, step in line if not isinstance(step, Mark)]
        bars = [(grid.x(at) - AIR / 2, step) for at, step in line if isinstance(step, Mark)]
        if row.words:  # an empty lane: its bars stand behind the word
            parts.append(text(grid.left, y + ABOVE + 18, row.words, kind="faint"))
            bars = [(x + width(row.words, NORMAL) + 2 * AIR, mark) for x, mark in bars]
        parts += [_step(step, x, y + ABOVE, grid, looks) for x, step in cells]
        marks = _marks(bars, y + ABOVE)
        parts += marks.parts
        ends = [x + grid.slots(step) * grid.pitch for x, step in cells]
        wide, y = max([wide, marks.wide, *ends]), marks.y
    return Drawn(parts, wide, y + 6)


def _step(step: Step, x: float, y: float, grid: _Grid, looks: _Looks) -> str:
    """A cell with its offset above, or how many records are left out."""
    wide = grid.slots(step) * grid.pitch - AIR
    if isinstance(step, More):
        return _more(step, x, y, wide)
    assert isinstance(step, Cell)
    offset = text(x + wide / 2, y - 3, step.offsets, SMALL, "faint", anchor="middle")
    return offset + looks.cell(step.record, x, y, wide)


def _more(step: More, x: float, y: float, wide: float) -> str:
    """'… 960 more' between two dotted lines: the lane goes on behind it."""
    lines = f"M{number(x)} {number(y)}h{number(wide)}M{number(x)} {number(y + HIGH)}h{number(wide)}"
    dotted = tag("path", d=lines, class_="line faint", stroke_dasharray="1 3")
    return dotted + text(x + wide / 2, y + HIGH / 2 + 3.5, step.words, anchor="middle")


def _marks(bars: Sequence[tuple[float, Mark]], y: float) -> Drawn:
    """The bars of one line and their words below, none touching another."""
    parts, wide = [], 0.0
    ends: list[float] = []  # how far right the words of each line below reach
    placed: list[tuple[float, float, int]] = []
    for x, mark in bars:
        long = width(mark.word, NORMAL)
        left = min(max(x - long / 2, EDGE), WIDE - EDGE - long)
        line, left = next(
            ((n, max(left, end + 5)) for n, end in enumerate(ends) if end + 5 - left <= NUDGE), (len(ends), left)
        )
        if left + long > WIDE - EDGE:  # nudged over the edge: a line of its own
            line, left = len(ends), WIDE - EDGE - long
        ends[line : line + 1] = [left + long]
        placed.append((left, left + long, line))
        deep = y + HIGH + 3 + (0 if _crossed(x, line, placed) else line * LINE)
        kind = "bar committed" if "floor" in mark.words else "bar"
        parts.append(tag("line", x1=x, y1=y - 3, x2=x, y2=deep, class_=kind))
        words = text(left + long / 2, y + HIGH + 13 + line * LINE, mark.word, kind="mark", anchor="middle")
        parts.append(words)
        wide = max(wide, left + long)
    return Drawn(parts, wide, y + HIGH + 8 + len(ends) * LINE)


def _crossed(x: float, line: int, placed: Sequence[tuple[float, float, int]]) -> bool:
    """Would a bar that goes down to its word cross another word?"""
    return any(left - 3 < x < right + 3 for left, right, other in placed if other < line)


# --- what a cell looks like --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Looks:
    """Cells: letter on top, state below; filled by state, or by key where the keys are the message."""

    lettering: Lettering
    by_key: bool

    def cell(self, record: Record | None, x: float, y: float, wide: float) -> str:
        """A record, or offsets that hold none."""
        gone = record is None or record.state == "gone"
        fill, ink = (None, None) if gone or not self.by_key else self._colours(record)
        inside = [tag("rect", width=wide, height=HIGH, rx=5, style=fill)]
        if record and not gone:
            inside.append(text(wide / 2, 13, self.lettering[record.key], BIG, "bold", anchor="middle"))
        if record:
            inside.append(_sign(record, wide))
        state, where = record.state if record else "gone", f"translate({number(x)},{number(y)})"
        return tag("g", *inside, class_=state, transform=where, style=ink)

    def _colours(self, record: Record | None) -> tuple[str, str]:
        """By key: its colour in full while the record is to be worked on, a tint after that; the sign tells the state."""
        if record is None or record.key is None:
            return "fill:none;stroke:currentColor", "color:inherit"
        colour = self.colour(record.key)
        if record.state in ("due", "done"):
            return f"fill:{colour};fill-opacity:.25", "color:inherit"
        return f"fill:{colour};stroke:none", f"color:{'#fff' if colour in DEEP else '#111'}"

    def colour(self, key: Key) -> str:
        """A key's colour; the ninth key gets the first one's, and its letter tells them apart."""
        return PALETTE[self.lettering.place(key) % len(PALETTE)]

    def keys(self) -> list[Item]:
        """What the letters stand for."""
        items = []
        for (letter, name), key in itertools.zip_longest(self.lettering.legend(), self.lettering.worn[:MOST_KEYS]):
            dot = self.colour(key) if self.by_key and key is not None else None
            items.append(Item(partial(_letter_and_key, letter, name, dot), 14 * bool(dot) + _wide(letter, name)))
        return items

    def states(self, rows: Sequence[Row]) -> list[Item]:
        """What the cells mean: only those that are there, and nothing for a plain topic."""
        cells = [step for row in rows for step in row.steps if isinstance(step, Cell)]
        there = {"gone" if cell.gone or cell.record is None else cell.record.state for cell in cells}
        if there <= {"waiting", "gone"}:  # a plain topic: nobody works on it, so nothing is waiting
            there -= {"waiting"}
        words = [(state, MEANING[state]) for state in STATES if state in there]
        return [Item(partial(self._swatch, state, said), 24 + width(said, NORMAL)) for state, said in words]

    def _swatch(self, state: State, said: str, x: float, y: float) -> str:
        """A small cell and its meaning."""
        record = Record(0, None, state, attempt=2)
        fill, ink = self._colours(None) if self.by_key and state != "gone" else (None, None)
        box = tag("rect", width=18, height=16, rx=4, style=fill)
        where = f"translate({number(x)},{number(y)})"
        small = tag("g", box, _sign(record, 18, 8), class_=state, transform=where, style=ink)
        return small + text(x + 24, y + 12, said)


def _sign(record: Record, wide: float, y: float = 22) -> str:
    """A record's state, drawn, with its note beside it or instead of it."""
    signs = {"due": clock, "done": check_mark, "dead": cross}
    if sign := signs.get(record.state):
        note = fit(record.note, SMALL, wide - 14) if record.note else ""
        return sign(8 if note else wide / 2, y) + (text(14, y + 3, note, SMALL) if note else "")
    if record.state == "claimed" and not record.note:
        return text(wide / 2, y + 4, str(record.attempt), anchor="middle")
    words = f"{record.attempt} {record.note}" if record.state == "claimed" else record.note
    return text(wide / 2, y + 4, fit(words, SMALL, wide - 2), SMALL, anchor="middle") if words else ""


def _wide(letter: str, name: str) -> float:
    """How wide 'A ARS-CHE' gets."""
    return width(letter, NORMAL, bold=True) + width(" " + name, NORMAL)


def _letter_and_key(letter: str, name: str, dot: str | None, x: float, y: float) -> str:
    """'A ARS-CHE', behind a dot in the key's colour if it has one."""
    circle = tag("circle", cx=x + 5, cy=y + 8, r=5, fill=dot) if dot else ""
    words = tag("tspan", escape(letter), class_="bold") + escape(f" {name}")
    return circle + tag("text", words, x=x + 14 * bool(dot), y=y + 12)
