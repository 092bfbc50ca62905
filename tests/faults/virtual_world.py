"""A world of virtual queues: three nodes behind the wire, and workers and producers that ask them over HTTP. And its accidents.

In:  as a `World`. Out: the same `Verdict`. Accidents happen to nodes; what workers and producers suffer is tried with the queue.
"""

from __future__ import annotations

import signal
from typing import Any

from kqlib.kafka import Kafka
from tests.faults.virtual_queues import VirtualQueues
from tests.faults.world import SESSION, Process, World
from tests.promises.virtual_nodes import Nodes

NODES = 3


class VirtualWorld(World):
    """Virtual queues under load. node: settings of every node."""

    def open(self) -> None:
        """Start the nodes."""
        self.nodes = Nodes(
            Kafka(self.address), self.topic, self.partitions, session=SESSION, **self.how.pop("node", {})
        )
        self.nodes.start(NODES)
        self.settled()
        self.urls = [node.url for node in self.nodes.all]
        self.queue: Any = VirtualQueues(self.urls)

    def plan(self, partitions: int) -> None:
        """The nodes' topics are planned with the nodes."""
        self.partitions = partitions

    def settled(self) -> None:
        """Return when each partition has one node, and all nodes say which."""
        self.nodes.settled(60)

    def close(self) -> None:
        """End the nodes."""
        self.queue.client.close()
        self.nodes.__exit__()

    def _start(self, kind: str, settings: dict[str, Any]) -> Process:
        return super()._start(kind, {"nodes": self.urls, **settings})

    def _letters(self) -> list[Any]:
        return []  # nothing is buried here


def nodes_killed(world: VirtualWorld, times: int = 4) -> None:
    """Nodes are killed, one after another, and others come."""
    for _ in range(times):
        world.busy()
        victim = world.chance.choice(world.nodes.all)
        victim.signal(signal.SIGKILL)
        world.nodes.end(victim)
        world.nodes.start()
        world.settled()
