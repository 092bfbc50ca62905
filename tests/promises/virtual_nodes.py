"""For tests: nodes of virtual queues as processes, to be killed and stopped, and a small client that follows the map.

In:  a cluster and a topic. Out: `Nodes`: start, signal, ask. `Caller.ask` asks a queue's owner until it answers.
"""

from __future__ import annotations

import asyncio
import gc
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Self

import httpx

from kqlib.kafka import Kafka
from kqlib.topics import Plan
from kqlib.virtual import member
from kqlib.virtual.member import AGAIN
from kqlib.virtual.names import partition_of, topics
from kqlib.virtual.node import Node
from kqlib.virtual.record_json import to_bytes, to_text
from kqlib.workshop.children import ChildEnded, Children, Fork
from tests.patience import PATIENCE, WAIT, until


@contextmanager
def serving(cluster: Kafka, partitions: int = 1, config: dict[str, Any] | None = None, **how: Any) -> Iterator[Node]:
    """A node in this process, of new topics, when it serves all of its partitions."""
    name = f"virtual-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, partitions, config=config)).apply(cluster, quiet=True)
    with Node(cluster, name, **how) as node:
        until(lambda: node.ready()[0] and len(node.owned) == partitions, node.ready)
        yield node


def time_callbacks() -> list[float]:
    """From now on, the longest callback of this process's event loops: seconds of the processor, and seconds by the clock."""
    longest, run = [0.0, 0.0], asyncio.Handle._run  # type: ignore[attr-defined]

    def timed(handle: Any) -> None:
        busy, passed = time.thread_time(), time.monotonic()
        run(handle)
        longest[0] = max(longest[0], time.thread_time() - busy)
        longest[1] = max(longest[1], time.monotonic() - passed)

    asyncio.Handle._run = timed  # type: ignore[attr-defined]
    return longest


def _serve(line: Connection, bootstrap: str, topic: str, again: float, settings: dict[str, Any]) -> None:
    member.AGAIN = again
    longest = time_callbacks() if settings.pop("timed", False) else []
    if mutant := settings.pop("mutant", ""):
        from tests.faults.mutants import changed

        changed(0, mutant)
    with Node(Kafka(bootstrap), topic, **settings) as node:
        gc.freeze()  # as `kq virtual serve` does
        line.send((node.url, node.id))
        with suppress(EOFError):
            while line.recv() == "callbacks":
                line.send(longest)


class NodeProcess:
    """One node in a process of its own."""

    def __init__(self, fork: Fork) -> None:
        self.fork, self.signal = fork, fork.signal
        self.url, self.id = fork.receive(WAIT)
        self.http = httpx.Client(base_url=self.url, timeout=WAIT, trust_env=False)

    def owned(self) -> list[int]:
        """What it answers for now."""
        with suppress(httpx.HTTPError):
            states = self.http.get("/ready", timeout=5).json()["partitions"]
            return sorted(int(number) for number, state in states.items() if state == "serving")
        return []

    def longest_callback(self) -> list[float]:
        """Seconds of the processor and seconds by the clock, if it was started with `timed=True`."""
        self.fork.send("callbacks")
        longest: list[float] = self.fork.receive(WAIT)
        return longest

    def leave(self) -> None:
        """End it in good order."""
        self.fork.send("leave")
        with suppress(ChildEnded):
            self.fork.receive(WAIT)

    def end(self) -> None:
        self.http.close()
        self.fork.kill()


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
        self.again, self.settings = again, {"session": session, **settings}
        self.children = Children(modules=[__name__])
        self.all: list[NodeProcess] = []
        self.callers: list[Caller] = []

    def caller(self, *nodes: NodeProcess) -> Caller:
        """A client that knows these nodes at first, else all."""
        self.callers.append(Caller([node.url for node in nodes or self.all], self.partitions))
        return self.callers[-1]

    def start(self, many: int = 1) -> list[NodeProcess]:
        """So many more."""
        for _ in range(many):
            how = (self.cluster.bootstrap, self.topic, self.again, self.settings)
            self.all.append(NodeProcess(self.children.fork(_serve, *how)))
        return self.all[-many:]

    def end(self, node: NodeProcess) -> None:
        self.all.remove(node)
        node.end()

    def settled(self, seconds: float = WAIT) -> dict[int, NodeProcess]:
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
            node.http.close()
        self.children.close()


class Caller:
    """Asks a queue's owner; on 409, 503 or no answer it looks at the maps again."""

    def __init__(self, urls: list[str], partitions: int) -> None:
        self.partitions, self.map = partitions, {"version": -2, "owners": {}}  # type: int, dict[str, Any]
        self.nodes = {url: httpx.Client(base_url=url, timeout=WAIT, trust_env=False) for url in urls}
        self.tries = 0

    def look(self) -> None:
        for http in self.nodes.values():
            with suppress(httpx.HTTPError, ValueError, KeyError):  # a node that has too much to do says so
                response = http.get("/map", timeout=2).json()
                if response["version"] > self.map["version"]:
                    self.map = response

    def ask(self, verb: str, queue: str, path: str, body: Any = None, seconds: float = 40 * PATIENCE) -> httpx.Response:
        """The answer of who owns it, whatever it takes."""
        deadline, last = time.monotonic() + seconds, ""
        while time.monotonic() < deadline:
            self.tries += 1
            owner = self.map["owners"].get(str(partition_of(queue, self.partitions)))
            if owner is not None:
                if owner["url"] not in self.nodes:
                    self.nodes[owner["url"]] = httpx.Client(base_url=owner["url"], timeout=WAIT, trust_env=False)
                try:
                    response = self.nodes[owner["url"]].request(verb, f"/queues/{queue}{path}", json=body)
                    if response.status_code not in (409, 503):
                        return response
                    last = response.text
                except httpx.HTTPError as error:
                    last = repr(error)
            time.sleep(0.05)
            self.look()
        raise AssertionError(f"nobody answered {verb} {queue}{path}: {last}")

    def put(self, queue: str, *datas: bytes) -> list[int]:
        """Offsets."""
        records = [{"data": to_text(data)} for data in datas]
        response = self.ask("POST", queue, "/records", {"records": records})
        assert response.status_code == 201, response.text
        offsets: list[int] = response.json()["offsets"]
        return offsets

    def claim(self, queue: str, n: int = 1, consumer: str = "c", **body: Any) -> list[dict[str, Any]]:
        response = self.ask("POST", queue, f"/consumers/{consumer}/claim", {"n": n, **body})
        assert response.status_code == 200, response.text
        items: list[dict[str, Any]] = response.json()["items"]
        return [item | {"data": to_bytes(item["data"])} for item in items]

    def verb(self, verb: str, queue: str, *receipts: str, consumer: str = "c", **body: Any) -> httpx.Response:
        return self.ask("POST", queue, f"/consumers/{consumer}/{verb}", {"receipts": list(receipts), **body})

    def close(self) -> None:
        for http in self.nodes.values():
            http.close()
