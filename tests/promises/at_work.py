"""The programs of notebooks/at_work as processes, and what they work on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from confluent_kafka import Consumer

import kqlib as kq
from kqlib.kafka import Kafka
from tests.promises.play import put

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "at_work"
FIRST_SENDER = "01_topics.py"
SAFE = "02_partitions_and_replicas.py"
KEYED = "03_keys.py"
AVRO = "05_avro_versions.py"
TRANSACTION = "06_delivery_semantics.py"
DRUPAL = "07_queue_on_a_log.py"
VIRTUAL = "10_virtual_queues.py"  # it asks nodes, and not Kafka
SPARK = "12_spark_pipeline.py"  # it needs a session: tests/spark
OPERATIONS = "13_operations.py"  # it is no worker: it looks once, and ends
METER = "14_how_fast.py"  # it works on nothing, and prints what it measured
SPORTS = "15_two_sports.py"  # a worker, and with a word after it the feed, or its mover
ALL = sorted(path.name for path in FOLDER.glob("*.py"))
PROGRAMS = [name for name in ALL if name not in (VIRTUAL, SPARK, OPERATIONS, METER)]
SENDERS = [FIRST_SENDER, SAFE]
WORKERS = [name for name in PROGRAMS if name not in SENDERS]
FIRST = {"number": "int", "min": "int"}  # the fields of the first version of a goal


@contextmanager
def started(
    name: str | Path,
    cluster: Kafka,
    work: str,
    *words: str,
    stdin: int | IO[bytes] = subprocess.PIPE,
    out: int | None = None,
    log: int = subprocess.PIPE,
    **more: str,
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs, with the environment that its first lines name."""
    ours: Mapping[str, str] = {
        "KAFKA_BOOTSTRAP": cluster.bootstrap,
        "KAFKA_TOPIC": f"{work}-results",
        "KAFKA_COPIES": "1",  # a cluster of one broker
        "KQ_BOOTSTRAP": cluster.bootstrap,
        "KQ_TOPIC": work,
        "KQ_RESULTS": f"{work}-results",
        "KQ_ASIDE": f"{work}-aside",
        "KQ_GROUP": work,
        "KQ_TXN": work,
        **more,
    }
    command = [sys.executable, str(FOLDER / name), *words]
    program = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=log, env={**os.environ, **ours})
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def given(cluster: Kafka, work: str, count: int, name: str = "", partitions: int = 1) -> None:
    """Two topics, and numbered items in the first one; a reader of Avro has a third topic."""
    topics = (work, f"{work}-results", *([f"{work}-aside"] if name == AVRO else []))
    kq.Plan({topic: kq.QueueTopic(partitions=partitions) for topic in topics}).apply(cluster, quiet=True)
    encode = goals(cluster, work) if name == AVRO else plain
    put(cluster, work, *map(encode, range(count)))


def plain(number: int) -> bytes:
    """An item of most programs."""
    return b"%d" % number


def goals(cluster: Kafka, work: str, fields: Mapping[str, str] = FIRST) -> Callable[[int], bytes]:
    """Items in Avro: a version with these fields is registered, and a number becomes a goal's bytes."""
    registry, subject = kq.schemas.Registry(cluster=cluster), f"{work}-value"
    registry.set_level(subject, "NONE")
    schema = {"type": "record", "name": "Goal", "fields": [{"name": each, "type": fields[each]} for each in fields]}
    codec = registry.codec(subject, schema)
    values = {"int": int, "long": int, "string": str}
    return lambda number: codec.encode({each: values[kind](number) for each, kind in fields.items()}) or b""


@contextmanager
def results(cluster: Kafka, work: str) -> Iterator[Callable[[], set[bytes]]]:
    """What careful readers see of the results so far."""
    seen: set[bytes] = set()
    settings = {"group_id": f"{work}-reader", "isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    reader = Consumer(cluster.client(**settings))
    reader.subscribe([f"{work}-results"])

    def so_far() -> set[bytes]:
        seen.update(message.value() for message in reader.consume(100, 0.2) if message.error() is None)
        return seen

    try:
        yield so_far
    finally:
        reader.close()


def feed(program: subprocess.Popen[bytes], text: bytes) -> None:
    """Lines on its standard input."""
    assert program.stdin
    program.stdin.write(text)
    program.stdin.flush()


def work_for(name: str, program: subprocess.Popen[bytes], *numbers: int) -> set[bytes]:
    """What the results will be; a sender gets its lines."""
    if name not in SENDERS:
        return {b"done %d" % number for number in numbers}
    lines = [b"goal %d" % number for number in numbers]
    feed(program, b"".join(line + b"\n" for line in lines))
    return set(lines)
