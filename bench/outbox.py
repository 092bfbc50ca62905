"""How long from the commit of a transaction until its job is claimed: put directly after the commit, and what an outbox adds to that.

In:  nothing. Out: `measured()`: one round, {what: figure}. `make bench` prints it. Jobs come one at a time, at random moments, while a
reader waits in a long poll; the ways are shuffled. Each way stores its job, also the direct one. No commit that must be safe against a
power cut lies between the two moments. Where tests/postgres.txt cannot be installed, the rows of PostgreSQL are missing.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import kqlib as kq
from bench.broker import DATA, fresh
from bench.virtual import served
from tests.databases import databases, server

JOBS, PAUSE = 40, 0.1  # a mover sleeps so many seconds when it finds nothing, as in docs/virtual.md
DIRECT, ALONE, MOVER = "put directly", "moved by its writer: more", f"a mover every {PAUSE} s: more"


def measured() -> dict[str, float]:
    """One round."""
    claimed, over, outboxes = SimpleQueue[float](), threading.Event(), dict[tuple[str, str], kq.virtual.Outbox]()
    with ExitStack() as stack:
        queue = stack.enter_context(kq.virtual.Client(served()[1])).queue(fresh("outbox"))
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pool = stack.enter_context(ThreadPoolExecutor())
        stack.callback(over.set)
        pool.submit(claiming, queue, claimed, over)
        for kind, word in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
            with suppress(pytest.skip.Exception):
                new = databases(server(kind), home)
                for how in (DIRECT, ALONE, MOVER):
                    database = new()
                    db = stack.enter_context(closing(database.connect()))
                    outboxes[word, how] = kq.virtual.Outbox(db)
                    if how == MOVER:
                        pool.submit(moving, database, queue, over)
        times: dict[tuple[str, str], list[float]] = {way: [] for way in outboxes}
        for way in random.sample(list(times) * JOBS, len(times) * JOBS):
            time.sleep(random.uniform(PAUSE, 2 * PAUSE))  # the reader waits again, and a mover is anywhere in its sleep
            outboxes[way].add(queue.name, DATA)
            outboxes[way].connection.commit()
            begun = time.perf_counter()
            if way[1] == DIRECT:
                queue.put(DATA)
            elif way[1] == ALONE:
                outboxes[way].move(lambda _: queue)
            times[way].append((claimed.get(timeout=30) - begun) * 1e3)
    took = {way: statistics.median(each) for way, each in times.items()}
    return {f"{word}, {how}, ms p50": p50 - took[word, DIRECT] * (how != DIRECT) for (word, how), p50 in took.items()}


def moving(database: Any, queue: Any, over: threading.Event) -> None:
    """A mover."""
    with closing(database.connect()) as db:
        outbox = kq.virtual.Outbox(db)
        while not over.is_set():
            if not outbox.move(lambda _: queue):
                over.wait(PAUSE)


def claiming(queue: Any, claimed: SimpleQueue[float], over: threading.Event) -> None:
    """A reader: it claims and acks one item after the other."""
    while not over.is_set():
        if item := queue.claim(wait=1):
            now = time.perf_counter()
            queue.ack(item)
            claimed.put(now)  # the next job comes when nothing of this one is left to do
