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

A crash before the commit: neither data nor job is stored. A crash after it: both are stored, and the job is moved later. A crash
after the queue has stored the job and before its row is deleted: the job is put again under the same id, and `first` knows it.
Jobs are moved in the order of their ids: the time in ns, then chance.

A job that its queue refuses (no such queue, too large) is set aside with the reason, and later jobs of its key with it, which keeps
their order; all others move. `aside()` lists them. Correct the cause and call `back()`, or delete the job from the table.

    kq_outbox         id, queue, job                every job that is not in its queue yet
    kq_outbox_aside   id, queue, item_key, reason   marks: these jobs stay where they are
    kq_outbox_done    id                            at a reader: what `first` has seen

`move` and `back` commit. They refuse while a transaction is open, if the driver reports that (sqlite3, psycopg, mysql.connector).
With any other driver give them a connection of their own. The other methods end no transaction. Tables made in an open transaction
are part of it. MySQL commits whatever is open when a table is made: there, make the outbox outside of a transaction.
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kqlib.errors import BadPayload, BadTopicName, KqError, NotAllowed, PayloadTooLarge, TopicMissing
from kqlib.queue.item import Put
from kqlib.virtual.record_json import headers_to_bytes, to_bytes, to_json, to_text

log = logging.getLogger("kqlib.virtual")
TABLE, ASIDE, DONE = "kq_outbox", "kq_outbox_aside", "kq_outbox_done"
WAITING = f"{TABLE} WHERE id NOT IN (SELECT id FROM {ASIDE})"
STILL_ASIDE = f"{ASIDE} WHERE id IN (SELECT id FROM {TABLE})"  # marks of jobs that are still there
HEADER = "outbox-id"
NAME = 64  # characters of an id
EVERY = 1_000_000_000  # rows
REFUSED = (NotAllowed, BadPayload, PayloadTooLarge, TopicMissing, BadTopicName)  # to try again would not help
First = dict[tuple[str, str], str]
MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{}"}


class Puts(Protocol):
    """What an outbox needs of a queue."""

    def put_many(self, items: list[Put]) -> Any: ...


class Aside(NamedTuple):
    """A job that was set aside, and why."""

    id: str
    queue: str
    reason: str


class Job(NamedTuple):
    """A job of the table."""

    id: str
    queue: str
    put: Put

    @property
    def key(self) -> str | None:
        """Its item's key as text; None: it has none, and no order to keep."""
        return to_text(self.put.key)


class Outbox:
    """Jobs that wait in a database; and at a reader, the ids of those that it has done."""

    at_once = 100  # jobs of one `move`

    def __init__(self, connection: Any, paramstyle: str | None = None) -> None:
        """The tables are made if they are not there. paramstyle: that of the driver, if its module does not name it."""
        if not callable(getattr(connection, "cursor", None)):
            raise NotAllowed(f"an outbox lives in a DB-API connection, and {type(connection).__name__} has no cursor()")
        module = sys.modules.get(type(connection).__module__.partition(".")[0])
        style = paramstyle if paramstyle is not None else str(getattr(module, "paramstyle", ""))
        if style not in MARKS:
            raise NotAllowed(f"say the driver's paramstyle: one of {', '.join(MARKS)}")
        self.connection, self._mark = connection, MARKS[style]
        self._made = False
        self._make()

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
        self._make()
        name = f"{time.time_ns():020d}-{secrets.token_hex(8)}"
        self._insert(TABLE, id=name, queue=queue, job=json.dumps(to_json(job)))
        return name

    def move(self, queue: Callable[[str], Puts]) -> int:
        """Put up to a hundred waiting jobs into their queues, `queue("ARS-CHE")`, and take them out of the table.

        How many jobs: those that went aside count as well.
        """
        self._idle()
        try:
            rows = self._do(f"SELECT id, queue, job FROM {WAITING} ORDER BY id", many=self.at_once)
            first = self._first_aside()  # read after the jobs: one that another mover has set aside since is in here
            self.connection.commit()  # nothing is open while queues answer
            for name, jobs in self._by_queue(rows, first).items():
                self._put(queue, name, jobs, first)
        except BaseException:
            self.connection.rollback()
            raise
        return len(rows)

    def waiting(self) -> int:
        """How many jobs are to be moved."""
        return int(self._look(f"SELECT COUNT(*) FROM {WAITING}")[0][0])

    def aside(self) -> list[Aside]:
        """Jobs that could not be put, and those that follow them by key, in their order."""
        rows = self._look(f"SELECT id, queue, MIN(reason) FROM {STILL_ASIDE} GROUP BY id, queue ORDER BY id")
        return [Aside(*row) for row in rows]

    def back(self) -> int:
        """Have all that is aside wait again, in its old order: how many."""
        self._idle()
        many = len(self.aside())
        self._do(f"DELETE FROM {ASIDE}")
        self.connection.commit()
        return many

    def first(self, item: Any) -> bool:
        """At a reader: is this the first item with its id? It is noted in the open transaction. Without an id it is one."""
        name = item.headers.get(HEADER)
        if name is None:
            return True
        self._make()
        ident = name.decode(errors="replace")
        if self._do(f"SELECT id FROM {DONE} WHERE id = {self._marks(1)}", ident, many=1):
            return False
        self._insert(DONE, id=ident)
        return True

    def __repr__(self) -> str:
        aside = len(self.aside())
        return f"Outbox({self.waiting()} waiting{f', {aside} aside' * bool(aside)})"

    # --- the jobs of one queue; `first`: (queue, key) -> the first job of that key that is aside ---

    def _by_queue(self, rows: list[Any], first: First) -> dict[str, list[Job]]:
        """Jobs that can be tried. One that cannot be read goes aside, and one that follows another of its key there."""
        by: dict[str, list[Job]] = {}
        for name, queue, text in rows:
            try:
                job = Job(name, queue, _put(name, text))
            except (KqError, ValueError, KeyError, TypeError, AttributeError) as error:
                why = f"the job in the table cannot be read: {type(error).__name__}: {error}"
                self._set_aside(name, queue, None, why)
                continue
            if not self._follows(job, first):
                by.setdefault(queue, []).append(job)
        return by

    def _put(self, queue: Callable[[str], Puts], name: str, jobs: list[Job], first: First) -> None:
        """All at once. If the queue refuses that, one by one, and a job that it refuses goes aside."""
        try:
            queue(name).put_many([job.put for job in jobs])
            self._take(jobs)
        except REFUSED:
            for job in jobs:
                if self._follows(job, first):
                    continue
                try:
                    queue(name).put_many([job.put])
                    self._take([job])
                except REFUSED as error:
                    self._set_aside(job.id, name, job.key, str(error))
                    if job.key is not None:
                        first[name, job.key] = job.id

    def _take(self, jobs: list[Job]) -> None:
        """They are in their queue: out of the table."""
        for job in jobs:
            self._do(f"DELETE FROM {TABLE} WHERE id = {self._marks(1)}", job.id)
        self.connection.commit()

    def _follows(self, job: Job, first: First) -> bool:
        """Is an earlier job of its key aside? Then it goes there too, or it would overtake."""
        earlier = first.get((job.queue, job.key)) if job.key is not None else None
        if earlier is None or earlier >= job.id:  # another mover may have set this very job aside since it was read
            return False
        self._set_aside(job.id, job.queue, job.key, f"{earlier}, an earlier job of its key, is aside")
        return True

    def _set_aside(self, name: str, queue: str, key: str | None, reason: str) -> None:
        """A mark beside the job, which stays where it is: two that move at once may both set it."""
        fields = {"queue": queue, "item": name, "reason": reason}
        log.warning("outbox: %s for '%s' goes aside: %s", name, queue, reason, extra=fields)
        self._insert(ASIDE, id=name, queue=queue, item_key=key, reason=reason)
        self.connection.commit()

    def _first_aside(self) -> First:
        rows = self._do(f"SELECT queue, item_key, MIN(id) FROM {STILL_ASIDE} GROUP BY queue, item_key", many=EVERY)
        return {(queue, key): name for queue, key, name in rows if key is not None}

    # --- the database ---

    def _make(self) -> None:
        """The tables are there. In an open transaction they live and die with it, so the next call looks again."""
        if self._made:
            return
        open_, name = _open(self.connection), f"id VARCHAR({NAME})"
        key = f"{name} PRIMARY KEY"
        self._do(f"CREATE TABLE IF NOT EXISTS {TABLE} ({key}, queue VARCHAR(255), job TEXT)")
        self._do(f"CREATE TABLE IF NOT EXISTS {DONE} ({key})")
        self._do(f"CREATE TABLE IF NOT EXISTS {ASIDE} ({name}, queue VARCHAR(255), item_key TEXT, reason TEXT)")
        if open_ is False:
            self.connection.commit()  # of ours alone
        self._made = not open_

    def _idle(self) -> None:
        """`NotAllowed` if a transaction is open: it is not ours to end."""
        if _open(self.connection):
            raise NotAllowed(
                "a transaction is open, and its jobs are not committed: commit it first, or move by another connection. "
                "(A sqlite3 connection with autocommit=False always has one open.)"
            )
        self._make()

    def _look(self, sql: str) -> list[Any]:
        """Rows; a transaction that a driver begins for that ends with it."""
        self._make()
        open_ = _open(self.connection)
        rows = self._do(sql, many=EVERY)
        if open_ is False:
            self.connection.commit()
        return rows

    def _do(self, sql: str, *values: Any, many: int = 0) -> list[Any]:
        cursor = self.connection.cursor()
        try:
            cursor.execute(sql, values)
            return list(cursor.fetchmany(many)) if many else []
        finally:
            cursor.close()

    def _insert(self, table: str, **values: Any) -> None:
        columns, marks = ", ".join(values), self._marks(len(values))
        self._do(f"INSERT INTO {table} ({columns}) VALUES ({marks})", *values.values())

    def _marks(self, n: int) -> str:
        return ", ".join(self._mark.format(at) for at in range(1, n + 1))


def _open(connection: Any) -> bool | None:
    """Is a transaction open? None: this driver does not report it."""
    status = getattr(connection, "in_transaction", None)  # sqlite3, mysql.connector
    if status is None:
        status = getattr(getattr(connection, "info", None), "transaction_status", None)  # psycopg: 0 is idle
    return None if status is None else bool(status)


def _put(name: str, text: str) -> Put:
    job = json.loads(text)
    headers = headers_to_bytes(job["headers"]) | {HEADER: name.encode()}
    return Put(to_bytes(job["data"]), to_bytes(job["key"]), headers, job["delay"])
