"""Nodes in this very process, for a lesson: `with kq.nodes.serving(lab, 3, partitions=3) as nodes: …`.

In:  a lab. Out: three topics, made anew, and nodes that have dealt the partitions out among themselves; at the block's end they leave.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kqlib.virtual.names import topics
from kqlib.virtual.node import Node

if TYPE_CHECKING:
    from kqlib.workshop.lab import Lab

# On a busy machine a node may join its group anew. That warning is for an operator; without a handler it would be printed in a cell.
logging.getLogger("kqlib.virtual").addHandler(logging.NullHandler())
NAME = "games"
TIMEOUT = 100.0  # seconds until each node has its share; on a quiet machine one or two


def fresh(lab: Lab, partitions: int = 1, config: Mapping[str, Any] | None = None) -> str:
    """The three topics of one set of virtual queues, new and empty; the first one's name."""
    plan = topics(NAME, partitions, config=config).items()
    data, *_ = [lab.topic(name, topic.partitions, config=topic.settings) for name, topic in plan]
    return data


@contextmanager
def serving(
    lab: Lab, nodes: int = 1, partitions: int = 1, config: Mapping[str, Any] | None = None, **how: Any
) -> Iterator[list[Node]]:
    """New topics, and so many nodes while the block runs. config: the data topic's; how: whatever a `Node` takes."""
    topic = fresh(lab, partitions, config)
    with ExitStack() as block:
        ours = [block.enter_context(Node(lab.cluster, topic, **how)) for _ in range(nodes)]

        def dealt() -> bool:
            shares = [node.owned for node in ours]
            found = sorted(number for share in shares for number in share)
            return found == list(range(partitions)) and (nodes > partitions or all(shares))

        lab.until(dealt, TIMEOUT, "each partition to have a node")
        yield ours
