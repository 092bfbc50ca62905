"""Ten lines of queue, and `kq queue`, where only confluent-kafka is installed."""

from __future__ import annotations

from pathlib import Path

from kqlib.kafka import Kafka
from tests.alone import alone
from tests.promises.queues import topic

LINES = """
import sys
import kqlib as kq
with kq.connect() as cluster, kq.Site(cluster, sys.argv[1]) as site:
    queue = site.queue(sys.argv[1])
    queue.put_many([(b"good", None), (b"bad", None)])
    queue.ack(queue.claim(wait=30))
    queue.bury(queue.claim(wait=30), reason="broken")
    print(queue.depth(), queue.dead.depth())
"""


def test_a_queue_works_with_confluent_kafka_alone(kq_cluster: Kafka, tmp_path: Path) -> None:
    name, there = topic(kq_cluster), {"KQ_BOOTSTRAP": kq_cluster.bootstrap}
    done = alone(tmp_path, "-c", LINES, name, **there)
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done.stderr
    for words, answer in {
        f"queue put {name} again": f"{name}/0/",
        "queue list": name,
        "metrics": "kqlib_queue_items",
    }.items():
        done = alone(tmp_path, "-m", "kqlib", *words.split(), **there)
        assert done.returncode == 0 and answer in done.stdout, done.stderr
