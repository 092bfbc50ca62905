"""Virtual queues to be scored: `kq.promises(VIRTUAL)` starts nodes as processes beside the trials, and asks them over HTTP.

In:  a cluster. Out: a factory (cluster, name) -> `VirtualQueue`. A queue's name is that of the trial's topic, which stays empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from kqlib.kafka.cluster import Kafka
from kqlib.kafka.reading import read
from kqlib.queue.broker_settings import alter_group
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.topics import Plan
from kqlib.virtual.client import Client
from kqlib.virtual.errors import NodeDied
from kqlib.virtual.names import PARTITIONS, topics
from kqlib.virtual.ownership import PartitionMap
from kqlib.virtual.queue import VirtualQueue
from kqlib.workshop.children import ChildEnded, Children
from kqlib.workshop.ladder import lines_of

TOPIC, COUNT, NODES = "kq-virtual", 4, 2
SESSION = 10.0  # seconds: nobody stops a node here, and a busy machine shall not either
SERVING = 60.0 * PATIENCE  # seconds until nodes that were started serve


def serve(line: Connection, cluster: tuple[str, Any], topic: str, session: float | None) -> None:
    """A node in a process of its own. It sends its address, and serves until the other end is closed."""
    from kqlib.virtual.node import Node

    with Node(Kafka(*cluster), topic, session=session) as node:
        line.send(node.url)
        with suppress(EOFError):
            line.recv()


@contextmanager
def nodes(cluster: Kafka, topic: str, partitions: int, many: int) -> Iterator[list[str]]:
    """Some nodes, each a process, while the block runs: their addresses, when each partition has one."""
    Plan(topics(topic, partitions)).apply(cluster, quiet=True)
    alter_group(cluster, f"kq-virtual-{topic}", {"consumer.session.timeout.ms": int(SESSION * 1000)})
    with Children(modules=["kqlib.virtual.node"]) as children:
        where = (cluster.bootstrap, dict(cluster._own))
        forks = [children.fork(serve, where, topic, None) for _ in range(many)]
        try:
            urls = [fork.receive(SERVING) for fork in forks]
            _wait_until_serving(urls)
        except ChildEnded as ended:
            raise NodeDied(why="its process ended", tail=str(ended)) from None
        yield urls


class Virtual:
    """The factory: a node's address is found in the topic where nodes say what they own."""

    def __call__(self, cluster: Kafka, name: str, order: str = "any", lease: float = 30) -> VirtualQueue:
        """A queue of that name."""
        return Client(addresses(cluster, TOPIC)).queue(name, order=order, lease=lease)

    def serving(self, cluster: Kafka) -> Any:
        """The nodes that must run beside the trials."""
        return nodes(cluster, TOPIC, COUNT, NODES)

    @property
    def costs(self) -> dict[str, str]:
        """Its lines: the modules of the nodes and their client, rounded, without what they use of the queue."""
        lines = lines_of("virtual", "outbox", "conformance", "__init__")
        return {"lines · commits an item": f"≈ {lines:,} · 2", "gives up": "outputs with acks"}


def addresses(cluster: Kafka, topic: str) -> list[str]:
    """The addresses of all nodes, as the topic of owners has them."""
    owners = PartitionMap(topic, 0)

    def found() -> list[str]:
        for message in read(cluster, {(topic + PARTITIONS, 0): owners.version + 1}):
            owners.update(message.offset(), message.key(), message.value())
        return sorted({owner.url for owner in owners.owners.values()})

    return wait_for(found, SERVING, "a node to own a partition")


def _wait_until_serving(urls: list[str]) -> None:
    """Wait until every partition has a node, and every node a partition, as far as there are enough."""
    with Client(urls) as client:

        def serving() -> bool:
            client._refresh(0.0)
            found = set(client.owners.values())
            return bool(found) and found <= set(urls) and len(found) == min(len(urls), len(client.owners))

        wait_for(serving, SERVING, "each partition to have a node", last=lambda: client.owners)


VIRTUAL = Virtual()
