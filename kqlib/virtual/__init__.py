"""Virtual queues: as many small queues as there are names, in the partitions of one topic.

A queue is a key. Nodes own partitions and answer over HTTP; clients know which node to ask.

In:  a cluster with three planned topics. Out: `Node`, `Client`, and the verbs of a queue.

    kq.Plan(kq.virtual.topics("games", partitions=6)).apply(cluster)
    with kq.virtual.Node(cluster, "games") as node:
        queue = kq.virtual.Client(node.url).queue("ARS-CHE")
        queue.put(b"goal")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kqlib.extras import check
from kqlib.virtual.names import topics

INSIDE = {
    "Node": "kqlib.virtual.node",
    "Client": "kqlib.virtual.client",
    "Outbox": "kqlib.virtual.outbox",
}
__all__ = ["Client", "Node", "Outbox", "topics"]


def __getattr__(name: str) -> Any:
    if name not in INSIDE:
        raise AttributeError(f"kqlib.virtual has no {name!r}")
    check("virtual", f"virtual.{name}", "fastapi", "httpx", "uvicorn")
    return getattr(import_module(INSIDE[name]), name)
