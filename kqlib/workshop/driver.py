"""One life of a driver: a program in a process of its own, as at work, until it ends or is killed.

In:  a cluster, a function of (spark, cluster, …), which may come from a notebook's cell. Out: "ended" or "killed".

The process is a child of this one and cannot outlive it. Its JVM has a reaper of its own, and ends with its Python.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka import Kafka
from kqlib.workshop.children import ChildEnded, Children

LIFE = 300.0  # seconds; on a quiet machine it takes ten until the first batch


def life(cluster: Kafka, program: Callable[..., object], *args: Any) -> str:
    """Run `program(spark, cluster, *args)` in a process of its own; 'killed' if it died of SIGKILL, else 'ended'.

    program: a function, also one of a cell. It travels with those names of the notebook that it uses.
    """
    if not callable(program):
        raise NotAllowed(f"a driver's program is a function of (spark, cluster), not {program!r}")
    with Children() as children:
        driver = children.fork(run, program, (cluster.bootstrap, cluster._own), args)
        try:
            driver.receive(LIFE)
        except ChildEnded as ended:
            if ended.why:
                raise NotAllowed(f"the driver failed: {ended.why}") from None
            return "killed"
        except NotInTime:
            raise NotInTime(seconds=LIFE, why="the driver to end", last="it still runs") from None
    return "ended"


def killed_in(batch: int, most: int) -> Callable[..., None]:
    """A program for `life`: standings, killed in the worst place of this batch: all of it is written, and nothing is noted."""

    def program(spark: Any, cluster: Kafka, games: str, out: str, home: str) -> None:
        from kqlib.schemas import Registry
        from kqlib.spark.snapshot import Snapshot
        from kqlib.spark.standings import standings

        commit = Snapshot.commit

        def doomed(self: Snapshot, number: int, before: int | None) -> None:
            if number == batch:
                os.kill(os.getpid(), signal.SIGKILL)
            commit(self, number, before)

        Snapshot.commit = doomed  # type: ignore[assignment, method-assign]
        registry = Registry(cluster=cluster)
        standings(spark, cluster, games, out, registry=registry, home=home, maxOffsetsPerTrigger=most).wait()

    return program


def run(line: Connection, program: Callable[..., object], where: tuple[str, Any], args: tuple[Any, ...]) -> None:
    """The process itself."""
    from kqlib.spark.session import QUICK, session

    # Spark's own workers import from there
    os.environ["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)
    cluster = Kafka(*where)
    program(session(cluster, config={"spark.driver.extraJavaOptions": QUICK}), cluster, *args)
    line.send("at the end")
