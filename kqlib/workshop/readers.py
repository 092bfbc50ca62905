"""The Consumers of this process, found and closed. A notebook makes them by itself, so the lab keeps no list of them.

In:  a lab's client settings, which carry its `Mark`. Out: `consumers()`, `close_readers(…)`.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from kqlib.kafka import clients
from kqlib.runtime.patience import PATIENCE

T = TypeVar("T")


class Mark:
    """A callback in a lab's client settings. A client keeps it, and so the lab knows its own readers.

    A client calls it when a broker slows it down. It does nothing.
    """

    def __call__(self, event: object) -> None:
        pass

    def __repr__(self) -> str:
        return "<this lab>"

    def on(self, client: object) -> bool:
        """Was this client made from the lab's settings?"""
        return any(kept is self for kept in gc.get_referents(client))


def consumers() -> list[Any]:
    """This process's consumers, as the garbage collector lists them."""
    from confluent_kafka import Consumer

    return [thing for thing in gc.get_objects() if isinstance(thing, Consumer)]


def close_readers(readers: Iterable[Any], which: Callable[[Any], bool]) -> None:
    """Close the readers that `which` selects. One that another thread polls without a pause stays open: its lock is never free."""
    asked = _answers((partial(lambda each: (each, which(each)), each) for each in readers), 1)
    _answers((partial(clients.close, each) for each, selected in asked if selected), 10)


def _answers(calls: Iterable[Callable[[], T]], seconds: float) -> list[T]:
    """The results of those calls that return in time."""
    found: list[T] = []

    def ask(call: Callable[[], T]) -> None:
        with suppress(RuntimeError):  # it is closed already
            found.append(call())

    threads = [threading.Thread(target=ask, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds * PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return list(found)
