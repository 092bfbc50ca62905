"""An outbox: the job is committed with the data it belongs to, and moved to its queue afterwards.

In:  a DB-API connection (sqlite3, psycopg, …) and jobs. Out: the same jobs in queues, at least once, each with its id in a header;
`first(item)` lets a reader do each once.

    outbox = kq.virtual.Outbox(connection)
    with connection:                                      # one transaction of the database
        connection.execute("UPDATE games …")
        outbox.add("ARS-CHE", b"goal")                    # both, or neither
    outbox.move(client.queue)                             # any time later, anywhere, after any crash

    with connection:                                      # at the reader, in its own database
        if inbox.first(item): …                           # the effect and the mark, both or neither
    queue.ack(item)

Three steps can be cut by a crash. Before the commit: neither data nor job. After it: both, and the job waits in the table.
Between the queue's answer and the table's: the job is put a second time under the same id, which is why `first` is asked.
`move` commits, so it is for a connection without an open transaction; `add` and `first` never do.
Time and place of a job in the table are by its id: the clock, then chance.
"""

from __future__ import annotations

import base64
import json
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from kqlib.errors import NotAllowed
from kqlib.queue import arguments
from kqlib.queue.item import Put

HEADER = "outbox-id"
NAME = 64  # characters of an id
MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{}"}


class Puts(Protocol):
    """A queue, as far as an outbox cares."""

    def put_many(self, items: list[Put]) -> Any: ...


class Outbox:
    """Jobs that wait in a database; and at a reader, the ids of those that it has done."""

    def __init__(self, connection: Any, table: str = "kq_outbox", paramstyle: str | None = None) -> None:
        """The tables `table` and `table_done` are made if they are not there. paramstyle: as the driver's module says."""
        if not callable(getattr(connection, "cursor", None)):
            raise NotAllowed(f"an outbox lives in a DB-API connection, and {type(connection).__name__} has no cursor()")
        if not isinstance(table, str) or not table.isidentifier() or not table.isascii():
            raise NotAllowed(f"a table's name is a plain word, not {table!r}")
        self.connection, self.table = connection, table
        self._mark = MARKS.get(_style(connection, paramstyle), "")
        if not self._mark:
            raise NotAllowed(f"say the driver's paramstyle: one of {', '.join(MARKS)}")
        self._do(f"CREATE TABLE IF NOT EXISTS {table} (id VARCHAR({NAME}) PRIMARY KEY, queue VARCHAR(255), job TEXT)")
        self._do(f"CREATE TABLE IF NOT EXISTS {table}_done (id VARCHAR({NAME}) PRIMARY KEY)")
        connection.commit()

    def add(
        self,
        queue: str,
        data: bytes | None,
        key: bytes | None = None,
        headers: dict[str, bytes | None] | None = None,
        delay: float = 0,
    ) -> str:
        """Note a job in the transaction that is open; its id."""
        if not isinstance(queue, str) or not queue:
            raise NotAllowed(f"a queue's name is text, not {queue!r}")
        if HEADER in (headers or {}):
            raise NotAllowed(f"the header '{HEADER}' is the outbox's own")
        job = Put(data, key, headers or {}, delay)  # checks all of it
        name = f"{time.time_ns():020d}-{secrets.token_hex(8)}"
        self._do(f"INSERT INTO {self.table} (id, queue, job) VALUES ({self._marks(3)})", name, queue, _text(job))
        return name

    def move(self, queue: Callable[[str], Puts], n: int = 100) -> int:
        """Put up to n waiting jobs into their queues, `queue("ARS-CHE")`, and take them out of the table. How many."""
        arguments.count("n", n)
        if getattr(self.connection, "in_transaction", False) and getattr(self.connection, "autocommit", 0) is not False:
            raise NotAllowed(
                "a transaction is open, and its jobs are not committed: commit it first, or move by another connection"
            )
        waiting = self._do(f"SELECT id, queue, job FROM {self.table} ORDER BY id", many=n)
        by: dict[str, list[tuple[str, str]]] = {}
        for name, where, job in waiting:
            by.setdefault(where, []).append((name, job))
        for where, jobs in by.items():
            queue(where).put_many([_put(name, job) for name, job in jobs])
            for name, _ in jobs:
                self._do(f"DELETE FROM {self.table} WHERE id = {self._marks(1)}", name)
            self.connection.commit()
        return len(waiting)

    def waiting(self) -> int:
        """How many jobs are in the table."""
        return int(self._do(f"SELECT COUNT(*) FROM {self.table}", many=1)[0][0])

    def first(self, item: Any) -> bool:
        """At a reader: is this the first item with its id? It is noted in the open transaction. Without an id it is one."""
        name = item.headers.get(HEADER)
        if name is None:
            return True
        ident = name.decode(errors="replace")
        if self._do(f"SELECT id FROM {self.table}_done WHERE id = {self._marks(1)}", ident, many=1):
            return False
        self._do(f"INSERT INTO {self.table}_done (id) VALUES ({self._marks(1)})", ident)
        return True

    def __repr__(self) -> str:
        return f"Outbox('{self.table}', {self.waiting()} waiting)"

    def _do(self, sql: str, *values: Any, many: int = 0) -> list[Any]:
        cursor = self.connection.cursor()
        try:
            cursor.execute(sql, values)
            return list(cursor.fetchmany(many)) if many else []
        finally:
            cursor.close()

    def _marks(self, n: int) -> str:
        return ", ".join(self._mark.format(at) for at in range(1, n + 1))


def _style(connection: Any, said: str | None) -> str:
    """How this driver writes a parameter."""
    module = type(connection).__module__.partition(".")[0]
    return str(said if said is not None else getattr(sys.modules.get(module), "paramstyle", ""))


def _text(job: Put) -> str:
    def encoded(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    headers = {name: encoded(value) for name, value in job.headers.items()}
    return json.dumps({"data": encoded(job.data), "key": encoded(job.key), "headers": headers, "delay": job.delay})


def _put(name: str, text: str) -> Put:
    def decoded(value: str | None) -> bytes | None:
        return None if value is None else base64.b64decode(value)

    said = json.loads(text)
    headers = {header: decoded(value) for header, value in said["headers"].items()}
    return Put(decoded(said["data"]), decoded(said["key"]), {**headers, HEADER: name.encode()}, said["delay"])
