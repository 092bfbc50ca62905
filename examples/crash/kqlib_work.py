"""kqlib: `work`. The handler writes the result, then the item is acked. A crash in between writes it twice.

Promises: at least once.
Again: python -m examples.crash.page kqlib_work
"""

import os
import time

from confluent_kafka import Producer

import kqlib as kq

TOPIC, RESULTS = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"]

with kq.connect() as cluster:
    kq.Plan({TOPIC: kq.QueueTopic(partitions=1)}).apply(cluster, quiet=True)
    producer = Producer(cluster.client(enable_idempotence=True))

    def handle(item):
        time.sleep(0.001)
        producer.produce(RESULTS, b"done " + item.data, item.key)
        producer.flush()

    with kq.Site(cluster, os.environ["KQ_GROUP"]) as site:
        site.queue(TOPIC).work(handle, ahead=0)
