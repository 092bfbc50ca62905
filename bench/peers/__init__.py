"""Jobs on kqlib and on what a user might take instead, each in an environment of its own under build/peers.

In:  nothing. Out: `measured()`: one round, {what: figure}; only when named: `python -m bench 1 peers`. It installs over the network.

Eight jobs at once. Each put is confirmed before the next one. A worker is a process that is ended by SIGKILL.
`lost`: how many of 1,000 jobs were never done, after one worker was killed and another one had come. `twice`: done more than once.
A peer that cannot be installed or started is named on stderr, and has no rows. docs/costs.md says what each gives up.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import kqlib as kq
from bench import servers
from bench.broker import broker, fresh
from tests.nightly.pythons import interpreter

HERE, ROOT = Path(__file__).parent, Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "peers"
JOBS, PACED, RATE, KILLED = 2_000, 300, 100, 1_000
QUIET = 12.0  # seconds without a job, after which none comes any more: a session or a heartbeat is over
PEERS = {
    "kqlib": ("kqlib", "kafka"),
    "kqlib by-key": ("kqlib", "kafka"),
    "pyrallel-consumer": ("pyrallel", "kafka"),
    "pyrallel-consumer by-key": ("pyrallel", "kafka"),
    **{f"{name}, {fsync}": (name, fsync) for name in ("dramatiq", "huey", "rq") for fsync in ("everysec", "always")},
    "procrastinate": ("procrastinate", "postgres"),
}


def measured() -> dict[str, float]:
    """One round: each peer, in an order that is drawn."""
    rows: dict[str, dict[str, float]] = {}
    for name in random.sample(list(PEERS), len(PEERS)):
        try:
            rows[name] = Peer(name).figures()
        except (OSError, RuntimeError, subprocess.SubprocessError) as why:
            print(f"{name} is left out: {why}", file=sys.stderr)
    return {f"{name}: {what}": value for name in PEERS for what, value in rows.get(name, {}).items()}


class Peer:
    """One of them: its environment, its server, and what its processes wrote."""

    def __init__(self, name: str) -> None:
        self.kind, server = PEERS[name]
        self.python = environment(self.kind)
        self.by_key = name.endswith("by-key")
        if server == "kafka":
            self.server = broker().bootstrap
        elif found := servers.postgres() if server == "postgres" else servers.redis(server):
            self.server = found
        else:
            raise RuntimeError(f"there is no server for it ({server})")

    def figures(self) -> dict[str, float]:
        """Jobs a second, the time of one, and what a killed worker costs."""
        row = {f"jobs of {ms} ms, a second": self._rate(ms) for ms in (0, 1)}
        self.begin()
        worker = self.start("work")
        time.sleep(3.0)
        self._put(PACED, 0, RATE)
        times = [ended - moment for _, moment, ended in self.all_results(PACED)]
        self.kill(worker)
        row["100 a second: one job, ms p50"] = median(times) * 1e3
        return row | self._killed()

    def _rate(self, ms: int) -> float:
        self.begin()
        self._put(JOBS, ms, 0)
        worker = self.start("work")
        ended = sorted(ended for *_, ended in self.all_results(JOBS))
        self.kill(worker)
        return (len(ended) - 1) / (ended[-1] - ended[0])

    def _killed(self) -> dict[str, float]:
        self.begin()
        self._put(KILLED, 5, 0)
        worker = self.start("work")
        self.all_results(KILLED // 4)
        self.kill(worker)
        worker = self.start("work")
        done = [number for number, *_ in self.all_results(sys.maxsize)]
        self.kill(worker)
        return {"a worker is killed: lost": KILLED - len(set(done)), "twice": len(done) - len(set(done))}

    def begin(self, partitions: int = 4) -> None:
        """A new topic or queue, without results."""
        self.name = fresh("bench-peer") + "-by-key" * self.by_key
        self.results = Path(tempfile.mkdtemp(prefix="kqlib-bench-")) / "results"
        self.results.touch()
        if self.kind in ("kqlib", "pyrallel"):
            kq.Plan({self.name: kq.QueueTopic(partitions=partitions)}).apply(broker(), quiet=True)

    def start(self, *words: object, threads: int = 8) -> subprocess.Popen[Any]:
        """A process of it."""
        its = {
            "PEER_THREADS": str(threads),
            "PEER_SERVER": self.server,
            "PEER_NAME": self.name,
            "PEER_RESULTS": str(self.results),
        }
        command = [str(self.python), str(HERE / f"on_{self.kind}.py"), *map(str, words)]
        log = (PLACE / f"{self.kind}.log").open("ab")
        return subprocess.Popen(command, env=os.environ | its, stdout=log, stderr=log, start_new_session=True)

    def _put(self, *numbers: int) -> None:
        if self.start("put", *numbers).wait(300):
            raise RuntimeError(f"its jobs could not be put: see {PLACE / self.kind}.log")

    def kill(self, worker: subprocess.Popen[Any]) -> None:
        """End one without a word to it."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def all_results(self, many: int, quiet: float = QUIET) -> list[tuple[int, float, float]]:
        """At least so many lines, or what there is when none has come for so long."""
        size, since = -1, time.monotonic()
        while (lines := self.results.read_bytes().splitlines()) is not None and len(lines) < many:
            if len(lines) != size:
                size, since = len(lines), time.monotonic()
            elif time.monotonic() - since > quiet:
                break
            time.sleep(0.05)
        if len(lines) < 2:
            raise RuntimeError(f"it did nothing: see {PLACE / self.kind}.log")
        return [(int(number), float(moment), float(ended)) for number, moment, ended in map(bytes.split, lines)]


def environment(kind: str) -> Path:
    """The Python of this peer's environment, made at the first use; kqlib's is ours."""
    PLACE.mkdir(parents=True, exist_ok=True)
    if kind == "kqlib":
        return Path(sys.executable)
    home = PLACE / kind
    if not (home / "done").exists():
        python = interpreter("3.12" if kind == "pyrallel" else "3.11") or interpreter("3.12")
        if python is None:
            raise RuntimeError("it needs a Python that is not here (3.12)")
        subprocess.run([python, "-m", "venv", "--clear", home], check=True, capture_output=True)
        pip = [home / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "-r", HERE / f"{kind}.txt"]
        subprocess.run(pip, check=True, capture_output=True)
        (home / "done").touch()
    return home / "bin" / "python"
