"""One member of a storm, in a process of its own: a node of virtual queues or a process of a queue's site.

In:  the kind, where the cluster is, a topic, a name, how slow it is; then "look" or "leave" on a pipe. Out: what it owns.
It is forked from a process that has imported all of this and has no thread: a storm starts some of them every second.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from kqlib.errors import KqError
from kqlib.kafka.cluster import Kafka
from kqlib.queue import Site
from kqlib.queue.session import Session
from kqlib.virtual import member as virtual_member
from kqlib.virtual.node import Node
from kqlib.virtual.ownership import Ownership

LOGS = "KQ_STORM_LOGS"  # a directory: each member writes its log there, and librdkafka's


def run(pipe: Connection, *, kind: str, bootstrap: str, topic: str, name: str, slow: float) -> None:
    """Be a member until "leave" comes, or the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own: dict[str, Any] = {"client.id": name}
    if folder := os.environ.get(LOGS):
        own |= {"debug": "cgrp,protocol", "log_level": 7}
        os.dup2(os.open(Path(folder) / f"{topic}-{name}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
        logging.basicConfig(level=logging.INFO, format="%%%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    if slow:
        _slow(random.Random(name), slow)
    member = {"node": NodeMember, "site": SiteMember}[kind](Kafka(bootstrap, own), topic)
    try:
        pipe.send("ready")
        while pipe.recv() == "look":
            pipe.send(member.look())
    except EOFError:  # the storm is over
        os._exit(1)
    member.leave()
    os._exit(0)


def _slow(dice: random.Random, seconds: float) -> None:
    """Takeovers and callbacks take longer now and then, as on a machine that has too much to do."""

    def slowed(call: Any) -> Any:
        def slowly(*args: Any, **named: Any) -> Any:
            time.sleep(dice.choice((0, dice.uniform(0, seconds))))
            return call(*args, **named)

        return slowly

    Ownership.take_over = slowed(Ownership.take_over)  # type: ignore[method-assign]
    for member in (virtual_member.GroupMember, Session):
        for callback in ("_on_assign", "_on_revoke", "_on_lost"):
            setattr(member, callback, slowed(getattr(member, callback)))


class NodeMember:
    """A node."""

    def __init__(self, cluster: Kafka, topic: str) -> None:
        self.node = Node(cluster, topic).start()

    def look(self) -> dict[str, Any]:
        """What it serves, and what its map says that it owns."""
        here = [number for number, owner in list(self.node.map.owners.items()) if owner.node == self.node.id]
        kept = {number: f"{each.state}: {each.why}" for number, each in self.node.servers().items()}
        ready = self.node.ready()
        client = f"kq-virtual-{self.node.id}"
        return {"client": client, "owned": self.node.owned, "map": sorted(here), "all": kept, "ready": ready}

    def leave(self) -> None:
        """In good order."""
        self.node.close()


class SiteMember:
    """A process of a site: it claims, holds an item for a moment, and acks it."""

    def __init__(self, cluster: Kafka, topic: str) -> None:
        self.site = Site(cluster, topic)
        self.name = cluster._own["client.id"]
        self.queue = self.site.queue(topic, lease=2, on_lost="earliest")
        self.error = ""
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while not self.stop.is_set():
            try:
                item = self.queue.claim(wait=0.2)
                if item is not None:
                    self.stop.wait(random.uniform(0, 0.3))
                    self.queue.ack(item)
                self.error = ""
            except KqError as error:
                self.error = repr(error)
                self.stop.wait(0.05)

    def look(self) -> dict[str, Any]:
        """What it may claim from, and as its map what its consumer is assigned: what it reads."""
        member = self.site._session
        with member.changed:
            consumer = member.consumer
            owned = sorted(number for (_, number), owner in member.partitions.items() if owner.saved)
            kept = {number: (owner.saved, owner.dropped) for (_, number), owner in member.partitions.items()}
            kept |= {number: f"loading: {each.trouble}" for (_, number), each in member.loadings.items()}
        assigned = list[int]()
        with suppress(
            KafkaException, RuntimeError
        ):  # without the lock: a callback inside poll() needs it. It may be closed
            assigned = sorted(part.partition for part in consumer.assignment()) if consumer is not None else []
        return {"client": self.name, "owned": owned, "map": assigned, "all": kept, "ready": (True, self.error)}

    def leave(self) -> None:
        """In good order."""
        self.stop.set()
        self.thread.join(5)
        with suppress(KqError):
            self.site.close()
