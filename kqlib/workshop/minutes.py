"""How long a reader worked in a notebook: the time between two cells, without breaks.

In:  the notebook's lab, which calls `count`; the end of each cell. Out: minutes in memory, by the notebook's number.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable

from kqlib.workshop import memory

BREAK = 600  # seconds: after a longer gap the reader was away
_counted: list[str] = []  # the notebook of this kernel


def count(lab: str) -> None:
    """Count this notebook's minutes from now on, where a kernel runs its cells."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    shell = ipython.get_ipython() if ipython else None
    if shell is None or not re.match(r"\d\d-", lab):
        return
    if not _counted:
        shell.events.register("post_run_cell", counter(lambda: _counted[0]))
    _counted[:] = [lab[:2]]


def counter(number: Callable[[], str]) -> Callable[[object], None]:
    """What runs after each cell: it adds the time since the cell before."""
    last = time.monotonic()

    def add(_: object) -> None:
        nonlocal last
        now = time.monotonic()
        gap, last = now - last, now
        if gap < BREAK:
            memory.change(
                lambda done: done.minutes.update({number(): round(done.minutes.get(number(), 0) + gap / 60, 2)})
            )

    return add
