"""A producer of the fault runs, a process of its own: puts numbers, slowly until it is asked to end, then what is missing, fast.

In:  one JSON object of settings (`world.World.producer`). Out: its history. A number is put once, whatever became of it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any

from kqlib.errors import KqError
from kqlib.kafka.cluster import Kafka
from kqlib.queue import Put, Site
from tests.faults.history import KEYS
from tests.faults.mutants import changed
from tests.faults.virtual_queues import VirtualQueues
from tests.faults.writing import Writing, until_sigterm


def main(
    bootstrap: str,
    site: str,
    topic: str,
    history: str,
    *,
    first: int,
    many: int,
    batch: int,
    pause: float,
    late: float = 0,
    rate: float = 0,
    clock: float = 0,
    mutant: str = "",
    nodes: Sequence[str] = (),
) -> None:
    """Put the numbers from `first` on. late: the delay of each fiftieth. rate: items a second on average. nodes: of virtual queues."""
    stop, written = until_sigterm(), Writing(history)
    changed(clock, mutant)
    with ExitStack() as stack:
        queue: Any = (
            stack.enter_context(VirtualQueues(nodes))
            if nodes
            else stack.enter_context(Site(Kafka(bootstrap), site)).queue(topic)
        )
        begun = time.monotonic()
        for start in count(first, batch):
            if stop.is_set() and start >= first + many:
                return
            put(queue, list(range(start, start + batch)), written, late)
            stop.wait(max(0.0, begun + (start + batch - first) / rate - time.monotonic()) if rate else pause)


def put(queue: Any, values: list[int], written: Writing, late: float) -> None:
    """One batch, and how it fared."""
    call = written.begins("put", values)
    bad: dict[int, str] = {}
    try:
        queue.put_many(
            [Put(b"%d" % each, b"%d" % (each % KEYS), delay=late if each % 50 == 0 else 0) for each in values]
        )
    except KqError as error:
        print(f"put: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        facts: Any = error
        bad = dict.fromkeys(getattr(facts, "unknown", range(len(values))), "unknown")
    written.ended(call, bad)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
