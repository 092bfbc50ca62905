"""What a node survives: clients that hear nobody any more, a transaction that a killed node left open, a clock that jumps, a twin."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kqlib.kafka import Kafka
from kqlib.queue.clients import leave
from kqlib.topics import Plan
from kqlib.virtual import fetcher, member
from kqlib.virtual.client import Client
from kqlib.virtual.fetcher import RecordFetcher, reader
from kqlib.virtual.index import RecordCache
from kqlib.virtual.names import topics
from kqlib.virtual.node import Node
from tests.patience import PATIENCE, WAIT
from tests.promises.queues import NOWHERE

LEFT_OPEN = """
import os, signal, sys
from kqlib.kafka.cluster import Kafka
from kqlib.virtual.writer import PartitionWriter

writer = PartitionWriter(Kafka(sys.argv[1]), sys.argv[2], 0)
writer.connect()
writer.begin()
writer._producer.begin_transaction()
writer._producer.produce(sys.argv[2], b"half", b"q", 0)
writer._producer.flush(30)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def topic(kq_cluster: Kafka) -> str:
    """The topics of some virtual queues, with one partition."""
    name = f"recover-{uuid.uuid4().hex[:8]}"
    Plan(topics(name, 1)).apply(kq_cluster, quiet=True)
    return name


@pytest.fixture
def node(kq_cluster: Kafka, topic: str) -> Iterator[Node]:
    with Node(Kafka(kq_cluster.bootstrap), topic) as node:  # a cluster of its own: its AdminClient is not the tests'
        yield node


def test_a_node_whose_clients_hear_nobody_any_more_takes_others(
    node: Node, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float]
) -> None:
    for module, name, seconds in ((member, "LOOK", 0.2), (member, "DEAF", 1.0), (fetcher, "PATIENCE", 0.5)):
        monkeypatch.setattr(module, name, seconds * PATIENCE)
    with Client(node.url, patience=60) as client:
        queue = client.queue("q")
        queue.put(b"before")
        deaf = {
            "the map's": (node._member, "_map_reader", reader(NOWHERE)),
            "the group's": (node._member, "_consumer", reader(NOWHERE)),
            "the fetcher's": (node._fetcher._kept, "_client", reader(NOWHERE)),
        }
        for what, (where, name, client_of_nobody) in deaf.items():
            node.cluster.__dict__["admin"] = AdminClient({"bootstrap.servers": NOWHERE.bootstrap, "log_level": 0})
            node.server_of("q").store.cache = RecordCache()  # what is read must be fetched
            old, swapped = getattr(where, name), time.monotonic()
            setattr(where, name, client_of_nobody)
            within(30, lambda: node._member.ticked > swapped + 0.1)  # noqa: B023 - its thread calls the old one no more
            leave(old)
            assert queue.read().records[0][1] == b"before"
            within(60, lambda: getattr(where, name) is not client_of_nobody and node.ready()[0], what)  # noqa: B023
            queue.put(what.encode())
            assert queue.read().records[-1][1] == what.encode()
        items = [queue.claim(wait=WAIT) for _ in range(4)]
        assert [item and item.data for item in items] == [b"before", *(what.encode() for what in deaf)]


def test_what_a_killed_node_left_open_is_never_seen_and_holds_nobody_up(
    kq_cluster: Kafka, topic: str, within: Callable[..., float]
) -> None:
    words = [sys.executable, "-c", LEFT_OPEN, kq_cluster.bootstrap, topic]
    assert subprocess.run(words, check=False, timeout=WAIT).returncode == -9
    with Node(kq_cluster, topic) as node, Client(node.url) as client:
        queue = client.queue("q")
        queue.put(b"whole")
        item = queue.claim(wait=WAIT)  # nothing before it is undecided: that would be for longer
        assert item is not None and item.data == b"whole"
        assert [data for _, data in queue.read().records] == [b"whole"]


def test_a_nodes_clock_that_jumps_makes_no_consumer_idle(
    kq_cluster: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float]
) -> None:
    real, ahead = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + ahead[0])
    with Node(kq_cluster, topic) as node, Client(node.url) as client:
        queue = client.queue("q", "c")
        queue.put(b"0")
        item = queue.claim(wait=WAIT)
        assert item is not None
        queue.ack(item)
        ahead[0] = 30 * 24 * 3600.0
        for _ in range(2):  # a server looks for idle consumers each second: when it begins again, one look is over
            jumped = time.monotonic()
            within(60, lambda: node.server_of("q")._tidied > jumped)  # noqa: B023 - called at once
        assert queue.depth() == 0 and queue.claim() is None


def test_a_node_for_which_no_partition_is_left_is_ready_too(
    kq_cluster: Kafka, topic: str, node: Node, within: Callable[..., float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kqlib.virtual.node.SPARE", 1.0)
    within(60, lambda: node.ready()[0])
    with Node(kq_cluster, topic) as spare:
        within(60, lambda: spare.ready()[0])
        assert sorted([*node.owned, *spare.owned]) == [0]


def test_two_nodes_that_tell_the_same_address_are_not_ready_and_say_why(
    kq_cluster: Kafka, topic: str, node: Node, within: Callable[..., float]
) -> None:
    within(60, lambda: node.ready()[0])
    with Node(kq_cluster, topic, advertise=node.url) as twin:
        pairs = (node, twin), (twin, node)  # whichever the group gave the partition to, the other one says so
        within(60, lambda: any(f"node {a.id} has the address {a.url}, too" in b.ready()[1] for a, b in pairs))


def test_a_fetcher_that_has_its_record_does_not_read_on(kq_cluster: Kafka, topic: str) -> None:
    """It would take the rest of the log into memory, and the next fetch would wait for the one at the log's end."""
    producer, fetched = Producer(kq_cluster.client()), Future[Any]()
    producer.produce(topic, b"old", b"q", 0)
    assert producer.flush(WAIT) == 0
    with closing(RecordFetcher(kq_cluster, topic)) as fetcher:
        fetcher.fetch(0, [0], lambda found, gone: fetched.set_result((found, gone)))
        ((found,), gone) = fetched.result(WAIT)
        assert (found.data, gone) == (b"old", [])
        assert fetcher._kept.now().assignment() == []
