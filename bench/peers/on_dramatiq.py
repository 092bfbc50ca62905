"""Jobs on Dramatiq and Redis: eight threads. A worker that dies gives its jobs back after 5 s without a heartbeat (60 by default)."""

from __future__ import annotations

import logging
import threading

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from peer import NAME, SERVER, THREADS, job, main

logging.getLogger("dramatiq").setLevel(logging.ERROR)
broker = RedisBroker(url=SERVER, namespace=NAME, heartbeat_timeout=5_000)
actor = dramatiq.actor(job, broker=broker, actor_name="job", queue_name="bench")


def work() -> None:
    """Until this process is ended."""
    dramatiq.Worker(broker, worker_threads=THREADS).start()
    threading.Event().wait()


main(actor.send, work)
