"""After a fork the child has copies of its parent's objects, but none of its threads and none of its connections.

In:  the process that made an object. Out: `check`, which refuses the copy; `only_here`, for what must run in that process alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from kqlib.errors import NotAllowed


def check(made: int, what: str) -> None:
    """`NotAllowed` unless process `made`, which made this object, is this one."""
    if os.getpid() != made:
        raise NotAllowed(
            f"{what} was made in another process; connect after the fork. Nothing was done. "
            "Make the cluster and the site in each worker: in gunicorn's post_fork, in Celery's signal worker_process_init, "
            "or in the function that multiprocessing runs"
        )


def only_here(call: Callable[..., object]) -> Callable[..., None]:
    """The same call, which does nothing in a fork of this process: an end of the parent's objects is the parent's."""
    made = os.getpid()

    def in_its_process(*args: Any) -> None:
        if os.getpid() == made:
            call(*args)

    return in_its_process
