"""How patient this run is: 1 on a quiet machine with one part at a time, more on a slow or busy one. One value for the whole run.

`python -m tests` measures it once and passes it on in KQ_PATIENCE. A test that waits for a state waits WAIT seconds at most;
a promise in seconds holds at its figure × PATIENCE. With KQ_PATIENCE=1 the bare figures are asserted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from kqlib.runtime.patience import PATIENCE, wait_for

T = TypeVar("T")

WAIT = 60.0 * PATIENCE  # seconds until a state that has to come is given up

QUIET = 0.6  # seconds that one round takes where this value is 1: two shared cores at 2.x GHz
ROUND = "n = 0\nfor each in range(6_000_000):\n    n += each"


def until(condition: Callable[[], T | None], seen: Callable[[], object] | None = None, seconds: float = WAIT) -> T:
    """Wait for a state that has to come, and return what the condition gave; an error has what was seen last."""
    return wait_for(condition, seconds, "a test waits for it", seen)


def measure() -> float:
    """How many times longer a fixed piece of work takes here and now, on all cores at once; never below 1."""
    slowest = []
    for _ in range(3):
        start = time.monotonic()
        running = [subprocess.Popen([sys.executable, "-I", "-S", "-c", ROUND]) for _ in range(os.cpu_count() or 1)]
        for process in running:
            process.wait()
        slowest.append(time.monotonic() - start)
    return max(1.0, round(sorted(slowest)[1] / QUIET, 1))
