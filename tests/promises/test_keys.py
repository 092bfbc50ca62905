"""What `kqlib.keys` says without a broker is what real producers do: kqlib's and librdkafka's own.

Java's producer, records without a key, and a topic that grows: the stored outputs of notebook 03.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import Producer

from kqlib import keys
from kqlib.kafka import Kafka
from tests.patience import WAIT

COUNTS = [pytest.param(n, marks=pytest.mark.kq_partitions(n), id=f"{n} partitions") for n in (1, 7, 12)]
PARTITIONERS = {"murmur2_random": "murmur2", "consistent_random": "crc32", None: "crc32"}  # None: as the client comes


def some_keys(n: int) -> list[bytes]:
    """Keys of all lengths and bytes; none is empty."""
    draw = random.Random(n)
    return [draw.randbytes(draw.randrange(1, 40)) for _ in range(400)]


def producer(cluster: Kafka, **settings: Any) -> Producer:
    """A producer of kqlib; a setting that is None is taken away."""
    merged = cluster.client(**settings)
    return Producer({key: value for key, value in merged.items() if value is not None})


def placed(maker: Producer, topic: str, sent: Iterable[bytes | None]) -> list[tuple[bytes | None, int]]:
    """Key and partition of each record, as the broker acknowledged it."""
    found: list[tuple[bytes | None, int]] = []
    for key in sent:
        maker.produce(
            topic, b"", key, on_delivery=lambda error, record: found.append((record.key(), record.partition()))
        )
    assert maker.flush(WAIT) == 0
    return found


@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=str)
@pytest.mark.parametrize("n", COUNTS)
def test_a_producer_puts_a_key_where_partition_says(
    kq_cluster: Kafka, kq_topic: str, n: int, partitioner: str | None
) -> None:
    found = placed(producer(kq_cluster, partitioner=partitioner), kq_topic, some_keys(n))
    assert len(found) == 400
    hash_name: Any = PARTITIONERS[partitioner]
    assert [place for _, place in found] == [keys.partition(key or b"", n, hash_name) for key, _ in found]
    sizes = [sum(place == number for _, place in found) for number in range(n)]
    assert list(keys.spread([key or b"" for key, _ in found], n, hash_name)) == sizes


@pytest.mark.kq_partitions(7)
def test_an_empty_key_is_a_key_for_murmur2_and_like_null_for_the_default(kq_cluster: Kafka, kq_topic: str) -> None:
    loose = {"sticky_partitioning_linger_ms": 0}
    project = placed(producer(kq_cluster, **loose), kq_topic, [b""] * 300)
    assert {place for _, place in project} == {keys.partition(b"", 7)}
    steady = placed(producer(kq_cluster, partitioner="consistent", **loose), kq_topic, [b""] * 300)
    assert {place for _, place in steady} == {keys.partition(b"", 7, "crc32")}
    default = placed(producer(kq_cluster, partitioner=None, **loose), kq_topic, [b""] * 300)
    assert {place for _, place in default} == set(range(7))
