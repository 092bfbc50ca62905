"""The program that `crash_points` kills: a worker of any queue. It takes each item, and writes to the results what became of it.

In:  a file with a pickled factory (cluster, name) -> queue, and a way: "ack" or "step"; KQ_BOOTSTRAP, KQ_TOPIC and KQ_RESULTS.
Out: results. With "ack" each item has two: `done 3` before its ack, and `acked 3` after the queue has taken that. With "step" it
has one, `done 3`, which is the step's output.
"""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kqlib.kafka import Kafka
from kqlib.topic_rules import QueueTopic
from kqlib.topics import Plan
from kqlib.workshop.promises.adapter import Claim, QueueAdapter

FIRST, LATER = 8.0, 2.0  # seconds for a first claim, which joins a group; for a later one
LEASE = 3.0  # seconds, for a queue that notices a worker's death by its lease alone
WORK = 0.3  # seconds of work on the first item: long enough for a timer to commit it


def main(file: str, way: str, last: str) -> None:
    """Take items until the last one is done, or until none comes."""
    factory = pickle.loads(Path(file).read_bytes())
    topic, results = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"]
    cluster = Kafka(os.environ["KQ_BOOTSTRAP"])
    names = [topic, results] if way == "step" else [topic]
    Plan({name: QueueTopic(partitions=1) for name in names}).apply(cluster, quiet=True)
    options = {"lease": LEASE} if "lease" in inspect.signature(factory).parameters else {}
    adapter = QueueAdapter(factory(cluster, topic, **options))
    finish = step(adapter, results) if way == "step" else ack(adapter, cluster, results)
    wait = FIRST
    while (claim := adapter.claim(wait=wait)) is not None:
        if wait == FIRST:
            time.sleep(WORK)
        wait = LATER
        try:
            finish(claim)
        except Exception as error:  # the queue refuses: another worker has the item
            print(f"{claim.data}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        else:
            if claim.data == last:
                break
    adapter.close()


def ack(adapter: QueueAdapter, cluster: Kafka, results: str) -> Any:
    """Write its result, ack it, write that it was acked."""
    producer = Producer(cluster.client(enable_idempotence=True))

    def write(words: str) -> None:
        producer.produce(results, words.encode())
        producer.flush()

    def finish(claim: Claim) -> None:
        write(f"done {claim.data}")
        adapter.ack(claim.number)
        write(f"acked {claim.data}")

    return finish


def step(adapter: QueueAdapter, results: str) -> Any:
    """Its result and its ack in one step."""
    queue = adapter.queue
    outputs = queue.site.queue(results)
    items = adapter._items

    def finish(claim: Claim) -> None:
        with queue.step(items[claim.number]) as made:
            made.put(outputs, f"done {claim.data}".encode())

    return finish


if __name__ == "__main__":
    main(*sys.argv[1:])
