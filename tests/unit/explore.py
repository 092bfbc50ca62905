"""Every order of steps of a small world, breadth first: so the first story that breaks a promise is a shortest one.

In:  a world, how many steps at most. Out: `Explored`: how many states there are, and the story, sentence by sentence, if there is one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tests.unit.small_process import no_time
from tests.unit.small_steps import broken, possible
from tests.unit.small_world import World

Story = tuple[Any, str]  # what happened before, and one more sentence


@dataclass(frozen=True)
class Explored:
    """What was found."""

    states: int
    steps: int  # of the longest story that was tried
    whole: bool  # nothing is left to try
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(f"{at:3}. {sentence}" for at, sentence in enumerate(self.story, 1))


def explore(world: World, steps: int = 1_000, seconds: float = float("inf")) -> Explored:
    """Try every order of up to so many steps."""
    with no_time():
        return _explore(world, steps, time.monotonic() + seconds)


def _explore(world: World, steps: int, until: float) -> Explored:
    layer: list[tuple[bytes, Story | None]] = [(world.copied(), None)]
    seen = {_digest(world)}
    for number in range(1, steps + 1):
        following: list[tuple[bytes, Story | None]] = []
        for before, story in layer:
            if time.monotonic() > until:
                return Explored(len(seen), number - 1, whole=False)
            world.become(before)
            for at, step in enumerate(possible(world)):
                if at:
                    world.become(before)
                sentence = world.do(step)
                if wrong := world.wrong or next(broken(world), ""):
                    return Explored(len(seen), number, False, (*_sentences((story, sentence)), wrong))
                if (digest := _digest(world)) not in seen:
                    seen.add(digest)
                    following.append((world.copied(), (story, sentence)))
        if not following:
            return Explored(len(seen), number - 1, whole=True)
        layer = following
    return Explored(len(seen), steps, whole=False)


def _digest(world: World) -> bytes:
    return blake2b(repr(world.key()).encode(), digest_size=12).digest()


def _sentences(story: Story | None) -> list[str]:
    found = []
    while story:
        story, sentence = story
        found.append(sentence)
    return found[::-1]
