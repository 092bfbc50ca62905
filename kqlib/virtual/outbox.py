"""An outbox: the job is committed with the data it belongs to, and moved to its queue afterwards.

In:  a DB-API connection (sqlite3, psycopg, …) and jobs. Out: the same jobs in queues, at least once, each with its id in a header;
`first(item)` lets a reader do each once.

    outbox = kq.virtual.Outbox(connection)
    with connection:                                      # one transaction; psycopg: with connection.transaction()
        connection.execute("UPDATE games …")
        outbox.add("ARS-CHE", b"goal")                    # both, or neither
    outbox.move(client.queue)                             # any time later, anywhere, after any crash

    with connection:                                      # at the reader, in its own database
        if inbox.first(item): …                           # the effect and the mark, both or neither
    queue.ack(item)

A crash before the commit: neither data nor job is stored. A crash after it: both are stored, and the job is moved later. A crash
after the queue has stored the job and before its row is deleted: the job is put again under the same id, and `first` knows it.
Jobs are moved in the order of their ids: the time in ns, then chance. An id is above all that are committed, whatever the clock
says. So the jobs of a key keep their order if one transaction writes them after the other: lock the key's row before `add`.
Two processes may move at once. Neither skips a job that the other one has in hand, since a later one of its key would overtake it.
So both may put a job, under one id. The order in which the ids first appear is right.

A job that its queue refuses (no such queue, too large) is set aside with the reason, and later jobs of its key with it, which keeps
their order; all others move. `aside()` lists them. Correct the cause and call `back()`, or delete the job from the table.

    kq_outbox         id, queue, job                every job that is not in its queue yet
    kq_outbox_aside   id, queue, item_key, reason   marks: these jobs stay where they are
    kq_outbox_done    id                            at a reader: what `first` has seen

`move` and `back` commit. They refuse while a transaction is open, if the driver reports that (sqlite3, psycopg, mysql.connector).
With any other driver give them a connection of their own. The other methods end no transaction. Make the outbox outside of a
transaction: tables made in an open one are part of it, PostgreSQL ends it after any error, and MySQL commits whatever is open when a
table is made. A database user who may make no tables uses those that are there (`GRANT SELECT, INSERT, UPDATE, DELETE`).
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kqlib.errors import BadPayload, BadTopicName, KqError, NotAllowed, PayloadTooLarge, TopicMissing
from kqlib.queue.item import Put
from kqlib.text import Metric, as_metrics
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
METRICS = {
    "outbox_waiting_jobs": "Jobs that are not in their queue yet, without those that are aside.",
    "outbox_oldest_job_age_seconds": "Time since the oldest of them was added; absent if there is none.",
    "outbox_aside_jobs": "Jobs that were set aside.",
}
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
        name = _id(time.time_ns())
        # First the row, then the newest id: from the row on SQLite's lock holds other writers off. None commits a newer id in between.
        self._insert(TABLE, id=name, queue=queue, job=json.dumps(to_json(job)))
        last = self._do(f"SELECT MAX(id) FROM {TABLE}", many=1)[0][0]
        if last == name or not _time(last):
            return name
        later = _id(_time(last) + 1)  # the clock of another writer is ahead of ours
        to, of = self._marks(2).split(", ")
        self._do(f"UPDATE {TABLE} SET id = {to} WHERE id = {of}", later, name)
        return later

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

    def metrics(self) -> str:
        """Backlog and age for Prometheus."""
        waiting, oldest = self._look(f"SELECT COUNT(*), MIN(id) FROM {WAITING}")[0]
        rows: list[Metric] = [("outbox_waiting_jobs", {}, waiting), ("outbox_aside_jobs", {}, len(self.aside()))]
        if since := _time(oldest):
            rows.append(("outbox_oldest_job_age_seconds", {}, max(0.0, time.time() - since / 1e9)))
        return as_metrics(rows, METRICS)

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
            except (KqError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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
        try:
            self._do(f"CREATE TABLE IF NOT EXISTS {TABLE} ({key}, queue VARCHAR(255), job TEXT)")
            self._do(f"CREATE TABLE IF NOT EXISTS {DONE} ({key})")
            self._do(f"CREATE TABLE IF NOT EXISTS {ASIDE} ({name}, queue VARCHAR(255), item_key TEXT, reason TEXT)")
        except Exception:
            if open_ is not False:
                raise
            self.connection.rollback()  # another process makes them at this moment, or this user may make none
            self._made = True
            self._look(f"SELECT 1 FROM {TABLE}, {DONE}, {ASIDE} WHERE 1 = 0")  # an error if they are not there
            return
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
        try:
            return self._do(sql, many=EVERY)
        finally:
            if open_ is False:
                self.connection.rollback()

    def _do(self, sql: str, *values: Any, many: int = 0) -> list[Any]:
        cursor = self.connection.cursor()
        try:
            cursor.execute(sql, values)
            rows = cursor.fetchmany(many) if many else []
            return [tuple(row.values() if isinstance(row, dict) else row) for row in rows]
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
        status = getattr(getattr(connection, "info", None), "transaction_status", None)  # psycopg
    return None if status is None else status in (1, 2, 3)  # 0 is idle, 4 a connection that is gone


def _id(moment: int) -> str:
    return f"{moment:020d}-{secrets.token_hex(8)}"


def _time(name: str | None) -> int:
    """When the job with this id was added, in ns since 1970; 0: `add` has not made this id."""
    return int(name[:20]) if name and re.match(r"\d{20}-", name) else 0


def _put(name: str, text: str) -> Put:
    job = json.loads(text)
    headers = headers_to_bytes(job["headers"]) | {HEADER: name.encode()}
    return Put(to_bytes(job["data"]), to_bytes(job["key"]), headers, job["delay"])
