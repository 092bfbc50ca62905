"""A table: rows and columns with a text twin, for whatever is better read than drawn.

In:  rows of plain values; a `Cell` where one needs a reason or has to stand out. True is ✓, False ✗, None –.
Out: `Table(rows, columns, title)`: HTML in a notebook (inline style only: it survives in a notebook nobody has trusted yet,
and takes JupyterLab's colours), and as text:

    four orders, each crashed at one point
    order       lost  doubled
    read first     3        0
    work first     0        3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kqlib.text import clean
from kqlib.workshop.view.picture import columns, escape, number, pad

RULE = "1px solid rgba(128,128,128,.5)"  # a grey that is seen on white and on black
PADDING = "padding:3px 14px 3px 0"


@dataclass(frozen=True)
class Cell:
    """A value with the sentence behind it (`why`: a tooltip, and a line of the twin); `strong` is bold, *so* in the twin."""

    value: Any
    why: str = ""
    strong: bool = False


@dataclass(frozen=True, repr=False)
class Table:
    """Rows under named columns; numbers stand right, words left."""

    rows: Sequence[Sequence[Any]]
    columns: Sequence[str]
    title: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(tuple(map(_cell, row)) for row in self.rows))
        object.__setattr__(self, "columns", tuple(self.columns))
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
        lines = [[clean(name) for name in self.columns], *([_twin(cell) for cell in row] for row in self.rows)]
        wide = [max(map(columns, column)) for column in zip(*lines, strict=True)]
        shape = list(zip(wide, self._right(), strict=True))
        body = ["  ".join(pad(word, *form) for word, form in zip(line, shape, strict=True)).rstrip() for line in lines]
        head = [clean(self.title)] if self.title else []
        return "\n".join([*head, *body, *([] if self.rows else ["(no rows)"]), *self._reasons()])

    @property
    def html(self) -> str:
        """The table for a notebook, a row a line."""
        right = self._right()
        sides = [f"text-align:{'right' if to_right else 'left'};{PADDING}" for to_right in right]
        caption = "caption-side:top;text-align:left;font-weight:600;padding:0 0 4px;white-space:normal;color:inherit"
        head = "".join(
            f'<th style="{side};border-bottom:{RULE}">{escape(name)}</th>'
            for side, name in zip(sides, self.columns, strict=True)
        )
        body = ["<tr>" + "".join(map(_html, row, sides)) + "</tr>" for row in self.rows]
        titled = [f'<caption style="{caption}">{escape(self.title)}</caption>'] if self.title else []
        start = '<table style="border-collapse:collapse;margin:0;max-width:640px">'
        return "\n".join([start, *titled, f"<thead><tr>{head}</tr></thead>", "<tbody>", *body, "</tbody>", "</table>"])

    def _right(self) -> list[bool]:
        """Which columns stand right: those of numbers alone."""
        values = [[row[at].value for row in self.rows] for at in range(len(self.columns))]
        return [bool(column) and all(_is_number(value) for value in column) for column in values]

    def _reasons(self) -> list[str]:
        """The sentences behind cells: 'row, column: why'."""
        lines = []
        for row in self.rows:
            for cell, name in zip(row, self.columns, strict=True):
                where = name if cell is row[0] else f"{_words(row[0])}, {name}"
                lines += [f"{clean(where)}: {clean(cell.why)}"] if cell.why else []
        return lines


def _cell(value: Any) -> Cell:
    """A plain value as a cell."""
    return value if isinstance(value, Cell) else Cell(value)


def _is_number(value: Any) -> bool:
    """True and False are not numbers here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(cell: Cell) -> str:
    """A cell's value as text."""
    if cell.value is None or isinstance(cell.value, bool):
        return {True: "✓", False: "✗", None: "–"}[cell.value]
    return clean(number(cell.value))


def _twin(cell: Cell) -> str:
    """A cell in the twin: what stands out is between asterisks."""
    return f"*{_words(cell)}*" if cell.strong else _words(cell)


def _html(cell: Cell, side: str) -> str:
    """A cell as HTML."""
    why = f' title="{escape(cell.why)}"' if cell.why else ""
    bold = ";font-weight:600" if cell.strong else ""
    return f'<td style="{side}{bold};vertical-align:top"{why}>{escape(_words(cell))}</td>'
