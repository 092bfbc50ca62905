"""Runs one command and measures it whole: seconds, CPU, the JVMs and clusters it started, and what it left behind.

In:  a command, its environment. Out: `Measured`. On Linux this process adopts what outlives its parent, so that the CPU of
a JVM whose notebook was killed counts too, and so that a process left behind is found.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from tests.patience import PATIENCE

ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
LOOK = 1.0  # seconds between two looks; a JVM that lives for less may be missed
GONE = 5.0 * PATIENCE  # seconds that orphans have to end by themselves


@dataclass(frozen=True)
class Measured:
    """What one command took."""

    code: int
    wall: float
    cpu: float
    jvms: int = 0
    clusters: int = 0
    left: tuple[str, ...] = ()


@dataclass
class Census:
    """Counts the JVMs and the clusters among our descendants, while they come and go."""

    known: set[int] = field(default_factory=set)  # processes at the last look
    homes: set[Path] = field(default_factory=set)
    jvms: int = 0

    def look(self) -> None:
        """Count what is new. Only new processes are read: to read all of them each second takes one core's hundredth."""
        now = set(psutil.pids())
        for pid in now - self.known:
            with suppress(psutil.Error):  # it has ended meanwhile
                process = psutil.Process(pid)
                words = process.cmdline()
                if words and Path(words[0]).name == "java" and psutil.Process() in process.parents():
                    self.jvms += 1
                    if "kafka.Kafka" in words:
                        self.homes.add(Path(words[-1]).parent.parent)  # CLUSTER/broker-1/server.properties
        self.known = now


def measured(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Measured:
    """Run it to its end; then wait for its orphans, and end those that stay, by their id."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    census, over = Census(), threading.Event()
    watch = threading.Thread(target=_watch, args=(census, over), daemon=True)
    start = time.monotonic()
    process = subprocess.Popen(list(command), cwd=cwd, env=dict(environment))
    watch.start()
    cpu, code = 0.0, None
    while code is None:
        pid, status, usage = os.wait3(0)
        cpu += usage.ru_utime + usage.ru_stime
        if pid == process.pid:
            code = process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - start
    over.set()
    watch.join()
    more, left = _orphans()
    return Measured(code, wall, cpu + more, census.jvms, len(census.homes), left)


def _watch(census: Census, over: threading.Event) -> None:
    while not over.wait(LOOK):
        census.look()


def _orphans() -> tuple[float, tuple[str, ...]]:
    """The CPU of what outlived the command, and the command lines of what had to be ended."""
    cpu, left = 0.0, list[str]()
    deadline = time.monotonic() + GONE
    while True:
        try:
            pid, _, usage = os.wait3(os.WNOHANG)
        except ChildProcessError:
            return cpu, tuple(left)
        cpu += usage.ru_utime + usage.ru_stime
        if pid == 0 and time.monotonic() > deadline:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):  # it is a zombie, or it has just ended
                    left.append(" ".join(process.cmdline())[:160])
                    process.kill()
            deadline = time.monotonic() + GONE
        elif pid == 0:
            time.sleep(0.05)


if __name__ == "__main__":
    result = measured(sys.argv[2:], Path.cwd(), os.environ)
    Path(sys.argv[1]).write_text(json.dumps(asdict(result)), encoding="utf-8")
    sys.exit(result.code)
