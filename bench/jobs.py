"""Jobs that do nothing, next to Dramatiq and Huey on Redis: eight threads each, in this process, everything put beforehand.

In: nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. Timed is from the first job to the last one.
Redis is Debian's, without persistence, on a port of its own, and is gone with this process. Its jobs are in memory, ours on a log.
Without Redis (`.ci/redis.sh` installs it) only ours is measured.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import kqlib as kq
from bench import servers
from bench.broker import Spent, broker, filled, fresh, spent
from bench.servers import Server

JOBS, THREADS, PATIENCE = 3_000, 8, 120.0


class Count:
    """A job that only counts; it knows when the last one is done."""

    def __init__(self) -> None:
        self.done, self.first, self.last = 0, threading.Event(), threading.Event()
        self._one = threading.Lock()

    def __call__(self, *_: Any) -> None:
        with self._one:
            self.done += 1
            if self.done == 1:
                self.first.set()
            if self.done == JOBS:
                self.last.set()

    def timed(self, pid: int | None = None) -> Spent:
        """From the first to the last."""
        self.first.wait(PATIENCE)
        cost = spent(lambda: self.last.wait(PATIENCE), pid)
        if not self.last.is_set():
            raise RuntimeError(f"{self.done} of {JOBS} jobs in {PATIENCE:g} s")
        return cost


def measured() -> dict[str, float]:
    """One round: the three of them."""
    costs = {"queue.work": _ours()}
    redis = servers.redis()
    if redis is None:
        print("no redis-server here, so Dramatiq and Huey are left out: .ci/redis.sh installs it", file=sys.stderr)
    else:
        costs |= {"Dramatiq": _dramatiq(redis), "Huey": _huey(redis)}
    row = {f"{name}, jobs a second": JOBS / cost.seconds for name, cost in costs.items()}
    if redis:
        best = min(costs[name].seconds for name in ("Dramatiq", "Huey"))
        row["queue.work ÷ the better of them (≥ 2)"] = best / costs["queue.work"].seconds
    for name, cost in costs.items():
        row[f"{name}: CPU a job, here, µs"] = cost.ours / JOBS * 1e6
        row[f"{name}: CPU a job, {'broker' if name == 'queue.work' else 'Redis'}, µs"] = cost.theirs / JOBS * 1e6
    return row


def _ours() -> Spent:
    job = Count()
    with kq.Site(broker(), fresh("jobs")) as site:
        queue = site.queue(filled("bench-jobs", JOBS))
        how: dict[str, Any] = {"threads": THREADS, "until": job.last.is_set}
        worker = threading.Thread(target=lambda: queue.work(job, **how), daemon=True)
        worker.start()
        cost = job.timed()
        worker.join(PATIENCE)
    return cost


# --- on Redis ---


def _dramatiq(redis: Server) -> Spent:
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    logging.getLogger("dramatiq").setLevel(logging.ERROR)
    count, there = Count(), RedisBroker(url=redis.url, namespace=fresh("dramatiq"))

    def work() -> None:
        count()

    actor: Any = dramatiq.actor
    job = actor(work, broker=there, actor_name=fresh("job"), queue_name="bench")
    for _ in range(JOBS):
        job.send()
    worker = dramatiq.Worker(there, worker_threads=THREADS)
    worker.start()
    try:
        return count.timed(redis.pid)
    finally:
        worker.stop()
        there.close()


def _huey(redis: Server) -> Spent:
    from huey import RedisHuey

    logging.getLogger("huey").setLevel(logging.ERROR)
    count, there = Count(), RedisHuey(fresh("huey"), url=redis.url)
    job = there.task(name=fresh("job"))(count)
    for _ in range(JOBS):
        job()
    how = {"periodic": False, "initial_delay": 0.001, "backoff": 1.0, "check_worker_health": False}
    consumer = there.create_consumer(workers=THREADS, **how)
    consumer.start()
    try:
        return count.timed(redis.pid)
    finally:
        consumer.stop(graceful=True)
