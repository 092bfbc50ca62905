"""The same standings by Spark, Kafka Streams and a plain worker: `python -m examples.standings.compare [ENGINE …]` prints a table.

In:  a season at a rate, and the places in it at which an engine is killed (SIGKILL, all its processes) and started again.
Out: delay, CPU, memory, lost, doubled, seconds to recover. One audit judges all three; the truth is counted without them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import closing, suppress
from datetime import date
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psutil
import pyspark
from confluent_kafka import Producer, TopicPartition

import kqlib as kq
from examples.crash.streams.run import ECJ
from kqlib.errors import NotInTime
from kqlib.kafka import Kafka, reading
from kqlib.runtime import jars, java
from kqlib.runtime.patience import wait_for
from kqlib.spark.standings import STANDING
from kqlib.spark.table import COLUMNS, LATE
from kqlib.workshop.games import seasons
from tests.spark.hand import by_hand

HERE = Path(__file__).resolve().parent
EVENTS, WARM, RATE, KILLS, SEED = 1000, 190, 10.0, 2, 7
HEAP = "-Xmx800m"  # as Spark's in kqlib
HEAD = "| engine | delay p50, s | p99, s | s to recover | CPU, s | memory, MiB | lost | doubled | wrong rows | rows again |"
Table = dict[str, dict[str, Any]]


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


class Engine:
    """A command that is killed and started again; the CPU time and the memory of all its processes."""

    def __init__(self, command: list[str], cluster: Kafka, home: Path) -> None:
        self.env = os.environ | {"TMPDIR": str(home), "KQ_BOOTSTRAP": cluster.bootstrap}
        self.command, self.log, self.cpu, self.peak = command, home / "log", dict[Any, float](), 0
        self._over = threading.Event()
        self.start()
        threading.Thread(target=self._look).start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = psutil.Popen(self.command, env=self.env, stdout=log, stderr=log)

    def look(self) -> list[psutil.Process]:
        """Its processes now. What they have used so far is noted."""
        memory, found = 0, list[psutil.Process]()
        with suppress(psutil.Error):
            found = [self.process, *self.process.children(recursive=True)]
        for each in found:
            with suppress(psutil.Error):
                self.cpu[each] = sum(each.cpu_times()[:2])
                memory += each.memory_info().rss
        self.peak = max(self.peak, memory)
        return found

    def kill(self) -> None:
        for each in self.look():
            with suppress(psutil.Error):
                each.kill()
        self.process.wait()

    def close(self) -> None:
        self._over.set()
        self.kill()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            self.look()


class Trial:
    """A season for one engine: events are put, and the rows that come are noted with their time."""

    def __init__(self, cluster: Kafka, name: str, season: list[seasons.SeasonEvent]) -> None:
        self.cluster, self.season, self.games, self.out = cluster, season, f"{name}.games", f"{name}.standings"
        compacted = kq.Topic(1, config={"cleanup.policy": "compact"})
        kq.Plan({self.games: kq.Topic(4, config=seasons.FOR_EVER), self.out: compacted}).apply(cluster, quiet=True)
        self.registry = kq.schemas.Registry(cluster=cluster)
        self.messages = list(seasons.messages(season, self.registry, f"{self.games}-value"))
        self.codec = self.registry.codec(f"{self.out}-value", STANDING)
        self.put_at, self.came = list[float](), list[tuple[float, dict[str, Any]]]()
        self.table, self.again, self._over = Table(), 0, threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def put(self, upto: int, rate: float = float("inf")) -> None:
        """Put the events below this place; returns when they are stored."""
        producer = Producer(self.cluster.client(linger_ms=0))
        began, first = time.monotonic(), len(self.put_at)
        for at in range(first, upto):
            time.sleep(max(0, began + (at - first) / rate - time.monotonic()))
            key, value, sent = self.messages[at]
            self.put_at.append(time.monotonic())
            producer.produce(self.games, value, key, timestamp=sent)
        assert producer.flush(60) == 0

    def wait(self, seconds: float) -> Audit:
        """Wait until the table is that of all events that were put; what differs then."""
        right = truth(self.season[: len(self.put_at)])
        with suppress(NotInTime):
            wait_for(lambda: self.table == right, seconds, "the table")
        return audit(self.table, right)

    def delays(self, since: int) -> list[tuple[float, float]]:
        """When the end of each game since this place was put, and when the row of a team of it held it."""
        ends, held = defaultdict[str, dict[Any, float]](dict), defaultdict[str, list[float]](list)
        for event, at in zip(self.season, self.put_at, strict=False):
            if event.kind == "final" and event.sent - event.at <= LATE * 1000:
                for team in event.game.split("-"):
                    ends[team].setdefault((event.round, event.game), at)
        for at, row in self.came:
            held[row["team"]] += [at] * (row["played"] - len(held[row["team"]]))
        pairs = [pair for team, puts in ends.items() for pair in zip(puts.values(), held[team], strict=False)]
        return [pair for pair in pairs if pair[0] >= self.put_at[since]]

    def _read(self) -> None:
        with closing(reading.reader_of(self.cluster)) as reader:
            reader.assign([TopicPartition(self.out, 0, 0)])
            while not self._over.is_set():
                for message in reader.consume(100, 0.02):
                    if not message.error():
                        row = self.codec.decode(message.value())
                        self.came.append((time.monotonic(), row))
                        self.again += self.table.get(row["team"]) == row
                        self.table[row["team"]] = row

    def close(self) -> None:
        self._over.set()
        self._reader.join()


def spark(trial: Trial, home: Path) -> list[str]:
    file = home / "pipeline.toml"
    file.write_text(f'stream = "standings"\nsource = "{trial.games}"\ntarget = "{trial.out}"\nhome = "home"\n')
    return [sys.executable, "-m", "kqlib", "pipeline", "run", str(file)]


def streams(trial: Trial, home: Path) -> list[str]:
    avro = (Path(pyspark.__file__).parent / "jars").glob("avro-1*.jar")  # Kafka Streams has none
    paths, command = os.pathsep.join(map(str, [*jars.fetch("streams"), *avro, home])), java.find().command
    subprocess.run([command, "-cp", paths, ECJ, "-17", "-cp", paths, "-d", home, HERE / "Standings.java"], check=True)
    schemas = {home / f"{n}.avsc": n for n in (*trial.registry.ids(f"{trial.games}-value"), trial.codec.id)}
    for file, number in schemas.items():
        file.write_text(trial.registry.schema(number))
    known = [f"{number}={file}" for file, number in schemas.items()]
    return [command, HEAP, "-cp", paths, "Standings", trial.games, trial.out, str(home / "state"), *known]


def worker(trial: Trial, home: Path) -> list[str]:
    return [sys.executable, str(HERE / "worker.py"), trial.games, trial.out]


ENGINES = {"Spark": spark, "Kafka Streams": streams, "kqlib worker": worker}


def measure(cluster: Kafka, name: str, events: int = EVENTS, kills: int = KILLS) -> tuple[list[str], Audit]:
    """A row of the table, and what the audit found."""
    season = list(seasons.rows(events, SEED, "football", late=0.01, doubled=0.01))
    killed, draw = list[float](), Random(SEED).randrange
    with tempfile.TemporaryDirectory() as home, closing(Trial(cluster, name.replace(" ", "-"), season)) as trial:
        with closing(Engine(ENGINES[name](trial, Path(home)), cluster, Path(home))) as engine:
            trial.put(WARM)
            assert not (begun := trial.wait(180)).wrong, (begun, engine.log.read_text())
            part = (events - WARM) // kills  # a kill in the first half of each, so that there is time to recover
            for place in (WARM + part * n + draw(part // 2) for n in range(kills)):
                trial.put(place, RATE)
                engine.kill()
                killed.append(time.monotonic())
                engine.start()
            trial.put(events, RATE)
            found = trial.wait(180)
        pairs = trial.delays(WARM)
    delays = sorted(held - put for put, held in pairs)
    back = [min((held for put, held in pairs if put > at), default=float("inf")) - at for at in killed]
    times = statistics.median(delays), delays[int(0.99 * len(delays))], statistics.median(back)
    used = f"{sum(engine.cpu.values()):.0f}", f"{engine.peak / 2**20:.0f}"
    counts = found.lost, found.doubled, len(found.wrong), trial.again
    return [name, *(f"{each:.2f}" for each in times), *used, *map(str, counts)], found


def main(names: list[str]) -> None:
    print(f"{date.today():%d %B %Y}: {EVENTS:,} events, {RATE:.0f} a second, {KILLS} kills\n")
    print(HEAD, "|---" * (HEAD.count("|") - 1) + "|", sep="\n")
    with kq.connect() as cluster:
        for name in names or ENGINES:
            print(f"| {' | '.join(measure(cluster, name)[0])} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
