"""A picture: an SVG, the same in words (its text twin) and one sentence that says what it shows.

In:  shapes and words, collected on a `Canvas`.
Out: `Picture`: a notebook shows the SVG; a terminal, a screen reader and nbval get the twin.

A notebook gets the SVG as an <img>: Jupyter strips an inline <svg> from a notebook that is not trusted yet. Inside an <img>
`prefers-color-scheme` follows the page's color-scheme, which JupyterLab 4.6 sets with its theme, or the browser's own. Page and
browser may disagree, so a picture brings its own background, in JupyterLab's white and #111: it is legible in both cases.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kqlib.text import clean, count, cut
from kqlib.workshop.view.svg import BIG, NORMAL, escape, fit, percent, tag, text, width

T = TypeVar("T")
WIDE = 640  # no picture is wider: it has to fit beside a notebook's sidebar
EDGE = 8  # free space around a picture
LONGEST = 60  # characters of a name in a twin

STYLE = (
    "svg{color:#222}.paper{fill:#fff}"
    "@media (prefers-color-scheme:dark){svg{color:#eee}.paper{fill:#111}}"
    "text{fill:currentColor;font-size:10px}.big{font-size:12px}"
    ".bold{font-weight:600}.faint{opacity:.7}"
    ".line{fill:none;stroke:currentColor}"
)

Draw = Callable[[float, float], str]  # draws something at a place


@dataclass(frozen=True, repr=False)
class Picture:
    """An SVG with the same in words (`text`) and one sentence (`title`)."""

    svg: str
    text: str
    title: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook stores: the twin for text, an <img> for HTML."""
        # Jupyter shrinks an image that is wider than its page; this one keeps its size and gets a scrollbar
        source = f"data:image/svg+xml,{percent(self.svg)}"
        image = f'<img style="max-width:none" alt="{escape(self.title)}" src="{source}">'
        return {"text/plain": self.text, "text/html": image}


class Canvas:
    """A picture under construction: its headline, its elements in order, how far right they reach, where the next one begins."""

    def __init__(self, title: str, counts: str, y: float = 28.0) -> None:
        self.title, self.counts, self.y = cut(clean(title), 100), counts, y
        space, rest = WIDE - 2 * EDGE, f" · {counts}" if counts else ""
        name = fit(self.title, BIG, space, bold=True)
        bold, wide, more = tag("tspan", escape(name), class_="bold"), width(name, BIG, bold=True), width(rest, BIG)
        self.above = 16 if rest and wide + more > space else 0  # pixels of a title that has its counts in a second line
        if self.above:
            self.parts = [tag("text", bold, x=EDGE, y=0, class_="big"), text(EDGE, 16, fit(counts, BIG, space), BIG)]
            self.right = EDGE + max(wide, min(space, width(counts, BIG)))
        else:
            self.parts = [tag("text", bold, escape(rest), x=EDGE, y=16, class_="big")]
            self.right = EDGE + wide + more

    def add(self, *parts: str, right: float = 0) -> None:
        """Add elements; `right` is how far right they reach."""
        self.parts += filter(None, parts)
        self.right = max(self.right, right)

    def legend(self, items: Iterable[tuple[Draw, float]]) -> None:
        """Add entries side by side, each given by how to draw it and how wide it is, in as many lines as they need."""
        x = float(EDGE)
        for draw, wide in items:
            if x > EDGE and x + wide > WIDE - EDGE:
                x, self.y = EDGE, self.y + 20
            self.add(draw(x, self.y), right=x + wide)
            x += wide + 16
        self.y += 22 if x > EDGE else 0

    def picture(self, twin: Iterable[str], style: str) -> Picture:
        """The finished picture, with the lines of its twin."""
        sentence = f"{self.title} · {self.counts}" if self.counts else self.title
        wide, high = min(WIDE, math.ceil(self.right + EDGE)), math.ceil(self.y + 2) + self.above
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{wide}' height='{high}' viewBox='0 {-self.above} {wide} {high}'"
            " role='img' font-family='ui-sans-serif,system-ui,sans-serif'>"
        )
        paper = tag("rect", class_="paper", y=-self.above or None, width=wide, height=high, rx=6)
        inside = [tag("title", escape(sentence)), f"<style>{STYLE}{style}</style>", paper, *self.parts]
        # one element a line, so that a stored picture can be compared line by line
        return Picture("\n".join([head, *inside, "</svg>"]), "\n".join([sentence, *twin]), sentence)


# --- legends -----------------------------------------------------------------------------------------------------------


def item(draw: Draw, space: float, words: str) -> tuple[Draw, float]:
    """A legend's entry: what is drawn, within so many pixels, and what it means."""
    return lambda x, y: draw(x, y) + text(x + space, y + 12, words), space + width(words, NORMAL)


def sign_item(sign: Draw, words: str) -> tuple[Draw, float]:
    """A legend's entry: a sign around a point, and what it means."""
    return item(lambda x, y: sign(x + 5, y + 8), 14, words)


def words_item(words: str) -> tuple[Draw, float]:
    """A legend's entry of words alone."""
    return item(lambda x, y: "", 0, words)


# --- twins -------------------------------------------------------------------------------------------------------------


def columns(words: str) -> int:
    """How many columns of a terminal words take: an East Asian character takes two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in words)


def aligned(rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Rows of words as lines with aligned columns; `right`: the columns whose words are aligned to the right."""
    cells = [[clean(word) for word in row] for row in rows]
    wide = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(_padded(row[at], wide[at], at in right) for at in range(len(wide))).rstrip() for row in cells]


def shortened(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
    """Of more than 24 items the first ten, those that are left out, and the last ten."""
    return (items, (), ()) if len(items) <= 24 else (items[:10], items[10:-10], items[-10:])


def ends(items: Sequence[T], noun: str) -> tuple[list[T], list[str]]:
    """The items that are drawn, and a line that counts the others: '… 76 more partitions in between'."""
    first, hidden, last = shortened(items)
    return [*first, *last], [f"… {count(len(hidden), f'more {noun}')} in between"] if hidden else []


def named(words: str) -> str:
    """A name in a twin: on one line, and not too long."""
    return cut(clean(words), LONGEST)


def _padded(words: str, wide: int, right: bool) -> str:
    """Words filled up with spaces to so many columns."""
    space = " " * (wide - columns(words))
    return space + words if right else words + space
