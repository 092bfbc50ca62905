"""Standings whose driver is killed: at each change of its files, each request, each file of Spark's checkpoint.

All of these points take three hours. A night takes its share: KQ_FAULT_SHARE=3/7 is the third of seven, and without it all are taken.

The next driver comes to the same: both sinks, Parquet and Kafka, are compared each time. So are those of a driver that loses Kafka, or
an answer of Kafka's, in each of its batches, and of one whose cluster of Spark's loses workers.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kqlib.kafka import Kafka
from kqlib.spark.session import QUICK
from kqlib.workshop.children import Children
from kqlib.workshop.cluster import Cluster
from tests.faults.pipeline_world import ROWS, Driver, Season, killed_at, taken
from tests.patience import WAIT, until
from tests.spark.test_cluster import WORKERS, Standalone, executors

ITEMS = int(os.environ.get("KQ_FAULT_ITEMS", "100000"))
FEW = 2_000  # rows for a mutant
UNANSWERED = {"kafka.acks": "0", "kafka.enable.idempotence": "false"}
AWAY = 10.0  # seconds without Kafka
# Else only the first batch of a driver has the requests of a new producer.
ANEW = {"spark.kafka.producer.cache.timeout": "1ms", "spark.kafka.producer.cache.evictorThreadRunInterval": "100ms"}
MOMENTS = 30  # there are more changes in two batches
SHARE = os.environ.get("KQ_FAULT_SHARE", "1/1")
WORKERS_KILLED, SEED = 20, int(os.environ.get("KQ_FAULT_SEED", "4"))


@pytest.fixture
def children() -> Iterator[Children]:
    """What starts drivers."""
    with Children() as made:
        yield made


def test_a_driver_that_is_killed_at_any_change_of_its_files_leaves_standings_that_are_exact(
    kq_cluster: Kafka, tmp_path: Path, children: Children, figures: list[str]
) -> None:
    season, driver = Season(kq_cluster, tmp_path / "home"), Driver(children, kq_cluster)
    killed = list[int]()
    for moment in (each for each in itertools.count() if taken("change", each, SHARE)):
        season.add(2 * ROWS)
        if (rows := driver.work(season, moment, ROWS)) is not None:
            assert not season.wrong(rows)
            break
        killed.append(moment)
        driver = Driver(children, kq_cluster)
        assert not season.wrong(driver.work(season)), f"killed at moment {moment}"
        print(f"killed at change {moment}: exact", flush=True)
    figures.append(
        f"killed at {len(killed)} of {moment} changes, share {SHARE}, {season.added} rows, every table exact"
    )
    assert moment > MOMENTS


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_driver_that_is_killed_at_any_request_leaves_standings_that_are_exact(
    tmp_path: Path, children: Children, figures: list[str], when: str
) -> None:
    with Cluster(1, wire=True) as cluster:
        season, wire = Season(cluster, tmp_path / "home"), cluster.wire
        driver, seen, wrong, missed = Driver(children, wire.cluster, config=ANEW), Counter[str](), list[str](), 0
        season.add()
        assert not season.wrong(driver.work(season))
        season.add()
        wire.clear()
        assert not season.wrong(driver.work(season))
        every, java = wire.seen(), driver.jvm
        assert {"ListOffsets", "Fetch", "InitProducerId", "Produce"} <= {each.api for each in every}
        points = [each for each in every if taken(f"{each.api} {each.pid == java}", each.nth, SHARE)]
        for point in points:
            season.add()
            wire.clear()
            wire.kill(driver.jvm if point.pid == java else driver.python, point.api, point.nth, when)
            if driver.work(season) is None:
                seen[point.api] += 1
                driver = Driver(children, wire.cluster, config=ANEW)
            else:
                missed += 1  # how often a client polls differs from run to run
            wire.heal()
            sinks = season.wrong(driver.work(season))
            print(f"{when} {point.api} {point.nth}: {sinks or 'exact'}, {missed} missed", flush=True)
            if sinks:
                wrong.append(f"{sinks}, killed at {point.api} {point.nth} {when}")
        driver.kill()
    figures.append(
        f"killed {when} {seen.total()} of {len(every)} requests, share {SHARE} ({missed} did not come): {dict(seen)}; "
        f"wrong: {wrong or 0}"
    )
    assert not wrong
    assert seen.total() > missed


def test_a_driver_that_is_killed_when_a_file_of_sparks_checkpoint_appears_leaves_standings_that_are_exact(
    kq_cluster: Kafka, tmp_path: Path, children: Children, figures: list[str]
) -> None:
    """Three batches from the first on: the last one deletes files of an older one."""

    def killed(name: str) -> tuple[list[str], bool]:
        nonlocal driver
        season = Season(kq_cluster, tmp_path / name.replace("/", "-"))
        season.add(3 * ROWS)
        with killed_at(driver.jvm, season.home / "checkpoint", name) as names:
            died = driver.work(season, most=ROWS) is None
        if died:
            driver = Driver(children, kq_cluster)
        sinks = season.wrong(driver.work(season))
        print(f"{name if died else 'not killed'}: {sinks or 'exact'}", flush=True)
        if sinks:
            wrong.append(f"{sinks}, killed at {name}")
        return names, died

    wrong, driver = list[str](), Driver(children, kq_cluster)
    names, died = killed("nothing")
    assert not died and {"metadata", "offsets/2", "commits/2"} <= set(names)
    points = [name for nth, name in enumerate(sorted(names)) if taken("file", nth, SHARE)]
    at = [name for name in points if killed(name)[1]]
    driver.kill()
    figures.append(
        f"killed at {len(at)} of {len(names)} files, share {SHARE}, of the checkpoint: {at}; wrong: {wrong or 0}"
    )
    assert not wrong
    assert len(at) > len(points) - 3  # at the last one it may have ended before


@pytest.mark.parametrize(
    ("sink", "moments"), [({}, ("before", "after", "before")), (UNANSWERED, ("before",) * 3)], ids=["good", "mutant"]
)
def test_a_driver_that_loses_kafka_and_its_answers_leaves_standings_that_are_exact(
    tmp_path: Path, children: Children, figures: list[str], sink: dict[str, str], moments: Sequence[str]
) -> None:
    """moments: of each batch's first write, when its connection is closed.

    The mutant waits for no answer, so that no answer can be lost. The judge must find what the last batch lost: each batch writes
    every team anew.
    """
    with Cluster(1, wire=True) as cluster, ThreadPoolExecutor(1) as pool:
        season = Season(cluster, tmp_path / "home", FEW if sink else ITEMS)
        season.add(season.size)
        driver = Driver(children, cluster.wire.cluster, sink=sink)
        ended = pool.submit(driver.work, season, most=season.size // len(moments) + 2)
        for batch, when in enumerate(moments):
            cluster.wire.disconnect("Produce", when=when, client="producer-1")
            over = partial(done, ended, season.home / "current" / str(batch))
            until(lambda over=over: over() or cluster.wire.wait(0.2), seconds=2 * WAIT)
            assert cluster.wire.wait(0), f"nothing happened to batch {batch}"
            if when == "after":
                cluster.wire.cut()
                time.sleep(AWAY)
                cluster.wire.heal()
            until(over, seconds=2 * WAIT)
        wrong = season.wrong(ended.result())
    how = ", by a sink that waits for no answer" if sink else ""
    figures.append(f"Kafka lost in {len(moments)} batches of {season.size:,} rows{how}; wrong: {wrong or 0}")
    assert wrong == (["Kafka"] if sink else [])


def done(ended: Future[Any], batch: Path) -> bool:
    """Has the driver noted this batch, or ended?"""
    return ended.done() or batch.exists()


def test_standings_are_exact_when_a_worker_of_the_cluster_is_killed_at_twenty_moments(
    tmp_path: Path, children: Children, figures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process group of a worker: the worker and its executor, at the same moment. Another one takes its place."""
    draw, at, wrong = random.Random(SEED), list[str](), list[str]()
    with Cluster(1, wire=True) as cluster, Standalone(tmp_path) as spark:
        monkeypatch.setenv("KQ_SPARK_MASTER", spark.address)
        season, wire = Season(cluster, tmp_path / "home"), cluster.wire
        driver = Driver(children, wire.cluster, config={"spark.executor.extraJavaOptions": QUICK}, executors=WORKERS)
        for _ in range(2):
            season.add()
            wire.clear()
            assert not season.wrong(driver.work(season))
        points = [each for each in wire.seen() if each.pid != driver.python]
        for _ in range(WORKERS_KILLED):
            season.add()
            worker, point, when = draw.choice(spark.workers), draw.choice(points), draw.choice(["before", "after"])
            executor = until(lambda worker=worker: executors(worker))[0]
            wire.clear()
            wire.set_group(worker.started())
            # not at any client's request: the wire closes its connection, and the driver's Python loses none when a worker dies
            asks = driver.jvm if point.pid == driver.jvm else executor.pid
            wire.kill_group(point.api, point.nth, when, pid=asks)
            sinks = season.wrong(driver.work(season))
            if wire.wait(0):
                at.append(f"{point.api} {point.nth} {when}")
                spark.replace(worker)
            wire.heal()
            print(f"a worker at {when} {point.api} {point.nth}: {sinks or 'exact'}", flush=True)
            if sinks:
                wrong.append(f"{sinks}, a worker killed at {point.api} {point.nth} {when}")
        driver.kill()
    figures.append(f"workers killed at {len(at)} of {WORKERS_KILLED} moments, seed {SEED}: {at}; wrong: {wrong or 0}")
    assert not wrong
    assert len(at) > WORKERS_KILLED / 2
