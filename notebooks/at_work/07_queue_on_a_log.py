"""A worker of a Drupal site's queue, on `kq.DrupalQueue`: Drupal's verbs, in place of a stored offset and a list of what is deleted.

Promise, as `kq crash --allow doubled -- python 07_queue_on_a_log.py` shows: no item is lost, wherever the worker dies. A worker that
dies between the result and the deletion leaves the result twice, so the result has the item's id as its key: keep the first of each.
An item that fails stays claimed, as in Drupal: when its lease is over it comes again, five times in all, and holds up no other item.
Then it is a dead letter, and bad data is one at once: `kq queue peek TOPIC.dead` shows it, `kq queue redrive TOPIC` puts it back.

KQ_BOOTSTRAP, KQ_TOPIC, KQ_GROUP (the site) and KQ_RESULTS say where, KQ_PARTITIONS how many partitions the topics have (default: 1),
KQ_LEASE how many seconds an item is claimed: longer than the longest work. Start as many as there are partitions.
SIGTERM ends it after the item in hand. Exit status: 0 ended by SIGTERM, 1 the queue cannot be used: for example it was deleted.
"""

import logging
import os
import signal
import sys
import threading
from typing import Any

import kqlib as kq
from kqlib.queue.drupal import DrupalItem

TOPIC, RESULTS, SITE = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"], os.environ["KQ_GROUP"]
PARTITIONS = int(os.environ.get("KQ_PARTITIONS", "1"))
LEASE = float(os.environ.get("KQ_LEASE", "60"))
PAUSE = 1.0  # seconds between two looks at an empty queue: a claim of Drupal's API does not wait
log = logging.getLogger("worker")


def work(data: Any) -> bytes:
    """The work itself: what was put, anything that is JSON. An exception is a failed attempt."""
    if data is None:
        raise ValueError("an empty item")
    return f"done {data}".encode()


class Worker:
    """Claims, works and deletes, one item at a time, until `stop` is called."""

    def __init__(self, site: kq.Site) -> None:
        self.stopping = threading.Event()
        self.queue = kq.DrupalQueue(site, TOPIC)
        self.queue.create_queue()  # as Drupal does before each run: it does no harm where the queue is available
        self.below = site.queue(TOPIC)  # the queue that it stands on, for what Drupal has no verb for
        self.results = site.queue(RESULTS)

    def stop(self, *_: object) -> None:
        self.stopping.set()

    def run(self) -> None:
        """Work until SIGTERM."""
        while not self.stopping.is_set():
            try:
                item = self.queue.claim_item(lease_time=LEASE)
                if item is None:
                    self.stopping.wait(PAUSE)
                else:
                    self.one(item)
            except kq.errors.LeaseLost as lost:  # the work took too long: another worker may have the item by now
                log.warning("%s", lost)
            except kq.errors.Unreachable as away:  # the client goes on trying; what was claimed comes again
                log.warning("%s", away)
                self.stopping.wait(PAUSE)

    def one(self, item: DrupalItem) -> None:
        """One item: the result first, the deletion afterwards."""
        try:
            result = work(item.data)
        except ValueError as error:  # bad data is bad tomorrow, too
            self.below.bury(item.item, reason=repr(error))
            log.error("%s is a dead letter: %s", item.item_id, error)
        except Exception:
            log.exception("%s failed at attempt %d", item.item_id, item.item.attempt)
        else:
            self.results.put(result, key=item.item_id.encode())
            self.queue.delete_item(item)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    topics = {name: kq.QueueTopic(partitions=PARTITIONS) for name in (TOPIC, RESULTS)}
    try:
        with kq.connect() as cluster:
            kq.Plan(topics).apply(cluster, quiet=True)  # does nothing where they are there already
            with kq.Site(cluster, SITE) as site:
                worker = Worker(site)
                signal.signal(signal.SIGTERM, worker.stop)
                worker.run()
    except kq.errors.KqError as error:  # it says what happened, what is still safe, and what to do
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
