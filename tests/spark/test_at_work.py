"""The program of notebooks/at_work for notebook 12: each row is in one place, also when the driver or the broker is killed."""

from __future__ import annotations

import json
import logging
import os
import runpy
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import FOR_EVER, produce
from tests.patience import WAIT

PROGRAM = Path(__file__).resolve().parents[2] / "notebooks" / "at_work" / "12_spark_pipeline.py"
ROWS = 120


@pytest.fixture
def restored() -> Iterator[None]:
    """What the program sets for its whole process, put back: handlers of signals, the levels and the handlers of logs."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    level, handlers, py4js = root.level, root.handlers[:], py4j.level
    yield
    for number, was in before.items():
        signal.signal(number, was)
    root.setLevel(level)
    root.handlers[:] = handlers
    py4j.setLevel(py4js)


class Stream:
    """A topic with rows, some of them broken and one against a rule, and where the program writes."""

    def __init__(self, cluster: Kafka, home: Path) -> None:
        self.cluster, self.home, self.name = cluster, home, f"rows-{secrets.token_hex(3)}"
        plan = {self.name: kq.Topic(2, config=FOR_EVER), f"{self.name}.bad": kq.Topic(1)}
        kq.Plan(plan).apply(cluster, quiet=True)
        self.bad = self.good = 0

    @property
    def environment(self) -> dict[str, str]:
        """What the first lines of the program name."""
        names = {"KQ_TOPIC": self.name, "KQ_RESULTS": f"{self.name}.bad", "KQ_HOME": str(self.home)}
        return {"KQ_BOOTSTRAP": self.cluster.bootstrap, **names}

    def put(self, seed: int) -> None:
        """More rows: a tenth of them broken, the first one without two teams."""
        first, *others = kq.games.season(ROWS, seed=seed, sport="football", broken=0.1)
        rows = [first._replace(game="ARS", damage=""), *others]
        broken = 1 + sum(bool(row.damage) for row in others)
        self.bad, self.good = self.bad + broken, self.good + ROWS - broken
        registry = kq.schemas.Registry(cluster=self.cluster)
        produce(self.cluster, self.name, seasons.messages(rows, registry, f"{self.name}-value"))

    def commits(self) -> list[Path]:
        """The batches that Spark has noted, the last one first."""
        found = (file for file in (self.home / "checkpoint/commits").glob("*") if file.name.isdigit())
        return sorted(found, key=lambda file: -int(file.name))

    def read(self) -> int:
        """How many rows the noted batches have read."""
        if not (noted := self.commits()):
            return 0
        offsets = (self.home / "checkpoint/offsets" / noted[0].name).read_text().splitlines()[-1]
        return sum(json.loads(offsets)[self.name].values())

    def check(self, spark: Any) -> None:
        """Each row is in one place."""
        ids = [row.id for row in spark.read.parquet(str(self.home / "rows")).select("id").collect()]
        records = kq.snapshot.records(self.cluster, f"{self.name}.bad")[0]
        aside = {record.key().decode() for record in records}
        assert (len(ids), len(set(ids)), len(aside)) == (self.good, self.good, self.bad)
        assert not aside & set(ids)
        assert {dict(record.headers() or [])["kq-cause"] for record in records} >= {b"rule", b"truncated"}


@pytest.fixture
def rows(kq_cluster: Kafka, tmp_path: Path) -> Stream:
    made = Stream(kq_cluster, tmp_path / "home")
    made.put(seed=7)
    return made


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["once", "again"])
def test_a_batch_that_comes_again_replaces_what_it_wrote(
    spark: Any, rows: Stream, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float], again: bool
) -> None:
    for name, value in rows.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(kq.spark, "close", lambda: None)  # the session is that of all tests
    main = runpy.run_path(str(PROGRAM), run_name="at_work")["main"]

    def ended_after(batches: int) -> int:
        def end() -> None:
            within(60, lambda: len(rows.commits()) >= batches)
            os.kill(os.getpid(), signal.SIGTERM)

        with ThreadPoolExecutor() as pool:
            sent = pool.submit(end)
            status: int = main()
            sent.result(WAIT)
        return status

    assert ended_after(1) == 0
    if again:
        rows.commits()[0].unlink()  # as if it had died before Spark noted the batch
        rows.put(seed=8)
        assert ended_after(2) == 0
    rows.check(spark)


@contextmanager
def started(rows: Stream) -> Iterator[subprocess.Popen[bytes]]:
    """The program, with the environment that its first lines name."""
    with subprocess.Popen([sys.executable, str(PROGRAM)], env={**os.environ, **rows.environment}) as program:
        try:
            yield program
        finally:
            program.kill()


@pytest.mark.nightly  # the test above is the cut: one run in this process
@pytest.mark.limit(300)
def test_a_driver_that_is_killed_loses_nothing_and_doubles_nothing(
    spark: Any, rows: Stream, within: Callable[..., float]
) -> None:
    with started(rows) as killed:
        within(120, rows.commits)
        rows.put(seed=8)
        within(60, lambda: len(list((rows.home / "checkpoint/offsets").glob("[0-9]*"))) > 1)
        killed.kill()
    rows.put(seed=9)
    with started(rows) as running:
        within(120, lambda: rows.read() == 3 * ROWS)
        running.send_signal(signal.SIGTERM)
        assert running.wait(WAIT) == 0
    rows.check(spark)


@pytest.mark.nightly
@pytest.mark.limit(300)
def test_a_stream_works_on_when_its_broker_is_restarted(
    spark: Any, tmp_path: Path, within: Callable[..., float]
) -> None:
    with kq.Cluster() as cluster:
        rows = Stream(cluster, tmp_path / "home")
        rows.put(seed=7)
        with started(rows) as running:
            within(120, lambda: rows.read() == ROWS)
            cluster.broker(1).kill()
            cluster.broker(1).start()
            rows.put(seed=8)
            within(120, lambda: rows.read() == 2 * ROWS)
            running.send_signal(signal.SIGTERM)
            assert running.wait(WAIT) == 0
        rows.check(spark)
