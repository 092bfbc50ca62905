"""A picture: an SVG, the same in words (its text twin) and one sentence that says what it shows.

In:  shapes and words, from the small kit below (`tag`, `text`, `headline`, `sheet`).
Out: `Picture`: a notebook shows the SVG; a terminal, a screen reader and nbval get the twin.

A notebook gets the SVG as an <img>: an inline <svg> is stripped in a notebook that nobody has trusted yet. Inside an <img>
`prefers-color-scheme` follows the page's color-scheme, which JupyterLab 4.6 sets with its theme (seen in Chromium), and the
browser's own where the page sets none. There the two may disagree, so a picture brings its own paper, in JupyterLab's white
and #111: no edge is seen where they agree, a legible card where they do not.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kqlib.text import clean

WIDE = 640  # no picture is wider: it has to fit beside a notebook's sidebar
EDGE = 8  # free space around a picture
SMALL, NORMAL, BIG = 8, 10, 12  # the only sizes of text

BLUE, RED, AMBER = "#2563eb", "#dc2626", "#d97706"  # white is legible on the first two; amber is for bars only

STYLE = (
    "svg{color:#222}.paper{fill:#fff}"
    "@media (prefers-color-scheme:dark){svg{color:#eee}.paper{fill:#111}}"
    "text{fill:currentColor;font-size:10px}.small{font-size:8px}.big{font-size:12px}"
    ".bold{font-weight:600}.faint{opacity:.7}"
    ".line{fill:none;stroke:currentColor}"
)


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

    def save(self, path: str | Path) -> Path:
        """Write the SVG to a file; says where."""
        target = Path(path)
        target.write_text(self.svg, encoding="utf-8", newline="\n")
        return target


# --- the kit: elements -------------------------------------------------------------------------------------------------


def tag(name: str, *inside: str, **attributes: Any) -> str:
    """One element; `class_` is class, `stroke_width` is stroke-width, None leaves an attribute out."""
    pairs = [(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None]
    # single quotes: they need no encoding inside src="…", so that a stored picture stays readable
    written = "".join(f" {key}='{escape(number(value))}'" for key, value in pairs)
    body = "".join(inside)
    return f"<{name}{written}>{body}</{name}>" if body else f"<{name}{written}/>"


def text(x: float, y: float, words: str, size: int = NORMAL, kind: str = "", *, anchor: str | None = None) -> str:
    """Words at a baseline; `kind` adds style classes ('bold', 'faint'), `anchor` is 'middle' or 'end'."""
    return tag("text", escape(words), x=x, y=y, text_anchor=anchor, class_=_classes(size, kind))


def headline(name: str, rest: str, y: float = 16) -> str:
    """A picture's first line: its name in bold, and what it counts."""
    bold = tag("tspan", escape(name), class_="bold")
    return tag("text", bold, escape(f" · {rest}" if rest else ""), x=EDGE, y=y, class_="big")


def headline_width(name: str, rest: str) -> float:
    """How wide `headline` gets."""
    return width(name, BIG, bold=True) + (width(f" · {rest}", BIG) if rest else 0)


def sheet(wide: float, high: float, title: str, parts: Iterable[str], style: str = "") -> str:
    """The finished SVG: one element a line, so that a stored picture can be compared line by line."""
    wide, high = min(WIDE, math.ceil(wide)), math.ceil(high)
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{wide}' height='{high}' viewBox='0 0 {wide} {high}'"
        " role='img' font-family='ui-sans-serif,system-ui,sans-serif'>"
    )
    paper = tag("rect", class_="paper", width=wide, height=high, rx=6)
    inside = [tag("title", escape(title)), f"<style>{STYLE}{style}</style>", paper, *parts]
    return "\n".join([head, *inside, "</svg>"])


def check_mark(x: float, y: float) -> str:
    """A ✓ around a point: drawn, because not every font has one."""
    return tag("path", d=f"M{number(x - 3.5)} {number(y)}l2.5 3l4.5 -6", class_="line", stroke_width=1.5)


def cross(x: float, y: float, arm: float = 3) -> str:
    """A ✕ around a point."""
    a, b = number(arm * 2), number(-arm * 2)
    lines = f"M{number(x - arm)} {number(y - arm)}l{a} {a}M{number(x - arm)} {number(y + arm)}l{a} {b}"
    return tag("path", d=lines, class_="line", stroke_width=1.5)


def clock(x: float, y: float) -> str:
    """A ◷ around a point."""
    hands = f"M{number(x)} {number(y - 2.5)}v2.5h2"
    return tag("circle", cx=x, cy=y, r=4, class_="line") + tag("path", d=hands, class_="line")


def star(x: float, y: float, size: float = 5) -> str:
    """A ★ around a point."""
    tips = [(size if tip % 2 == 0 else size * 0.42, math.pi * tip / 5) for tip in range(10)]
    points = " ".join(f"{number(x + r * math.sin(a))},{number(y - r * math.cos(a))}" for r, a in tips)
    return tag("polygon", points=points, fill="currentColor")


def diamond(x: float, y: float, size: float = 5) -> str:
    """A ◆ around a point."""
    points = f"{number(x)},{number(y - size)} {number(x + size)},{number(y)}"
    points += f" {number(x)},{number(y + size)} {number(x - size)},{number(y)}"
    return tag("polygon", points=points, fill="currentColor")


# --- the kit: numbers and words ----------------------------------------------------------------------------------------


def number(value: Any) -> str:
    """A number with at most one decimal, so that equal pictures have equal bytes; anything else as it is."""
    if not isinstance(value, float):
        return str(value)
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def escape(words: str) -> str:
    """Words as text or attribute of an element, hostile ones too."""
    return html.escape(clean(words))


def percent(svg: str) -> str:
    """An SVG as it stands in src="data:…": only what must be encoded is, so that a diff stays readable."""
    return re.sub('[%#<>"&]', lambda found: f"%{ord(found[0]):02X}", svg)


def width(words: str, size: int, bold: bool = False) -> float:
    """How wide words get in a wide system font (DejaVu): an upper bound, so that nothing touches in any font."""
    return sum(_em(c) for c in clean(words)) * size * (1.1 if bold else 1)


def fit(words: str, size: int, room: float, bold: bool = False) -> str:
    """Words cut so that they fit into so many pixels."""
    words = clean(words)
    if width(words, size, bold) <= room:
        return words
    shown = ""
    while width(f"{shown}{words[len(shown)]}…", size, bold) <= room:
        shown += words[len(shown)]
    return f"{shown}…"


def columns(words: str) -> int:
    """How many columns of a terminal words take: an East Asian character takes two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in words)


def pad(words: str, wide: int, right: bool = False) -> str:
    """Words filled up with spaces to so many columns."""
    space = " " * (wide - columns(words))
    return space + words if right else words + space


def _classes(size: int, kind: str) -> str | None:
    """The style classes of a text."""
    return " ".join(part for part in ({SMALL: "small", BIG: "big"}.get(size, ""), kind) if part) or None


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
