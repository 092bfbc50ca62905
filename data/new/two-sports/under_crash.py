"""The worker's loop where `kq crash` wants it: topic and site from the environment, and work that fits its items."""

import os

import kqlib as kq
from worker import TERMS, run

TOPIC, EVENTS = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"]
NOTIFICATIONS = f"{EVENTS}.notifications"

with kq.connect() as cluster:
    topics = [TOPIC, EVENTS, NOTIFICATIONS]
    kq.Plan({name: kq.QueueTopic(partitions=1) for name in topics}).apply(cluster, quiet=True)
    with kq.Site(cluster, os.environ["KQ_GROUP"]) as site:
        events = site.queue(EVENTS, max_attempts=None)
        run(
            site.queue(TOPIC, **TERMS),
            events,
            site.queue(NOTIFICATIONS),
            lambda data: b"notification of " + (data or b""),
        )
