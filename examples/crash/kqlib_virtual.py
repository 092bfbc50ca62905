"""kqlib: virtual queues, one for each key. The result is written, then the item is acked.

Promises: at least once; order for each queue.
Again: python -m examples.crash.page kqlib_virtual
"""

import itertools
import os
import signal
import sys
import time

from confluent_kafka import Producer

import kqlib as kq

TOPIC, RESULTS = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

with kq.connect() as cluster:
    kq.Plan(kq.virtual.topics(TOPIC, partitions=1)).apply(cluster, quiet=True)
    producer = Producer(cluster.client(enable_idempotence=True))
    with kq.virtual.Node(cluster, TOPIC) as node, kq.virtual.Client(node.url) as client:
        queues = [client.queue(key, lease=2, order="key") for key in ("k0", "k1", "k2")]
        for queue in itertools.cycle(queues):
            item = queue.claim(wait=0.1)
            if item is not None:
                time.sleep(0.001)
                producer.produce(RESULTS, b"done " + item.data, item.queue)
                producer.flush()
                queue.ack(item)
