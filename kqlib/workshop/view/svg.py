"""Elements of an SVG, and how wide words get in it.

In:  places, sizes and words. Out: the text of elements; a number has at most one decimal, so that equal pictures have equal bytes.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import reduce
from operator import add
from typing import Any

from kqlib.text import clean

NORMAL, BIG = 10, 12  # the only sizes of text
BLUE, RED, AMBER = "#2563eb", "#dc2626", "#d97706"  # white is legible on the first two; amber is for bars only
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def tag(name: str, *inside: str, **attributes: Any) -> str:
    """One element; `class_` is class, `stroke_width` is stroke-width, None leaves an attribute out."""
    pairs = [(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None]
    # single quotes: they need no encoding inside src="…", so that a stored picture stays readable
    written = "".join(f" {key}='{escape(number(value))}'" for key, value in pairs)
    body = "".join(inside)
    return f"<{name}{written}>{body}</{name}>" if body else f"<{name}{written}/>"


def text(x: float, y: float, words: str, size: int = NORMAL, kind: str = "", *, anchor: str | None = None) -> str:
    """Words at a baseline; `kind` adds style classes ('bold', 'faint'), `anchor` is 'middle' or 'end'."""
    classes = " ".join(filter(None, ["big" if size == BIG else "", kind]))
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
    # not sum(): since Python 3.12 it rounds otherwise, and pictures would differ
    return reduce(add, map(_em, clean(words)), 0.0) * size * (1.1 if bold else 1)


def fit(words: str, size: int, space: float, bold: bool = False) -> str:
    """Words cut so that they fit into so many pixels."""
    words = clean(words)
    if width(words, size, bold) <= space:
        return words
    shown = ""
    while width(f"{shown}{words[len(shown)]}…", size, bold) <= space:
        shown += words[len(shown)]
    return f"{shown}…"


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
