"""max.message.bytes is changed while a queue is open: what fits now is stored, the rest is refused with the present limit."""

from __future__ import annotations

import os
import re

import pytest
from confluent_kafka.admin import ResourceType

from kqlib.errors import PayloadTooLarge
from kqlib.kafka import Kafka
from kqlib.queue import Queue, Site
from kqlib.queue.put import REDRIVE_BYTES
from kqlib.share import ShareQueue
from tests.promises.play import configure
from tests.promises.queues import data, put, topic

HIGH, LOW = 200_000, 20_000


@pytest.fixture
def name(kq_cluster: Kafka) -> str:
    return topic(kq_cluster, **{"max.message.bytes": HIGH})


@pytest.fixture
def queue(here: Site) -> Queue:
    return here.queue(here.name)


def limit(kafka: Kafka, name: str, most: int) -> None:
    """Change it."""
    configure(kafka, ResourceType.TOPIC, name, max_message_bytes=str(most))


def test_a_put_above_a_limit_that_was_lowered_says_the_present_limit_and_that_nothing_was_stored(
    queue: Queue, kq_cluster: Kafka
) -> None:
    limit(kq_cluster, queue.name, LOW)
    for _ in range(2):  # refused by the broker, then by what is known
        with pytest.raises(PayloadTooLarge) as refused:
            queue.put(os.urandom(LOW))
        answer = re.fullmatch(
            rf"The record would take (\d+) bytes and '{queue.name}' takes {LOW - REDRIVE_BYTES}\. Nothing was stored\. .*",
            str(refused.value),
        )
        assert answer and LOW < int(answer[1]) < LOW + 200
        assert (getattr(refused.value, "unknown", []), queue.depth()) == ([], 0)


def test_items_that_fit_one_by_one_are_stored_although_their_batch_is_above_the_lowered_limit(
    queue: Queue, kq_cluster: Kafka
) -> None:
    limit(kq_cluster, queue.name, LOW)
    values = [os.urandom(1_000) for _ in range(100)]
    ids = queue.put_many([(value, None) for value in values])
    assert len(set(ids)) == 100 and queue.depth() == 100
    assert {each.id: each.data for each in queue.peek(200)} == dict(zip(ids, values, strict=True))


def test_of_many_the_error_says_which_are_stored(queue: Queue, kq_cluster: Kafka) -> None:
    limit(kq_cluster, queue.name, LOW)
    with pytest.raises(PayloadTooLarge) as refused:
        queue.put_many([(b"small", None), (os.urandom(LOW), None)])
    error = refused.value
    assert (error.unknown, len(error.done)) == ([], queue.depth())  # type: ignore[attr-defined]
    assert ("Nothing was stored." if not error.done else "Of 2 items 1 are stored.") in str(error)  # type: ignore[attr-defined]


def test_a_put_within_a_limit_that_was_raised_is_stored(queue: Queue, kq_cluster: Kafka) -> None:
    large = os.urandom(HIGH + 1)
    with pytest.raises(PayloadTooLarge, match=f"takes {HIGH - REDRIVE_BYTES}"):
        queue.put(large)
    limit(kq_cluster, queue.name, 2 * HIGH)
    queue.put(large)
    with queue.site.transaction() as tx:
        tx.put(queue, large)
    assert data(queue.peek()) == [large, large]


def test_a_share_queue_says_the_present_limit_too(kq_cluster: Kafka, name: str) -> None:
    put(kq_cluster, name, b"there")
    with ShareQueue(kq_cluster, name) as queue:
        limit(kq_cluster, name, LOW)
        with pytest.raises(PayloadTooLarge, match=f"20101 bytes .* takes {LOW}. Nothing was stored"):
            queue.put(os.urandom(LOW))
        limit(kq_cluster, name, HIGH)
        assert queue.put(os.urandom(LOW))
