"""The one broker that the parts of the bench measure on, filled topics, and what a piece of work cost in CPU.

In:  names. Out: `broker()`: a cluster as Kafka's own start script runs it, for this whole run; `filled()`: a topic with items;
`spent()`: seconds, our CPU, the broker's.

A lab's JVM has the quick compiler only and a small heap: right for two seconds of start, wrong for figures. Java reads
_JAVA_OPTIONS after a command's own options, so this one gets both compilers, G1 and a gigabyte, as `kafka-server-start.sh` says.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import kqlib as kq

KAFKAS = "-XX:-UseSerialGC -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:TieredStopAtLevel=4 -Xms1g -Xmx1g"
THREADS = {"num.io.threads": "8", "num.network.threads": "3"}  # Kafka's defaults; a lab has fewer
DATA, KEYS = b"x" * 100, [b"game-%d" % number for number in range(10)]
BATCH = 100  # records that a producer sent together; a share group gives out such batches whole
NUMBERS = itertools.count(1)


STARTED: list[kq.Cluster] = []


@functools.cache
def broker(brokers: int = 1) -> kq.Cluster:
    """A cluster of so many brokers, started at the first call, gone with this process."""
    before = os.environ.get("_JAVA_OPTIONS")
    os.environ["_JAVA_OPTIONS"] = f"{before or ''} {KAFKAS}".strip()
    try:
        STARTED.append(kq.Cluster(brokers, config=THREADS))
        return STARTED[-1]
    finally:
        os.environ.pop("_JAVA_OPTIONS")
        if before is not None:
            os.environ["_JAVA_OPTIONS"] = before


def close() -> None:
    """End what was started."""
    for cluster in STARTED:
        cluster.close()


@functools.cache
def filled(name: str, items: int, partitions: int = 1, batch: int = BATCH, keys: Sequence[bytes] = KEYS) -> str:
    """A queue's topic with so many items of 100 bytes; every site and group reads them anew. batch: records sent together."""
    kq.Plan({name: kq.QueueTopic(partitions=partitions)}).apply(broker(), quiet=True)
    settings = {
        "batch_num_messages": batch,
        "linger_ms": 5 if batch == BATCH else 50,
        "queue_buffering_max_messages": max(100_000, items),
    }
    producer = Producer(broker().client(**settings))
    for number in range(items):
        producer.produce(name, DATA, keys[number % len(keys)])
        producer.poll(0)
    producer.flush(60)
    return name


def fresh(what: str) -> str:
    """A name that no group has had: it begins at the first item."""
    return f"{what}-{next(NUMBERS)}"


def set_group(group: str, name: str, value: str) -> None:
    """One of a group's own settings."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    broker().admin.incremental_alter_configs([resource])[resource].result(15)


@dataclass(frozen=True)
class Spent:
    """What something took: seconds by the clock, seconds of CPU here and in the broker."""

    seconds: float
    ours: float
    theirs: float


def spent(work: Callable[[], object], pid: int | None = None) -> Spent:
    """Do it. pid: the server that works for it; without one, the broker."""
    server = psutil.Process(pid or broker().broker(1).pid)
    clock, ours, theirs = time.perf_counter(), time.process_time(), server.cpu_times()
    work()
    after = server.cpu_times()
    used = after.user + after.system - theirs.user - theirs.system
    return Spent(time.perf_counter() - clock, time.process_time() - ours, used)
