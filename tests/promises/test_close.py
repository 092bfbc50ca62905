"""Consumers that are closed: at any moment of their group's life, and without a record that nobody saw."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import closing
from subprocess import Popen

import pytest
from confluent_kafka import Consumer as Stock, TopicPartition
from confluent_kafka.admin import NewTopic

from kqlib.kafka import Kafka, clients
from kqlib.kafka.reading import described
from tests.patience import PATIENCE
from tests.promises.play import put

Python = Callable[..., Popen[str]]
CLOSES = 600


@pytest.fixture
def topic(kq_cluster: Kafka) -> str:
    name = f"close-{uuid.uuid4().hex[:8]}"
    kq_cluster.admin.create_topics([NewTopic(name, 1)])[name].result(30)
    kq_cluster.wait_for_topic(name, 1)
    return name


@pytest.mark.parametrize("kind", [Stock, clients.Consumer])
def test_what_a_reader_was_not_given_is_not_committed_when_it_is_closed(
    kq_cluster: Kafka, topic: str, kind: type[Stock], within: Callable[..., float]
) -> None:
    put(kq_cluster, topic, *(b"%d" % number for number in range(10)))
    where = {"group_id": topic, "auto_offset_reset": "earliest", "enable_auto_commit": True}
    reader = kind(kq_cluster.client(**where))
    reader.subscribe([topic])
    within(60, lambda: (message := reader.poll(0.1)) and message.value() == b"0")
    clients.close(reader)  # nine are waiting in it
    with closing(clients.Consumer(kq_cluster.client(**where))) as asks:
        assert asks.committed([TopicPartition(topic, 0)], 30)[0].offset == 1


def test_a_reader_whose_callback_fails_is_closed_all_the_same(
    kq_cluster: Kafka, topic: str, within: Callable[..., float]
) -> None:
    def fails(*_: object) -> None:
        raise LookupError("the owner's")

    reader = clients.Consumer(kq_cluster.client(group_id=topic))
    reader.subscribe([topic], on_assign=fails)
    within(60, lambda: any(member.assignment for member in described(kq_cluster, topic)))
    with pytest.raises(LookupError):
        reader.close()
    within(20, lambda: not described(kq_cluster, topic))


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_reader_can_be_closed_at_any_moment(kq_cluster: Kafka, topic: str, python: Python, protocol: str) -> None:
    """Without `clients.close` one in some hundred processes stands still, with all of its threads."""
    lines = (
        "import random, time; from kqlib.kafka.clients import Consumer",
        f"settings = {kq_cluster.client(group_protocol=protocol)!r}",
        f"for number in range({CLOSES} // 6):",
        "    reader = Consumer({**settings, 'group.id': f'{time.time_ns()}-{random.random()}'})",
        f"    reader.subscribe([{topic!r}])",
        "    reader.poll(0); time.sleep(random.random() / 2)",
        "    reader.close()",
    )
    processes = [python(*lines) for _ in range(6)]
    end = time.monotonic() + 5 * 60 * PATIENCE
    for process in processes:
        assert process.communicate(timeout=end - time.monotonic()) == ("", "")
