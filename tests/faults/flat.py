"""A process that puts, claims and acks through one site, and says what it takes: memory, threads, file descriptors.

In:  an address, a topic, how many items. Out: one JSON object. The first site is there to open what stays open for good.
"""

from __future__ import annotations

import json
import sys
import time

import psutil

from kqlib.kafka.cluster import Kafka
from kqlib.queue import Queue, Site
from tests.patience import WAIT

ROUND = 1_000
WARM = 50_000  # items until memory has its level: caches are full


def main(bootstrap: str, topic: str, many: int) -> None:
    """Measure and say it."""
    cluster, process = Kafka(bootstrap), psutil.Process()
    with Site(cluster, "flat") as site:
        through(site.queue(topic), ROUND)
    before = settled(process)
    with Site(cluster, "flat") as site:
        queue = site.queue(topic)
        through(queue, WARM)
        warm = process.memory_info().rss
        begun = time.monotonic()
        through(queue, many)
        seconds, grown = time.monotonic() - begun, process.memory_info().rss - warm
        depth = queue.depth()
    after = settled(process, before)
    left = {"threads": after[0] - before[0], "files": after[1] - before[1]}
    print(json.dumps({"grown": grown / 1e6, "depth": depth, "seconds": seconds, **left}))


def through(queue: Queue, many: int) -> None:
    """So many items in and out."""
    for start in range(0, many, ROUND):
        queue.put_many([(b"%100d" % number, b"%d" % (number % 1000)) for number in range(start, start + ROUND)])
        left = ROUND
        while left:
            items = queue.claim_many(500, wait=WAIT)
            queue.ack_many(items)
            left -= len(items)


def settled(process: psutil.Process, expected: tuple[int, int] = (0, 0), seconds: float = 10) -> tuple[int, int]:
    """Threads and files, when they are as few as expected or it has taken too long: a client's threads end a little later."""
    end = time.monotonic() + (seconds if expected[0] else 3)
    while True:
        now = process.num_threads(), process.num_fds()
        if time.monotonic() > end or (now[0] <= expected[0] and now[1] <= expected[1]):
            return now
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
