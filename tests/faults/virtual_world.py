"""A world of virtual queues: three nodes behind the wire, and workers and producers that ask them over HTTP. And its accidents.

In:  as a `World`. Out: the same `Verdict`. Accidents happen to nodes; what workers and producers suffer is tried with the queue.
"""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from typing import Any

import httpx

from kqlib.kafka import Kafka
from tests.faults.virtual_queues import VirtualQueues
from tests.faults.world import SESSION, Process, World
from tests.promises.virtual_nodes import NodeProcess, Nodes

NODES = 3


class VirtualWorld(World):
    """Virtual queues under load. node: settings of every node."""

    numbers = False

    def open(self) -> None:
        """Start the nodes."""
        self.nodes = Nodes(
            Kafka(self.address), self.topic, self.partitions, session=SESSION, **self.how.pop("node", {})
        )
        self.nodes.start(NODES)
        self.settled()

    @property
    def urls(self) -> list[str]:
        """Of the nodes that run now: a client that knows only nodes that are gone finds no other one."""
        return [node.url for node in self.nodes.all]

    def depth(self) -> int:
        """By a client of its own."""
        with VirtualQueues(self.urls) as self.queue:
            return super().depth()

    def plan(self, partitions: int) -> None:
        """The nodes' topics are planned with the nodes."""
        self.partitions = partitions

    def settled(self) -> None:
        """Return when each partition has one node, and all nodes say which."""
        self.nodes.settled(60)

    def close(self) -> None:
        """End the nodes."""
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


def node_cut_off(world: VirtualWorld, way: str) -> None:
    """A node is cut off from Kafka, one way, until others have its partitions; clients reach it all the time. Then it goes on."""
    victim = claimed_from(world)
    others = [node for node in world.nodes.all if node is not victim]
    world.cluster.wire.cut(way=way, pid=victim.fork.pid)
    world.until(lambda: serve_all(others), 60, "others to have the partitions of a node")
    world.cluster.wire.heal()  # now, so that what it could not write until here arrives late
    world.settled()
    world.busy()


def claimed_from(world: VirtualWorld) -> NodeProcess:
    """The node from which a worker has claimed what it has in hand."""
    owners, worker = world.nodes.settled(60), world.victim()
    world.holding(worker)
    (first, *_) = json.loads(worker.last())[-1]
    return owners[int(first.partition("/")[0])]


def serve_all(nodes: list[NodeProcess]) -> bool:
    """Does each of these nodes know that all partitions are theirs?"""
    urls = {node.url for node in nodes}
    with suppress(httpx.HTTPError):
        maps = [node.http.get("/map", timeout=5).json()["owners"].values() for node in nodes]
        return all(owner and owner["url"] in urls for owners in maps for owner in owners)
    return False
