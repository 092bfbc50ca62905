"""A soak: for 40 minutes 60 % of what the machine can do, and a fault each minute, by seed. Is anything lost, does anything grow?

python -m tests.faults.soak [--minutes 40] [--seed N] [--no-page]

In:  minutes, a seed. Out: the counts of the judge, the medians of three thirds, and what drifts; docs/faults.json, docs/faults.md and
docs/soak.svg have them. Exit status 1: something was lost or came twice, or drifts.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from kqlib.workshop.cluster import Cluster
from tests.faults import accidents, broker_accidents, page, wire_accidents
from tests.faults.cases import OVER, PLAIN, PRODUCERS, TRANSACTION
from tests.faults.flatness import ALLOWED, WINDOW, by_window, drifts, judged
from tests.faults.world import World

WORKERS, BATCH, SHARE = 3, 50, 0.6
MEASURE = 30.0  # seconds of load without a pause, before
WORK: dict[str, Any] = {"batch": BATCH, "hold": 0.01, "bury": 1_000}
FAULTS: dict[str, Callable[[World], None]] = {
    "worker SIGKILL": partial(accidents.sigkill, times=1),
    "worker SIGTERM": partial(accidents.sigterm, times=1),
    "worker SIGSTOP past its session": partial(accidents.sigstop, times=1),
    "producer SIGKILL": partial(accidents.producers_killed, times=1),
    "broker SIGKILL": broker_accidents.only_one_killed,
    "answers of puts and commits lost": partial(wire_accidents.answers_lost, kinds=PLAIN, times=1),
    "answers of transactions lost": partial(wire_accidents.answers_lost, kinds=TRANSACTION, times=1),
    "worker hears nothing": partial(wire_accidents.cut_off, way="from"),
    "nobody hears a worker": partial(wire_accidents.cut_off, way="to"),
    "200 ms a request": partial(wire_accidents.slow, seconds=5),
}


class Samples:
    """What a process takes, asked every ten seconds by a thread until it is closed."""

    def __init__(self, pid: int) -> None:
        self._process, self._stop = psutil.Process(pid), threading.Event()
        self.series: dict[str, list[float]] = {"memory": [], "threads": [], "files": []}
        self.begun = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(max(0.0, self.begun + WINDOW * (len(self.series["files"]) + 1) - time.monotonic())):
            now = self._process.memory_info().rss / 1e6, self._process.num_threads(), self._process.num_fds()
            for values, value in zip(self.series.values(), now, strict=True):
                values.append(round(value, 1))

    def close(self) -> None:
        """No more."""
        self._stop.set()
        self._thread.join()


def at_most(cluster: Cluster, folder: Path, seconds: float) -> float:
    """Items a second that these processes put, claim and ack, if producers never pause: until all is done."""
    with World(cluster, folder, **WORK) as world:
        begin(world)
        begun = time.monotonic()
        time.sleep(seconds)
        world.drained(OVER)
        lasted = time.monotonic() - begun
        done = sum(len(did.values) for did in world.history() if did.verb == "ack" and did.began >= begun)
    return done / lasted


def begin(world: World, **how: Any) -> None:
    """Workers and producers, at work."""
    for _ in range(WORKERS):
        world.worker()
    for _ in range(PRODUCERS):
        world.producer(0, BATCH, **how)
    world.busy()


def soak(minutes: float, seed: int, folder: Path, measure: float = MEASURE) -> dict[str, Any]:
    """The figures."""
    chance, happened = random.Random(seed), list[str]()
    with Cluster(wire=True) as cluster:
        most = at_most(cluster, folder, measure)
        print(f"{most:,.0f} items a second without a pause", flush=True)
        (own := folder / "soak").mkdir()
        with World(cluster, own, seed=seed, **WORK) as world:
            begin(world, rate=SHARE * most / PRODUCERS)
            lives = world.workers[0]
            world._victims.add(lives)  # no accident of processes draws it
            samples = Samples(lives.popen.pid)
            for minute in range(max(1, round(minutes))):
                time.sleep(max(0.0, samples.begun + 60 * minute + min(5.0, measure) - time.monotonic()))
                happened.append(chance.choice(list(FAULTS)))
                print(f"minute {minute + 1}: {happened[-1]}", flush=True)
                FAULTS[happened[-1]](world)
            time.sleep(max(0.0, samples.begun + 60 * minutes + 1 - time.monotonic()))
            samples.close()
            world.drained(OVER)
            for worker in world.workers:
                world.leave(worker)
            history, windows = world.history(), len(samples.series["files"])
            histories = len(world.processes)
    series = {**by_window(history, samples.begun, windows), **samples.series}
    series = {name: [round(value, 1) for value in values] for name, values in series.items()}
    return {
        "minutes": round(minutes),
        "seed": seed,
        "most": round(most),
        "asked": round(SHARE * most),
        "histories": histories,
        "faults": happened,
        "counts": judged(history),
        "drifts": drifts(series),
        "series": series,
        "day": datetime.now(UTC).date().isoformat(),
    }


def wrong(found: dict[str, Any]) -> dict[str, Any]:
    """What must not be."""
    return {name: count for name, count in found["counts"].items() if name not in ALLOWED} | found["drifts"]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.soak", description="Load for minutes, and a fault in each."
    )
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    parser.add_argument("--no-page", action="store_true", help="docs/ is left as it is")
    asked = parser.parse_args()
    if not 1 <= asked.minutes <= 1_000:
        parser.error(f"--minutes: a number from 1 to 1,000, not {asked.minutes:g}")
    with tempfile.TemporaryDirectory() as scratch:
        found = soak(asked.minutes, asked.seed, Path(scratch))
    for name, values in found["series"].items():
        print(name, *(f"{each:,.0f}" for each in values), found["drifts"].get(name, "flat"))
    print({name: value for name, value in found.items() if name != "series"}, flush=True)
    if not asked.no_page:
        page.store(page.SOAK, found)
    sys.exit(bool(wrong(found)))


if __name__ == "__main__":
    main()
