"""A key to type, partitions to slide, a hash to switch: where the key goes, among the ten games of a match day.

In:  nothing; the games of `games.py`. Out: `keys()`: a Playground over the picture of `view.keys`. No broker is asked.
"""

# ruff: noqa: A002 (`hash` is the word for it)

from __future__ import annotations

import ipywidgets as widgets

from kqlib.errors import NotAllowed
from kqlib.keys import Hash, partition, spread
from kqlib.text import spelled
from kqlib.workshop import games, view
from kqlib.workshop.play.playground import Playground, dropdown
from kqlib.workshop.view.letters import letters
from kqlib.workshop.view.picture import Picture

TEN = games.FOOTBALL.split()
MOST = 12  # partitions: what a picture shows at a glance
LETTERS = letters(TEN)  # a game keeps its letter and its colour, whatever is typed


def keys() -> Playground:
    """Type a key, slide the partitions, switch the hash: `kq.play.keys()`."""
    controls = {
        "key": widgets.Text("LAL-BOS", description="key"),
        "partitions": widgets.IntSlider(4, 1, MOST, description="partitions"),
        "hash": dropdown("hash", ["murmur2", "crc32"]),
    }
    return Playground("keys", draw, controls)


def draw(key: str, partitions: int, hash: Hash) -> Picture:
    """The ten games and the key on their partitions, the key with a ring around it."""
    if not key and hash == "crc32":
        raise NotAllowed("an empty key has no partition of its own by librdkafka's default: it is treated like none")
    title = f"{spelled(key)} → p{partition(key, partitions, hash)}"
    return view.spread(spread(dict.fromkeys([*TEN, key]), partitions, hash), title, mark=key, letters=LETTERS)
