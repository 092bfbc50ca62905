"""A shop for a lesson: 200 orders go into a database and a job for each into a queue, while conflicts and a kill come between.

In:  a handler, the way in which one order is served; a node's address; a folder for the database. Out: `Counted`.
The database is real (sqlite3) and so is the kill: orders are served by processes of their own, one after the other.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

ORDERS = 200
CONFLICTS = frozenset(number for number in range(ORDERS) if number % 20 in (1, 5, 9))  # thirty of them
KILLED = 100  # the order at which the first process dies, between its two steps
RUN = "import pickle, sys; from kqlib.workshop.orders import serve; serve(*pickle.load(sys.stdin.buffer))"


class Conflict(Exception):  # noqa: N818 - what the database says: once more
    """Another transaction was in the way: roll back, and call the handler again."""


class Counted(NamedTuple):
    """What is there in the end."""

    orders: int
    jobs: int
    twice: int  # jobs that are there more than once
    missing: int  # orders without a job
    stray: int  # jobs without an order


class Request:
    """One order that is being served, and what a handler can do with it."""

    def __init__(self, number: int, db: sqlite3.Connection, queue: object, outbox: object) -> None:
        self.number, self.db, self.queue, self.outbox = number, db, queue, outbox
        self.conflicts = 1 if number in CONFLICTS else 0
        self.job = str(number).encode()

    def insert(self) -> None:
        """The order, into the database; not committed yet."""
        self.db.execute("INSERT INTO orders VALUES (?)", [self.number])

    def put(self) -> None:
        """The job, into the queue."""
        self.queue.put(self.job)  # type: ignore[attr-defined]
        self._may_die()

    def note(self) -> None:
        """The job, into the outbox: a table of the same database."""
        self.outbox.add(self.queue.name, self.job)  # type: ignore[attr-defined]

    def commit(self) -> None:
        """The database's transaction; now and then somebody was in its way."""
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict
        self.db.commit()
        self._may_die()

    def _may_die(self) -> None:
        if self.number == KILLED:
            signal.raise_signal(signal.SIGKILL)


Handler = Callable[[Request], object]


def day(handler: Handler, url: str, folder: str) -> Counted:
    """A day in the shop: two processes, since the first one dies at order 100; the next one begins with 101."""
    import cloudpickle

    from kqlib.virtual.client import Client

    name, file = handler.__name__, str(Path(folder) / f"{handler.__name__}.db")
    for first in (0, KILLED + 1):
        work = cloudpickle.dumps((handler, url, file, first))
        subprocess.run([sys.executable, "-c", RUN], input=work, check=False)
    with Client(url) as client:
        jobs = [int(data or b"-1") for _, data in client.queue(name).read(limit=1000).records]
    return counted(jobs, file)


def counted(jobs: list[int], file: str) -> Counted:
    """The jobs beside the orders of the database."""
    with closing(sqlite3.connect(file)) as db:
        orders = {number for (number,) in db.execute("SELECT number FROM orders")}
    kinds = set(jobs)
    return Counted(len(orders), len(jobs), len(jobs) - len(kinds), len(orders - kinds), len(kinds - orders))


def serve(handler: Handler, url: str, file: str, first: int) -> None:
    """One process: it serves the orders from `first` on, and moves what waits in the outbox."""
    from kqlib.virtual.client import Client
    from kqlib.virtual.outbox import Outbox

    with closing(sqlite3.connect(file)) as db, Client(url) as client:
        db.execute("CREATE TABLE IF NOT EXISTS orders (number)")
        outbox = Outbox(db)
        for number in range(first, ORDERS):
            request = Request(number, db, client.queue(handler.__name__), outbox)
            try:
                handler(request)
            except Conflict:
                db.rollback()
                handler(request)
            outbox.move(client.queue)
