"""Jobs on RQ and Redis: a pool of eight processes that run jobs themselves. Its default forks a process for each job."""

from __future__ import annotations

import peer
from redis import Redis
from rq import Queue, SimpleWorker
from rq.worker_pool import WorkerPool

connection = Redis.from_url(peer.SERVER)
queue = Queue(peer.NAME, connection=connection)


def work() -> None:
    """Until this process is ended."""
    WorkerPool([queue], connection=connection, num_workers=peer.THREADS, worker_class=SimpleWorker).start(
        logging_level="ERROR"
    )


if __name__ == "__main__":
    peer.main(lambda *words: queue.enqueue(peer.job, *words, result_ttl=0), work)
