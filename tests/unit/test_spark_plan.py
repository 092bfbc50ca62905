"""`kq pipeline plan`: the offsets and the state that a stream would find. No broker, no Spark."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.kafka import reading
from kqlib.spark import snapshot
from kqlib.spark.plan import plan

OURS = {"cluster": "c", "topics": {"games": "1", "table": "2"}, "partitions": {"table": 1}}
CLUSTER: Any = SimpleNamespace()


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of two partitions, whose first records are deleted."""
    monkeypatch.setattr(reading, "bounds", lambda *_: {("games", 0): (5, 30), ("games", 1): (0, 8)})
    monkeypatch.setattr(snapshot, "identity", lambda *_, **how: OURS)


def state(home: Path, ends: list[int], committed: int, owner: Any = OURS) -> str:
    """A directory with begun batches, of which so many are committed; the second partition is newer than all of them."""
    for folder in ("offsets", "commits"):
        (home / "checkpoint" / folder).mkdir(parents=True)
    for batch, end in enumerate(ends):
        (home / f"checkpoint/offsets/{batch}").write_text(f'v1\n{{}}\n{{"games":{{"0":{end}}}}}')
        (home / f"checkpoint/offsets/.{batch}.crc").write_text("")
    for batch in range(committed):
        (home / f"checkpoint/commits/{batch}").write_text("v1\n{}")
    if owner:
        (home / "stream.json").write_text(json.dumps(owner))
    return str(home)


@pytest.mark.parametrize(
    ("ends", "committed", "begin", "says"),
    [
        ([], 0, 5, "no batch is committed"),
        ([10], 0, 5, "no batch is committed, the next one was begun and comes again"),
        ([10, 20], 1, 10, "batch 0 is committed, the next one was begun and comes again"),
        ([10, 20], 2, 20, "batch 1 is committed"),
    ],
)
def test_a_plan_goes_on_after_the_last_committed_batch(
    ends: list[int], committed: int, begin: int, says: str, tmp_path: Path
) -> None:
    home = state(tmp_path, ends, committed)
    files = sorted(tmp_path.rglob("*"))
    lines = [f"games/0 from offset {begin} to 30: {30 - begin} records", "games/1 from offset 0 to 8: 8 records"]
    assert repr(plan(CLUSTER, home, "games", "table")).splitlines() == [f"state {home}: {says}", *lines]
    assert sorted(tmp_path.rglob("*")) == files


@pytest.mark.parametrize(
    ("end", "owner", "says"),
    [
        (10, None, "holds a checkpoint, and no stream.json"),
        (10, OURS | {"cluster": "d"}, "the checkpoint of another cluster"),
        (3, OURS, "retention has deleted 2 records before they were read"),
    ],
)
def test_a_plan_is_refused_where_the_stream_would_be(end: int, owner: Any, says: str, tmp_path: Path) -> None:
    home = state(tmp_path, [end], 1, owner)
    with pytest.raises(NotAllowed, match=says):
        plan(CLUSTER, home, "games", "table")


def test_a_plan_needs_whole_offsets_on_this_machine(tmp_path: Path) -> None:
    home = state(tmp_path, [10], 1)
    (tmp_path / "checkpoint/offsets/0").write_text("v1\n{")
    with pytest.raises(NotAllowed, match="offsets/0 is lost or cut"):
        plan(CLUSTER, home, "games", "table")
    with pytest.raises(NotAllowed, match="is not a directory of this machine"):
        plan(CLUSTER, "hdfs://host/home", "games", "table")


def test_a_plan_of_standings_needs_their_parquet_files_as_they_were_written(tmp_path: Path) -> None:
    home = state(tmp_path, [10, 20], 2)
    with pytest.raises(NotAllowed, match="current/1 is lost or cut"):
        plan(CLUSTER, home, "games", "table", tables=True)
    for table, text in (("games", "123"), ("teams", "12345")):
        folder = tmp_path / table / "batch=1"
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_text(text)
        (folder / ".part-0.parquet.crc").write_text("")
    (tmp_path / "current").mkdir()
    (tmp_path / "current/1").write_text('{"games": [1, 3], "teams": [1, 5]}')
    assert plan(CLUSTER, f"file://{home}", "games", "table", tables=True).done == 1
    (tmp_path / "teams/batch=1/part-0.parquet").write_text("1234")
    with pytest.raises(NotAllowed, match="teams/batch=1 is lost or cut"):
        plan(CLUSTER, home, "games", "table", tables=True)
