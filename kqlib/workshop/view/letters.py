"""Keys as letters: a cell of a picture holds one.

In:  keys as Kafka has them (bytes), or str, or None.
Out: `letters(keys, known)`: key -> letter. A key that is one letter stays itself, any other gets A, B … Z, AA … in order of
first appearance. Pass the result on as `known`, and a key keeps its letter through a whole notebook.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from string import ascii_uppercase

from kqlib.text import Key, as_bytes, count, spelled
from kqlib.workshop.view.picture import Draw
from kqlib.workshop.view.svg import NORMAL, escape, tag, width

MOST_KEYS = 24  # keys that a picture spells out

# Okabe and Ito's eight, which colour-blind readers tell apart too; grey instead of their black, which a dark page would hide
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")
DEEP = {"#0072B2"}  # white letters on this one, dark ones on the others


def letters(keys: Iterable[Key], known: Mapping[Key, str] | None = None) -> dict[Key, str]:
    """A letter for each key; those of `known` stay as they are."""
    found = {as_bytes(key): letter for key, letter in (known or {}).items()}
    distinct = dict.fromkeys(as_bytes(key) for key in keys)
    new = [key for key in distinct if key is not None and key not in found]
    own = {key: key.decode() for key in new if _one_letter(key)}
    own = {key: letter for key, letter in own.items() if letter not in found.values()}
    free = _free({*found.values(), *own.values()})
    for key in new:
        found[key] = own.get(key) or next(free)
    return {key: letter for key, letter in found.items() if key is not None}


class Lettering:
    """The letters and colours of one picture: which letter a key has, and which letters have to be explained."""

    def __init__(self, keys: Iterable[Key], known: Mapping[Key, str] | None) -> None:
        shown = [key for key in dict.fromkeys(as_bytes(key) for key in keys) if key is not None]
        self._letters = letters(shown, known)
        self._places = {key: at for at, key in enumerate(self._letters)}
        explained = [key for key in shown if self._letters[key] != spelled(key)]
        self._legend: list[tuple[str, str, Key]] = [(self[key], spelled(key), key) for key in explained[:MOST_KEYS]]
        if hidden := len(explained) - len(self._legend):
            self._legend.append(("…", count(hidden, "more key"), None))

    def __getitem__(self, key: Key) -> str:
        return "·" if key is None else self._letters[as_bytes(key)]

    def colour(self, key: Key) -> str:
        """A key's colour; the ninth key gets the first one's, and a dashed edge."""
        return PALETTE[self._places[as_bytes(key)] % len(PALETTE)]

    def edge(self, key: Key) -> str:
        """The edge of a key's cell: dashed from the ninth key on, so that no two of sixteen keys look alike."""
        again = self._places[as_bytes(key)] // len(PALETTE) % 2
        return ";stroke:currentColor;stroke-width:2.5;stroke-dasharray:4 3" if again else ""

    def style(self, key: Key, tint: bool) -> tuple[str, str | None]:
        """How a cell with this key is filled and edged, in full or in a tint, and the colour of the words in it."""
        colour = self.colour(key)
        if tint:
            return f"fill:{colour};fill-opacity:.25{self.edge(key)}", None
        return f"fill:{colour}{self.edge(key)}", f"color:{'#fff' if colour in DEEP else '#111'}"

    def twin(self) -> list[str]:
        """The line that explains the letters: 'A ARS-CHE · B LIV-MCI'."""
        legend = " · ".join(f"{letter} {name}" for letter, name, _ in self._legend)
        return [legend] if legend else []

    def legend(self, coloured: bool) -> Iterator[tuple[Draw, float]]:
        """What the letters mean, behind a dot in the key's colour if colours are shown."""
        for letter, name, key in self._legend:
            dot = f"fill:{self.colour(key)}{self.edge(key)}" if coloured and key is not None else ""
            wide = 14 * bool(dot) + width(letter, NORMAL, bold=True) + width(f" {name}", NORMAL)
            yield partial(_letter_and_key, letter, name, dot), wide


def _letter_and_key(letter: str, name: str, dot: str, x: float, y: float) -> str:
    """'A ARS-CHE', behind a dot if it has a colour."""
    circle = tag("circle", cx=x + 5, cy=y + 8, r=5, style=dot) if dot else ""
    words = tag("tspan", escape(letter), class_="bold") + escape(f" {name}")
    return circle + tag("text", words, x=x + 14 * bool(dot), y=y + 12)


def _one_letter(key: bytes) -> bool:
    """Is it one letter? A digit is not: '121' could be key 1 at offset 21, or key 12 at 1."""
    readable = key.decode(errors="replace")  # what does not decode becomes a sign that is no letter
    return len(readable) == 1 and readable.isalpha()


def _free(taken: set[str]) -> Iterator[str]:
    """A, B … Z, AA, AB …, without those that are taken."""
    for length in itertools.count(1):
        for letter in itertools.product(ascii_uppercase, repeat=length):
            if "".join(letter) not in taken:
                yield "".join(letter)
