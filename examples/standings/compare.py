"""The same standings by Spark, Kafka Streams and a plain worker: `python -m examples.standings.compare [ENGINE …]` prints a table.

In:  a season at a rate. While the rows of games that have ended are written, an engine is killed (SIGKILL, all its processes).
Out: delay, seconds to recover, CPU, memory, lost, doubled. One audit judges all three; the truth is counted without them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyspark
from confluent_kafka import Producer, TopicPartition

import kqlib as kq
from examples.crash.streams.run import ECJ
from kqlib.kafka import Kafka, reading
from kqlib.runtime import jars, java
from kqlib.runtime.patience import PATIENCE
from kqlib.spark.standings import STANDING
from kqlib.spark.table import COLUMNS, LATE
from kqlib.workshop.games import seasons
from tests.spark.hand import by_hand

HERE = Path(__file__).resolve().parent
EVENTS, WARM, RATE, KILLS = 1000, 190, 10.0, 2  # the first ones are put at once, before anything is measured
WAIT = 180.0 * PATIENCE  # seconds until a table that has to come is given up
HEAP = "-Xmx800m"  # as Spark's in kqlib
HEAD = "| engine | delay p50, s | slowest, s | s to recover | CPU, s | memory, MiB | lost | doubled | wrong rows | rows again |"
Table = dict[str, dict[str, Any]]
# By team and how many games it has played: when that game ended, or when the row was there.
Times = dict[tuple[str, int], float]


class Audit(NamedTuple):
    """Games and points that a table lacks, and that it has too much; the teams whose rows differ from the truth."""

    lost: int
    doubled: int
    wrong: list[str]


def audit(table: Table, right: Table) -> Audit:
    """The same for every engine."""
    more = [table.get(team, {}).get(name, 0) - right[team][name] for team in right for name in ("played", "scored")]
    wrong = [team for team in sorted(right | table) if table.get(team) != right.get(team)]
    return Audit(sum(max(0, -n) for n in more), sum(max(0, n) for n in more), wrong)


def truth(season: list[seasons.SeasonEvent]) -> Table:
    """The table of these events."""
    return {row[1]: dict(zip(COLUMNS, row, strict=True)) for row in by_hand(season)}


class Trial:
    """A season for an engine that is killed and started again. Noted: when a row comes, CPU and memory of all its processes."""

    def __init__(self, cluster: Kafka, engine: Engine, season: list[seasons.SeasonEvent], home: Path) -> None:
        self.season, self.games, self.out = season, f"games-{time.time_ns():x}", f"standings-{time.time_ns():x}"
        compacted = kq.Topic(1, config={"cleanup.policy": "compact"})
        kq.Plan({self.games: kq.Topic(4, config=seasons.FOR_EVER), self.out: compacted}).apply(cluster, quiet=True)
        self.registry = kq.schemas.Registry(cluster=cluster)
        self.messages = list(seasons.messages(season, self.registry, f"{self.games}-value"))
        self.codec = self.registry.codec(f"{self.out}-value", STANDING)
        self.at, self.rounds, self.ended, self.held = 0, defaultdict[str, set[int]](set), Times(), Times()
        self.table, self.again, self.cpu, self.peak, self.looked = Table(), 0, dict[Any, float](), 0, 0.0
        self.producer, self.reader = Producer(cluster.client(linger_ms=0)), reading.reader_of(cluster)
        self.reader.assign([TopicPartition(self.out, 0, 0)])
        self.env = os.environ | {"TMPDIR": str(home), "KQ_BOOTSTRAP": cluster.bootstrap}
        self.command, self.log = engine(self, home), home / "log"
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = psutil.Popen(self.command, env=self.env, stdout=log, stderr=log)

    def kill(self) -> None:
        for each in self.look():
            with suppress(psutil.Error):
                each.kill()
        self.process.wait()

    def look(self) -> list[psutil.Process]:
        """Its processes now. What they have used so far is noted."""
        memory, found, self.looked = 0, list[psutil.Process](), time.monotonic()
        with suppress(psutil.Error):
            found = [self.process, *self.process.children(recursive=True)]
        for each in found:
            with suppress(psutil.Error):
                self.cpu[each] = sum(each.cpu_times()[:2])
                memory += each.memory_info().rss
        self.peak = max(self.peak, memory)
        return found

    def put(self, upto: int, rate: float = float("inf")) -> None:
        """Put the events below this place; returns when they are stored."""
        began, first = time.monotonic(), self.at
        for self.at in range(first, upto):
            self.read(began + (self.at - first) / rate - time.monotonic())
            event, (key, value, sent) = self.season[self.at], self.messages[self.at]
            if event.kind == "final" and event.sent - event.at <= LATE * 1000:
                for team in event.game.split("-"):
                    self.rounds[team].add(event.round)
                    self.ended.setdefault((team, len(self.rounds[team])), time.monotonic())
            self.producer.produce(self.games, value, key, timestamp=sent)
        self.at = upto
        assert self.producer.flush(60) == 0

    def wait(self) -> Audit:
        """Wait until the table is that of all events that were put; what differs then."""
        right, deadline = truth(self.season[: self.at]), time.monotonic() + WAIT
        while self.read(0.02) != right and time.monotonic() < deadline:
            pass
        return audit(self.table, right)

    def read(self, seconds: float) -> Table:
        """The table, after the rows that come within this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if time.monotonic() > self.looked + 0.2:
                self.look()
            message = self.reader.poll(left)
            if message is not None and not message.error():
                row = self.codec.decode(message.value())
                before = self.table.get(row["team"], {})
                self.again += before == row
                self.table[row["team"]] = row
                for game in range(before.get("played", 0) + 1, row["played"] + 1):
                    self.held.setdefault((row["team"], game), time.monotonic())
        return self.table

    def close(self) -> None:
        self.kill()
        self.reader.close()


Engine = Callable[[Trial, Path], list[Any]]


def spark(trial: Trial, home: Path) -> list[Any]:
    file = home / "pipeline.toml"
    file.write_text(f'stream = "standings"\nsource = "{trial.games}"\ntarget = "{trial.out}"\nhome = "home"\n')
    return [sys.executable, "-m", "kqlib", "pipeline", "run", file]


def streams(trial: Trial, home: Path) -> list[Any]:
    avro = (Path(pyspark.__file__).parent / "jars").glob("avro-1*.jar")  # Kafka Streams has none
    paths, command = os.pathsep.join(map(str, [*jars.fetch("streams"), *avro, home])), java.find().command
    subprocess.run([command, "-cp", paths, ECJ, "-17", "-cp", paths, "-d", home, HERE / "Standings.java"], check=True)
    known = trial.registry.ids(f"{trial.games}-value") + trial.registry.ids(f"{trial.out}-value")
    for number in known:
        (home / f"{number}.avsc").write_text(trial.registry.schema(number))
    schemas = (f"{number}={home}/{number}.avsc" for number in known)
    return [command, HEAP, "-cp", paths, "Standings", trial.games, trial.out, home / "state", *schemas]


def worker(trial: Trial, home: Path) -> list[Any]:
    return [sys.executable, HERE / "worker.py", trial.games, trial.out]


ENGINES = {"Spark": spark, "Kafka Streams": streams, "kqlib worker": worker}


def measure(cluster: Kafka, name: str, events: int = EVENTS, kills: int = KILLS) -> tuple[list[str], Audit]:
    """A row of the table, and what the audit found."""
    season = list(seasons.rows(events, 7, "football", late=0.01, doubled=0.01))
    part, killed = (events - WARM) // (kills + 1), list[float]()
    with tempfile.TemporaryDirectory() as home, closing(Trial(cluster, ENGINES[name], season, Path(home))) as trial:
        trial.put(WARM)
        assert not (found := trial.wait()).wrong, (found, trial.log.read_text())
        began = time.monotonic()
        for first in range(WARM, WARM + part * (kills + 1), part):
            if first > WARM:  # nobody is killed in the first part: its delays are measured
                ends = [place for place in range(first, events) if season[place].kind == "final"]
                trial.put(ends[3 * len(killed)] + 1, RATE)  # ten games end together: their rows are being written
                trial.kill()
                killed.append(time.monotonic())
                trial.start()
            trial.put(first + part, RATE)
            found = trial.wait()
    pairs = [(put, trial.held[game] - put) for game, put in trial.ended.items() if game in trial.held]
    delays = [delay for put, delay in pairs if began <= put < killed[0]]
    back = [min((put + delay for put, delay in pairs if put > at), default=float("inf")) - at for at in killed]
    times = statistics.median(delays), max(delays), statistics.median(back)
    used = f"{sum(trial.cpu.values()):.0f}", f"{trial.peak / 2**20:.0f}"
    counts = found.lost, found.doubled, len(found.wrong), trial.again
    return [name, *(f"{each:.2f}" for each in times), *used, *map(str, counts)], found


def main(names: list[str]) -> None:
    if unknown := [name for name in names if name not in ENGINES]:
        sys.exit(f"no engine is called {', '.join(unknown)}; there are {', '.join(map(repr, ENGINES))}")
    print(f"{date.today():%d %B %Y}: {EVENTS:,} events, {RATE:.0f} a second, {KILLS} kills\n")
    print(HEAD, "|---" * (HEAD.count("|") - 1) + "|", sep="\n")
    with kq.connect() as cluster:
        for name in names or ENGINES:
            print(f"| {' | '.join(measure(cluster, name)[0])} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
