"""Nodes of virtual queues as processes, to be killed and stopped, and a small client that follows the map: for tests only.

In:  a cluster and a topic. Out: `Nodes`: start, signal, ask. `Caller.ask` asks a queue's owner and goes on until it answers.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

import httpx

from kqlib.kafka import Kafka
from kqlib.topics import Plan
from kqlib.virtual.member import AGAIN
from kqlib.virtual.names import partition_of, topics
from kqlib.virtual.node import Node
from kqlib.virtual.record_json import to_bytes, to_text
from tests.patience import PATIENCE, WAIT

NODE = """
import signal, sys, json
from kqlib.kafka.cluster import Kafka
from kqlib.virtual import member
from kqlib.virtual.node import Node
member.AGAIN = float(sys.argv[4])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
node = Node(Kafka(sys.argv[1]), sys.argv[2], **json.loads(sys.argv[3])).start()
print(node.url, node.id, flush=True)
try:
    sys.stdin.read()
finally:
    node.close()
"""


@contextmanager
def serving(cluster: Kafka, partitions: int = 1, config: dict[str, Any] | None = None, **how: Any) -> Iterator[Node]:
    """A node in this process, of new topics, when it serves all of its partitions."""
    name = f"virtual-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, partitions, config=config)).apply(cluster, quiet=True)
    with Node(cluster, name, **how) as node:
        deadline = time.monotonic() + WAIT
        while not node.ready()[0] or len(node.owned) < partitions:
            assert time.monotonic() < deadline, node.ready()
            time.sleep(0.02)
        yield node


class Process:
    """One node in a process of its own."""

    def __init__(self, cluster: Kafka, topic: str, again: float, **settings: Any) -> None:
        words = [sys.executable, "-c", NODE, cluster.bootstrap, topic, json.dumps(settings), str(again)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.url, self.id = [*self.process.stdout.readline().split(), "", ""][:2]
        self.http = httpx.Client(base_url=self.url, timeout=WAIT, trust_env=False)
        if not self.url:
            self.end()
            raise AssertionError("the node did not start")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def owned(self) -> list[int]:
        """What it answers for now."""
        with suppress(httpx.HTTPError):
            said = self.http.get("/ready", timeout=5).json()
            return sorted(int(number) for number, state in said["partitions"].items() if state == "serving")
        return []

    def leave(self, seconds: float = 30) -> None:
        """End it in good order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(seconds)

    def end(self) -> None:
        self.http.close()
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(WAIT)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()


class Nodes:
    """Some nodes of one topic."""

    def __init__(
        self,
        cluster: Kafka,
        topic: str,
        partitions: int,
        session: float = 2 * PATIENCE,
        again: float = AGAIN * PATIENCE,
        **settings: Any,
    ) -> None:
        """again: seconds until a node takes a partition back that another node has fenced, if the group still says it is its own."""
        Plan(topics(topic, partitions)).apply(cluster, quiet=True)
        self.cluster, self.topic, self.partitions = cluster, topic, partitions
        self.settings = {"again": again, "session": session, **settings}
        self.all: list[Process] = []
        self.callers: list[Caller] = []

    def caller(self, *nodes: Process) -> Caller:
        """Somebody who asks; knows these nodes at first, else all."""
        self.callers.append(Caller([node.url for node in nodes or self.all], self.partitions))
        return self.callers[-1]

    def start(self, many: int = 1) -> list[Process]:
        """So many more."""
        for _ in range(many):
            self.all.append(Process(self.cluster, self.topic, **self.settings))
        return self.all[-many:]

    def end(self, node: Process) -> None:
        self.all.remove(node)
        node.end()

    def settled(self, seconds: float = WAIT) -> dict[int, Process]:
        """Wait until each partition has one owner that serves it and all maps say so; who has what."""
        deadline = time.monotonic() + seconds
        while True:
            found, maps = {}, []
            for node in self.all:
                found |= dict.fromkeys(node.owned(), node)
                with suppress(httpx.HTTPError):
                    maps.append(node.http.get("/map", timeout=5).json()["owners"])
            right = {str(number): node.url for number, node in found.items()}
            same = all({n: o and o["url"] for n, o in each.items()} == right for each in maps)
            if len(found) == self.partitions and same and len(maps) == len(self.all):
                return found
            assert time.monotonic() < deadline, f"not settled: {right}, {maps}"
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.callers:
            each.close()
        for node in self.all:
            node.end()


class Caller:
    """Asks a queue's owner; on 409, 503 or no answer it looks at the maps again."""

    def __init__(self, urls: list[str], partitions: int) -> None:
        self.partitions, self.map = partitions, {"version": -2, "owners": {}}  # type: int, dict[str, Any]
        self.nodes = {url: httpx.Client(base_url=url, timeout=WAIT, trust_env=False) for url in urls}
        self.tries = 0

    def look(self) -> None:
        for http in self.nodes.values():
            with suppress(httpx.HTTPError, ValueError, KeyError):  # a node that has too much to do says so
                said = http.get("/map", timeout=2).json()
                if said["version"] > self.map["version"]:
                    self.map = said

    def ask(self, verb: str, queue: str, path: str, body: Any = None, seconds: float = 40 * PATIENCE) -> httpx.Response:
        """The answer of whoever owns it, whatever it takes."""
        deadline, last = time.monotonic() + seconds, ""
        while time.monotonic() < deadline:
            self.tries += 1
            owner = self.map["owners"].get(str(partition_of(queue, self.partitions)))
            if owner is not None:
                if owner["url"] not in self.nodes:
                    self.nodes[owner["url"]] = httpx.Client(base_url=owner["url"], timeout=WAIT, trust_env=False)
                try:
                    said = self.nodes[owner["url"]].request(verb, f"/queues/{queue}{path}", json=body)
                    if said.status_code not in (409, 503):
                        return said
                    last = said.text
                except httpx.HTTPError as error:
                    last = repr(error)
            time.sleep(0.05)
            self.look()
        raise AssertionError(f"nobody answered {verb} {queue}{path}: {last}")

    def put(self, queue: str, *datas: bytes) -> list[int]:
        """Offsets."""
        records = [{"data": to_text(data)} for data in datas]
        said = self.ask("POST", queue, "/records", {"records": records})
        assert said.status_code == 201, said.text
        offsets: list[int] = said.json()["offsets"]
        return offsets

    def claim(self, queue: str, n: int = 1, consumer: str = "c", **body: Any) -> list[dict[str, Any]]:
        said = self.ask("POST", queue, f"/consumers/{consumer}/claim", {"n": n, **body})
        assert said.status_code == 200, said.text
        items: list[dict[str, Any]] = said.json()["items"]
        return [item | {"data": to_bytes(item["data"])} for item in items]

    def verb(self, verb: str, queue: str, *receipts: str, consumer: str = "c", **body: Any) -> httpx.Response:
        return self.ask("POST", queue, f"/consumers/{consumer}/{verb}", {"receipts": list(receipts), **body})

    def close(self) -> None:
        for http in self.nodes.values():
            http.close()
