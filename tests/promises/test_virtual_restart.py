"""A rolling restart: each of three nodes leaves and comes again at its address, while work goes on. No lease is lost."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from kqlib.kafka import Kafka
from kqlib.virtual.client import Client
from kqlib.virtual.names import partition_of
from tests.patience import PATIENCE, WAIT, until
from tests.promises.virtual_nodes import NodeProcess, Nodes

PAUSE = 2.0  # seconds without an answer, of any queue
PARTITIONS = 6


class Work:
    """A thread for each queue: put, claim, ack, and one item that is held while nodes come and go."""

    def __init__(self, urls: list[str], queues: list[str]) -> None:
        self.client = Client(urls, patience=WAIT)
        self.queues = queues
        self.rounds = dict.fromkeys(queues, 0)
        self.longest = dict.fromkeys(queues, 0.0)  # seconds between two answers
        self.put: dict[str, list[bytes]] = {queue: [] for queue in queues}
        self.done: dict[str, list[bytes]] = {queue: [] for queue in queues}
        self.broken: list[str] = []
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self._guarded, args=(queue,), daemon=True) for queue in queues]

    def _guarded(self, name: str) -> None:
        try:
            self._work(name)
        except Exception as error:
            self.broken.append(f"{name}: {error!r}")

    def _work(self, name: str) -> None:
        queue = self.client.queue(name, lease=4 * WAIT)
        answered = time.monotonic()

        def note() -> None:
            nonlocal answered
            now = time.monotonic()
            self.longest[name] = max(self.longest[name], now - answered)
            answered = now

        while not self.stop.is_set():
            data = b"%d" % self.rounds[name]
            queue.put(data)
            note()
            self.put[name].append(data)
            items = queue.claim_many(10)
            note()
            for item in items:
                assert item.attempt == 1, f"{item.data!r} came again: its lease was lost"
                queue.ack(item)
                note()
                self.done[name].append(item.data)
            self.rounds[name] += 1
            self.stop.wait(0.01)

    def more(self, rounds: int = 5) -> None:
        """Wait until each queue has had so many more rounds."""
        goals = {name: done + rounds for name, done in self.rounds.items()}
        until(lambda: self.broken or all(self.rounds[name] >= goal for name, goal in goals.items()), self.rounds.copy)
        assert self.broken == []


def restarted(nodes: Nodes, node: NodeProcess, work: Work) -> None:
    """End a node in good order; the others do its work; start another one at its address. It serves what it was given."""
    port = int(node.url.rsplit(":", 1)[1])
    node.leave()
    nodes.end(node)
    work.more()
    nodes.settings["port"] = port
    (again,) = nodes.start()
    assert again.url == node.url
    until(lambda: again.http.get("/ready").status_code == 200 and again.owned(), lambda: again.http.get("/ready").text)
    nodes.settled()


@pytest.mark.nightly
@pytest.mark.limit(300)
def test_a_rolling_restart_under_load_loses_no_lease_and_pauses_no_queue_for_two_seconds(
    kq_cluster: Kafka,
) -> None:
    with Nodes(
        kq_cluster, f"restart-{uuid.uuid4().hex[:8]}", PARTITIONS, session=15 * PATIENCE
    ) as nodes:  # a heartbeat every five seconds
        nodes.start(3)
        nodes.settled()
        urls = [node.url for node in nodes.all]
        names = [
            next(f"q{n}" for n in range(1000) if partition_of(f"q{n}", PARTITIONS) == p) for p in range(PARTITIONS)
        ]
        work = Work(urls, names)
        with work.client as client:
            held = []
            for name in names:  # claimed before the first restart, acked after the last
                queue = client.queue(name, "patient", lease=4 * WAIT)
                queue.put_many([(b"held", None)] * 3)
                held += [(queue, item) for item in queue.claim_many(3)]
            for thread in work.threads:
                thread.start()
            work.more()
            took = time.monotonic()
            for node in list(nodes.all):
                restarted(nodes, node, work)
                work.more()
            took = time.monotonic() - took
            work.stop.set()
            for thread in work.threads:
                thread.join(WAIT)
            assert len(held) == 3 * PARTITIONS
            for queue, item in held:
                queue.ack(item)  # LeaseLost if a restart had ended its lease
            assert work.broken == []
            for name in names:
                assert sorted(work.put[name]) == sorted(x for x in work.done[name] if x != b"held"), name
                assert len(set(work.done[name])) - 1 == len(work.put[name])
        longest = max(work.longest.values())
        print(f"three restarts in {took:.1f} s, {sum(work.rounds.values())} rounds, longest pause {longest:.2f} s")
        assert longest <= PAUSE * PATIENCE, work.longest
