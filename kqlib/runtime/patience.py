"""How long to wait for this machine: KQ_PATIENCE=3 where everything takes three times as long as on a quiet laptop.

In:  the environment. Out: `PATIENCE`, and `wait_for`, the one way to wait for a state. PATIENCE multiplies how long labs, groups,
embedded clusters, `kq.doctor` and `kq.promises` wait before they give up. The queue's own times (lease, session, retry) stay: they
are promises. A loop of its own acts at each turn (asks or sends again), or ends without an error or with another one. Or it waits on
a condition of threads, or is a rung of the ladder, which a reader reads whole.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from kqlib.errors import NotInTime
from kqlib.text import words

T = TypeVar("T")
MOST = 100.0


def asked(text: str) -> float:
    """The factor that was asked for. What is not a number from 1 to 100 gives a warning and counts as 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 1 <= value <= MOST:
        return value
    warnings.warn(f"KQ_PATIENCE is a number from 1 to {MOST:g}, not {text!r}; it counts as 1", stacklevel=2)
    return 1.0


PATIENCE = asked(os.environ.get("KQ_PATIENCE", "1"))


def wait_for(
    condition: Callable[[], T | None],
    seconds: float,
    why: str,
    last: Callable[[], object] | None = None,
    not_yet: tuple[type[Exception], ...] = (),
) -> T:
    """Wait until the condition holds and return what it gave; `NotInTime` tells why it was waited for, and what was seen last.

    last: what to tell, if not the condition's value. not_yet: errors that end by themselves; any other error ends the wait.
    """
    deadline, pause = time.monotonic() + seconds, 0.01
    while True:
        try:
            seen = condition()
            if seen is not None and (seen or _is_message(seen)):
                return seen
            state = str(last()) if last else repr(seen)
        except not_yet as error:
            state = words(error)
        if time.monotonic() > deadline:
            raise NotInTime(seconds=seconds, why=why, last=state)
        time.sleep(pause)
        pause = min(0.1, pause * 1.2)


def _is_message(seen: object) -> bool:
    """Is it a message of Kafka's? One without a value has the length 0, and is false for Python."""
    from confluent_kafka import Message  # only here: `kq --help` waits for nothing

    return isinstance(seen, Message)
