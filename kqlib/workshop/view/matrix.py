"""Who reads whom: readers down, writers across, ✓ or ✗ with the rule's short name, and a sentence behind each cell.

In:  one `Pair` for each reader and writer (or anything with the same five attributes: kq.matrix gives them).
Out: `matrix(pairs)`: a table (`view.table`), where a cell's sentence is its tooltip; `drawn(pairs)`: the same as a picture. The twin
     of both has a line for each sentence that says more than the mark does:

    12 of 16 pairs read
    reader  writer v1  writer v2
    v1      ✓          ✗ no default
    v1 cannot read v2 at 'min': the writer has no such field, and it has no default (rule: no default)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kqlib.text import clean
from kqlib.workshop.view.picture import (
    EDGE,
    NORMAL,
    SMALL,
    WIDE,
    Picture,
    check_mark,
    cross,
    fit,
    headline,
    headline_width,
    sheet,
    tag,
    text,
    width,
)
from kqlib.workshop.view.table import Cell, Table

HIGH, GAP, TOP = 30, 3, 44  # a cell's height, the space between two, where the first row begins
CORNER = "reader ↓ writer →"
WIDEST, NARROWEST = 104, 44  # of a cell
MOST = 10  # writers
STYLE = (
    ".cell{fill:currentColor;fill-opacity:.06;stroke:currentColor;stroke-opacity:.5}"
    ".no{fill:none;stroke-dasharray:3 2;stroke-opacity:.7}"
)


class Read(Protocol):
    """What a cell is made of."""

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


@dataclass(frozen=True)
class Pair:
    """A reader and a writer; the rule that is broken ('' if it reads); the sentence; Java's verdict where it is another."""

    reader: str
    writer: str
    rule: str = ""
    why: str = ""
    java: str = ""


@dataclass(frozen=True, repr=False)
class Matrix(Table):
    """A table of which the sentences stand for themselves."""

    def _reasons(self) -> list[str]:
        """The sentences that say more than ✓."""
        cells = [(row[0], name, cell) for row in self.rows for name, cell in zip(self.columns, row, strict=True)]
        plain = {f"{first.value} reads {name.removeprefix('writer ')}" for first, name, _ in cells}
        return [clean(cell.why) for _, _, cell in cells if cell.why and cell.why not in plain]


def matrix(pairs: Iterable[Read], title: str = "") -> Table:
    """The table of these pairs, in the order in which readers and writers first come; a pair that is not there is –."""
    found, readers, writers, said = _sorted(pairs)
    rows = [[reader, *(_cell(found.get((reader, writer))) for writer in writers)] for reader in readers]
    return Matrix(rows, ["reader", *(f"writer {name}" for name in writers)], title or said)


def drawn(pairs: Iterable[Read], title: str = "who reads whom") -> Picture:
    """The same as a picture."""
    found, readers, writers, said = _sorted(pairs := list(pairs))
    if len(writers) > MOST:
        raise ValueError(f"a picture has room for {MOST} writers, not {len(writers)}: show the table")
    names = [width(CORNER, SMALL), *(min(140, width(name, NORMAL, bold=True)) for name in readers)]
    left = EDGE + max(names) + 12
    wide = max(NARROWEST, min(WIDEST, (WIDE - left - EDGE) / max(1, len(writers)) - GAP))
    parts = [headline(title, said), text(EDGE, TOP - 8, CORNER, SMALL, kind="faint")]
    parts += [_words(left + at * (wide + GAP), TOP - 8, name, wide) for at, name in enumerate(writers)]
    for row, reader in enumerate(readers):
        y = TOP + row * (HIGH + GAP)
        parts.append(text(EDGE, y + HIGH / 2 + 4, fit(reader, NORMAL, left - EDGE - 6, bold=True), kind="bold"))
        for at, writer in enumerate(writers):
            parts.append(_box(found.get((reader, writer)), left + at * (wide + GAP), y, wide))
    across = max(left + len(writers) * (wide + GAP), EDGE + headline_width(title, said)) + EDGE
    sentence = f"{clean(title)} · {said}"
    svg = sheet(across, TOP + len(readers) * (HIGH + GAP) + EDGE, sentence, parts, STYLE)
    return Picture(svg, matrix(pairs, sentence).text, sentence)


def _sorted(pairs: Iterable[Read]) -> tuple[dict[tuple[str, str], Read], list[str], list[str], str]:
    """The pairs by name, the names in their order, and how many of the pairs read."""
    found = {(pair.reader, pair.writer): pair for pair in pairs}
    readers, writers = (list(dict.fromkeys(names)) for names in (zip(*found, strict=True) if found else ((), ())))
    good = sum(not pair.rule for pair in found.values())
    return found, readers, writers, f"{good} of {len(found)} pairs read"


def _cell(pair: Read | None) -> Cell:
    if pair is None:
        return Cell(None)
    java = f" · Java: {pair.java}" if pair.java else ""
    if pair.rule:
        return Cell(f"✗ {pair.rule}{java}", pair.why, strong=True)
    return Cell(f"✓{java}" if java else True, pair.why)


def _box(pair: Read | None, x: float, y: float, wide: float) -> str:
    """One pair: ✓ on grey, or ✗ and the rule in a dashed box."""
    middle, kind = x + wide / 2, "cell no" if pair is None or pair.rule else "cell"
    box = tag("rect", x=x, y=y, width=wide, height=HIGH, rx=4, class_=kind)
    if pair is None:
        return box
    if pair.java:
        box += text(x + wide - 4, y + 13, f"Java: {pair.java}", SMALL, anchor="end")
    if not pair.rule:
        return box + check_mark(middle, y + HIGH / 2)
    rule = text(middle, y + HIGH - 6, fit(pair.rule, SMALL, wide - 4), SMALL, anchor="middle")
    return box + cross(middle, y + 10) + rule


def _words(x: float, y: float, words: str, wide: float) -> str:
    return text(x + wide / 2, y, fit(words, NORMAL, wide, bold=True), kind="bold", anchor="middle")
