"""The parent's end of the workers: each life is a process of its own, which cannot outlive this one.

In:  a cluster and a life to be lived: topic, order, where to die. Out: `Life`, how it ended.
The processes are children of a `Reaper`: it ends them and removes their directory when this process is gone, however it ends.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka import Kafka
from kqlib.runtime.reaper import Reaper
from kqlib.workshop.delivery import worker


@dataclass(frozen=True, repr=False)
class Life:
    """How one life of a worker ended: `killed` says after which verb, None that it read to the end."""

    killed: str | None = None
    at: int = 0

    def __repr__(self) -> str:
        return f"killed after {self.killed}, at item {self.at}" if self.killed else "read to the end"


class Crew:
    """Workers of one cluster, as many at a time as there are threads that ask for one."""

    def __init__(self, cluster: Kafka) -> None:
        self._cluster = cluster
        self.home = Path(tempfile.mkdtemp(prefix="kqlib-delivery-"))
        self._reaper = Reaper(self.home)
        self._numbers = itertools.count(1)

    def live(self, step: Step, crash: str | None = None, at: int = 1) -> Life:
        """One life: until it is killed, or has read to the end."""
        name = f"life-{next(self._numbers)}"
        file, log = self.home / name, self.home / f"{name}.log"
        job = {"client": self._cluster.client(), "crash": crash, "at": at, **vars(step)}
        with os.fdopen(
            os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as out:  # it may hold a password
            json.dump(job, out)
        child = self._reaper.start(name, [sys.executable, "-I", worker.__file__, str(file)], log)
        code = child.wait(worker.LIFE + 5)
        said = (log.read_text(errors="replace").strip().splitlines() if log.exists() else []) or [child.why]
        if code == -signal.SIGKILL and crash and not child.why:
            return Life(crash, at)
        if code is None or code == -signal.SIGALRM:
            child.signal(signal.SIGKILL)
            raise NotInTime(seconds=worker.LIFE, why=f"a worker to read '{step.topic}' to its end", last=said[-1])
        if code != 0:
            raise NotAllowed(f"the worker failed in '{step.order}', and what it did until then stays: {said[-1]}")
        return Life()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reaper.close()


@dataclass(frozen=True)
class Step:
    """What a worker does in each of its lives: read `topic`, write into `done` or `database`, in an order."""

    topic: str
    partitions: int
    group: str
    order: str
    code: str | None = None  # of somebody's own order: marshalled, in base64
    done: str | None = None
    database: str | None = None
    diary: str | None = None
