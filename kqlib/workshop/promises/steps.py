"""Random steps of a history, and as few of them as still break a queue.

In:  a seeded random, verbs with their weights; a function that tries several histories side by side. Out: steps. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")
AT_ONCE = 8  # histories side by side: most of a history's time is the group's


class RandomStep(NamedTuple):
    """A verb, and a number that chooses among what is there."""

    verb: str
    which: int = 0


Tried = Callable[[Sequence[list[RandomStep]]], Sequence[T | None]]  # several histories -> how each fails, if it does


def random_steps(chance: random.Random, verbs: Mapping[str, int], many: int) -> list[RandomStep]:
    """So many steps. A verb's number says how often it comes."""
    chosen = chance.choices(list(verbs), list(verbs.values()), k=many)
    return [RandomStep(verb, chance.randrange(1_000)) for verb in chosen]


def shrunk(steps: list[RandomStep], why: T, tried: Tried[T], tries: int = 200) -> tuple[list[RandomStep], T]:
    """As few of these steps as still fail, and how. Of several shorter histories it takes the first: the same in every run.

    tries: how many histories at most. With fewer steps left out at a time it goes on until no single step can be left out.
    """
    size, at, smaller = max(1, len(steps) // 2), 0, False
    while tries > 0:
        places = range(at, len(steps), size)[:AT_ONCE]
        if not places:  # all places were tried
            if size == 1 and not smaller:
                break
            size, at, smaller = max(1, size // 2), 0, False
            continue
        shorter = [steps[:place] + steps[place + size :] for place in places]
        tries -= len(shorter)
        for at, fewer, found in zip(places, shorter, tried(shorter), strict=True):  # noqa: B007 - `at` goes on from here
            if found:
                steps, why, smaller = fewer, found, True
                break
        else:
            at = places[-1] + size
    return steps, why
