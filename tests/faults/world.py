"""A world to break: brokers, and workers and producers as real processes of one site, each with its history.

In:  a cluster, what to start, what to do to it. Out: a `Verdict`, once everything has come out and all have left.
When something does not happen in time, every process's stacks and last words are in the error.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from kqlib.errors import KqError
from kqlib.queue import Site
from kqlib.topics import Plan, QueueTopic
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.snapshot import records
from tests.faults.history import Did, Verdict, judge, read
from tests.patience import PATIENCE, WAIT

SESSION = 3.0
APART = 10_000_000  # a producer's first number is a multiple of this
ROOT = Path(__file__).resolve().parents[2]


@dataclass(eq=False)
class Process:
    """A worker or a producer."""

    name: str
    popen: subprocess.Popen[bytes]
    history: Path
    log: Path
    settings: dict[str, Any]
    doomed: bool = field(default=False)  # its end is part of the play
    asked: bool = field(default=False)  # to end

    @property
    def alive(self) -> bool:
        """Does it run?"""
        return self.popen.poll() is None

    @property
    def stopped(self) -> bool:
        """Has SIGSTOP reached it?"""
        with suppress(psutil.Error):
            return psutil.Process(self.popen.pid).status() == psutil.STATUS_STOPPED
        return False

    def signal(self, number: int) -> None:
        """SIGTERM, SIGKILL, SIGSTOP, SIGCONT."""
        self.popen.send_signal(number)

    def size(self) -> int:
        """How much it has written: it grows while it works."""
        return self.history.stat().st_size if self.history.exists() else 0

    def last(self) -> str:
        """The last line that it has written."""
        with self.history.open("rb") as file:
            file.seek(max(0, self.size() - 100_000))
            return file.read().decode().rstrip("\n").rpartition("\n")[2]


class World:
    """A queue under load."""

    terms: Mapping[str, Any] = {}  # of the queue, beside its order
    numbers = True  # the records of its topic are the numbers that were put
    modules: Mapping[str, str] = {"worker": "tests.faults.worker", "producer": "tests.faults.producer"}

    def __init__(self, cluster: Cluster, folder: Path, partitions: int = 4, seed: int = 0, **how: Any) -> None:
        # seed: of what is drawn. how: settings of every worker (`worker.main`), unless it has its own
        self.cluster, self.folder, self.how, self.partitions = cluster, folder, how, partitions
        self.chance = random.Random(seed)
        self._victims: set[Process] = set()
        self._choosing = threading.Lock()
        self.topic = self.group = f"faults-{uuid.uuid4().hex[:6]}"
        self.address = cluster.wire.bootstrap if cluster.wires else cluster.bootstrap
        self.safe = {"min.insync.replicas": "2"} if len(cluster._brokers) >= 3 else {}
        self.plan(partitions)
        self.processes: list[Process] = []
        self.noted: list[Did] = []
        self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """However it stands, nothing is left running."""
        for process in self.processes:
            if process.alive:
                process.popen.kill()
            process.popen.wait(WAIT)
            if process.popen.stdin:
                process.popen.stdin.close()
        self.close()

    def open(self) -> None:
        """The queue as this process sees it."""
        self.site = Site(self.cluster, self.group, session=self.how.get("session", SESSION))
        self.queue = self.site.queue(self.topic, order=self.how.get("order", "any"), **self.terms)

    def close(self) -> None:
        """The end of what `open` began."""
        self.site.close()

    def plan(self, partitions: int) -> None:
        """The queue's topics, made or grown."""
        self.partitions = partitions
        Plan({self.topic: QueueTopic(partitions=partitions, config=self.safe)}).apply(self.cluster, quiet=True)

    # --- processes ---

    @property
    def workers(self) -> list[Process]:
        """Those that run."""
        return [each for each in self.processes if each.name.startswith("worker") and each.alive]

    @property
    def producers(self) -> list[Process]:
        """Those that run."""
        return [each for each in self.processes if each.name.startswith("producer") and each.alive]

    def worker(self, **how: Any) -> Process:
        """Start one."""
        return self._start("worker", {"session": SESSION, **self.how, **how})

    def victim(self) -> Process:
        """A worker, drawn from those that no other accident has now."""
        with self._choosing:
            chosen = self.chance.choice([each for each in self.workers if each not in self._victims])
            self._victims.add(chosen)
        return chosen

    def spared(self, worker: Process) -> None:
        """It lives on, and other accidents may have it."""
        self._victims.discard(worker)

    def producer(self, many: int, batch: int = 200, pause: float = 0.0, **how: Any) -> Process:
        """Start one that puts so many numbers of its own, and goes on until it is asked to end."""
        first = (len(self.processes) + 1) * APART
        return self._start("producer", {"first": first, "many": many, "batch": batch, "pause": pause, **how})

    def _start(self, kind: str, settings: dict[str, Any]) -> Process:
        name = f"{kind}-{len(self.processes) + 1}"
        history, log = self.folder / f"{name}.history", self.folder / f"{name}.log"
        own = {"bootstrap": self.address, "site": self.group, "topic": self.topic, "history": str(history)}
        command = [sys.executable, "-m", self.modules[kind], json.dumps({**own, **settings})]
        with log.open("wb") as output:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": output, "stderr": output}
            process = Process(name, subprocess.Popen(command, cwd=ROOT, **pipes), history, log, settings)
        self.processes.append(process)
        return process

    def another(self, process: Process, **how: Any) -> Process:
        """One more producer like this one, with numbers of its own."""
        return self.producer(**{name: value for name, value in (process.settings | how).items() if name != "first"})

    def kill(self, process: Process) -> None:
        """By SIGKILL."""
        process.doomed = True
        self.gone(process)
        process.signal(signal.SIGKILL)
        process.popen.wait(WAIT)

    def gone(self, process: Process) -> None:
        """Write down that from now on it does nothing."""
        now = time.monotonic()
        self.noted.append(Did(process.name, "gone", (), now, now))

    def tell(self, process: Process) -> None:
        """To end, by SIGTERM, once: while Python starts or ends it would kill."""
        self.until(process.history.exists, 60, f"{process.name} to have started")
        if not process.asked:
            process.asked = True
            process.signal(signal.SIGTERM)

    def leave(self, process: Process, seconds: float = 30) -> None:
        """By SIGTERM: in good order, and in time."""
        self.tell(process)
        self.until(lambda: not process.alive, seconds, f"{process.name} to end after SIGTERM")
        assert process.popen.returncode == 0, self.words(process)

    # --- waiting ---

    def until(self, condition: Callable[[], object], seconds: float, why: str) -> float:
        """How many seconds it took; when they are over, every process says what it does."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > seconds * PATIENCE:
                raise AssertionError(f"waited {seconds:g} s for {why}\n{self.dump()}")
            for process in self.processes:
                assert process.alive or process.doomed or not process.popen.returncode, self.words(process)
            time.sleep(0.02)
        return time.monotonic() - begun

    def busy(self, *workers: Process, seconds: float = 60) -> None:
        """Return when each of them (all, if none is named) has had items since now, or has ended."""
        sizes = {worker: worker.size() for worker in workers or self.workers}
        for worker, size in sizes.items():
            self.until(
                lambda worker=worker, size=size: worker.size() > size or not worker.alive,
                seconds,
                f"{worker.name} to have items",
            )

    def holding(self, worker: Process) -> None:
        """Return when it has just claimed something."""
        self.busy(worker)
        self.until(lambda: '"claim"' in worker.last(), 60, f"{worker.name} to claim")

    def drained(self, seconds: float) -> None:
        """Return when the producers have put all that they were to, and the queue is empty."""
        for producer in self.producers:
            self.tell(producer)
        self.until(lambda: not self.producers, seconds, "the producers to end")
        self.until(lambda: self.depth() == 0, seconds, "the queue to be empty")

    def depth(self) -> int:
        """Of the queue; -1: unknown now."""
        if self.how.get("broken"):  # keeps no count: it is empty when nobody gets anything any more
            sizes = [worker.size() for worker in self.workers]
            time.sleep(SESSION + 2)
            return int(sizes != [worker.size() for worker in self.workers])
        try:
            return self.queue.depth()
        except KqError:
            time.sleep(0.2)
            return -1

    # --- what it was ---

    def dump(self) -> str:
        """Every process's stacks and last words, and how deep the queue is."""
        running = [each for each in self.processes if each.alive]
        for process in running:
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGUSR1)
        time.sleep(1)
        return "\n".join([f"depth {self.depth()}, {self.cluster._brokers}", *map(self.words, running)])

    def words(self, process: Process, most: int = 6000) -> str:
        """The end of its log."""
        return f"--- {process.name}, {process.popen.returncode}:\n{process.log.read_text(errors='replace')[-most:]}"

    def verdict(self) -> Verdict:
        """All leave; then what their histories come to."""
        for worker in self.workers:
            self.tell(worker)
        for worker in self.workers:
            self.leave(worker)
        history, by_key = self.history(), self.how.get("order") == "key"
        verdict = judge(history, by_key)
        return judge([*history, self.stored()], by_key) if verdict.lost and self.numbers else verdict

    def stored(self) -> Did:
        """What the queue's log has at the end."""
        log = records(self.cluster, self.topic).values()
        return Did("log", "stored", tuple(int(message.value()) for some in log for message in some))

    def history(self) -> list[Did]:
        """Everything that everybody did, and the letters that are there now."""
        letters = [Did("dead", "letter", (int(m.value()),), ids=(_origin(m),)) for m in self._letters()]
        files = [each for each in self.processes if each.history.exists()]
        own = [did for each in files for did in read(each.name, each.history.read_text().splitlines(keepends=True))]
        return [*self.noted, *own, *letters]

    def _letters(self) -> list[Any]:
        return [message for some in records(self.cluster, f"{self.topic}.dead").values() for message in some]


def _origin(letter: Any) -> str:
    """The id of the item that a letter was."""
    return dict(letter.headers())["kq-origin"].decode().partition("/")[2]
