"""A backfill's switch, killed at any change of its files; its slices; its comparison. No broker, no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kqlib.spark import snapshot
from kqlib.spark.backfill import compare, piece
from kqlib.spark.snapshot import Snapshot
from tests.unit.test_spark_snapshot import SPARK, Disk, Frame, Killed, change, stream


class Moves(Disk):
    """Files that can also be moved."""

    def _move(self, new: str, name: str) -> None:
        Path(self.home, name).parent.mkdir(parents=True, exist_ok=True)
        change(lambda: Path(self.home, new).rename(Path(self.home, name)))


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "Files", Moves)
    monkeypatch.setattr(Disk, "left", 10_000)


def begun(home: str) -> Snapshot:
    """A stream after batch 2, and a backfill that has other numbers."""
    stream(home, 3)
    new = Snapshot(SPARK, f"{home}/next")  # type: ignore[arg-type]
    assert new.prepare(0) is None
    new.write("games", 0, Frame([10, 20]))  # type: ignore[arg-type]
    new.write("teams", 0, Frame([30]))  # type: ignore[arg-type]
    new.commit(0, None)
    Path(home, "next/checkpoint-seen/batch=0").mkdir(parents=True)
    Path(home, "next/checkpoint-seen/batch=0/part-0").write_text("[1]")
    return Snapshot(SPARK, home)  # type: ignore[arg-type]


def test_a_switch_that_is_killed_anywhere_has_not_begun_or_is_ended_by_the_next_start(tmp_path: Path) -> None:
    changes, killed, published = 0, True, list[Any]()
    while killed:
        home, Disk.left = str(tmp_path / str(changes)), 10_000
        live = begun(home)
        Disk.left, killed = changes, False
        try:
            live.order(2, 0)
            live.switch(published.append)
        except Killed:
            killed = True
        Disk.left, changes = 10_000, changes + 1
        ordered = Path(home, "switch.json").exists() or not Path(home, "next").exists()
        live.check()  # it is as the checkpoint says, or the next start ends it
        live.switch(published.append)
        assert live.read("teams", 2) == ([30] if ordered else [3]), changes
        assert not ordered or published[-1] == [30]
        stream(home, 4)
        assert sorted(live.read("games")) == ([3, 10, 20] if ordered else [0, 1, 2, 3]), changes
        assert Path(home, "checkpoint-seen/batch=2/part-0").exists() == ordered
        assert Path(home, "next").exists() != ordered and not Path(home, "switch.json").exists()
    assert changes > 20


def test_slices_take_their_part_of_each_partition_and_come_to_the_end() -> None:
    at, end, seen = {0: 5, 1: 0}, {0: 105, 1: 10}, []
    while at != end:
        to = piece(at, end, 22)
        seen.append(sum(to.values()) - sum(at.values()))
        assert all(at[n] <= to[n] <= end[n] for n in at)
        at = to
    assert sum(seen) == 110 and max(seen) <= 23 and len(seen) <= 6
    assert piece(end, end, 22) == end and piece({0: 0}, {0: 3, 1: 2}, 100) == {0: 3, 1: 2}


def test_a_comparison_counts_teams_and_names_what_differs() -> None:
    def team(points: int) -> dict[str, Any]:
        return {"league": "l", "team": "t", "points": points, "won": 1}

    before = {("l", "A"): team(3), ("l", "B"): team(1), ("l", "C"): team(0)}
    counts, first = compare(before, {("l", "A"): team(3), ("l", "B"): team(2), ("l", "D"): team(0)})
    assert counts == {"same": 1, "changed": 1, "gone": 1, "new": 1}
    assert first == ("l/B: points 1 -> 2", "l/C: gone", "l/D: new")


def test_a_switch_without_a_note_does_nothing(tmp_path: Path) -> None:
    live = begun(str(tmp_path))
    live.switch(lambda teams: pytest.fail("nothing was ordered"))
    assert live.read("teams") == [3]
