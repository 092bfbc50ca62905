"""What starting costs: one broker, three, their memory, a reader's join, one of Kafka's tools. `measured()` is one round of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from kqlib.workshop.cluster import Cluster

Row = dict[str, float]


def started(brokers: int) -> tuple[Cluster, float]:
    """A new cluster and the seconds until it was ready."""
    start = time.monotonic()
    cluster = Cluster(brokers)
    return cluster, time.monotonic() - start


def resident(cluster: Cluster, brokers: int) -> float:
    """The largest broker's memory, in MB."""
    pids = [cluster.broker(number).pid for number in range(1, brokers + 1)]
    return max(psutil.Process(pid).memory_info().rss for pid in pids if pid) / 1e6


def timed(work: Callable[[], object]) -> float:
    """Seconds that it took."""
    start = time.monotonic()
    work()
    return time.monotonic() - start


def measured() -> Row:
    """One round: everything once."""
    row = {}
    cluster, row["one broker ready, s"] = started(1)
    with cluster:
        row["one broker, MB"] = resident(cluster, 1)
        row["a topic created, s"] = timed(lambda: _create(cluster))
        row["a reader joins and reads, s"] = timed(lambda: _read(cluster))
        row["kq kafka topics --list, s"] = timed(lambda: cluster.kafka("topics", "--list"))
    cluster, row["three brokers ready, s"] = started(3)
    with cluster:
        row["three brokers, MB each"] = resident(cluster, 3)
        row["a killed leader is replaced, s"] = timed(lambda: _replace(cluster))
    row["a secure broker ready, s"] = timed(lambda: Cluster(secure=True).close())
    return row


def _create(cluster: Cluster) -> None:
    from confluent_kafka.admin import NewTopic

    cluster.admin.create_topics([NewTopic("bench", 1)])["bench"].result(15)


def _read(cluster: Cluster) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer(cluster.client())
    producer.produce("bench", b"x")
    producer.flush(15)
    consumer = Consumer(cluster.client(group_id="bench"))
    consumer.subscribe(["bench"])
    while not consumer.consume(1, 15):
        pass
    consumer.close()


def _replace(cluster: Cluster) -> None:
    from confluent_kafka.admin import NewTopic

    topic = NewTopic("led", 1, replica_assignment=[[1, 2, 3]])
    cluster.admin.create_topics([topic])["led"].result(15)
    cluster.wait_for_topic("led", 1)
    cluster.broker(1).kill()
    while cluster.leader("led", 0) in (1, None):
        time.sleep(0.02)
