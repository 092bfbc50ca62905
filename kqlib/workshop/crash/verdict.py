"""What became of the items of one run: lost, doubled, out of order, or what a judge of your own says.

In:  the items as they were put, the results as they were written. Out: a `Verdict`. Nothing here knows Kafka.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kqlib.errors import NotAllowed
from kqlib.text import count

KEYS = 3  # keys k0, k1, k2 in turn
NUMBER = re.compile(rb"\d+(?!.*\d)", re.DOTALL)  # the last whole number
KINDS = ("lost", "doubled", "order", "judge")

Pair = tuple[bytes | None, bytes | None]  # a key and a value
Id = Callable[[bytes | None], int | None]
Judge = Callable[[Sequence[Pair], Sequence[Pair]], Any]


@dataclass(frozen=True)
class Verdict:
    """The items that have no result, those with more than one, keys whose items came out of order, and complaints of a judge."""

    items: int
    lost: tuple[int, ...] = ()
    doubled: tuple[int, ...] = ()
    order: tuple[str, ...] = ()
    judge: tuple[str, ...] = ()
    strange: int = 0  # results that name no item

    def wrong(self, allowed: Iterable[str] = ()) -> list[str]:
        """The kinds of what went wrong."""
        return [kind for kind in KINDS if getattr(self, kind) and kind not in allowed]

    def __str__(self) -> str:
        words = [f"{kind} {named(getattr(self, kind))}" for kind in ("lost", "doubled") if getattr(self, kind)]
        words += [f"out of order: {', '.join(self.order)}"] if self.order else []
        words += self.judge
        if self.strange:
            words.append(f"{count(self.strange, 'result that names', 'results that name')} no item")
        return ", ".join(words) or "each item has one result"


def named(items: Sequence[int]) -> str:
    """'item 2', 'items 0, 2 and 3'."""
    words = [str(each) for each in items[:5]] + ([f"{len(items) - 5} more"] if len(items) > 5 else [])
    both = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    return f"item{'s' * (len(items) > 1)} {both}"


def make_items(number: int) -> list[Pair]:
    """The items of a run: the value is the number as text."""
    return [(b"k%d" % (each % KEYS), b"%d" % each) for each in range(number)]


def last_number(value: bytes | None) -> int | None:
    """The item that a result names: the last whole number in its value."""
    found = NUMBER.search(value or b"")
    return int(found[0]) if found else None


def judged(items: Sequence[Pair], results: Sequence[Pair], of: Id = last_number, judge: Judge | None = None) -> Verdict:
    """What became of the items."""
    named = [of(value) for _, value in results]
    known = [each for each in named if each is not None and 0 <= each < len(items)]
    counts = Counter(known)
    first = list(dict.fromkeys(known))
    order = []
    for key in dict.fromkeys(key for key, _ in items):
        mine = [each for each in first if items[each][0] == key]
        order += [(key or b"").decode()] if mine != sorted(mine) else []
    found = judge(items, results) if judge else None
    complaints = [found] if isinstance(found, str) else list(found or ())
    if not all(isinstance(each, str) for each in complaints):
        raise NotAllowed(f"a judge returns sentences or nothing, not {found!r}")
    return Verdict(
        len(items),
        tuple(each for each in range(len(items)) if not counts[each]),
        tuple(each for each in sorted(counts) if counts[each] > 1),
        tuple(order),
        tuple(filter(None, complaints)),
        len(named) - len(known),
    )
