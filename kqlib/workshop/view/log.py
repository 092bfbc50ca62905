"""The log of a topic: a lane is a partition, a cell is a record, a mark is an upright bar between records.

In:  `Lane` values (lane.py), and the letters that keys had in earlier pictures (letters.py).
Out: `log(lanes, title="football") -> Picture`. Its twin:

    football · 2 partitions · 11 + 7 records · 9 not done
    p0  ░12 ░13 |low B✓14 A✓15 |floor C²16 B✓17 A◷18 C✕19 B¹20 |read A21 C22 |end
    p1  D✓8 E✓9 D✓10 |floor E¹11 |read D12 E13 D14 |end

Of more than forty records in a partition the first and the last ten are shown: '… 960 more'. A lane that is too long for a line
goes on in the next one. A mark's word that would touch its neighbour moves a little, else one line down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from kqlib.text import Key, clean, count
from kqlib.workshop.view.lane import FINISHED, STATES, Cell, Lane, Mark, More, Piece, Record, Row, State, rows
from kqlib.workshop.view.letters import Lettering
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Draw, Picture, aligned, item
from kqlib.workshop.view.svg import (
    AMBER,
    BIG,
    BLUE,
    NORMAL,
    RED,
    SUPERSCRIPT,
    check_mark,
    clock,
    cross,
    fit,
    line,
    number,
    tag,
    text,
    width,
)

MOST_TERMS = 4  # partitions up to which the headline counts the records of each one
GLYPHS: dict[State, str] = {"waiting": "", "due": "◷", "done": "✓", "dead": "✕"}
MEANING: dict[State, str] = {
    "waiting": "waiting",
    "claimed": "claimed (attempt)",
    "due": "due later",
    "done": "done",
    "dead": "dead letter",
    "gone": "gone from the log",
}
HIGH = 30  # of a cell
AIR = 6  # between two cells: space for a bar
ROOMY, TIGHT = 34, 28  # from one cell to the next; the second where the first would need more than one line
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


def log(
    lanes: Iterable[Lane],
    title: str = "log",
    letters: Mapping[Key, str] | None = None,
    colour: Literal["state", "key"] = "state",
) -> Picture:
    """The picture of a topic's partitions. `letters`: key -> letter of earlier pictures; new keys get the next free ones."""
    every = list(lanes)
    shown = rows(every)
    cells = [piece for row in shown for piece in row.pieces if isinstance(piece, Cell)]
    lettering = Lettering([cell.record.key for cell in cells if cell.record and cell.state != "gone"], letters)
    cell_style = _Cells(lettering, colour == "key")
    grid = _Grid.of(shown, cells, lettering)
    canvas = Canvas(title, _counts(every), y=30.0)
    canvas.parts.insert(0, HATCHING)
    for row in shown:
        _draw_row(canvas, row, grid, cell_style)
    canvas.legend(cell_style.states(cells))
    canvas.legend(lettering.legend(cell_style.by_key))
    lines = iter(aligned([row.name, _in_words(row, lettering)] for row in shown if row.name))
    twin = [next(lines) if row.name else row.words for row in shown]
    return canvas.picture([*twin, *lettering.twin()], STYLE)


def _counts(lanes: Sequence[Lane]) -> str:
    """'2 partitions · 11 + 7 records · 9 not done'."""
    each = [len(lane.records) for lane in lanes]
    records = f"{' + '.join(map(str, each))} records" if 1 < len(each) <= MOST_TERMS else count(sum(each), "record")
    words = [count(len(lanes), "partition"), records]
    states = [record.state for lane in lanes for record in lane.records]
    if set(states) - {"waiting", "gone"}:  # in a plain topic there is nothing to be done
        words.append(f"{sum(state not in FINISHED for state in states)} not done")
    return " · ".join(words)


def _in_words(row: Row, lettering: Lettering) -> str:
    """A lane: 'B✓14 C²16 ░17 |floor … 960 more'."""
    words = [row.words] if row.words else []
    for piece in row.pieces:
        if isinstance(piece, Mark):
            words.append(f"|{piece.word}")
        elif isinstance(piece, More):
            words.append(piece.words)
        else:
            words.append(_cell_in_words(piece, lettering))
    return " ".join(words)


def _cell_in_words(cell: Cell, lettering: Lettering) -> str:
    """'B✓14', 'C²16', '░12'."""
    record = cell.record
    note = f"({clean(record.note)})" if record and record.note else ""
    if record is None or record.state == "gone":
        return f"░{cell.offsets}{note}"
    claimed = record.state == "claimed"
    sign = str(record.attempt).translate(SUPERSCRIPT) if claimed else GLYPHS[record.state]
    return f"{lettering[record.key]}{sign}{cell.offsets}{note}"


# --- where things stand ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Grid:
    """The columns of all lanes: where they begin, and how far apart they are."""

    left: float
    pitch: float

    @classmethod
    def of(cls, rows: Sequence[Row], cells: Sequence[Cell], lettering: Lettering) -> _Grid:
        """Roomy if every lane fits into one line, else tight; an offset and a letter always fit."""
        left = EDGE + max((width(row.name, BIG, bold=True) for row in rows), default=0) + 12
        least = float(TIGHT)
        for cell in cells:
            if cell.first == cell.last:
                least = max(least, width(cell.offsets, NORMAL) + 4)
            if cell.record and cell.state != "gone":
                least = max(least, width(lettering[cell.record.key], BIG, bold=True) + 2 * AIR)
        least = math.ceil(least)
        roomy = cls(left, max(ROOMY, least))
        one_line = all(sum(roomy.slots(piece) for piece in row.pieces) <= roomy.per_line for row in rows)
        return roomy if one_line else cls(left, least)

    @property
    def per_line(self) -> int:
        """Cells in a line."""
        return int((WIDE - EDGE - self.left) // self.pitch)

    def slots(self, piece: Piece) -> int:
        """How many cells wide a piece is; marks stand between cells."""
        if isinstance(piece, Mark):
            return 0
        if isinstance(piece, More):
            return math.ceil((width(piece.words, NORMAL) + 2 * AIR) / self.pitch)
        return 1 if piece.first == piece.last else max(2, math.ceil((width(piece.offsets, NORMAL) + AIR) / self.pitch))

    def lines(self, pieces: Iterable[Piece]) -> list[list[tuple[float, Piece]]]:
        """Steps with the place where they begin, a list a line. A mark goes with the cell that it stands before."""
        lines: list[list[tuple[float, Piece]]] = [[]]
        marks: list[Piece] = []
        at = 0
        for piece in pieces:
            if isinstance(piece, Mark):
                marks.append(piece)
                continue
            if at + self.slots(piece) > self.per_line:
                lines.append([])
                at = 0
            lines[-1] += [(self.left + at * self.pitch, each) for each in [*marks, piece]]
            marks, at = [], at + self.slots(piece)
        lines[-1] += [(self.left + at * self.pitch, mark) for mark in marks]
        return lines


# --- a lane ------------------------------------------------------------------------------------------------------------


def _draw_row(canvas: Canvas, row: Row, grid: _Grid, cells: _Cells) -> None:
    """A lane, in as many lines as it needs."""
    if not row.name:
        canvas.add(text(EDGE, canvas.y + 10, row.words, kind="faint"), right=EDGE + width(row.words, NORMAL))
        canvas.y += 26
        return
    canvas.add(text(EDGE, canvas.y + ABOVE + 19, row.name, BIG, "bold"))
    for pieces in grid.lines(row.pieces):
        y = canvas.y + ABOVE
        bars = [(x - AIR / 2, piece) for x, piece in pieces if isinstance(piece, Mark)]
        if row.words:  # an empty lane: its bars stand behind the word
            canvas.add(text(grid.left, y + 18, row.words, kind="faint"))
            bars = [(x + width(row.words, NORMAL) + 2 * AIR, mark) for x, mark in bars]
        for x, piece in pieces:
            wide = grid.slots(piece) * grid.pitch
            if isinstance(piece, More):
                canvas.add(_more(piece, x, y, wide - AIR), right=x + wide)
            elif isinstance(piece, Cell):
                offset = text(x + (wide - AIR) / 2, y - 3, piece.offsets, NORMAL, "faint", anchor="middle")
                canvas.add(offset + cells.draw(piece.record, x, y, wide - AIR), right=x + wide)
        _draw_marks(canvas, bars, y)
    canvas.y += 6


def _more(piece: More, x: float, y: float, wide: float) -> str:
    """'… 960 more' between two dotted lines: the lane goes on behind it."""
    lines = f"M{number(x)} {number(y)}h{number(wide)}M{number(x)} {number(y + HIGH)}h{number(wide)}"
    dotted = tag("path", d=lines, class_="line faint", stroke_dasharray="1 3")
    return dotted + text(x + wide / 2, y + HIGH / 2 + 3.5, piece.words, anchor="middle")


def _draw_marks(canvas: Canvas, bars: Sequence[tuple[float, Mark]], y: float) -> None:
    """The bars of one line and their words below, none touching another."""
    ends: list[float] = []  # how far right the words of each line below reach
    placed: list[tuple[float, float, int]] = []
    for x, mark in bars:
        long = width(mark.word, NORMAL)
        left = min(max(x - long / 2, EDGE), WIDE - EDGE - long)
        near = ((n, max(left, end + 5)) for n, end in enumerate(ends) if end + 5 - left <= NUDGE)
        at, left = next(near, (len(ends), left))
        if left + long > WIDE - EDGE:  # nudged over the edge: a line of its own
            at, left = len(ends), WIDE - EDGE - long
        ends[at : at + 1] = [left + long]
        placed.append((left, left + long, at))
        crossed = any(start - 3 < x < end + 3 for start, end, other in placed if other < at)
        deep = y + HIGH + 3 + (0 if crossed else at * LINE)  # a bar goes down to its word, but not across another
        canvas.add(line(x, y - 3, x, deep, "bar committed" if "floor" in mark.word else "bar"))
        words = text(left + long / 2, y + HIGH + 13 + at * LINE, mark.word, kind="mark", anchor="middle")
        canvas.add(words, right=left + long)
    canvas.y = y + HIGH + 8 + len(ends) * LINE


# --- what a cell looks like --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cells:
    """Cells: letter on top, state below; filled by state, or by key where the keys are the message."""

    lettering: Lettering
    by_key: bool

    def draw(self, record: Record | None, x: float, y: float, wide: float) -> str:
        """A record, or offsets that hold none."""
        state = record.state if record else "gone"
        letter = "" if record is None or state == "gone" else self.lettering[record.key]
        fill, ink = self._colours(record) if self.by_key and letter else (None, None)
        inside = [tag("rect", width=wide, height=HIGH, rx=5, style=fill)]
        inside += [text(wide / 2, 13, letter, BIG, "bold", anchor="middle")] if letter else []
        inside += [_sign(record, wide)] if record else []
        return tag("g", *inside, class_=state, transform=f"translate({number(x)},{number(y)})", style=ink)

    def _colours(self, record: Record | None) -> tuple[str, str]:
        """By key: its colour in full while the record is to be worked on, a tint after that; the sign tells the state."""
        if record is None or record.key is None:
            return "fill:none;stroke:currentColor", "color:inherit"
        fill, ink = self.lettering.style(record.key, tint=record.state in ("due", "done"))
        return fill + (";stroke:none" if ink and "stroke:" not in fill else ""), ink or "color:inherit"

    def states(self, cells: Sequence[Cell]) -> list[tuple[Draw, float]]:
        """What the cells mean: only those that are there, and nothing for a plain topic."""
        there = {cell.state for cell in cells}
        if there <= {"waiting", "gone"}:  # a plain topic: nobody works on it, so nothing is waiting
            there -= {"waiting"}
        return [item(partial(self._swatch, state), 24, MEANING[state]) for state in STATES if state in there]

    def _swatch(self, state: State, x: float, y: float) -> str:
        """A small cell."""
        fill, ink = self._colours(None) if self.by_key and state != "gone" else (None, None)
        inside = [tag("rect", width=18, height=16, rx=4, style=fill), _sign(Record(0, None, state, attempt=2), 18, 8)]
        return tag("g", *inside, class_=state, transform=f"translate({number(x)},{number(y)})", style=ink)


def _sign(record: Record, wide: float, y: float = 22) -> str:
    """A record's state, drawn, with its note beside it or instead of it."""
    signs = {"due": clock, "done": check_mark, "dead": cross}
    if sign := signs.get(record.state):
        note = fit(record.note, NORMAL, wide - 14) if record.note else ""
        return sign(8 if note else wide / 2, y) + (text(14, y + 3, note, NORMAL) if note else "")
    if record.state == "claimed" and not record.note:
        return text(wide / 2, y + 4, str(record.attempt), anchor="middle")
    words = f"{record.attempt} {record.note}" if record.state == "claimed" else record.note
    return text(wide / 2, y + 4, fit(words, NORMAL, wide - 2), NORMAL, anchor="middle") if words else ""
