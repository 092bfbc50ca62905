"""Some virtual queues with the verbs of one, for the processes of the fault runs: each call is about the next queue in turn.

In:  the addresses of nodes. Out: `VirtualQueues`. Its client asks again while a node answers 409, or none answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any, Self

from kqlib.virtual.client import Client

QUEUES = 12
PATIENCE = 30.0  # seconds that the client asks again: no queue is without a node for so long
LEASE = 12.0  # seconds: items of a claim whose answer was lost come again after it


class VirtualQueues:
    """Put, claim, ack and depth."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.client = Client(nodes, patience=PATIENCE)
        self.queues = [self.client.queue(f"queue-{n}", lease=LEASE) for n in range(QUEUES)]
        self._turn = cycle(self.queues)

    def put_many(self, items: Iterable[Any]) -> list[str]:
        """All into one queue."""
        return next(self._turn).put_many(items)

    def claim_many(self, n: int, wait: float) -> list[Any]:
        """Up to n items of one queue, the first one that has any."""
        until = time.monotonic() + wait
        while True:
            for _ in self.queues:
                if items := next(self._turn).claim_many(n):
                    return items
            if time.monotonic() > until:
                return []
            time.sleep(0.02)

    def ack_many(self, items: Sequence[Any]) -> None:
        """Items of one claim."""
        self.client.queue(items[0].queue).ack_many(items)

    def depth(self) -> int:
        """Of all of them."""
        return sum(queue.depth() for queue in self.queues)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
