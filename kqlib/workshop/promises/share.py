"""A share group's queue to be scored beside others, with what it costs: `kq.promises({"share group": Share})`.

In:  a cluster, a topic's name. Out: a `ShareQueue`; `costs` are the ladder's last rows.
"""

from __future__ import annotations

from typing import ClassVar

from kqlib.share.queue import ShareQueue
from kqlib.workshop.ladder import lines_of


class Share(ShareQueue):
    """A share queue with its costs: its lines, without what it uses of the queue (puts, items). The broker keeps the state."""

    costs: ClassVar = {
        "lines · commits an item": f"≈ {lines_of('share', '__init__'):,} · ≤ 1",
        "gives up": "key order, delay, dead letters",
    }
