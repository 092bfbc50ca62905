"""Entries side by side, in as many lines as they need: what the signs of a picture mean.

In:  `Item`s: how to draw each at a place, how wide it is.
Out: `flow(items, y) -> Drawn`: the elements, how far right they reach and where the next piece of the picture begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kqlib.workshop.view.picture import EDGE, NORMAL, WIDE, text, width


@dataclass(frozen=True)
class Drawn:
    """A piece of a picture: its elements, how far right it reaches, where the next piece begins."""

    parts: list[str]
    wide: float
    y: float


@dataclass(frozen=True)
class Item:
    """An entry: draws itself at a place."""

    at: Callable[[float, float], str]
    wide: float

    @classmethod
    def sign(cls, sign: Callable[[float, float], str], words: str) -> Item:
        """A sign around a point (a star, a cross), and what it means."""
        return cls(lambda x, y: sign(x + 5, y + 8) + text(x + 14, y + 12, words), 14 + width(words, NORMAL))

    @classmethod
    def words(cls, words: str) -> Item:
        """Words alone."""
        return cls(lambda x, y: text(x, y + 12, words), width(words, NORMAL))


def flow(items: Sequence[Item], y: float) -> Drawn:
    """The entries from the left edge on, line by line."""
    parts: list[str] = []
    x, wide = float(EDGE), 0.0
    for item in items:
        if x > EDGE and x + item.wide > WIDE - EDGE:
            x, y = EDGE, y + 20
        parts.append(item.at(x, y))
        wide = max(wide, x + item.wide)
        x += item.wide + 16
    return Drawn(parts, wide, y + 22 if items else y)
