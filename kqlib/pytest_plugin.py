"""Real Kafka in anyone's own tests: install kqlib, name a fixture.

    def test_what_i_put_comes_out(kq_cluster, kq_topic):
        producer = Producer(kq_cluster.client())
        producer.produce(kq_topic, b"hello")
        assert producer.flush(10) == 0

kq_cluster   one cluster for the whole run (KQ_BOOTSTRAP names one's own; else an embedded one is started, once per worker)
kq_topic     a topic of its own for each test, with one partition unless `@pytest.mark.kq_partitions(4)` says otherwise
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kqlib.broker import Kafka


def pytest_configure(config: pytest.Config) -> None:
    """Make the house's marker known."""
    config.addinivalue_line("markers", "kq_partitions(n): how many partitions this test's kq_topic has")


@pytest.fixture(scope="session")
def kq_cluster() -> Iterator[Kafka]:
    """A real Kafka for the whole run."""
    from kqlib.broker import connect

    with connect() as cluster:
        yield cluster


@pytest.fixture
def kq_topic(kq_cluster: Kafka, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic, deleted after the test."""
    from confluent_kafka import KafkaException

    from kqlib.topics import Plan, Topic

    marker = request.node.get_closest_marker("kq_partitions")
    name = re.sub(r"[^a-zA-Z0-9-]+", "-", f"{request.node.name}-{secrets.token_hex(3)}")[-200:]
    Plan({name: Topic(marker.args[0] if marker else 1)}).apply(kq_cluster, quiet=True)  # returns when it is there
    yield name
    try:
        kq_cluster.admin.delete_topics([name])[name].result(15)
    except KafkaException as error:
        if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":  # the test has deleted it itself
            raise
