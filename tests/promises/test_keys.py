"""What `kqlib.keys` says without a broker is what real producers do: kqlib's, librdkafka's own and Java's."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from kqlib import keys
from kqlib.kafka import Kafka
from kqlib.workshop import snapshot
from tests.patience import WAIT

COUNTS = [pytest.param(n, marks=pytest.mark.kq_partitions(n), id=f"{n} partitions") for n in (1, 2, 3, 6, 7, 12)]
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


@pytest.mark.kq_partitions(3)
def test_java_puts_a_key_where_murmur2_says(kq_cluster: Kafka, kq_topic: str) -> None:
    games = ["LAL-BOS", "MCI-LIV", "ARS-CHE", "Fußball", *(f"game-{number}" for number in range(96))]
    tool = [sys.executable, "-m", "kqlib", "kafka", "console-producer", "--topic", kq_topic]
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    lines = "\n".join(f"{game}:java" for game in games)
    env = {**os.environ, "KQ_BOOTSTRAP": kq_cluster.bootstrap}
    subprocess.run([*tool, *keyed], input=lines.encode(), check=True, capture_output=True, env=env, timeout=WAIT)
    stored = snapshot.records(kq_cluster, kq_topic)
    found = {record.key().decode(): place for place, records in stored.items() for record in records}
    assert found == {game: keys.partition(game, 3) for game in games}
    assert keys.partition("LAL-BOS", 3, "crc32") != found["LAL-BOS"]


@pytest.mark.kq_partitions(7)
def test_an_empty_key_is_a_key_for_murmur2_and_like_null_for_the_default(kq_cluster: Kafka, kq_topic: str) -> None:
    loose = {"sticky_partitioning_linger_ms": 0}
    project = placed(producer(kq_cluster, **loose), kq_topic, [b""] * 300)
    assert {place for _, place in project} == {keys.partition(b"", 7)}
    steady = placed(producer(kq_cluster, partitioner="consistent", **loose), kq_topic, [b""] * 300)
    assert {place for _, place in steady} == {keys.partition(b"", 7, "crc32")}
    default = placed(producer(kq_cluster, partitioner=None, **loose), kq_topic, [b""] * 300)
    assert {place for _, place in default} == set(range(7))


@pytest.mark.kq_partitions(7)
def test_null_keys_stick_together_for_a_while(kq_cluster: Kafka, kq_topic: str) -> None:
    for linger, partitions in ((60_000, 1), (0, 7)):
        maker = producer(kq_cluster, sticky_partitioning_linger_ms=linger)
        placed(maker, kq_topic, [None])  # until a partition's leader is connected the choice is made again and again
        assert len({place for _, place in placed(maker, kq_topic, [None] * 300)}) == partitions


@pytest.mark.kq_partitions(4)
def test_a_grown_topic_has_moved_keys_in_two_places_and_all_others_in_one(kq_cluster: Kafka, kq_topic: str) -> None:
    sent = some_keys(4)
    placed(producer(kq_cluster), kq_topic, sent)
    kq_cluster.admin.create_partitions([NewPartitions(kq_topic, 6)])[kq_topic].result(WAIT)
    kq_cluster.wait_for_topic(kq_topic, 6)
    placed(producer(kq_cluster), kq_topic, sent)
    where: dict[bytes, set[int]] = {}
    for place, records in snapshot.records(kq_cluster, kq_topic).items():
        for record in records:
            where.setdefault(record.key(), set()).add(place)
    moves = keys.moved(sent, 4, 6)
    assert {key: places for key, places in where.items() if len(places) == 2} == {k: set(v) for k, v in moves.items()}
    assert 0.5 < moves.share < 0.8  # two thirds, as for any hash
