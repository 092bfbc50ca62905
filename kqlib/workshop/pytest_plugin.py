"""A real Kafka in your own tests: install kqlib, name a fixture.

    def test_what_i_put_comes_out(kq_cluster, kq_topic):
        producer = Producer(kq_cluster.client())
        producer.produce(kq_topic, b"hello")
        assert producer.flush(10) == 0

    def test_a_goal_is_counted(kq_queue):
        kq_queue.put(b"goal")
        assert kq_queue.claim(wait=10).data == b"goal"

- kq_cluster: one cluster for the whole run. KQ_BOOTSTRAP names it; else each worker of pytest-xdist starts an embedded one.
- kq_topic: a new topic for each test, with one partition, or as many as `@pytest.mark.kq_partitions(4)` asks for.
- kq_queue: a new queue for each test, on a site of its own, which is closed afterwards. It takes the same marker.
- kq_crash: `kq.crash`, which kills a worker of yours at each of its requests and judges its results. The worker may be in any
  language: `report = kq_crash([sys.executable, "worker.py"], sample=12)`, then `assert report.clean, report`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kqlib.kafka import Kafka
    from kqlib.queue import Queue
    from kqlib.workshop.crash import Report


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "kq_partitions(n): how many partitions this test's kq_topic or kq_queue has")


@pytest.fixture(scope="session")
def kq_cluster() -> Iterator[Kafka]:
    """A real Kafka for the whole run."""
    from kqlib.kafka import connect

    with connect() as cluster:
        yield cluster


@pytest.fixture
def kq_topic(kq_cluster: Kafka, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic, deleted after the test."""
    from kqlib.topics import Plan, Topic

    name, partitions = _named(request)
    Plan({name: Topic(partitions)}).apply(kq_cluster, quiet=True)  # returns when it is there
    yield name
    _delete(kq_cluster, name)


@pytest.fixture
def kq_queue(kq_cluster: Kafka, request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A new queue with its dead letters, and a new site; all of it is gone after the test."""
    from kqlib.queue import Site
    from kqlib.topics import Plan, QueueTopic

    name, partitions = _named(request)
    Plan({name: QueueTopic(partitions=partitions)}).apply(kq_cluster, quiet=True)
    try:
        with Site(kq_cluster, name) as site:
            yield site.queue(name)
        _forget(kq_cluster, name)
    finally:
        _delete(kq_cluster, name)
        _delete(kq_cluster, f"{name}.dead")


@pytest.fixture(scope="session")
def kq_crash() -> Iterator[Callable[..., Report]]:
    """`kq.crash` without a progress bar, on one cluster for all tests."""
    from kqlib.workshop.crash import crash, crash_cluster

    with crash_cluster() as cluster:
        yield partial(crash, progress=False, cluster=cluster)


def _forget(cluster: Kafka, name: str) -> None:
    """Delete the group, and its notes in kq.queues, which all sites share."""
    from confluent_kafka import KafkaException

    from kqlib.queue import Site

    with Site(cluster, name) as site:  # the test may have closed its own
        keys = [key for key in site._notes.keys() if key[0] == name]  # noqa: SIM118 - no dict
        site._notes.write([(key, None) for key in keys], site._sender())
    with suppress(KafkaException):  # a site that only put was never in a group
        cluster.admin.delete_consumer_groups([name], request_timeout=10)[name].result(15)


def _named(request: pytest.FixtureRequest) -> tuple[str, int]:
    """A name after the test, and how many partitions it asks for."""
    marker = request.node.get_closest_marker("kq_partitions")
    name = re.sub(r"[^a-zA-Z0-9-]+", "-", f"{request.node.name}-{secrets.token_hex(3)}")[-200:]
    return name, marker.args[0] if marker else 1


def _delete(cluster: Kafka, topic: str) -> None:
    from kqlib.kafka.writing import GONE, settled

    settled(cluster.admin.delete_topics([topic]), "deleted", 15, GONE)  # the test may have deleted it itself
