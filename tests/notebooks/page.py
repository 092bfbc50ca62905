"""A notebook as the gate reads it, and what a finding looks like.

In: a path and a notebook. Out: its cells with their numbers, the words that an output shows a reader, findings.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from nbformat import NotebookNode

REPO = Path(__file__).resolve().parents[2]
PICTURE_MARKS = ("<img", "<svg")


def named(path: Path) -> str:
    """A path as a person reads it: within the checkout from its root on."""
    return str(path.relative_to(REPO) if path.is_relative_to(REPO) else path)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong in one notebook, and what to do about it."""

    path: Path
    cell: str  # "" when it is about the whole notebook
    what: str
    do: str

    def __str__(self) -> str:
        return ": ".join([named(self.path), *([self.cell] if self.cell else []), f"{self.what}; {self.do}"])


@dataclass(frozen=True)
class Cell:
    """One cell with its place: `number` counts all cells from 1, `code` counts code cells from 1 (0 for prose)."""

    number: int
    code: int
    node: NotebookNode

    @property
    def place(self) -> str:
        """Its place as an author looks for it: 'cell 7 [3]' is the third code cell."""
        return f"cell {self.number} [{self.code}]" if self.code else f"cell {self.number}"

    @property
    def source(self) -> str:
        return str(self.node.source)

    @property
    def tags(self) -> list[str]:
        return list(self.node.metadata.get("tags", []))

    @property
    def outputs(self) -> list[NotebookNode]:
        return list(self.node.get("outputs", []))


Wrong = tuple[
    Cell | None, str, str
]  # what a rule yields: the cell (None: the whole notebook), what is wrong, what to do


@dataclass(frozen=True)
class Page:
    """A notebook and where it lies."""

    path: Path
    nb: NotebookNode

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells, numbered."""
        code, cells = 0, []
        for number, node in enumerate(self.nb.cells, 1):
            is_code = node.cell_type == "code"
            code += is_code
            cells.append(Cell(number, code if is_code else 0, node))
        return cells

    @property
    def code(self) -> list[Cell]:
        """The code cells."""
        return [cell for cell in self.cells if cell.code]

    @property
    def prose(self) -> list[Cell]:
        """The Markdown cells."""
        return [cell for cell in self.cells if cell.node.cell_type == "markdown"]


class _Shown(HTMLParser):
    """Collects the words of an HTML or SVG text that a reader or a screen reader meets."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden = tag in ("style", "script")
        for name, value in attrs:
            if value and value.startswith("data:"):
                self.words += [] if value.startswith("data:image/png") else [html_words(decoded(value))]
            elif value and name in ("alt", "title", "aria-label", "href", "src"):
                self.words.append(value)

    def handle_endtag(self, tag: str) -> None:
        self.hidden = False

    def handle_data(self, data: str) -> None:
        if not self.hidden and data.strip():
            self.words.append(data.strip())


def html_words(text: str) -> str:
    """The words in an HTML or SVG text, those of pictures inside it too, without styles and a drawing's numbers."""
    parser = _Shown()
    parser.feed(text)
    parser.close()
    return "\n".join(parser.words)


def decoded(address: str) -> str:
    """The text that a `data:` address holds."""
    head, _, body = address.partition(",")
    return base64.b64decode(body).decode(errors="replace") if head.endswith(";base64") else unquote(body)


def output_words(output: NotebookNode) -> Iterator[str]:
    """Every text of an output that a reader may see: streams, errors, plain, HTML with its pictures, Markdown."""
    if output.output_type == "stream":
        yield output.text
    elif output.output_type == "error":
        yield f"{output.ename}: {output.evalue}"
        yield from output.traceback
    else:
        for kind, value in output.data.items():
            if isinstance(value, str) and kind in ("text/html", "image/svg+xml"):
                yield html_words(value)
            elif isinstance(value, str) and kind.startswith("text/"):
                yield value
            elif not kind.startswith("image/"):
                yield str(value)  # application/json and its like


def is_picture(output: NotebookNode) -> bool:
    """Does this output show a picture? Its text twin then says the same as the picture."""
    html = output.data.get("text/html", "")
    return any(kind.startswith("image/") for kind in output.data) or any(mark in html for mark in PICTURE_MARKS)
