"""What `kq.keys` found, as a picture: keys on their partitions, and which of them growth moves.

In:  a `Spread` or a `Moved`. Out: the picture of `keys.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kqlib import keys
from kqlib.errors import NotAllowed
from kqlib.text import Key
from kqlib.workshop.view.keys import Placed, Placing
from kqlib.workshop.view.keys import keys as drawn
from kqlib.workshop.view.picture import Picture

MOST = 100_000  # keys of a picture, which looks at each of them


def spread(
    found: keys.Spread, title: str = "keys", mark: keys.Key | None = None, letters: Mapping[Key, str] | None = None
) -> Picture:
    """The keys on their partitions. `mark`: a key to point at. `letters`: those of earlier pictures."""
    return drawn([_placing(found.hash, found, len(found))], title, mark, letters)


def moved(found: keys.Moved, title: str = "keys", letters: Mapping[Key, str] | None = None) -> Picture:
    """The keys before and after: which of them are elsewhere, and where they were."""
    sides = (("before", found.before), ("after", found.after))
    return drawn([_placing(name, found, n) for name, n in sides], title, letters=letters)


def _placing(name: str, found: keys.Spread | keys.Moved, n: int) -> Placing:
    if len(found.records) > MOST:
        raise NotAllowed(
            f"a picture is for {MOST:,} keys at most, and these are {len(found.records):,}: look at a part of them"
        )
    records = found.records.items()
    return Placing(name, n, [Placed(key, keys.partition(key, n, found.hash), times) for key, times in records])
