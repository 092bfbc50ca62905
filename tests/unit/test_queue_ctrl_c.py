"""Ctrl-C while the site's lock is taken and given back, thousands of times: the lock is free afterwards. No broker."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kqlib.queue.assigned import condition


@pytest.fixture
def pressed() -> Iterator[None]:
    """A timer that does what Ctrl-C does."""

    def press(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, press)
    gc.disable()  # raised in a finalizer, it would be lost
    yield
    gc.enable()
    signal.signal(signal.SIGALRM, before)


def test_ctrl_c_never_leaves_the_lock_held(pressed: None) -> None:
    lock: Any = threading.RLock()
    changed, struck, until = condition(lock), 0, time.monotonic() + 0.5

    def take() -> None:
        """Not in the block that catches: Python 3.13 finds no handler where a loop jumps back (CPython issue 130279)."""
        while time.monotonic() < until + 1:
            with changed:
                changed.notify_all()

    while time.monotonic() < until or not struck:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            take()
            signal.setitimer(signal.ITIMER_REAL, 0)  # nothing comes later, where this process stood still
            time.sleep(0)  # a signal that came already is handled here, and not behind the block
        except KeyboardInterrupt:
            struck += 1
        assert not lock._is_owned(), f"held after Ctrl-C number {struck}"
