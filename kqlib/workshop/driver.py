"""One life of a driver: a program in a process of its own, as at work, until it ends or is killed.

In:  a cluster, a function of (spark, cluster, …), which may come from a notebook's cell. Out: "ended" or "killed".

The process is a child of a `Reaper`: it cannot outlive this one. Its JVM has a reaper of its own, and goes when its Python goes.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka import Kafka
from kqlib.runtime.reaper import Reaper

LIFE = 300.0  # seconds; on a quiet machine it takes ten until the first batch
RUN = "import sys; from kqlib.workshop.driver import run; run(sys.argv[1])"


def life(cluster: Kafka, program: Callable[..., object], *args: Any) -> str:
    """Run `program(spark, cluster, *args)` in a process of its own; 'killed' if it died of SIGKILL, else 'ended'.

    program: a function, also one of a cell; what it uses of the notebook's own names travels along, if that can travel.
    """
    if not callable(program):
        raise NotAllowed(f"a driver's program is a function of (spark, cluster), not {program!r}")
    home = Path(tempfile.mkdtemp(prefix="kqlib-driver-"))
    with Reaper(home) as reaper:
        told, log = home / "program", home / "log"
        told.touch(0o600)  # what reaches the cluster may be a password
        told.write_bytes(_packed((program, cluster.bootstrap, cluster._own, args)))
        path = os.pathsep.join(each for each in sys.path if each)
        child = reaper.start(
            "driver", [sys.executable, "-c", RUN, str(told)], log, env={**os.environ, "PYTHONPATH": path}
        )
        code = child.wait(LIFE)
        said = (log.read_text(errors="replace").strip().splitlines() if log.exists() else []) or [child.why]
    if code is None:
        raise NotInTime(seconds=LIFE, why="the driver to end", last=said[-1] or "it said nothing")
    if code == -signal.SIGKILL and not child.why:
        return "killed"
    if code:
        raise NotAllowed(f"the driver failed: {said[-1]}")
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


def _packed(job: tuple[Any, ...]) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(job))
    except Exception as error:
        raise NotAllowed(
            f"the program uses something that cannot travel to another process ({error}): give it names and paths, "
            "and let it make what it needs"
        ) from None


def run(file: str) -> None:
    """The process itself."""
    from kqlib.spark.session import QUICK, session

    program, bootstrap, own, args = pickle.loads(Path(file).read_bytes())
    cluster = Kafka(bootstrap, own)
    program(session(cluster, config={"spark.driver.extraJavaOptions": QUICK}), cluster, *args)
