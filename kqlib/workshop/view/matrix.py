"""Who reads whom: readers down, writers across, ✓ or ✗ with the rule's short name, and a sentence behind each cell.

In:  an outcome for each reader and writer (`kqlib.workshop.decoding` gives them).
Out: `matrix(outcomes)`: a table, where a cell's sentence is its tooltip; `drawn(outcomes)`: the same as a picture. Both twins have
     a line for each sentence that says more than the mark does:

    3 of 4 pairs read
    reader  writer v1  writer v2
    v1      ✓          *✗ no default*
    v2      ✓          ✓
    v1 cannot read v2 at 'min': the writer has no such field, and it has no default (rule: no default)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kqlib.text import clean
from kqlib.workshop.view.picture import EDGE, WIDE, Canvas, Picture
from kqlib.workshop.view.svg import NORMAL, box, check_mark, cross, fit, text, width
from kqlib.workshop.view.table import Cell, Table

CORNER = "reader ↓ writer →"
HIGH, GAP = 30, 3  # a cell's height, the space between two
WIDEST, NARROWEST = 104, 44  # of a cell
MOST = 10  # writers
STYLE = (
    ".cell{fill:currentColor;fill-opacity:.06;stroke:currentColor;stroke-opacity:.5}"
    ".no{fill:none;stroke-dasharray:3 2;stroke-opacity:.7}"
)


class Read(Protocol):
    """A reader and a writer; the rule that is broken ('' if it reads); the sentence; Java's verdict where it is another."""

    @property
    def reader(self) -> str: ...
    @property
    def writer(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def java(self) -> str: ...


class Matrix(Table):
    """A table whose sentences name reader and writer themselves."""

    def _reasons(self) -> list[str]:
        """The sentences that say more than ✓."""
        lines = []
        for reader, *cells in self.rows:
            for name, cell in zip(self.columns[1:], cells, strict=True):
                plain = f"{reader.value} reads {name.removeprefix('writer ')}"
                lines += [clean(cell.why)] if cell.why not in ("", plain) else []
        return lines


def matrix(outcomes: Iterable[Read]) -> Table:
    """The table of these outcomes, in the order in which readers and writers first come; a pair that is missing is –."""
    found, readers, writers, counted = _sorted(outcomes)
    rows = [[reader, *(_cell(found.get((reader, writer))) for writer in writers)] for reader in readers]
    columns = ["reader", *(f"writer {name}" for name in writers)]
    return Matrix(rows, columns, counted)


def drawn(outcomes: Iterable[Read], title: str = "who reads whom") -> Picture:
    """The same as a picture; its twin is the table's."""
    found, readers, writers, counted = _sorted(every := list(outcomes))
    if len(writers) > MOST:
        raise ValueError(f"a picture shows at most {MOST} writers, not {len(writers)}: show the table")
    canvas = Canvas(title, counted, y=44.0)
    left = max([width(CORNER, NORMAL), *(min(140, width(name, NORMAL, bold=True)) for name in readers)]) + EDGE + 12
    wide = max(NARROWEST, min(WIDEST, (WIDE - left - EDGE) / max(1, len(writers)) - GAP))
    columns = {writer: left + at * (wide + GAP) for at, writer in enumerate(writers)}
    canvas.add(text(EDGE, canvas.y - 8, CORNER, NORMAL, kind="faint"))
    for writer, x in columns.items():
        name = fit(writer, NORMAL, wide, bold=True)
        canvas.add(text(x + wide / 2, canvas.y - 8, name, kind="bold", anchor="middle"), right=x + wide + GAP)
    for reader in readers:
        name = fit(reader, NORMAL, left - EDGE - 6, bold=True)
        canvas.add(text(EDGE, canvas.y + HIGH / 2 + 4, name, kind="bold"))
        canvas.add(*(_box(found.get((reader, writer)), x, canvas.y, wide) for writer, x in columns.items()))
        canvas.y += HIGH + GAP
    canvas.y += EDGE - 2
    return canvas.picture(matrix(every).text.splitlines()[1:], STYLE)


def _sorted(outcomes: Iterable[Read]) -> tuple[dict[tuple[str, str], Read], list[str], list[str], str]:
    """The outcomes by name, the names in their order, and how many of the pairs read."""
    found = {(each.reader, each.writer): each for each in outcomes}
    readers = list(dict.fromkeys(reader for reader, _ in found))
    writers = list(dict.fromkeys(writer for _, writer in found))
    return found, readers, writers, f"{sum(not each.rule for each in found.values())} of {len(found)} pairs read"


def _cell(pair: Read | None) -> Cell:
    if pair is None:
        return Cell(None)
    java = f" · Java: {pair.java}" if pair.java else ""
    if pair.rule:
        return Cell(f"✗ {pair.rule}{java}", pair.why, strong=True)
    return Cell(f"✓{java}" if java else True, pair.why)


def _box(pair: Read | None, x: float, y: float, wide: float) -> str:
    """One pair: ✓ on grey, or ✗ and the rule in a dashed box."""
    middle = x + wide / 2
    frame = box(x, y, wide, HIGH, "cell no" if pair is None or pair.rule else "cell")
    if pair is None:
        return frame
    if pair.java:
        frame += text(x + wide - 4, y + 13, f"Java: {pair.java}", NORMAL, anchor="end")
    if not pair.rule:
        return frame + check_mark(middle, y + HIGH / 2)
    rule = text(middle, y + HIGH - 6, fit(pair.rule, NORMAL, wide - 4), NORMAL, anchor="middle")
    return frame + cross(middle, y + 10) + rule
