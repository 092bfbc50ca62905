"""A process of the outbox under faults: a writer stores orders with their jobs and moves the jobs, a reader works on them.

In:  one JSON object of settings (`outbox_world.OutboxWorld`). Out: rows in two databases, one of the writers, one of the readers;
and a history, which shows that it works.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
import threading
import time
from contextlib import closing, suppress
from itertools import count
from typing import Any

from kqlib.errors import KqError
from kqlib.kafka.cluster import Kafka
from kqlib.queue import Site
from kqlib.virtual.outbox import Outbox
from tests.faults.mutants import changed
from tests.faults.worker import facts, say
from tests.faults.writing import Writing, until_sigterm

LOCKED = 1.0  # seconds until a database that is locked is an error
UNDONE = 10  # one transaction of so many is rolled back


def connected(database: str) -> sqlite3.Connection:
    """One's own connection to a database."""
    return sqlite3.connect(database, timeout=LOCKED)


def writer(queue: Any, database: str, written: Writing, stop: threading.Event, **how: Any) -> None:
    """Write orders from the number `first` on, each with a job in the same transaction; another thread moves the jobs."""
    first, many, batch, pause = (how[name] for name in ("first", "many", "batch", "pause"))
    over = threading.Event()  # nothing is written any more
    mover = threading.Thread(target=move, args=(queue, database, over))
    mover.start()
    with closing(connected(database)) as db:
        outbox = Outbox(db)
        for start in count(first, batch):
            if stop.is_set() and start >= first + many:
                break
            call = written.begins("put", [start])
            with suppress(sqlite3.OperationalError):  # locked: neither orders nor jobs are stored
                for number in range(start, start + batch):
                    db.execute("INSERT INTO orders VALUES (?)", [number])
                    outbox.add(queue.name, b"%d" % number)
                if (start - first) // batch % UNDONE != UNDONE - 1:
                    db.commit()
            db.rollback()
            written.ended(call)
            stop.wait(pause)
    over.set()
    mover.join()


def move(queue: Any, database: str, over: threading.Event) -> None:
    """Until no job is left after the end."""
    with closing(connected(database)) as db:
        outbox = Outbox(db)
        while True:
            try:
                pause = random.uniform(0.01, 0.2)  # two movers do not see the same new jobs at the same moment
                if not outbox.move(lambda _: queue) and over.wait(pause) and not outbox.waiting():
                    return
            except (KqError, sqlite3.OperationalError) as error:
                say("move", error)
                time.sleep(0.1)


def read(queue: Any, database: str, written: Writing, stop: threading.Event, **_: Any) -> None:
    """Do each job once: its effect, and the mark that it was seen, in one transaction."""
    items: list[Any] = []
    with closing(connected(database)) as db:
        outbox = Outbox(db)
        while not stop.is_set():
            try:
                items = queue.claim_many(100, wait=0.5)
                for item in items:
                    if outbox.first(item):
                        row = [int(item.data), os.getpid(), time.monotonic()]
                        db.execute("INSERT INTO effects VALUES (?, ?, ?)", row)
                db.commit()
                if items:
                    written.begins("claim", *facts(items[:1]))
                    queue.ack_many(items)
            except KqError as error:
                say("read", error)
            except sqlite3.Error as error:  # locked, or another reader has done the same job meanwhile
                say("read", error)
                db.rollback()
                for item in items:
                    with suppress(KqError):
                        queue.release(item)


def main(
    bootstrap: str, site: str, topic: str, history: str, *, role: str, database: str, mutant: str = "", **how: Any
) -> None:
    """One of both, until SIGTERM."""
    stop, written = until_sigterm(), Writing(history)
    changed(0, mutant)
    with Site(Kafka(bootstrap), site, session=how.pop("session", None)) as opened:
        (writer if role == "producer" else read)(opened.queue(topic), database, written, stop, **how)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
