"""A queue's worker with retries and dead letters, on kqlib: each item's result and its ack are one transaction.

Promise, as `kq crash -- python 09_retries_and_dead_letters.py` shows: no item is lost, wherever the worker dies. Each item has one
result for readers with isolation.level=read_committed. An item that fails is tried five times, later each time; then it is a dead
letter: `kq queue peek TOPIC.dead` shows it, `kq queue story ID` says why, and `kq queue redrive TOPIC` puts it back.

KQ_BOOTSTRAP, KQ_TOPIC, KQ_GROUP and KQ_RESULTS say where, KQ_PARTITIONS how many partitions the topics have (default: 1).
SIGTERM ends it after the items in hand. Exit status: 0 ended by SIGTERM, 1 the queue cannot be used.
"""

import logging
import os
import sys

import kqlib as kq

TOPIC, RESULTS = os.environ["KQ_TOPIC"], os.environ["KQ_RESULTS"]
PARTITIONS = int(os.environ.get("KQ_PARTITIONS", "1"))
SITE = os.environ["KQ_GROUP"]
RETRY = kq.Retry.exponential(5, cap=300, jitter=0.2, never=(ValueError,))  # bad data is bad tomorrow, too
log = logging.getLogger("worker")


def work(item: kq.queue.Item) -> bytes:
    """The work itself: bytes in, result out. An exception is a failed attempt."""
    if not item.data:
        raise ValueError("an empty item")
    return b"done " + item.data


def run(queue: kq.queue.Queue, results: kq.queue.Queue) -> None:
    """Work until SIGTERM."""

    def handle(item: kq.queue.Item) -> None:
        try:
            result = work(item)
        except Exception as error:
            log.warning("%s failed at attempt %d: %s", item.id, item.attempt, error)
            raise  # the queue decides: later again, or a dead letter
        with queue.step(item) as step:
            step.put(results, result, item.key)

    worked = queue.work(handle, threads=4, retry=RETRY)
    log.info("%s", worked)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    topics = {name: kq.QueueTopic(partitions=PARTITIONS) for name in (TOPIC, RESULTS)}
    try:
        with kq.connect() as cluster:
            kq.Plan(topics).apply(cluster, quiet=True)  # does nothing where they are there already
            with kq.Site(cluster, SITE) as site:
                run(site.queue(TOPIC, max_attempts=5), site.queue(RESULTS))
    except kq.errors.KqError as error:  # it says what happened, what is still safe, and what to do
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
