"""The same pipelines on a real standalone Spark: a master and two workers, processes of their own, out of the PySpark wheel.

Only KQ_SPARK_MASTER differs. What executors need (connectors, kqlib, Java, Python) travels along, or the run fails.
All of them are a reaper's: a pytest that is killed leaves none behind (executors go when their worker is gone).
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psutil
import pyspark
import pytest

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.runtime import java
from kqlib.runtime.reaper import Child, Reaper
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import produce
from tests.patience import WAIT, until
from tests.promises.play import put
from tests.spark.hand import by_hand

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.limit(600),
]  # ten more JVMs; the other tests here are the cut: one machine

PARTS = Path(pyspark.__file__).parent
WORKERS = 2


class Standalone:
    """A Spark cluster on this machine: `address` for KQ_SPARK_MASTER, `reaper` for drivers that shall end with it."""

    def __init__(self, home: Path) -> None:
        self.home, self.reaper, self.daemons = home, Reaper(), list[Child]()
        self.executors: list[psutil.Process] = []  # of workers that were killed
        self.port = _free()
        self.address = f"spark://127.0.0.1:{self.port}"
        self._start("Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(_free()))
        self._until(lambda: _listens(self.port), "the master")
        for _ in range(WORKERS):
            self._start_worker()
        self._wait_for_workers()

    @property
    def workers(self) -> list[Child]:
        """Those that live."""
        return [each for each in self.daemons[1:] if each.alive]

    def replace(self, worker: Child) -> None:
        """Another worker takes the place of this one, which was killed."""
        worker.wait()
        self._start_worker()
        self._wait_for_workers()

    def _start_worker(self) -> None:
        ports = ["--webui-port", str(_free()), "--cores", "1", "--memory", "1g"]
        place = str(self.home / f"work-{len(self.daemons)}")
        self._start("Worker", *ports, "--host", "127.0.0.1", "--work-dir", place, self.address)

    def _wait_for_workers(self) -> None:
        started = len(self.daemons) - 1
        self._until(lambda: self.log("Master").count("Registering worker") == started, "the workers")

    def _start(self, kind: str, *words: str) -> None:
        env = {
            **os.environ,
            "JAVA_HOME": str(java.spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        env |= {"SPARK_HOME": str(PARTS), "SPARK_LOG_DIR": str(self.home)}
        command = [str(PARTS / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}", *words]
        name = f"{kind} {len(self.daemons)}"
        self.daemons.append(self.reaper.start(name, command, self.home / f"{kind}.log", env=env))

    def log(self, kind: str) -> str:
        file = self.home / f"{kind}.log"  # the reaper makes it
        return file.read_text(errors="replace") if file.exists() else ""

    def _until(self, condition: Any, why: str) -> None:
        until(condition, lambda: f"{why}: {self.log('Master')[-2000:]}", 2 * WAIT)

    def kill_worker(self) -> None:
        """One worker's machine is gone: its process dies, and with it, by itself, its executor."""
        self.executors += executors(self.daemons[-1])
        self.daemons[-1].signal(9)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """All of them, and the executors that they started."""
        left = [*self.executors, *(each for daemon in self.daemons for each in executors(daemon))]
        self.reaper.close(20)
        for each in psutil.wait_procs(left, 20)[1]:
            each.kill()


def executors(daemon: Child) -> list[psutil.Process]:
    """What a worker has started."""
    try:
        return psutil.Process(daemon.pid).children(recursive=True) if daemon.alive and daemon.pid else []
    except psutil.NoSuchProcess:
        return []


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


SCRIPT = """
import json, sys, time
from pathlib import Path
import kqlib as kq
import kqlib.spark
from kqlib import kafka
from kqlib.spark.snapshot import Snapshot
from kqlib.spark.standings import latest
from kqlib.spark.table import games

sys.modules["kqlib.spark.session"].PATIENCE = 180.0  # a busy machine: nothing is measured here
cluster = kafka.connect()
name, home = sys.argv[1:3]
spark = kq.spark.session(cluster)
context = spark.sparkContext
executors = lambda: context._jsc.sc().getExecutorMemoryStatus().size() - 1
deadline = time.monotonic() + 180
while executors() < 2 and time.monotonic() < deadline:  # each registers for itself
    time.sleep(0.1)
report = {"master": context.master, "executors": executors()}
watch = kq.spark.watch(spark, cluster, name, "eu", results=name + ".results", state=home + "/audit")
report["watch"] = watch.round().totals
with kq.spark.audit(spark, cluster, name, "eu", results=name + ".results") as seen:
    report["audit"] = {verdict: n for verdict, n in seen.counts.items() if n}
    report["missing"], report["doubled"] = seen.ids("missing"), seen.ids("doubled")
registry = kq.schemas.Registry(cluster=cluster)

def decoded(topic, subject):
    return kq.spark.decode(kq.spark.items(spark, cluster, topic), registry, subject)

avro = decoded(name + ".avro", name)
report["good"] = sorted(row["game"] for row in avro.good.select("value.game").collect())
report["causes"] = sorted(row["cause"] for row in avro.bad.select("cause").collect())
report["replayed"] = sum(kq.spark.replay(spark, cluster, name + ".avro", name + ".again", dry=False).written.values())

source, out, batches = name + ".games", name + ".table", lambda: len(list(Path(home, "checkpoint/commits").glob("[0-9]*")))
running = kq.spark.standings(spark, cluster, source, out, registry=registry, home=home, once=True, maxOffsetsPerTrigger=300)
while not running.wait(0.1):
    if batches() >= 1 and "before" not in report:
        report["before"] = batches()
        print("kill", flush=True)
        while not Path(home, "killed").exists():
            time.sleep(0.1)
report |= {"batches": batches(), "left": executors()}
rows = lambda frame: sorted(map(list, frame.collect()), key=lambda row: (row[0], row[2]))
report["batch"] = rows(kq.spark.table(games(decoded(source, source + "-value").good)))
report["parquet"] = rows(Snapshot(spark, home).read("teams"))
report["kafka"] = rows(latest(decoded(out, out + "-value").good))
print(json.dumps(report))
spark.stop()
"""
Report = dict[str, Any]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers."""
    made = Standalone(tmp_path_factory.mktemp("spark"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def ran(kq_cluster: Kafka, standalone: Standalone, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What one driver on that cluster says of every pipeline; while it makes standings a worker is killed."""
    name, home = f"football-{secrets.token_hex(3)}", tmp_path_factory.mktemp("pipeline")
    topics = {f"{name}.{what}": kq.Topic(2) for what in ("results", "avro", "again")}
    topics |= {f"{name}.games": kq.QueueTopic(partitions=2), f"{name}.table": kq.Topic(2, compact=True)}
    kq.Plan({name: kq.QueueTopic(partitions=2)} | topics).apply(kq_cluster, quiet=True)
    expected = _queue(kq_cluster, name)
    _avro(kq_cluster, name)
    events = list(kq.games.season(1500, late=0.03, doubled=0.05, corrections=0.1, broken=0.01))
    registry = kq.schemas.Registry(cluster=kq_cluster)
    produce(kq_cluster, f"{name}.games", seasons.messages(events, registry, f"{name}.games-value"))
    script = home / "pipeline.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "KQ_BOOTSTRAP": kq_cluster.bootstrap, "KQ_SPARK_MASTER": standalone.address}
    out, error = home / "out", home / "error"
    apart = ["/bin/sh", "-c", 'exec "$@" 2> "$0"', str(error)]
    driver = standalone.reaper.start("driver", [*apart, sys.executable, str(script), name, str(home)], out, env=env)
    while driver.alive and not (out.exists() and out.read_text() == "kill\n"):
        time.sleep(0.1)
    standalone.kill_worker()
    (home / "killed").touch()
    code = driver.wait(7 * WAIT)
    assert code == 0 and error.read_text() == "", error.read_text()[-3000:]
    hand = by_hand(row for row in events if not row.damage)
    return json.loads(out.read_text().splitlines()[-1]) | {
        "expected": expected,
        "address": standalone.address,
        "hand": [list(row) for row in hand],
    }


def test_audit_decode_and_replay_say_the_same_on_a_cluster(ran: Report) -> None:
    assert (ran["master"], ran["executors"]) == (ran["address"], WORKERS)
    assert ran["watch"] == ran["audit"] == ran["expected"] and len(ran["missing"]) == len(ran["doubled"]) == 1
    assert ran["good"] == [f"game-{at:02}" for at in range(20)] and ran["causes"] == ["null", "short"]
    assert ran["replayed"] == 22


def test_standings_are_exact_on_a_cluster_of_which_a_worker_is_killed(ran: Report) -> None:
    assert ran["left"] == WORKERS - 1 and ran["before"] < ran["batches"], (
        "nobody died in the middle: this proves nothing"
    )
    assert ran["batch"] == ran["hand"]
    assert ran["parquet"] == ran["hand"]
    assert ran["kafka"] == ran["hand"]


def _queue(cluster: Kafka, name: str) -> dict[str, int]:
    """Twenty items, most of them done; one lost, one done twice."""
    with kq.Site(cluster, "eu") as site:
        queue, results = site.queue(name), site.queue(f"{name}.results", max_attempts=None)
        queue.put_many([kq.Put(b"%d" % at) for at in range(20)])
        taken = [item for _ in range(12) if (item := queue.claim(wait=WAIT))]
        for item in taken[:10]:
            with queue.step(item) as step:
                step.put(results, item.data)
        queue.ack(taken[10])
        again = {"kq-item": taken[0].id.encode(), "kq-by": b"eu"}
        put(cluster, f"{name}.results", {"value": b"again", "headers": again})
        queue.bury(taken[11], "broken")
    return {"once": 9, "doubled": 1, "missing": 1, "dead": 1, "waiting": 8}


def _avro(cluster: Kafka, name: str) -> None:
    """Values of a schema, and two rows that are none."""
    fields = [{"name": "game", "type": "string"}]
    codec = kq.schemas.Registry(cluster=cluster).codec(name, {"type": "record", "name": "Goal", "fields": fields})
    values = [*(codec.encode({"game": f"game-{at:02}"}) for at in range(20)), None, b"abc"]
    put(cluster, f"{name}.avro", *({"value": value, "key": b"k"} for value in values))
