"""A worker of a virtual queue, on kqlib: each job has one row in this program's database, however often it comes.

Promise, as its test shows: no job is lost, wherever the worker dies. A job may come twice: its lease was over, or the mover of an
outbox put it again. Its effect is one SQL statement with the job's id as primary key, so that it is there once. A job that fails
is tried five times, later each time; then it is an item of the queue `NAME.dead`.

KQ_NODES (addresses, with commas between), KQ_QUEUE and KQ_DATABASE (a file) say where, KQ_VIRTUAL_TOKEN is the nodes' token.
SIGTERM ends it after the jobs in hand. Exit status: 0 ended by SIGTERM, 1 the queue cannot be used.
"""

import logging
import os
import sqlite3
import sys
from contextlib import closing

import kqlib as kq
from kqlib.virtual.queue import VirtualItem

NODES = os.environ["KQ_NODES"].split(",")
QUEUE, DATABASE = os.environ["KQ_QUEUE"], os.environ["KQ_DATABASE"]
LEASE = float(os.environ.get("KQ_LEASE", "30"))  # seconds; the lease is extended while the work goes on
RETRY = kq.Retry.exponential(5, cap=300, jitter=0.2, never=(ValueError,))  # bad data is bad tomorrow, too
log = logging.getLogger("worker")


def database() -> sqlite3.Connection:
    """A connection for one thread."""
    return sqlite3.connect(DATABASE, timeout=30)


def work(item: VirtualItem) -> str:
    """The work itself: bytes in, result out. An exception is a failed attempt."""
    if not item.data:
        raise ValueError("an empty job")
    return f"done {item.data.decode()}"


def handle(item: VirtualItem) -> None:
    """Work, and note the result. A second delivery of the job changes nothing."""
    # a job of an outbox has the id of its row: if its mover died, the same job is in the queue twice
    job = (item.headers.get("outbox-id") or item.id.encode()).decode()
    try:
        result = work(item)
        with closing(database()) as connection, connection:
            connection.execute("INSERT OR IGNORE INTO results (job, result) VALUES (?, ?)", [job, result])
    except Exception as error:
        log.warning("%s failed at attempt %d: %s", item.id, item.attempt, error)
        raise  # the queue decides: later again, or a dead letter


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    with closing(database()) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS results (job PRIMARY KEY, result)")
    try:
        with kq.virtual.Client(NODES, token=os.environ.get("KQ_VIRTUAL_TOKEN")) as client:
            queue = client.queue(QUEUE, "worker", lease=LEASE, max_attempts=5)
            worked = queue.work(handle, threads=4, retry=RETRY)  # it waits for a node that is away
            log.info("%s", worked)
    except kq.errors.KqError as error:  # it says what happened, what is still safe, and what to do
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
