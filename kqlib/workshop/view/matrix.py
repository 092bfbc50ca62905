"""Who reads whom: readers down, writers across, ✓ or ✗ with the rule's short name, and a sentence behind each cell.

In:  an outcome for each reader and writer (`kqlib.workshop.decoding` gives them).
Out: `matrix(outcomes)`: a table, where a cell's sentence is its tooltip. The twin has a line for each sentence that says more than
     the mark does:

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
from kqlib.workshop.view.table import Cell, Table


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


def matrix(outcomes: Iterable[Read], title: str = "") -> Table:
    """The table of these outcomes, in the order in which readers and writers first come; a pair that is missing is –."""
    found = {(each.reader, each.writer): each for each in outcomes}
    readers = dict.fromkeys(reader for reader, _ in found)
    writers = dict.fromkeys(writer for _, writer in found)
    rows = [[reader, *(_cell(found.get((reader, writer))) for writer in writers)] for reader in readers]
    counted = f"{sum(not each.rule for each in found.values())} of {len(found)} pairs read"
    columns = ["reader", *(f"writer {name}" for name in writers)]
    return Matrix(rows, columns, f"{title} · {counted}" if title else counted)


def _cell(pair: Read | None) -> Cell:
    if pair is None:
        return Cell(None)
    java = f" · Java: {pair.java}" if pair.java else ""
    if pair.rule:
        return Cell(f"✗ {pair.rule}{java}", pair.why, strong=True)
    return Cell(f"✓{java}" if java else True, pair.why)
