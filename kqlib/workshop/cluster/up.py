"""The cluster that `kq up` keeps for several notebooks, and the one cluster that every `kq` command works on.

In:  how many brokers. Out: `start`, `find`, `stop`; `current()`, the cluster of a command; `status()`, how it is.
A process of its own, the holder, has the cluster. Three files in `places.state()`:
  up.lock   locked by the holder as long as it lives. So the system knows whether one runs, and no pid is used
  up.json   where the cluster is. The holder ends as soon as this file is gone
  up.log    the output of the holder
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from kqlib import kafka
from kqlib.errors import KqError, NotAllowed, Unreachable
from kqlib.runtime import places
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.workshop.cluster.embedded import Cluster

START, STOP = 90.0 * PATIENCE, 30.0 * PATIENCE  # seconds; a start takes three to ten
NONE = "no cluster: start one with `kq up`, or set KQ_BOOTSTRAP"
EVAL = 'eval "$(kq up)"'


@dataclass(frozen=True)
class Running:
    """The cluster that `kq up` keeps: its address, how many brokers it began with, the process that holds it."""

    bootstrap: str
    brokers: int
    pid: int

    @property
    def export(self) -> str:
        """The line for a shell, after which notebooks and commands use this cluster."""
        return f"export KQ_BOOTSTRAP={self.bootstrap}"


@dataclass(frozen=True)
class Status:
    """The current cluster as it answers now."""

    source: str  # "kq up", "KQ_BOOTSTRAP" or "KQ_KAFKA_CONFIG"
    bootstrap: str
    brokers: dict[int, str]  # "up" or "down"
    controller: int | None  # the node that leads the controllers, if this user may know
    topics: int  # without Kafka's own
    exported: bool  # KQ_BOOTSTRAP names it
    other: str | None = None  # where `kq up` keeps another one

    def __str__(self) -> str:
        ours = self.source == "kq up"
        lines = [f"{'The cluster of `kq up`' if ours else f'Your cluster ({self.source})'} at {self.bootstrap}"]
        for number, how in self.brokers.items():
            lines.append(f"  broker {number}  {how}{', controller' * (number == self.controller)}")
        if self.controller is not None and self.controller not in self.brokers:
            lines.append(f"  {f'node {self.controller}':<9} controller")
        lines.append(f"  topics    {self.topics}")
        if ours:
            lines.append(
                "Notebooks use it: KQ_BOOTSTRAP names it." if self.exported else f"Notebooks use it after {EVAL}"
            )
        if self.other:
            lines.append(f"`kq up` keeps another one at {self.other}; notebooks use that after {EVAL}")
        return "\n".join(lines)


# --- start, find, stop ------------------------------------------------------------------------------------------------


def find() -> Running | None:
    """The cluster that `kq up` keeps now, if any. Files of a holder that died are removed."""
    alone = _lock(fcntl.LOCK_SH)
    if alone is None:
        return _read()
    with alone:  # nobody can start while this is held
        _file("json").unlink(missing_ok=True)
    return None


def start(brokers: int, holder: Sequence[str] = (__name__,)) -> Running:
    """The cluster that runs already, whatever its size, else a new one. Return when it is ready.

    holder: the module that calls `hold` in a process of its own, and its arguments before the number of brokers.
    """
    if running := find():
        return running
    _check_what_it_takes()

    def running_or_lock() -> Any:
        return find() or _lock(fcntl.LOCK_EX)

    alone: Running | IO[str] = wait_for(running_or_lock, START, "another `kq up` to finish", last=_tail)
    if isinstance(alone, Running):
        return alone
    with alone:
        _file("json").unlink(missing_ok=True)
        return _launch(brokers, alone, holder)


def stop() -> bool:
    """End it. Return when every process and file of it is gone; False if nothing ran."""
    shared = _lock(fcntl.LOCK_SH)
    if shared:
        shared.close()
    was = _read()

    def ended() -> IO[str] | None:
        if alone := _lock(fcntl.LOCK_EX):
            return alone
        _file("json").unlink(missing_ok=True)  # one that is only starting writes it later
        return None

    with wait_for(ended, STOP, "the cluster of `kq up` to end", last=lambda: f"{was}\n{_tail()}"):
        _file("json").unlink(missing_ok=True)
    return shared is None


def _check_what_it_takes() -> None:
    """Look for Java and jars here and not in the holder: only here is a terminal that shows what is missing or fetched."""
    from kqlib.runtime import jars, java

    java.find()
    jars.fetch("broker")


def _launch(brokers: int, alone: IO[str], holder_of: Sequence[str]) -> Running:
    """Start the holder, which inherits the lock. Wait until up.json says where the cluster is."""
    command = [sys.executable, "-P", "-m", *holder_of, str(brokers)]
    with _file("log").open("w") as log:
        holder = subprocess.Popen(  # no child of `Children`: it outlives this process
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=[alone.fileno()]
        )

    def started() -> Running | None:
        if holder.poll() is not None:
            raise NotAllowed(f"The cluster did not start. {_tail() or f'Its process ended with {holder.returncode}'}")
        return _read()

    try:
        return wait_for(started, START, f"{brokers} broker(s) to start", last=_tail)
    except BaseException:  # Ctrl-C too: the holder would not hear it
        holder.terminate()
        holder.wait(STOP)
        raise


def _lock(kind: int) -> IO[str] | None:
    """The lock file, locked; None when the holder (or one that starts it) has it."""
    with suppress(BlockingIOError):
        return places.locked(_file("lock"), kind | fcntl.LOCK_NB)
    return None


def _read() -> Running | None:
    with suppress(OSError, ValueError, TypeError):
        return Running(**json.loads(_file("json").read_text(encoding="utf-8")))
    return None


def _file(kind: str) -> Path:
    return places.state() / f"up.{kind}"


def _tail() -> str:
    """The end of the holder's output."""
    with suppress(OSError):
        return "\n".join(_file("log").read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
    return ""


# --- the holder -------------------------------------------------------------------------------------------------------


@contextmanager
def _idle(_: Cluster) -> Iterator[Callable[[], object]]:
    yield lambda: time.sleep(0.2)


Inside = Callable[[Cluster], AbstractContextManager[Callable[[], object]]]


def hold(brokers: int, inside: Inside = _idle, config: Mapping[str, Any] | None = None) -> None:
    """Keep a cluster until up.json is gone or this process ends. The reaper ends the brokers with it.

    inside: what else runs there; it gives the function that is called again and again meanwhile.
    """
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Cluster(brokers, config=dict(config or {})) as cluster, inside(cluster) as turn:
        mine = Running(cluster.bootstrap, brokers, os.getpid())
        places.write_atomic(_file("json"), json.dumps(asdict(mine)) + "\n")
        try:
            while _read() == mine:
                turn()
        finally:
            if _read() == mine:
                _file("json").unlink(missing_ok=True)


# --- the cluster of a command -----------------------------------------------------------------------------------------


def current() -> kafka.Kafka:
    """The cluster that a command works on: KQ_BOOTSTRAP's (or KQ_KAFKA_CONFIG's), else the one of `kq up`."""
    found = _seek(find())
    if found is None:
        raise NotAllowed(NONE)
    return found


def _seek(running: Running | None) -> kafka.Kafka | None:
    try:
        return kafka.named() or (kafka.reach(running.bootstrap, kafka.own()) if running else None)
    except Unreachable as error:
        if running is None or _same(error.facts["address"], running.bootstrap):
            raise
        why = f"{error.facts['why']}. But `kq up` keeps a cluster at {running.bootstrap}: {EVAL}"
        raise Unreachable(address=error.facts["address"], why=why) from None


def status() -> Status | None:
    """How the current cluster is; None when there is none."""
    running = find()
    cluster = _seek(running)
    if cluster is None:
        return None
    exported = os.environ.get("KQ_BOOTSTRAP", "")
    ours = running if running and _same(running.bootstrap, cluster.bootstrap) else None
    brokers = _answering(ours) if ours else dict.fromkeys(cluster.brokers, "up")
    elects = 2 * list(brokers.values()).count("up") > len(brokers)  # without more than half of them nobody leads
    return Status(
        source="kq up" if ours else "KQ_BOOTSTRAP" if exported else "KQ_KAFKA_CONFIG",
        bootstrap=cluster.bootstrap,
        brokers=brokers,
        controller=cluster.controller if elects else None,
        topics=sum(not name.startswith("__") for name in cluster.admin.list_topics(timeout=10).topics),
        exported=_same(exported, cluster.bootstrap),
        other=running.bootstrap if running and not ours else None,
    )


def _answering(running: Running) -> dict[int, str]:
    """Which of its brokers are up, by their ports. The cluster itself counts a dead one for seconds, or for ever."""
    from kqlib.workshop.cluster.node import open_port

    ports = [int(address.rpartition(":")[2]) for address in running.bootstrap.split(",")]
    return {number: "up" if open_port(port) else "down" for number, port in enumerate(ports, 1)}


def _same(one: str, other: str) -> bool:
    """Do two addresses name the same brokers, or some of them?"""
    return bool({part.strip() for part in one.split(",")} & {part.strip() for part in other.split(",")} - {""})


if __name__ == "__main__":
    try:
        hold(int(sys.argv[1]))
    except KqError as reason:
        sys.exit(str(reason))
    except OSError as error:
        sys.exit(places.words(error))
