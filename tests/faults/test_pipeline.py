"""Standings whose driver is killed before and after each change that it makes: the next one comes to the same. About 15 minutes.

And a driver that loses Kafka, or an answer of Kafka's, in each of its batches.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kqlib.kafka import Kafka
from kqlib.schemas import Registry
from kqlib.spark.table import COLUMNS
from kqlib.topics import Plan, Topic
from kqlib.workshop import games, snapshot
from kqlib.workshop.cluster import Cluster
from kqlib.workshop.driver import life
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import FOR_EVER, produce
from tests.patience import WAIT, until
from tests.spark.hand import by_hand

ROWS, BATCHES = 60, 2  # of each round
ITEMS = int(os.environ.get("KQ_FAULT_ITEMS", "100000"))
FEW = 2_000  # rows for a mutant
UNANSWERED = {"kafka.acks": "0", "kafka.enable.idempotence": "false"}
AWAY = 10.0  # seconds without Kafka


def driver(moment: int, most: int = ROWS // BATCHES, sink: dict[str, str] | None = None) -> Callable[..., None]:
    """A program for `life`: the standings of all that is there, killed at this moment (-1: not at all).

    most: rows of a batch. sink: more options of what writes to Kafka.
    """

    def program(spark: Any, cluster: Kafka, *words: str) -> None:
        import os
        import signal

        from kqlib.spark import frames, standings
        from kqlib.spark.snapshot import Files, Snapshot

        games, out, home, seen = words
        passed = 0

        def step() -> None:
            nonlocal passed
            if passed == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            passed += 1

        def counted(work: Any) -> Any:
            def both_sides(*args: Any) -> Any:
                step()
                made = work(*args)
                step()
                return made

            return both_sides

        changes = ((Files, "_create"), (Files, "write"), (Files, "delete"), (Snapshot, "write"), (frames, "put"))
        for where, name in changes:
            setattr(where, name, counted(getattr(where, name)))
        options = frames.sink
        frames.sink = lambda *where: options(*where) | (sink or {})
        how: dict[str, Any] = {"registry": Registry(cluster=cluster), "home": home, "once": True}
        standings(spark, cluster, games, out, maxOffsetsPerTrigger=most, **how).wait()
        rows = Snapshot(spark, home).read("teams").collect()
        Path(seen).write_text(json.dumps([list(row) for row in rows]))

    return program


def test_a_driver_that_is_killed_at_any_change_of_its_files_leaves_standings_that_are_exact(
    kq_cluster: Kafka, tmp_path: Path, figures: list[str]
) -> None:
    name, seen = f"games-{secrets.token_hex(3)}", tmp_path / "seen"
    Plan({name: Topic(2, config=FOR_EVER), f"{name}.table": Topic(1, compact=True)}).apply(kq_cluster, quiet=True)
    registry, words = Registry(cluster=kq_cluster), (name, f"{name}.table", str(tmp_path / "home"), str(seen))
    season = list(games.season(20_000, late=0.03, doubled=0.05, corrections=0.1))
    told, moment, ended = 0, 0, False
    while not ended:
        produce(kq_cluster, name, seasons.messages(season[told : told + ROWS], registry, f"{name}-value"))
        told += ROWS
        ended = life(kq_cluster, driver(moment), *words) == "ended"
        seen.unlink(missing_ok=True)
        assert life(kq_cluster, driver(-1), *words) == "ended"
        truth = by_hand(season[:told])
        assert table(json.loads(seen.read_text())) == truth, f"Parquet, killed at moment {moment}"
        last = {each.key(): each.value() for each in snapshot.records(kq_cluster, f"{name}.table")[0]}
        values = [registry.codec().decode(value) for value in last.values()]
        assert table([[value[column] for column in COLUMNS] for value in values]) == truth, f"Kafka, moment {moment}"
        moment += 1
    figures.append(f"killed at {moment - 1} moments, {told} rows, every table exact")
    assert moment > 30


@pytest.mark.parametrize(
    ("sink", "moments"), [({}, ("before", "after", "before")), (UNANSWERED, ("before",) * 3)], ids=["good", "mutant"]
)
def test_a_driver_that_loses_kafka_and_its_answers_leaves_standings_that_are_exact(
    tmp_path: Path, figures: list[str], sink: dict[str, str], moments: Sequence[str]
) -> None:
    """moments: of each batch's first write, when its connection is closed.

    The mutant waits for no answer, so that no answer can be lost. The judge must find what the last batch lost: each batch writes
    every team anew.
    """
    name, home, seen = "games", tmp_path / "home", tmp_path / "seen"
    season = list(games.season(FEW if sink else ITEMS, late=0.03, doubled=0.05, corrections=0.1))
    with Cluster(1, wire=True) as cluster, ThreadPoolExecutor(1) as pool:
        Plan({name: Topic(2, config=FOR_EVER), f"{name}.table": Topic(1, compact=True)}).apply(cluster, quiet=True)
        registry = Registry(cluster=cluster)
        produce(cluster, name, seasons.messages(season, registry, f"{name}-value"))
        program = driver(-1, len(season) // len(moments) + 2, sink)
        words = name, f"{name}.table", str(home), str(seen)
        ended = pool.submit(life, cluster.wire.cluster, program, *words)
        for batch, when in enumerate(moments):
            cluster.wire.disconnect("Produce", when=when, client="producer-1")
            over = partial(done, ended, home / "current" / str(batch))
            until(lambda over=over: over() or cluster.wire.wait(0.2), seconds=2 * WAIT)
            assert cluster.wire.wait(0), f"nothing happened to batch {batch}"
            if when == "after":
                cluster.wire.cut()
                time.sleep(AWAY)
                cluster.wire.heal()
            until(over, seconds=2 * WAIT)
        assert ended.result() == "ended"
        written = {}
        for each in snapshot.records(cluster, f"{name}.table")[0]:
            written[each.key()] = registry.codec().decode(each.value())
    truth = by_hand(season)
    assert table(json.loads(seen.read_text())) == truth
    exact = table([[value[column] for column in COLUMNS] for value in written.values()]) == truth
    figures.append(f"Kafka lost in {len(moments)} batches of {len(season):,} rows, {sink or 'as it is'}: exact {exact}")
    assert exact == (not sink)


def done(ended: Future[str], batch: Path) -> bool:
    """Has the driver noted this batch, or ended?"""
    return ended.done() or batch.exists()


def table(rows: list[list[Any]]) -> list[tuple[Any, ...]]:
    """In the order of `by_hand`."""
    return sorted(map(tuple, rows), key=lambda row: (row[0], row[2]))
