"""A worker on a share group, on kqlib: Kafka locks each item and counts its deliveries, and this program writes the dead letters.

Promise, as `kq crash --allow doubled -- python 11_share_groups.py` shows: no item is lost, wherever the worker dies. An item may be
worked on twice, so the work must bear that. An item has three attempts. Then it has a letter in TOPIC.dead, at least once, with its
id and the reason in the headers. Kafka 4.3 writes no such letter by itself.

KQ_BOOTSTRAP, KQ_TOPIC, KQ_GROUP and KQ_RESULTS say where, KQ_PARTITIONS how many partitions the topics have (default: 1), KQ_LOCK how
many seconds an item is locked: longer than the longest work. Start as many as you like. Producers send a batch for each record.
SIGTERM ends it after the items in hand. Exit status: 0 ended by SIGTERM, 1 the queue cannot be used.
"""

import logging
import os
import sys

import kqlib as kq
from kqlib.queue import Item

TOPIC, GROUP, RESULTS = os.environ["KQ_TOPIC"], os.environ["KQ_GROUP"], os.environ["KQ_RESULTS"]
PARTITIONS = int(os.environ.get("KQ_PARTITIONS", "1"))
LOCK = float(os.environ.get("KQ_LOCK", "30"))
ATTEMPTS = 3
LIMIT = ATTEMPTS + 2  # a worker may die while it writes the letter: then there is one more delivery
log = logging.getLogger("worker")


def work(item: Item) -> bytes:
    """The work itself: bytes in, result out. An exception is a failed attempt."""
    if not item.data:
        raise ValueError("an empty item")
    return b"done " + item.data


def run(queue: kq.ShareQueue, results: kq.ShareQueue, letters: kq.ShareQueue) -> None:
    """Work until SIGTERM."""

    def bury(item: Item, why: str) -> None:
        """The letter, durable when this returns. The ack comes after it."""
        story = {**item.headers, "item": item.id.encode(), "why": why.encode()}
        letters.put(item.data, item.key, headers=story)
        log.error("%s has a letter: %s", item.id, why)

    def handle(item: Item) -> None:
        if item.attempt > ATTEMPTS:
            bury(item, f"no worker came to an end with it in {ATTEMPTS} attempts")
            return
        try:
            result = work(item)
        except ValueError as error:  # bad data is bad tomorrow, too
            bury(item, repr(error))
        except Exception as error:
            log.warning("%s failed at attempt %d: %s", item.id, item.attempt, error)
            raise  # it is released, and comes again at once
        else:
            results.put(result, item.key)

    worked = queue.work(handle, threads=4, retry=kq.Retry())
    log.info("%s", worked)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    topics = {name: kq.QueueTopic(partitions=PARTITIONS) for name in (TOPIC, RESULTS)}  # and TOPIC.dead
    try:
        with kq.connect() as cluster:
            kq.Plan(topics).apply(cluster, quiet=True)  # does nothing where they are there already
            with (
                kq.ShareQueue(cluster, TOPIC, GROUP, lease=LOCK, max_attempts=LIMIT) as queue,
                kq.ShareQueue(cluster, RESULTS, GROUP) as results,
                kq.ShareQueue(cluster, f"{TOPIC}.dead", GROUP) as letters,
            ):
                run(queue, results, letters)
    except kq.errors.KqError as error:  # it says what happened, what is still safe, and what to do
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
