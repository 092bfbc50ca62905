"""A share group's queue to be scored beside others, with what it costs: `kq.promises({"share group": SHARE})`.

In:  a cluster, a topic's name. Out: a `ShareQueue`; `costs` are the ladder's last rows.
"""

from __future__ import annotations

from kqlib.kafka.cluster import Kafka
from kqlib.share.queue import ShareQueue
from kqlib.workshop.ladder import lines_of


class Share:
    """The factory."""

    def __call__(self, cluster: Kafka, name: str, order: str = "any", lease: float | None = None) -> ShareQueue:
        """A queue of that name, on a group of its own."""
        return ShareQueue(cluster, name, order=order, lease=lease)

    @property
    def costs(self) -> dict[str, str]:
        """Its lines, without what it uses of the queue (puts, items). The broker keeps the state."""
        lines = lines_of("share", "__init__")
        return {"lines · commits an item": f"≈ {lines:,} · ≤ 1", "gives up": "key order, delay, dead letters"}


SHARE = Share()
