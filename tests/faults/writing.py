"""A process's own history: a line before a call and one after it, each handed to the system at once, so that SIGKILL takes none.

In:  calls of a worker or a producer. Out: a file that `history.read` understands. Also what both have in common: their end.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import count


class Writing:
    """The file, and the number of the next call."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", buffering=1)  # noqa: SIM115 - open until this process is gone
        self._calls = count()

    def begins(self, verb: str, values: Sequence[int], attempts: Sequence[int] = (), ids: Sequence[str] = ()) -> int:
        """A call begins, or a claim has returned: its number."""
        call = next(self._calls)
        self._line([call, time.monotonic(), verb, values, attempts, ids])
        return call

    def ended(self, call: int, bad: Mapping[int, str] | None = None) -> None:
        """It is over; `bad` says of which places it is not ok."""
        self._line([call, time.monotonic(), bad or {}])

    def _line(self, what: list) -> None:
        self._file.write(json.dumps(what) + "\n")


def until_sigterm() -> threading.Event:
    """Set by SIGTERM. SIGUSR1 writes every thread's stack to stderr; the end of stdin, that is of the world, ends this process."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(3)), daemon=True).start()
    return stop
