"""A table: rows and columns with a text twin, for what is better read than drawn.

In:  rows of plain values; a `Cell` where one needs a reason or is bold. True is ✓, False ✗, None –.
Out: `Table(rows, columns, title)`: HTML in a notebook (inline style only: a notebook that is not trusted keeps it,
and it takes JupyterLab's colours), and as text:

    four orders, each crashed at one point
    order       lost  doubled
    read first     3        0
    work first     0        3
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kqlib.text import clean
from kqlib.workshop.view.picture import aligned
from kqlib.workshop.view.svg import escape, number

RULE = "1px solid rgba(128,128,128,.5)"  # a grey that is seen on white and on black
PADDING = "padding:3px 14px 3px 0"


@dataclass(frozen=True)
class Cell:
    """A value with the sentence behind it (`why`: a tooltip, and a line of the twin); `strong` is bold, *so* in the twin."""

    value: Any
    why: str = ""
    strong: bool = False


class Table:
    """Rows under named columns; numbers are aligned to the right, words to the left. `rule`: the row with a line above it."""

    def __init__(
        self, rows: Iterable[Sequence[Any]], columns: Sequence[str], title: str = "", *, rule: int = -1
    ) -> None:
        self.rows = [[value if isinstance(value, Cell) else Cell(value) for value in row] for row in rows]
        self.columns, self.title, self._rule = list(columns), title, rule
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row has {len(row)} cells under {len(self.columns)} columns")

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook stores."""
        return {"text/plain": self.text, "text/html": self.html}

    @property
    def text(self) -> str:
        """The table in words: aligned columns, then a line for each cell's reason."""
        right = [at for at, is_right in enumerate(self._right()) if is_right]
        body = aligned([self.columns, *([*map(_twin, row)] for row in self.rows)], right)
        head = [clean(self.title)] if self.title else []
        return "\n".join([*head, *body, *([] if self.rows else ["(no rows)"]), *self._reasons()])

    @property
    def html(self) -> str:
        """The table for a notebook, a row a line."""
        sides = [f"text-align:{'right' if to_right else 'left'};{PADDING}" for to_right in self._right()]
        caption = "caption-side:top;text-align:left;font-weight:600;padding:0 0 4px;white-space:normal;color:inherit"
        head = "".join(
            f'<th style="{side};border-bottom:{RULE}">{escape(name)}</th>'
            for side, name in zip(sides, self.columns, strict=True)
        )
        body = []
        for at, row in enumerate(self.rows):
            rule = f";border-top:{RULE}" if at == self._rule else ""
            cells = [self._cell(cell, side + rule) for cell, side in zip(row, sides, strict=True)]
            body.append(f"<tr>{''.join(cells)}</tr>")
        titled = [f'<caption style="{caption}">{escape(self.title)}</caption>'] if self.title else []
        start = '<table style="border-collapse:collapse;margin:0;max-width:640px">'
        return "\n".join([start, *titled, f"<thead><tr>{head}</tr></thead>", "<tbody>", *body, "</tbody>", "</table>"])

    def _right(self) -> list[bool]:
        """Which columns are aligned to the right: those of numbers alone."""
        values = [[row[at].value for row in self.rows] for at in range(len(self.columns))]
        return [bool(column) and all(map(_is_number, column)) for column in values]

    def _reasons(self) -> list[str]:
        """The sentences behind cells: 'row, column: why'."""
        lines = []
        for row in self.rows:
            for cell, name in zip(row, self.columns, strict=True):
                where = name if cell is row[0] else f"{_words(row[0])}, {name}"
                lines += [clean(f"{where}: {cell.why}")] if cell.why else []
        return lines

    def _cell(self, cell: Cell, side: str) -> str:
        """A cell as HTML."""
        why = f' title="{escape(cell.why)}"' if cell.why else ""
        bold = ";font-weight:600" if cell.strong else ""
        return f'<td style="{side}{bold};vertical-align:top"{why}>{self._inside(cell)}</td>'

    def _inside(self, cell: Cell) -> str:
        """What a cell holds, as HTML."""
        return escape(_words(cell))


def _is_number(value: Any) -> bool:
    """True and False are not numbers here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(cell: Cell) -> str:
    """A cell's value as text."""
    if cell.value is None or isinstance(cell.value, bool):
        return {True: "✓", False: "✗", None: "–"}[cell.value]
    return clean(number(cell.value))


def _twin(cell: Cell) -> str:
    """A cell in the twin: what is bold is between asterisks."""
    return f"*{_words(cell)}*" if cell.strong else _words(cell)
