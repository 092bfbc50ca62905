"""Who reads whom: readers down, writers across, ✓ or ✗ with the rule's short name, and a sentence behind each cell.

In:  an outcome for each reader and writer (`kqlib.workshop.decoding` gives them).
Out: `matrix(outcomes)`: a table, where a cell's sentence is its tooltip. As text it has a line for each sentence that says more than
     the mark does:

    3 of 4 pairs read
    reader  writer v1  writer v2
    v1      ✓          *✗ no default*
    v2      ✓          ✓
    v1 cannot read v2 at 'min': the writer has no such field, and it has no default (rule: no default)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kqlib.text import clean
from kqlib.workshop.view.table import Cell, Table


@dataclass(frozen=True)
class Outcome:
    """How many of a writer's values a reader reads, the rule that failed, and a sentence. java: its verdict, if it is another one."""

    reader: str
    writer: str
    read: int
    tried: int
    rule: str = ""
    why: str = ""
    java: str = ""

    def __bool__(self) -> bool:
        return self.read == self.tried


class Matrix(Table):
    """Outcomes as a table, in the order in which readers and writers first come; a pair that is missing is –."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.outcomes = tuple(outcomes)
        found = {(each.reader, each.writer): each for each in self.outcomes}
        writers = list(dict.fromkeys(writer for _, writer in found))
        readers = dict.fromkeys(reader for reader, _ in found)
        rows = [[reader, *(_cell(found.get((reader, writer))) for writer in writers)] for reader in readers]
        counted = f"{sum(not each.rule for each in found.values())} of {len(found)} pairs read"
        super().__init__(rows, ["reader", *(f"writer {name}" for name in writers)], counted)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def _reasons(self) -> list[str]:
        """The sentences that say more than ✓. They name reader and writer themselves."""
        lines = []
        for reader, *cells in self.rows:
            for name, cell in zip(self.columns[1:], cells, strict=True):
                plain = f"{reader.value} reads {name.removeprefix('writer ')}"
                lines += [clean(cell.why)] if cell.why not in ("", plain) else []
        return lines


def matrix(outcomes: Iterable[Outcome]) -> Matrix:
    """The table of these outcomes, in the order in which readers and writers first come; a pair that is missing is –."""
    return Matrix(outcomes)


def _cell(pair: Outcome | None) -> Cell:
    if pair is None:
        return Cell(None)
    java = f" · Java: {pair.java}" if pair.java else ""
    if pair.rule:
        return Cell(f"✗ {pair.rule}{java}", pair.why, strong=True)
    return Cell(f"✓{java}" if java else True, pair.why)
