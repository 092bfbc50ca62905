"""Virtual queues to be scored: `kq.promises(VIRTUAL)` starts nodes as processes beside the trials, and asks them over HTTP.

In:  a cluster. Out: a factory (cluster, name) -> `VirtualQueue`. A queue's name here is that of the trial's topic, which stays empty.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from confluent_kafka import KafkaError, TopicPartition

from kqlib.errors import NotInTime
from kqlib.kafka.cluster import Kafka
from kqlib.queue.site import _alter
from kqlib.runtime.patience import PATIENCE
from kqlib.topics import Plan
from kqlib.virtual.client import Client
from kqlib.virtual.errors import NodeDied
from kqlib.virtual.names import PARTITIONS, topics
from kqlib.virtual.partmap import PartitionMap
from kqlib.virtual.queue import VirtualQueue
from kqlib.virtual.readers import reader
from kqlib.workshop.ladder import lines_of

TOPIC, COUNT, NODES = "kq-virtual", 4, 2
SESSION = 10.0  # seconds: nobody stops a node here, and a busy machine shall not either
SERVING = 60.0 * PATIENCE  # seconds until nodes that were started serve
LINES = 10  # of what a node that died has said
NODE = """
import json, sys
from kqlib.kafka.cluster import Kafka
from kqlib.virtual.node import Node

bootstrap, own, topic, session = json.loads(sys.stdin.readline())
with Node(Kafka(bootstrap, own), topic, session=session) as node:
    print(node.url, flush=True)
    sys.stdin.read()  # until whoever started it is gone
"""


@contextmanager
def nodes(
    cluster: Kafka, topic: str = TOPIC, partitions: int = COUNT, many: int = NODES, session: float = SESSION
) -> Iterator[list[str]]:
    """Some nodes, each a process, while the block runs: their addresses, when each partition has one."""
    Plan(topics(topic, partitions)).apply(cluster, quiet=True)
    _alter(cluster, f"kq-virtual-{topic}", {"consumer.session.timeout.ms": int(session * 1000)})
    processes: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryFile() as said:  # what all of them write to stderr: one that dies tells there why
        try:
            for _ in range(many):
                processes.append(_process(said))
                line = json.dumps([cluster.bootstrap, dict(cluster._own), topic, None])  # the group's session is said
                with suppress(BrokenPipeError):
                    _pipe(processes[-1].stdin).write(line + "\n")  # not as an argument: it may hold a secret
                    _pipe(processes[-1].stdin).flush()
            urls = [_pipe(each.stdout).readline().strip() for each in processes]
            for each, url in zip(processes, urls, strict=True):
                if not url:
                    each.wait(SERVING)  # it has said its last, and will have ended in a moment
            _serving(urls, lambda: _alive(processes, said))
            yield urls
        finally:
            for each in processes:
                each.kill()
            for each in processes:
                each.wait()
                for pipe in (each.stdin, each.stdout):
                    with suppress(BrokenPipeError):
                        _pipe(pipe).close()


class Virtual:
    """The factory: a node's address is found in the topic where nodes say what they own."""

    def __call__(self, cluster: Kafka, name: str, order: str = "any", lease: float = 30) -> VirtualQueue:
        """A queue of that name."""
        return Client(addresses(cluster, TOPIC)).queue(name, order=order, lease=lease)

    def serving(self, cluster: Kafka) -> Any:
        """Nodes beside the trials."""
        return nodes(cluster)

    @property
    def costs(self) -> dict[str, str]:
        """Its lines: all rooms of the nodes and their client, rounded, beside the queue's that they stand on."""
        lines = lines_of("virtual", "outbox", "__init__")
        return {"lines · commits an item": f"≈ {lines:,} · 2", "gives up": "outputs with acks"}


def addresses(cluster: Kafka, topic: str) -> list[str]:
    """The addresses of all nodes, as the topic of owners has them."""
    said = PartitionMap(topic, 0)
    with closing(reader(cluster, "looks")) as lines:
        lines.assign([TopicPartition(topic + PARTITIONS, 0, 0)])
        deadline = time.monotonic() + SERVING
        while time.monotonic() < deadline:
            message = lines.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                said.heard(message.offset(), message.key(), message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF and said.owners:
                break
    return sorted({owner.url for owner in said.owners.values()})


def _process(said: IO[bytes]) -> subprocess.Popen[str]:
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-P", "-c", NODE]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        text=True,
        start_new_session=True,  # Jupyter's stop button is for the cell, which ends them in its own way
        env={**os.environ, "PYTHONPATH": path},
    )


def _pipe(pipe: Any) -> Any:
    assert pipe is not None
    return pipe


def _alive(processes: list[subprocess.Popen[str]], said: IO[bytes]) -> None:
    """`NodeDied` if one of them has ended."""
    for each in processes:
        if (status := each.poll()) is not None:
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()
            raise NodeDied(why=f"exit status {status}", tail="\n".join(lines[-LINES:]))


def _serving(urls: list[str], alive: Callable[[], None]) -> None:
    """Wait until the partitions are dealt."""
    alive()
    deadline = time.monotonic() + SERVING
    with Client(urls) as client:
        while not _dealt(urls, client.owners):
            if time.monotonic() > deadline:
                raise NotInTime(seconds=SERVING, why="each partition to have a node", last=str(client.owners))
            time.sleep(0.1)
            alive()
            client._refresh(0.0)


def _dealt(urls: list[str], owners: dict[int, str | None]) -> bool:
    """Does every partition have a node, and every node a partition, as far as there are enough?"""
    found = set(owners.values())
    return bool(owners) and found <= set(urls) and len(found) == min(len(urls), len(owners))


VIRTUAL = Virtual()
