"""kqlib: `work` on a share group. The result is written by the handler, then the item is acknowledged.

Promises: at least once, up to 5 deliveries; no order.
Again: python -m examples.crash.page kqlib_share
"""

import os
import time

from confluent_kafka import Producer

import kqlib as kq

with kq.connect() as cluster, kq.ShareQueue(cluster, os.environ["KQ_TOPIC"], os.environ["KQ_GROUP"]) as queue:
    producer = Producer(cluster.client(enable_idempotence=True))

    def handle(item):
        time.sleep(0.001)
        producer.produce(os.environ["KQ_RESULTS"], b"done " + item.data, item.key)
        producer.flush()

    queue.work(handle)
