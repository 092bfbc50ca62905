"""A picture: an SVG, the same in words (its text twin) and one sentence that says what it shows.

In:  shapes and words, collected on a `Canvas`.
Out: `Picture`: a notebook shows the SVG; a terminal, a screen reader and nbval get the twin.

A notebook gets the SVG as an <img>: Jupyter strips an inline <svg> from a notebook that is not trusted yet. Inside an <img>
`prefers-color-scheme` follows the page's color-scheme, which JupyterLab 4.6 sets with its theme, or the browser's own. Page and
browser may disagree, so a picture brings its own background, in JupyterLab's white and #111: it is legible in both cases.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kqlib.text import clean, count, cut

T = TypeVar("T")
WIDE = 640  # no picture is wider: it has to fit beside a notebook's sidebar
EDGE = 8  # free space around a picture
SMALL, NORMAL, BIG = 8, 10, 12  # the only sizes of text
LONGEST = 60  # characters of a name in a twin

BLUE, RED, AMBER = "#2563eb", "#dc2626", "#d97706"  # white is legible on the first two; amber is for bars only

STYLE = (
    "svg{color:#222}.paper{fill:#fff}"
    "@media (prefers-color-scheme:dark){svg{color:#eee}.paper{fill:#111}}"
    "text{fill:currentColor;font-size:10px}.small{font-size:8px}.big{font-size:12px}"
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
        image = f'<img alt="{escape(self.title)}" src="data:image/svg+xml,{percent(self.svg)}">'
        return {"text/plain": self.text, "text/html": image}


class Canvas:
    """A picture under construction: its headline, its elements in order, how far right they reach, where the next one begins."""

    def __init__(self, title: str, counts: str, y: float = 28.0) -> None:
        self.title, self.counts, self.y = cut(clean(title), 100), counts, y
        rest = f" · {counts}" if counts else ""
        name = fit(self.title, BIG, WIDE - 2 * EDGE - width(rest, BIG), bold=True)
        bold = tag("tspan", escape(name), class_="bold")
        self.parts = [tag("text", bold, escape(rest), x=EDGE, y=16, class_="big")]
        self.right = EDGE + width(name, BIG, bold=True) + width(rest, BIG)

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
        wide, high = min(WIDE, math.ceil(self.right + EDGE)), math.ceil(self.y + 2)
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{wide}' height='{high}' viewBox='0 0 {wide} {high}'"
            " role='img' font-family='ui-sans-serif,system-ui,sans-serif'>"
        )
        paper = tag("rect", class_="paper", width=wide, height=high, rx=6)
        inside = [tag("title", escape(sentence)), f"<style>{STYLE}{style}</style>", paper, *self.parts]
        # one element a line, so that a stored picture can be compared line by line
        return Picture("\n".join([head, *inside, "</svg>"]), "\n".join([sentence, *twin]), sentence)


# --- elements ----------------------------------------------------------------------------------------------------------


def tag(name: str, *inside: str, **attributes: Any) -> str:
    """One element; `class_` is class, `stroke_width` is stroke-width, None leaves an attribute out."""
    pairs = [(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None]
    # single quotes: they need no encoding inside src="…", so that a stored picture stays readable
    written = "".join(f" {key}='{escape(number(value))}'" for key, value in pairs)
    body = "".join(inside)
    return f"<{name}{written}>{body}</{name}>" if body else f"<{name}{written}/>"


def text(x: float, y: float, words: str, size: int = NORMAL, kind: str = "", *, anchor: str | None = None) -> str:
    """Words at a baseline; `kind` adds style classes ('bold', 'faint'), `anchor` is 'middle' or 'end'."""
    classes = " ".join(filter(None, [{SMALL: "small", BIG: "big"}.get(size), kind]))
    return tag("text", escape(words), x=x, y=y, text_anchor=anchor, class_=classes or None)


def box(x: float, y: float, wide: float, high: float, kind: str | None = None, *, rx: int = 4, **more: Any) -> str:
    """A rectangle with round corners."""
    return tag("rect", x=x, y=y, width=wide, height=high, rx=rx, class_=kind, **more)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def path(d: str) -> str:
    """A path with strokes of medium width: what the signs below are made of."""
    return tag("path", d=d, class_="line", stroke_width=1.5)


def check_mark(x: float, y: float) -> str:
    """A ✓ around a point: drawn, because not every font has one."""
    return path(f"M{number(x - 3.5)} {number(y)}l2.5 3l4.5 -6")


def cross(x: float, y: float, arm: float = 3) -> str:
    """A ✕ around a point."""
    a, b = number(arm * 2), number(-arm * 2)
    return path(f"M{number(x - arm)} {number(y - arm)}l{a} {a}M{number(x - arm)} {number(y + arm)}l{a} {b}")


def red(*parts: str) -> str:
    """Signs in red."""
    return tag("g", *parts, style=f"color:{RED}")


def clock(x: float, y: float) -> str:
    """A ◷ around a point."""
    pointers = tag("path", d=f"M{number(x)} {number(y - 2.5)}v2.5h2", class_="line")
    return tag("circle", cx=x, cy=y, r=4, class_="line") + pointers


def sign_item(sign: Draw, words: str) -> tuple[Draw, float]:
    """A legend's entry: a sign around a point, and what it means."""
    return lambda x, y: sign(x + 5, y + 8) + text(x + 14, y + 12, words), 14 + width(words, NORMAL)


def words_item(words: str) -> tuple[Draw, float]:
    """A legend's entry of words alone."""
    return lambda x, y: text(x, y + 12, words), width(words, NORMAL)


# --- numbers and words -------------------------------------------------------------------------------------------------


def number(value: Any) -> str:
    """A number with at most one decimal, so that equal pictures have equal bytes; anything else as it is."""
    if not isinstance(value, float):
        return str(value)
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def escape(words: str) -> str:
    """Words as the text or an attribute of an element; markup in them stays words."""
    return html.escape(clean(words))


def percent(svg: str) -> str:
    """An SVG as it stands in src="data:…": only what must be encoded is, so that a diff stays readable."""
    return re.sub('[%#<>"&]', lambda found: f"%{ord(found[0]):02X}", svg)


def width(words: str, size: int, bold: bool = False) -> float:
    """How wide words get in a wide system font (DejaVu): an upper bound, so that nothing touches in any font."""
    return sum(_em(c) for c in clean(words)) * size * (1.1 if bold else 1)


def fit(words: str, size: int, space: float, bold: bool = False) -> str:
    """Words cut so that they fit into so many pixels."""
    words = clean(words)
    if width(words, size, bold) <= space:
        return words
    shown = ""
    while width(f"{shown}{words[len(shown)]}…", size, bold) <= space:
        shown += words[len(shown)]
    return f"{shown}…"


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


def left_out(hidden: Sequence[object], noun: str) -> list[str]:
    """'… 76 more partitions in between', if any are hidden."""
    return [f"… {count(len(hidden), f'more {noun}')} in between"] if hidden else []


def _padded(words: str, wide: int, right: bool) -> str:
    """Words filled up with spaces to so many columns."""
    space = " " * (wide - columns(words))
    return space + words if right else words + space


def _em(c: str) -> float:
    """The width of one character, in parts of the font's size."""
    for chars, em in (("ijlI|!'.,:;·", 0.33), (' -()[]/ftr"', 0.42), ("mwMW%@", 1.0)):
        if c in chars:
            return em
    if "a" <= c <= "z" or "0" <= c <= "9":
        return 0.64
    if "A" <= c <= "Z":
        return 0.78
    return 1.3 if unicodedata.east_asian_width(c) in "WF" else 0.9
