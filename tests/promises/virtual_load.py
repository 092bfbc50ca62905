"""Work on many virtual queues while their nodes come and go, and what must hold all the time: for tests only.

In:  nodes, names of queues. Out: `Load`: putting, claiming, acking and reading until stopped; then `check()`.

    put       every put that was answered comes to a worker
    acked     what was acked never comes again
    tracked   what a node answers about a cursor is never older than what was acked before it was asked, whichever node is asked
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Any

import httpx

from kqlib.workshop import groups
from tests.patience import WAIT
from tests.promises.virtual_nodes import Caller, Nodes


class Load:
    """Threads at work: `with Load(nodes, queues) as load: …`."""

    def __init__(self, nodes: Nodes, queues: list[str], workers: int = 2, pace: float = 0.01) -> None:
        self.nodes, self.queues, self.pace = nodes, queues, pace
        self.put: dict[str, set[bytes]] = defaultdict(set)
        self.seen: dict[str, set[bytes]] = defaultdict(set)
        self.acked: set[tuple[str, int]] = set()
        self.broken: list[str] = []
        self.reads = 0
        self._stop, self._putting = threading.Event(), threading.Event()
        runs = [self._put, *[self._work] * workers, self._track]
        self._threads = [threading.Thread(target=self._guarded, args=(run,), daemon=True) for run in runs]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._putting.set()
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT)

    def many(self) -> int:
        """How many were put."""
        return sum(map(len, self.put.values()))

    def until(self, more: int, seconds: float = 90) -> None:
        """Wait until so many more were put."""
        goal, deadline = self.many() + more, time.monotonic() + seconds
        while self.many() < goal and not self.broken:
            assert time.monotonic() < deadline, f"{self.many()} of {goal} were put"
            time.sleep(0.02)

    def check(self, seconds: float = 120) -> None:
        """Stop putting, wait until all came, and say what is wrong."""
        self._putting.set()
        deadline = time.monotonic() + seconds
        while lost := {q: len(self.put[q] - self.seen[q]) for q in self.queues if self.put[q] - self.seen[q]}:
            assert time.monotonic() < deadline and not self.broken, (f"never came: {lost}", self.broken)
            time.sleep(0.05)
        caller = self.nodes.caller()
        for queue in self.queues:
            while caller.ask("GET", queue, "/consumers/c/depth").json() != {"depth": 0}:
                assert time.monotonic() < deadline, f"{queue} is not done"
                time.sleep(0.2)
        assert self.broken == []

    def _guarded(self, run: Any) -> None:
        caller = self.nodes.caller()
        try:
            run(caller)
        except Exception as error:
            self.broken.append(f"{run.__name__}: {error!r}")

    def _put(self, caller: Caller) -> None:
        n = 0
        while not self._putting.is_set():
            queue, n = self.queues[n % len(self.queues)], n + 1
            caller.put(queue, b"%d" % n)
            self.put[queue].add(b"%d" % n)
            time.sleep(self.pace)

    def _work(self, caller: Caller) -> None:
        n = 0
        while not self._stop.is_set():
            queue, n = self.queues[n % len(self.queues)], n + 1
            items = caller.claim(queue, 10, lease=30)
            for item in items:
                if (queue, item["offset"]) in self.acked:
                    self.broken.append(f"{queue}: {item['offset']} was acked and came again")
                self.seen[queue].add(item["data"])
            if items:
                response = caller.verb("ack", queue, *(item["receipt"] for item in items))
                done = set(response.json().get("done", ()))
                self.acked |= {(queue, item["offset"]) for item in items if item["receipt"] in done}

    def _track(self, caller: Caller) -> None:
        """One reader acks, and asks every node: who answers at all must know of the last ack."""
        (end,) = caller.put("cursor", b"x")
        while not self._stop.is_set():
            end = caller.put("cursor", b"x")[0]
            response = caller.ask("POST", "cursor", "/consumers/r/offset", {"offset": end, "allow_rewind": True})
            if response.status_code != 200:
                self.broken.append(f"tracking: {response.text}")
            for node in list(self.nodes.all):
                try:
                    answer = httpx.get(f"{node.url}/queues/cursor/consumers/r/records", timeout=0.7, trust_env=False)
                except httpx.HTTPError:
                    continue
                if answer.status_code == 200:
                    self.reads += 1
                    if (answer.json()["tracked"] or 0) < end:
                        self.broken.append(f"a node answered {answer.json()['tracked']} after {end} was acked")


def converged(nodes: Nodes) -> float:
    """When the group has dealt every partition to nodes that are alive: seconds until all maps say the same."""
    group, deadline, dealt = f"kq-virtual-{nodes.topic}", time.monotonic() + WAIT, 0.0
    alive = set()
    for node in nodes.all:
        alive.add(node.id)
    while True:
        held = groups.assignment(nodes.cluster, group, nodes.topic)
        owners = {part: name.removeprefix("kq-virtual-") for name, parts in held.held.items() for _, part in parts}
        if len(owners) == nodes.partitions and set(owners.values()) <= alive:
            dealt = dealt or time.monotonic()
            maps = [node.http.get("/map", timeout=5).json()["owners"] for node in nodes.all]
            if all({int(n): o and o["node"] for n, o in each.items()} == owners for each in maps):
                return time.monotonic() - dealt
        else:
            dealt = 0.0
        assert time.monotonic() < deadline, f"not converged: {owners} of {alive}"
        time.sleep(0.02)
