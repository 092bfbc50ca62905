"""A queue's worker for long work, on kqlib: it extends the lease while it works, and writes nothing after it has lost the item.

Promise, as `kq crash --allow doubled -- python 08_leases_and_the_ledger.py` shows: no item is lost, wherever the worker dies. A worker
that dies between the result and the ack leaves the result twice, so the result has the item's id as its key: keep the first of each.

KQ_BOOTSTRAP, KQ_TOPIC, KQ_GROUP and KQ_RESULTS say where, KQ_PARTITIONS how many partitions the topics have (default: 1).
SIGTERM ends it after the part of work in hand, and the item goes back. Exit status: 0 ended by SIGTERM, 1 the queue cannot be used.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import kqlib as kq

TOPIC, RESULTS = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"]
PARTITIONS = int(os.environ.get("KQ_PARTITIONS", "1"))
SITE = os.environ["KQ_GROUP"]
LEASE = 30.0  # seconds: longer than one part of the work, not than all of it
PARTS = 3
log = logging.getLogger("worker")


def work(item: kq.queue.Item) -> Iterator[bytes]:
    """The work itself, in parts that are each shorter than the lease. The last part gives the result."""
    for _ in range(PARTS - 1):
        yield b""
    yield b"done " + (item.data or b"")


class Worker:
    """Claims, works and acks, one item at a time, until `stop` is called."""

    def __init__(self, queue: kq.queue.Queue, results: kq.queue.Queue) -> None:
        self.stopping = False
        self.queue, self.results = queue, results

    def stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def run(self) -> None:
        """Work until SIGTERM."""
        while not self.stopping:
            try:
                item = self.queue.claim(wait=1.0)
                if item is not None:
                    self.one(item)
            except (
                kq.errors.LeaseLost
            ) as lost:  # another worker may have the item by now: write nothing, claim the next
                log.warning("%s", lost)
            except kq.errors.Unreachable as away:  # the client goes on trying; what was claimed comes again
                log.warning("%s", away)

    def one(self, item: kq.queue.Item) -> None:
        """One item, as long as it is ours: each `extend` asks."""
        try:
            result = b""
            for part in work(item):
                if self.stopping:
                    self.queue.release(item)
                    return
                item = self.queue.extend(item)
                result = part or result
            self.results.put(result, key=item.id.encode())
            self.queue.ack(item)
        except (kq.errors.LeaseLost, kq.errors.Unreachable):
            raise
        except Exception:
            log.exception("%s failed at attempt %d", item.id, item.attempt)
            self.queue.release(item, delay=min(2.0**item.attempt, 300))  # later each time


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    topics = {name: kq.QueueTopic(partitions=PARTITIONS) for name in (TOPIC, RESULTS)}
    try:
        with kq.connect() as cluster:
            kq.Plan(topics).apply(cluster, quiet=True)  # does nothing where they are there already
            with kq.Site(cluster, SITE) as site:
                worker = Worker(site.queue(TOPIC, lease=LEASE, max_attempts=None), site.queue(RESULTS))
                signal.signal(signal.SIGTERM, worker.stop)
                worker.run()
    except kq.errors.KqError as error:  # it says what happened, what is still safe, and what to do
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
