"""A stream's own files without Spark and Kafka: whose checkpoint it is, and a process that is killed at any change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.spark import snapshot
from kqlib.spark.snapshot import Files, Snapshot


class Killed(BaseException):
    """The process is gone."""


class Disk(Files):
    """The same files on this disk; it ends before or after one of its changes. `left`: how many changes until then."""

    left = 10_000

    def sizes(self, folder: str) -> dict[str, int]:
        path = Path(self.home, folder)
        return {each.name: each.stat().st_size for each in path.iterdir()} if path.is_dir() else {}

    def read(self, name: str) -> str | None:
        path = Path(self.home, name)
        return path.read_text() if path.exists() else None

    def delete(self, name: str) -> None:
        path = Path(self.home, name)
        change(lambda: shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True))

    def _create(self, name: str) -> Any:
        path = Path(self.home, name)
        hidden = path.with_name(f".{path.name}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        change(hidden.touch)
        return SimpleNamespace(write=hidden.write_bytes, close=lambda: change(lambda: hidden.rename(path)))


def change(do: Callable[[], object]) -> None:
    """A change of the disk: killed before it, or after it."""
    for moment in (None, do):
        if Disk.left == 0:
            raise Killed
        Disk.left -= 1
        if moment is not None:
            moment()
    if Disk.left == 0:
        raise Killed


class Frame(list):
    """Rows that can be written where Parquet is."""

    def mode(self, _: str) -> Frame:
        return self

    @property
    def write(self) -> Frame:
        return self

    def parquet(self, path: str) -> None:
        """As Spark does it: what was there goes first, then come the parts."""
        change(lambda: shutil.rmtree(path, ignore_errors=True))
        Path(path).mkdir(parents=True)
        for number, part in enumerate((self[::2], self[1::2])):
            change(lambda number=number, part=part: Path(path, f"part-{number}").write_text(json.dumps(part)))


def read(path: str) -> Frame:
    return Frame(row for part in sorted(Path(path).glob("part-*")) for row in json.loads(part.read_text()))


SPARK = SimpleNamespace(read=SimpleNamespace(schema=lambda _: SimpleNamespace(parquet=read)))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(snapshot, "Files", Disk)
    monkeypatch.setattr(Disk, "left", 10_000)
    return str(tmp_path / "home")


def stream(home: str, batches: int) -> None:
    """What standings does, with sums of numbers: batch n brings the number n. It goes on after the last batch that is noted."""
    commits = Path(home, "checkpoint", "commits")
    commits.mkdir(parents=True, exist_ok=True)
    kept = Snapshot(SPARK, home)  # type: ignore[arg-type]
    kept.check()
    for batch in range(len(list(commits.iterdir())), batches):
        before = kept.prepare(batch)
        rows = Frame() if before is None else kept.read("games", before)
        kept.write("games", batch, Frame([*rows, batch]))  # type: ignore[arg-type]
        kept.write("teams", batch, Frame([sum([*rows, batch])]))  # type: ignore[arg-type]
        kept.commit(batch, before)
        change((commits / str(batch)).touch)


def test_a_stream_that_is_killed_before_or_after_any_change_of_its_files_comes_to_the_same(home: str) -> None:
    stream(home, 3)
    changes = 10_000 - Disk.left
    assert changes > 40
    for left in range(1, changes):
        shutil.rmtree(home)
        Disk.left = left
        with pytest.raises(Killed):
            stream(home, 3)
        Disk.left = 10_000
        stream(home, 3)
        kept = Snapshot(SPARK, home)  # type: ignore[arg-type]
        assert (kept.current(), sorted(kept.read("games")), kept.read("teams")) == (2, [0, 1, 2], [3]), left
        assert sorted(kept.files.sizes("current")) == ["1", "2"], left


LOST: dict[str, Callable[[Path], object]] = {
    "the folder current": lambda home: shutil.rmtree(home / "current"),
    "the newest file of current": lambda home: (home / "current" / "3").unlink(),
    "the end of the newest file": lambda home: (home / "current" / "3").write_text('{"games": [2'),
    "everything in the newest file": lambda home: (home / "current" / "3").write_text(""),
    "the games": lambda home: shutil.rmtree(home / "games"),
    "one file of the games": lambda home: (home / "games" / "batch=3" / "part-0").unlink(),
    "the end of a file of the teams": lambda home: (home / "teams" / "batch=3" / "part-0").write_text("["),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST.keys())
def test_what_is_lost_or_cut_is_refused_at_the_next_start_and_in_a_batch(
    home: str, lose: Callable[[Path], object]
) -> None:
    stream(home, 4)
    lose(Path(home))
    kept = Snapshot(SPARK, home)  # type: ignore[arg-type]
    for ask in (kept.check, lambda: kept.prepare(4)):
        with pytest.raises(
            NotAllowed,
            match=r"is lost or cut\. Bring the directory back as a whole, or begin anew\. Nothing was read or written",
        ):
            ask()


def test_a_snapshot_ahead_of_its_checkpoint_is_refused(home: str) -> None:
    stream(home, 4)
    shutil.rmtree(Path(home, "checkpoint"))
    kept = Snapshot(SPARK, home)  # type: ignore[arg-type]
    for ask in (kept.check, lambda: kept.prepare(0)):
        with pytest.raises(
            NotAllowed, match="is of batch 3, and the stream goes on from the start: its checkpoint is an"
        ):
            ask()
    with pytest.raises(NotAllowed, match="is of batch 3, and the stream goes on after batch 1"):
        kept.prepare(2)


def test_a_snapshot_that_is_not_there_yet_says_so(home: str) -> None:
    with pytest.raises(NotAllowed, match=r"there is no snapshot in .*home yet"):
        Snapshot(SPARK, home).read("teams")  # type: ignore[arg-type]


# --- whose checkpoint it is -----------------------------------------------------------------------------------------------

OURS = {"cluster": "c1", "topics": {"games": "g1", "out": "o1"}, "partitions": {"out": 2}}
OTHERS = {
    "another cluster": ({**OURS, "cluster": "c2"}, r"of another cluster \(c1, and this one is c2\)"),
    "a topic made anew": (
        {**OURS, "topics": {"games": "g2", "out": "o1"}},
        "of 'games' before it was deleted",
    ),
    "an output made anew": (
        {**OURS, "topics": {"games": "g1", "out": "o2"}},
        "of 'out' before it was deleted",
    ),
    "other topics": ({**OURS, "topics": {"cups": "g1", "out": "o1"}}, r"of other topics \(games, out\)"),
    "an output that grew": ({**OURS, "partitions": {"out": 3}}, "of 'out' when it had 2 partitions, and it has 3 now"),
}


@pytest.mark.parametrize("theirs, says", OTHERS.values(), ids=OTHERS.keys())
def test_a_checkpoint_belongs_to_one_cluster_and_its_topics(
    home: str, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, Any], says: str
) -> None:
    def claim(identity: dict[str, Any]) -> str:
        monkeypatch.setattr(snapshot, "identity", lambda *_, **how: identity)
        return snapshot.claim(SPARK, home, None)  # type: ignore[arg-type]

    assert claim(OURS) == claim(OURS) == f"{home}/checkpoint"
    with pytest.raises(NotAllowed, match=says) as caught:
        claim(theirs)
    assert "name an empty directory" in str(caught.value)
    Path(home, snapshot.FILE).write_text(json.dumps({**OURS, "partitions": {}}))  # as older versions wrote it
    assert claim({**OURS, "partitions": {"out": 3}})
    Path(home, snapshot.FILE).write_text("")
    with pytest.raises(NotAllowed, match=r"because stream\.json cannot be read"):
        claim(OURS)
    Path(home, snapshot.FILE).unlink()
    Path(home, "checkpoint").mkdir()
    Path(home, "checkpoint", "metadata").touch()
    with pytest.raises(NotAllowed, match=r"holds a checkpoint, and no stream\.json"):
        claim(OURS)
