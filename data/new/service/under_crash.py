"""The worker's loop where `kq crash` wants it: topic and site from the environment, and work that fits its items."""

import os

import kqlib as kq
from worker import run

TOPICS = [os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"]]

with kq.connect() as cluster:
    kq.Plan({name: kq.QueueTopic(partitions=1) for name in TOPICS}).apply(cluster, quiet=True)
    with kq.Site(cluster, os.environ["KQ_GROUP"]) as site:
        queue, receipts = map(site.queue, TOPICS)
        run(queue, receipts, lambda data: b"receipt of " + data)
