"""When a failed item is tried again: policies as values. Pure: no clock, no Kafka.

In:  an item's attempt and the exception. Out: seconds to wait, or None: give up, bury it.

    Retry()                                   at once, every exception, until the queue's max_attempts
    Retry.fixed(5)                            five seconds each time
    Retry.linear(5, cap=60)                   5, 10, 15 … 60
    Retry.exponential(1, cap=300, jitter=.2)  1, 2, 4 … 300, each up to a fifth more, the same for the same item and attempt
    Retry.fixed(5, only=(OSError,))           other exceptions are buried at once
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Self

from kqlib.errors import NotAllowed
from kqlib.queue.arguments import LONGEST_DELAY, seconds

SHAPES = {
    "fixed": lambda first, attempt: first,
    "linear": lambda first, attempt: first * attempt,
    "exponential": lambda first, attempt: first * 2 ** min(attempt - 1, 40),
}


@dataclass(frozen=True)
class Retry:
    """How long a failed item waits, which exceptions are tried again, and when to give up before the queue does."""

    shape: str = "fixed"
    first: float = 0.0
    cap: float = LONGEST_DELAY
    jitter: float = 0.0  # 0.2: up to a fifth longer, so that what failed together does not come back together
    seed: int = 0
    only: tuple[type[BaseException], ...] = (Exception,)
    never: tuple[type[BaseException], ...] = ()
    attempts: int | None = None  # None: the queue's max_attempts decides

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise NotAllowed(f"a retry's shape is fixed, linear or exponential, not {self.shape!r}")
        seconds("first", self.first, 0, LONGEST_DELAY)
        seconds("cap", self.cap, 0, LONGEST_DELAY)
        if not isinstance(self.jitter, int | float) or isinstance(self.jitter, bool) or not 0 <= self.jitter <= 1:
            raise NotAllowed(f"jitter is a share from 0 to 1, not {self.jitter!r}")
        for what in ("only", "never"):
            kinds = getattr(self, what)
            known = isinstance(kinds, tuple) and all(isinstance(each, type) for each in kinds)
            if not known or not all(issubclass(each, BaseException) for each in kinds):
                raise NotAllowed(f"{what} is a tuple of exception classes, like (OSError,), not {kinds!r}")
        if self.attempts is not None and (not isinstance(self.attempts, int) or self.attempts < 1):
            raise NotAllowed(f"attempts is a whole number, at least 1, or None, not {self.attempts!r}")

    @classmethod
    def fixed(cls, first: float, **how: Any) -> Self:
        """The same wait each time."""
        return cls("fixed", first, **how)

    @classmethod
    def linear(cls, first: float, **how: Any) -> Self:
        """A little longer each time."""
        return cls("linear", first, **how)

    @classmethod
    def exponential(cls, first: float, **how: Any) -> Self:
        """Twice as long each time."""
        return cls("exponential", first, **how)

    def wait(self, attempt: int, error: BaseException, item: str = "") -> float | None:
        """Seconds until attempt + 1, after this one failed; None: bury it. item: its id, which seeds the jitter."""
        given_up = self.attempts is not None and attempt >= self.attempts
        if given_up or isinstance(error, self.never) or not isinstance(error, self.only):
            return None
        plain = min(self.cap, SHAPES[self.shape](self.first, attempt))
        dice = random.Random(f"{self.seed} {item} {attempt}")  # the same on every Python, whatever runs beside it
        return min(LONGEST_DELAY, plain * (1 + self.jitter * dice.random()))
