"""A lesson's orders: 200 go into a database and a job for each into a queue, while conflicts and a kill come between.

In:  a handler, which serves one order; a node's address; a folder for the database. Out: `Counted`.
The database is real (sqlite3) and so is the kill: orders are served by processes of their own, one after the other.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.children import ChildEnded, Children

ORDERS = 200
CONFLICTS = frozenset(number for number in range(ORDERS) if number % 20 in (1, 5, 9))  # thirty of them
KILLED = 100  # the order at which the first process dies, between its two steps
LONGEST = 300.0 * PATIENCE  # seconds for the orders of one process


class Conflict(Exception):  # noqa: N818 - not an error: the transaction is tried again
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

    def __init__(self, number: int, db: sqlite3.Connection, queue: Any, outbox: Any) -> None:
        self.number, self.db, self.queue, self.outbox = number, db, queue, outbox
        self.conflicts = 1 if number in CONFLICTS else 0
        self.job = str(number).encode()

    def insert(self) -> None:
        """The order, into the database; not committed yet."""
        self.db.execute("INSERT INTO orders VALUES (?)", [self.number])

    def put(self) -> None:
        """The job, into the queue."""
        self.queue.put(self.job)
        self._may_die()

    def note(self) -> None:
        """The job, into the outbox: a table of the same database."""
        self.outbox.add(self.queue.name, self.job)

    def commit(self) -> None:
        """The database's transaction; now and then another transaction is in its way."""
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
    """All orders, served by two processes: the first one dies at order 100, the next one begins with 101."""
    from kqlib.virtual.client import Client

    name, file = handler.__name__, str(Path(folder) / f"{handler.__name__}.db")
    with Children(modules=["kqlib.virtual.client", "kqlib.virtual.outbox", __name__]) as children:
        for first in (0, KILLED + 1):
            try:
                children.fork(serve, handler, url, file, first).receive(LONGEST)
            except ChildEnded as ended:
                if ended.why:
                    raise
    with Client(url) as client:
        jobs = [int(data or b"-1") for _, data in client.queue(name).read(limit=1000).records]
    return counted(jobs, file)


def counted(jobs: list[int], file: str) -> Counted:
    """The jobs beside the orders of the database."""
    with closing(sqlite3.connect(file)) as db:
        orders = {number for (number,) in db.execute("SELECT number FROM orders")}
    kinds = set(jobs)
    return Counted(len(orders), len(jobs), len(jobs) - len(kinds), len(orders - kinds), len(kinds - orders))


def serve(_: object, handler: Handler, url: str, file: str, first: int) -> None:
    """One process: it serves the orders from `first` on, and then moves what waits in the outbox."""
    from kqlib.virtual.client import Client
    from kqlib.virtual.outbox import Outbox

    with closing(sqlite3.connect(file)) as db, Client(url) as client:
        db.execute("PRAGMA synchronous = OFF")  # a killed process loses nothing by that
        db.execute("CREATE TABLE IF NOT EXISTS orders (number)")
        outbox, queue = Outbox(db), client.queue(handler.__name__)
        for number in range(first, ORDERS):
            request = Request(number, db, queue, outbox)
            try:
                handler(request)
            except Conflict:
                db.rollback()
                handler(request)
        while outbox.move(client.queue):
            pass
