"""kqlib: `step`, the result and the ack in one transaction.

Promises: each item has one result, for readers that read only what is committed.
Again: python -m examples.crash.page kqlib_step
"""

import os
import time

import kqlib as kq

TOPIC, RESULTS = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"]

with kq.connect() as cluster:
    queues = {name: kq.QueueTopic(partitions=1) for name in (TOPIC, RESULTS)}
    kq.Plan(queues).apply(cluster, quiet=True)
    with kq.Site(cluster, os.environ["KQ_GROUP"]) as site:
        queue = site.queue(TOPIC)
        results = site.queue(RESULTS)

        def handle(item):
            time.sleep(0.001)
            with queue.step(item) as step:
                step.put(results, b"done " + item.data, item.key)

        queue.work(handle, ahead=0)
