"""Standings whose driver is killed before and after each change that it makes: the next one comes to the same. About 15 minutes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kqlib.kafka import Kafka
from kqlib.schemas import Registry
from kqlib.spark.table import COLUMNS
from kqlib.topics import Plan, Topic
from kqlib.workshop import games, snapshot
from kqlib.workshop.driver import life
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import FOR_EVER, produce
from tests.spark.hand import by_hand

ROWS, BATCHES = 60, 2  # of each round


def driver(moment: int) -> Callable[..., None]:
    """A program for `life`: the standings of all that is there, killed at this moment (-1: not at all)."""

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
        how: dict[str, Any] = {"registry": Registry(cluster=cluster), "home": home, "once": True}
        standings(spark, cluster, games, out, maxOffsetsPerTrigger=ROWS // BATCHES, **how).wait()
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


def table(rows: list[list[Any]]) -> list[tuple[Any, ...]]:
    """In the order of `by_hand`."""
    return sorted(map(tuple, rows), key=lambda row: (row[0], row[2]))
