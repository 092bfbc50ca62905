"""A world of an outbox: writers store orders and jobs into one database and move the jobs, readers work on them with another database.

In:  as a `World`. Out: a `Verdict` of orders and effects: an order is put when it is committed, and done by each of its effects.
Copies of a job in the queue are no mistake, since `Outbox.first` knows them.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kqlib.virtual.outbox import Outbox
from tests.faults.history import Did
from tests.faults.outbox import LOCKED, connected
from tests.faults.world import Process, World

TABLES = {"producer": "orders (number)", "worker": "effects (number, who, at)"}
AWAY = 4 * LOCKED  # seconds


class OutboxWorld(World):
    """Writers, a queue, readers."""

    numbers = False
    terms: Mapping[str, Any] = {
        "max_attempts": None
    }  # a reader whose database is away gives its items back each second
    modules = dict.fromkeys(TABLES, "tests.faults.outbox")

    def open(self) -> None:
        """Make the databases."""
        super().open()
        self.databases = {role: str(self.folder / f"{role}.db") for role in TABLES}
        for role, table in TABLES.items():
            with closing(connected(self.databases[role])) as db:
                db.execute("PRAGMA journal_mode=WAL")
                db.execute(f"CREATE TABLE {table}")
                Outbox(db)

    def _start(self, kind: str, settings: dict[str, Any]) -> Process:
        return super()._start(kind, {"role": kind, "database": self.databases[kind], **settings})

    def depth(self) -> int:
        """Jobs that are not moved, and items of the queue."""
        with closing(connected(self.databases["producer"])) as db:
            return super().depth() or Outbox(db).waiting()

    def history(self) -> list[Did]:
        """As the databases have it."""
        with closing(connected(self.databases["producer"])) as db:
            orders = [number for (number,) in db.execute("SELECT number FROM orders")]
        with closing(connected(self.databases["worker"])) as db:
            effects = list(db.execute("SELECT number, who, at FROM effects"))
        done = [
            Did(str(who), verb, (number,), at, at, (1,), ids=(f"0/{number}",))
            for number, who, at in effects
            for verb in ("claim", "ack")
        ]
        return [Did("writers", "put", tuple(orders), 0.0, 0.0), *done]


def database_away(world: OutboxWorld, role: str) -> None:
    """A database is locked by another program, so that nothing is written to it for some seconds."""
    world.busy()
    with closing(sqlite3.connect(world.databases[role], isolation_level=None)) as db:
        world.until(lambda: locked(db), 60, "the lock of a database")
        time.sleep(AWAY)
    world.busy()


def locked(db: sqlite3.Connection) -> bool:
    """Does this connection have the lock now?"""
    try:
        db.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        return False
    return True


def killed_without_kafka(world: OutboxWorld) -> None:
    """A writer is cut off from Kafka, and is killed then; another one comes."""
    victim = world.producers[0]
    world.busy(victim)
    world.cluster.wire.cut(pid=victim.popen.pid)
    time.sleep(AWAY)
    world.kill(victim)
    world.cluster.wire.heal()
    world.another(victim)


def in_turn(world: OutboxWorld, times: int = 3) -> None:
    """A writer loses Kafka and is killed; the writers' database is locked for seconds, then the readers'; a put's answer is lost."""
    for _ in range(times):
        killed_without_kafka(world)
        for role in TABLES:
            database_away(world, role)
        world.cluster.wire.disconnect("Produce", when="after")
        world.until(lambda: world.cluster.wire.wait(1), 60, "a put")
