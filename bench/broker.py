"""The one broker that the parts of the bench measure on, filled topics, and what a piece of work cost in CPU.

In:  names. Out: `broker()`: a cluster as Kafka's own start script runs it, for this whole run; `filled()`: a topic with items;
`spent()`: seconds, our CPU, the broker's. `requests()`: what the broker has had.

A lab's JVM has the quick compiler only and a small heap: right for two seconds of start, wrong for figures. Java reads
_JAVA_OPTIONS after a command's own options, so this one gets both compilers, G1 and a gigabyte, as `kafka-server-start.sh` says.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import kqlib as kq
from kqlib.kafka import tools
from kqlib.runtime import java

LOCKS = "10000"  # records of a partition that a share group may hold at once; by default 2,000
KAFKAS = "-XX:-UseSerialGC -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:TieredStopAtLevel=4 -Xms1g -Xmx1g"
# Kafka's defaults; a lab has fewer. And what a share group may lock of a partition at once, by default 4,000.
CONFIG = {"num.io.threads": "8", "num.network.threads": "3", "group.share.max.partition.max.record.locks": LOCKS}
DATA, KEYS = b"x" * 100, [b"game-%d" % number for number in range(10)]
KINDS = ("Fetch", "OffsetCommit", "ListOffsets", "ConsumerGroupHeartbeat", "Metadata")  # requests of a client
NO_KINDS = ("ms", "BrokerHeartbeat", "FetchConsumer", "FetchFollower")  # of no client, or counted as Fetch too
BATCH = 100  # records that a producer sent together; a share group gives out such batches whole
NUMBERS = itertools.count(1)
T = TypeVar("T")


STARTED: list[kq.Cluster] = []


@functools.cache
def broker(brokers: int = 1) -> kq.Cluster:
    """A cluster of so many brokers, started at the first call, gone with this process."""
    before = os.environ.get("_JAVA_OPTIONS")
    os.environ["_JAVA_OPTIONS"] = f"{before or ''} {KAFKAS}".strip()
    try:
        STARTED.append(kq.Cluster(brokers, config=CONFIG))
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


def share_group(what: str) -> str:
    """A new share group that begins at the first item, with its lock limit raised. It beats as often as a lab's other groups."""
    group = fresh(what)
    own = {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": LOCKS}
    own |= {"share.heartbeat.interval.ms": "500"}  # by default five seconds, and so long until it has partitions
    entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in own.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    broker().admin.incremental_alter_configs([resource])[resource].result(15)
    return group


def drawn(ways: Mapping[str, T]) -> list[tuple[str, T]]:
    """These contestants in an order that is drawn: a change of the machine's speed favours none."""
    return random.sample(list(ways.items()), len(ways))


@functools.cache
def _metrics() -> str:
    """Where the broker's metrics are read."""
    jcmd = [str(Path(java.find().command).with_name("jcmd")), str(broker().broker(1).pid)]
    subprocess.run([*jcmd, "ManagementAgent.start_local"], check=True, capture_output=True)
    status = subprocess.run([*jcmd, "ManagementAgent.status"], check=True, capture_output=True, text=True).stdout
    return status[status.index("service:jmx:") :].split()[0]


def requests() -> Counter[str]:
    """How many requests of each kind the broker has had until now, by its own metrics; and "ms", the moment."""
    name = "kafka.network:type=RequestMetrics,name=RequestsPerSec,*"
    how = ["--object-name", name, "--attributes", "Count", "--one-time", "--report-format", "properties"]
    found = Counter[str]()
    for line in tools.run("jmx", ["--jmx-url", _metrics(), *how], None, {}).splitlines():
        what, _, count = line.rpartition("=")
        if kind := re.search(r"request=(\w+)", what):
            found[kind[1]] += int(count)
        elif what == "time":
            found["ms"] = int(count)
    found["all"] = sum(found[kind] for kind in found if kind not in NO_KINDS)
    return found


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
