"""What an audit of one and of ten million items costs on this machine: every record read, added up, judged and counted.

In: nothing. Out: `measured()`: one round. Items with a result each, a few of them lost and doubled, on a JVM that is warm:
sessions are what `starts` measures. The items are made once, for all rounds.
"""

from __future__ import annotations

import time
from functools import cache

from confluent_kafka import Producer

import kqlib as kq
from bench import broker
from bench.spark import cpu

MILLIONS, LOST, DOUBLED = (1, 10), 7, 5
SITE = "bench"


@cache
def ready() -> tuple[object, kq.Cluster]:
    """A session, and a cluster with queues whose items are done, and their results."""
    cluster = broker.broker()
    for millions in MILLIONS:
        _filled(cluster, *_topics(millions), millions * 1_000_000 // 4)
    return kq.spark.session(cluster), cluster


def _topics(millions: int) -> tuple[str, str]:
    """The queue of so many items, and their results."""
    return f"audited-{millions}", f"audited-{millions}.results"


def _filled(cluster: kq.Cluster, queue: str, results: str, many: int) -> None:
    """So many items and results in each of four partitions, all done."""
    kq.Plan({queue: kq.QueueTopic(partitions=4), results: kq.Topic(4)}).apply(cluster, quiet=True)
    producer = Producer(cluster.client(linger_ms=50, batch_size=1_000_000))
    for at in range(many):
        for partition in range(4):
            item = f"{queue}/{partition}/{at}".encode()
            headers = {"kq-item": item, "kq-by": SITE.encode()}
            times = 0 if partition == 0 and at < LOST else 2 if partition == 1 and at < DOUBLED else 1
            _put(producer, queue, partition, {})
            for _ in range(times):
                _put(producer, results, partition, headers)
    producer.flush(120)
    _done(cluster, queue, many)


def _put(producer: Producer, topic: str, partition: int, headers: dict[str, bytes]) -> None:
    while True:
        try:
            producer.produce(topic, b"goal", partition=partition, headers=headers)
            return
        except BufferError:
            producer.poll(0.1)


def _done(cluster: kq.Cluster, queue: str, many: int) -> None:
    """A group that has committed all of it, as a worker of any kind leaves it."""
    from confluent_kafka import Consumer, TopicPartition

    member = Consumer(cluster.client(group_id=SITE, group_protocol="classic"))
    member.commit(offsets=[TopicPartition(queue, number, many) for number in range(4)], asynchronous=False)
    member.close()


def measured() -> dict[str, float]:
    """One round: for each size the whole audit, then the tables that are made of it."""
    spark, cluster = ready()
    found: dict[str, float] = {}
    took = {}
    for millions in MILLIONS:
        queue, results = _topics(millions)
        begun, before = time.monotonic(), cpu()
        with kq.spark.audit(spark, cluster, queue, SITE, results=results) as seen:
            counts = seen.counts
            judged = time.monotonic() - begun
            assert (counts["missing"], counts["doubled"]) == (LOST, DOUBLED), counts
            seen.offending.collect(), seen.health.collect()
            took[millions], spent = time.monotonic() - begun, cpu() - before
        found |= {
            f"{millions} M items, verdicts, s": judged,
            f"{millions} M items, verdicts, ids, health, s" + " (≤ 60)" * (millions == 1): took[millions],
            f"{millions} M items judged a second and core, thousands": millions * 1000 / judged / 2,
            f"{millions} M items, all of it, s of CPU": spent,
        }
    few, many = MILLIONS
    return found | {f"{many} M ÷ {few} M, the whole audit (linear: {many // few})": took[many] / took[few]}
