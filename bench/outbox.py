"""The delay that an outbox adds: from the begin of a transaction with a job until a reader has the item, beside a bare put.

In: nothing. Out: `measured()`: one round, {what: figure}. `make bench ONLY=outbox` prints it. The node is a process of its own. Mover
and reader are threads here: the mover looks every 10 ms, the reader waits in a long poll. Each commit is on the disk.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import kqlib as kq
from bench.broker import DATA, fresh
from bench.virtual import served
from tests.databases import Database, databases, server

JOBS, PAUSE, WAIT = 200, 0.01, 30.0


def delays(queue: Any, put: Callable[[], object]) -> list[float]:
    """Milliseconds from the begin of each call until a reader has its item."""
    came, ended, begun = threading.Semaphore(0), list[float](), list[float]()

    def read() -> None:
        for _ in range(JOBS):
            item = queue.claim(wait=WAIT)
            ended.append(time.perf_counter())
            queue.ack(item)
            came.release()

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(JOBS):
        begun.append(time.perf_counter())
        put()
        came.acquire(timeout=WAIT)
    reader.join()
    return [(end - start) * 1e3 for start, end in zip(begun, ended, strict=True)]


def by_outbox(client: kq.virtual.Client, database: Database) -> list[float]:
    """The same for jobs of an outbox."""
    queue, over = client.queue(fresh("q")), threading.Event()

    def move() -> None:
        with closing(database.connect(safe=True)) as own:
            outbox = kq.virtual.Outbox(own)
            while not over.is_set():
                if not outbox.move(client.queue):
                    over.wait(PAUSE)

    with closing(database.connect(safe=True)) as db:
        outbox = kq.virtual.Outbox(db)

        def put() -> None:
            outbox.add(queue.name, DATA)
            db.commit()

        mover = threading.Thread(target=move)
        mover.start()
        try:
            return delays(queue, put)
        finally:
            over.set()
            mover.join()


def measured() -> dict[str, float]:
    """One round."""
    url, _, _ = served()
    with kq.virtual.Client(url) as client, tempfile.TemporaryDirectory() as folder:
        queue = client.queue(fresh("q"))
        kinds = {name: databases(server(name.lower()), Path(folder))() for name in ("SQLite", "Postgres")}
        taken = {"a bare put": delays(queue, lambda: queue.put(DATA))}
        for name, database in kinds.items():
            taken[f"an outbox, {name}"] = by_outbox(client, database)
    cuts = {what: statistics.quantiles(each, n=100) for what, each in taken.items()}
    return {f"{what}: p{at}, ms": cut[at - 1] for at in (50, 99) for what, cut in cuts.items()}
