"""Standings: the transformation against plain Python, and the stream against the batch, also when a batch fails at any point.

`tests/faults/test_pipeline.py` kills drivers.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.schemas import Registry
from kqlib.spark import decode, form, frames, put_back, source, standings, table
from kqlib.spark.snapshot import Snapshot, claim
from kqlib.spark.standings import forms, latest
from kqlib.spark.stream import Counted
from kqlib.spark.table import LATE, came_late, fold, games as played, late_rows, windows
from kqlib.topics import Plan, Topic
from kqlib.workshop import games, play, snapshot
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import SeasonEvent, produce
from kqlib.workshop.lab import Lab
from tests.patience import WAIT
from tests.spark.hand import by_hand, windows_by_hand
from tests.spark.same import same

PATIENCE = 300
WRONG = {"late": 0.03, "doubled": 0.05, "corrections": 0.1}
SCHEMA = (
    "timestamp timestamp, value struct<number: long, league: string, game: string, round: int, team: string, "
    "kind: string, points: int, at: timestamp>"
)


def rows(spark: Any, events: Iterable[SeasonEvent]) -> Any:
    """Decoded rows, as decode gives them, without Kafka."""
    return spark.createDataFrame([(_time(row.sent), _value(row)) for row in events], SCHEMA)


def _value(row: SeasonEvent) -> tuple[Any, ...]:
    return row.number, row.league, row.game, row.round, row.team, row.kind, row.points, _time(row.at)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def plain(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[0], row[2]))


# --- the transformation, on static frames ---------------------------------------------------------------------------------


def test_folding_any_parts_in_any_order_and_twice_is_the_whole(spark: Any) -> None:
    events = list(games.season(1200, **WRONG))
    whole = played(rows(spark, events)).persist()
    mixed = random.Random(3).sample(events, len(events))
    parts = [mixed[:300], mixed[200:900], mixed[850:], mixed[:100]]
    folded = played(rows(spark, parts[0]))
    for part in parts[1:]:
        folded = fold(folded, played(rows(spark, part)))
    same(folded.persist(), whole)
    same(table(folded), table(whole))
    for frame in (folded, whole):
        frame.unpersist()


def test_a_correction_counts_also_when_it_comes_before_its_goal_and_a_late_one_does_not(spark: Any) -> None:
    def row(number: int, kind: str, team: str, points: int = 0, after: int = 1000) -> SeasonEvent:
        return SeasonEvent(number, "football", "A-B", 1, team, kind, 1, points, 0, -1, after, 4, "")

    goal, back = row(1, "goal", "A", 1), row(2, "correction", "A", -1)
    end, late = row(3, "final", "A"), row(2, "correction", "A", -1, after=3_600_001)
    just = row(2, "correction", "A", -1, after=3_600_000)

    cases = {  # what came, and of the home team what it scored, its results, its late rows
        (goal, end): (1, "W", 0),
        (back, end, goal, goal): (0, "D", 0),
        (goal, end, late): (1, "W", 1),
        (goal, end, just, late): (0, "D", 0),  # in time once is in time
        (goal,): (0, "", 0),  # no final yet
    }
    events = [each._replace(league=f"l{n}") for n, came in enumerate(cases) for each in came]  # one query for all
    found = table(played(rows(spark, events))).where("team = 'A'").orderBy("league").collect()
    assert [(each.scored, each.results, each.late) for each in found] == list(cases.values())


TWO_GAMES = [
    each
    for each in games.season(400, sport="football", corrections=0.5)
    if each.round == 1 and each.game in {"ARS-BUR", "SUN-CHE"}
]
DELAYS = st.sampled_from(
    [0, 1000, 3_600_000, 3_600_001, 7_200_000, 86_400_000]
)  # milliseconds; the last three are late


@st.composite
def arrivals(draw: st.DrawFn) -> list[SeasonEvent]:
    """Two games in any order, each event once or more, in time or late."""
    sent = [
        each._replace(sent=each.at + delay)
        for each in TWO_GAMES
        for delay in draw(st.lists(DELAYS, min_size=1, max_size=3))
    ]
    return draw(st.permutations(sent))


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # else it hides what a failed example says
@pytest.mark.nightly  # the cut: late rows of one order that are put back into their topic, below
@pytest.mark.limit(600)
def test_late_rows_that_are_put_back_with_the_time_of_their_event_leave_no_trace(spark: Any) -> None:
    many = st.lists(arrivals(), min_size=15, max_size=15)  # a query takes long: each arrival is a league of its own

    how: dict[str, Any] = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

    @settings(max_examples=60, phases=[Phase.generate], **how)  # to shrink an example takes longer than a test may
    @given(many, st.integers(0, 100))
    def check(found: list[list[SeasonEvent]], cut: int) -> None:
        events = [each._replace(league=f"l{n}") for n, league in enumerate(found) for each in league]
        arrived = rows(spark, events).persist()
        assert plain(table(played(arrived))) == by_hand(events)
        late = late_rows(arrived.where(came_late(LATE)).selectExpr("*", "struct(value) AS _kq"))
        first, second = rows(spark, events[:cut]), rows(spark, events[cut:])
        corrected = fold(fold(played(late), played(second)), played(first))
        assert plain(table(corrected)) == by_hand(each._replace(sent=each.at) for each in events)
        assert _windows(windows(arrived)) == windows_by_hand(events)
        back = windows(arrived.unionByName(late.selectExpr("timestamp", "value")))
        assert _windows(back) == windows_by_hand(each._replace(sent=each.at) for each in events)
        arrived.unpersist()

    assert len(TWO_GAMES) > 10 and {"goal", "correction", "card"} <= {each.kind for each in TWO_GAMES}
    check()


def test_form_and_records_are_read_from_the_results(spark: Any) -> None:
    events = [
        ("football", "A", "WWWDLWW"),
        ("football", "B", ""),
        ("football", "C", "DDD"),
        ("football", "D", "LWDWWWL"),
    ]
    found = forms(spark.createDataFrame(events, "league string, team string, results string"))
    assert plain_forms(found) == [
        ("football", "A", "WDLWW"[-5:], 2, 3, 4),
        ("football", "B", "", 0, 0, 0),
        ("football", "C", "DDD", 0, 0, 3),
        ("football", "D", "DWWWL", 0, 3, 5),
    ]


def plain_forms(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


# --- the stream ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """Where a stream plays: topics of games, standings (compacted) and forms, schemas, a directory."""

    spark: Any
    cluster: Kafka
    games: str
    out: str
    last: str
    registry: Registry
    home: str

    def tell(self, events: Iterable[SeasonEvent]) -> None:
        """These rows are in the topic."""
        produce(self.cluster, self.games, seasons.messages(events, self.registry, f"{self.games}-value"))

    def run(self, **more: Any) -> Counted:
        """The standings of all that is there, and what became of its rows."""
        common = {"registry": self.registry, "home": self.home, "once": True}
        running = standings(self.spark, self.cluster, self.games, self.out, **common, **more)
        assert running.wait(PATIENCE)
        return running.counted

    def decoded(self, topic: str) -> Any:
        read = self.spark.read.format("kafka").options(**source(self.cluster, topic)).load()
        return decode(read, self.registry, f"{topic}-value").good

    @property
    def whole(self) -> Any:
        """What a batch over all of the topic gives."""
        return table(played(self.decoded(self.games)))

    @property
    def parquet(self) -> Any:
        return Snapshot(self.spark, self.home).read("teams")

    @property
    def kafka(self) -> Any:
        """The last value of each key."""
        return latest(self.decoded(self.out))


@pytest.fixture
def stage(spark: Any, kq_cluster: Kafka, kq_topic: str, tmp_path: Path) -> Iterator[Stage]:
    """Topics of one's own."""
    tight = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "1000"}
    out, last = f"{kq_topic[:150]}.table", f"{kq_topic[:150]}.form"
    compact = Topic(2, compact=True, config=tight | {"delete.retention.ms": "100"})
    Plan({out: compact, last: Topic(1, compact=True)}).apply(kq_cluster, quiet=True)
    yield Stage(spark, kq_cluster, kq_topic, out, last, Registry(cluster=kq_cluster), str(tmp_path / "home"))
    for done in kq_cluster.admin.delete_topics([out, last]).values():
        done.result(WAIT)


def by_batch(stage: Stage, events: Iterable[SeasonEvent]) -> list[Counted]:
    """What became of the rows of each batch, counted by hand: the checkpoint names the offsets, `events` what each record is."""
    what = {}
    for row, (_, data, sent) in zip(
        events, seasons.messages(events, stage.registry, f"{stage.games}-value"), strict=True
    ):
        late = not row.damage and row.sent - row.at > LATE * 1000
        what[data, sent] = Counted(1, int(not row.damage and not late), int(bool(row.damage)), int(late))
    records, found, begun = snapshot.records(stage.cluster, stage.games), [], dict[str, int]()
    for file in sorted(Path(stage.home, "checkpoint", "offsets").glob("[0-9]*"), key=lambda file: int(file.name)):
        ends = json.loads(file.read_text().splitlines()[-1])[stage.games]
        rows = [record for part, end in ends.items() for record in records[int(part)][begun.get(part, 0) : end]]
        found.append(sum((what[row.value(), row.timestamp()[1]] for row in rows), Counted()))
        begun = ends
    return found


def count(cluster: Kafka, topic: str) -> int:
    """How many records there are now."""
    return sum(map(len, snapshot.records(cluster, topic).values()))


@pytest.mark.kq_partitions(2)
@pytest.mark.parametrize("rows", [pytest.param(3000, id="and compaction", marks=pytest.mark.nightly), 900])
def test_the_stream_comes_to_what_the_batch_comes_to_and_form_follows_from_it(
    stage: Stage, rows: int, within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list(games.season(rows, broken=0.01, **WRONG))
    half, most = len(events) // 2, rows // 4
    module = sys.modules["kqlib.spark.stream"]
    batches, one = [], module._counted
    monkeypatch.setattr(module, "_counted", lambda *batch: batches.append(one(*batch)) or batches[-1])
    stage.tell(events[:half])
    counted = stage.run(maxOffsetsPerTrigger=most)
    same(stage.parquet, stage.whole)
    stage.cluster.admin.create_partitions([NewPartitions(stage.games, 3)])[stage.games].result(WAIT)
    stage.cluster.wait_for_topic(stage.games, 3, WAIT)
    stage.tell(events[half:])  # also into the new partition; the checkpoint is taken up
    monkeypatch.setattr(sys.modules["kqlib.spark.standings"], "SMALL", 0)  # from here on as large batches are worked
    counted += stage.run(maxOffsetsPerTrigger=most)
    broken = sum(bool(row.damage) for row in events)
    late = sum(row.sent - row.at > LATE * 1000 for row in events if not row.damage)
    assert counted == Counted(len(events), len(events) - broken - late, broken, late)
    assert batches == by_batch(stage, events) and len(batches) >= 4
    assert all(each.rows == each.out + each.broken + each.late > 0 for each in batches)
    whole = stage.whole.persist()
    assert plain(whole) == by_hand(row for row in events if not row.damage)
    same(stage.parquet, whole)
    same(stage.kafka, whole)
    assert len(list(Path(stage.home, "teams").iterdir())) == 2  # the two newest
    common = {"registry": stage.registry, "home": f"{stage.home}/form", "once": True}
    assert form(stage.spark, stage.cluster, stage.out, stage.last, **common).wait(PATIENCE)
    assert plain_forms(latest(stage.decoded(stage.last))) == plain_forms(forms(whole))
    if rows == 3000:  # the cleaner sleeps for 15 s between two looks
        within(PATIENCE, lambda: count(stage.cluster, stage.out) < 2 * whole.count(), "compaction")
        same(stage.kafka, whole)
    whole.unpersist()
    assert snapshot.records(stage.cluster, stage.games)[2]
    shutil.rmtree(f"{stage.home}/checkpoint")
    with pytest.raises(NotAllowed, match="its checkpoint is another one"):
        stage.run()
    stage.cluster.admin.create_partitions([NewPartitions(stage.out, 3)])[stage.out].result(WAIT)
    stage.cluster.wait_for_topic(stage.out, 3, WAIT)
    with pytest.raises(NotAllowed, match=r"table' when it had 2 partitions, and it has 3 now"):
        stage.run()


def test_late_rows_that_are_put_back_count_as_if_they_had_been_in_time(stage: Stage) -> None:
    aside = f"{stage.games[:150]}.late"
    Plan({aside: Topic(1)}).apply(stage.cluster, quiet=True)
    events = list(games.season(300, sport="football", late=0.3, doubled=0.05, corrections=0.1))
    late = [each for each in events if each.sent - each.at > LATE * 1000]
    stage.tell(events)
    assert stage.run(late_topic=aside).late == len(late) > 30
    assert plain(stage.parquet) == by_hand(events)
    assert (
        in_windows(stage) == windows_by_hand(events) != windows_by_hand(each._replace(sent=each.at) for each in events)
    )
    values = Counter(data for _, data, _ in seasons.messages(late, stage.registry, f"{stage.games}-value"))
    (kept,) = snapshot.records(stage.cluster, aside).values()
    assert Counter(record.value() for record in kept) == values
    how = {"spark": stage.spark, "cluster": stage.cluster, "aside": aside, "target": stage.games, "dry": False}
    assert [sum(put_back(**how).written.values()) for _ in range(2)] == [len(late), 0]  # each of them once
    assert stage.run(late_topic=aside).late == 0
    same(stage.kafka, stage.parquet)
    same(stage.parquet, stage.whole)
    assert plain(stage.parquet) == by_hand(each._replace(sent=each.at) for each in events)
    assert in_windows(stage) == windows_by_hand(each._replace(sent=each.at) for each in events)
    for done in stage.cluster.admin.delete_topics([aside]).values():
        done.result(WAIT)


def in_windows(stage: Stage) -> list[tuple[Any, ...]]:
    """The windows of the topic."""
    return _windows(windows(stage.decoded(stage.games)))


def _windows(frame: Any) -> list[tuple[Any, ...]]:
    """When each window begins, with what is in it."""
    assert frame.where("unix_millis(window.end) - unix_millis(window.start) <> 900000").isEmpty()
    return sorted(map(tuple, frame.selectExpr("unix_millis(window.start)", "* EXCEPT (window)").collect()))


def status(shown: Any) -> list[Any]:
    """The rows of the playground's table."""
    return [(name.value, value) for name, value in shown.picture.rows]


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["run once", "whole"])
@pytest.mark.limit(300)
def test_the_playground_of_the_pipeline_has_each_row_in_one_place(spark: Any, kq_cluster: Kafka, whole: bool) -> None:
    shown = play.pipeline(Lab("95-pipeline", kq_cluster))
    assert shown.picture.text.startswith("0 in = 0 out + 0 broken + 0 late · 100 waiting\nplace  team")
    shown.set(rows="late").press("put 100 rows").set(rows="broken").press("put 100 rows")
    assert "0 in = 0 out + 0 broken + 0 late · 300 waiting" in shown.picture.text
    shown.set(batch=100 if whole else 1000).press("run")
    assert "300 in = 100 out + 100 broken + 100 late · 0 waiting" in shown.picture.text, shown.note
    first = shown.picture.text.splitlines()[1:]
    assert len(first) == 6
    at = {name: cell.value for name, cell in status(shown.set(see="status"))}
    assert at | {"lag of play-games/0": 0, "lag of play-games/1": 0, "watermark": None, "restarts": 0} == at
    assert at | {"quarantined": 100, "late": 100, "state, rows": at["state, rows"]} == at and at["state, rows"] > 20
    assert min(at[each] for each in ("rows a second", "seconds a batch", "state, bytes")) > 0
    shown.set(see="standings")
    if whole:
        assert "100 waiting" in shown.press("put the late ones back").picture.text, shown.note
        assert "400 in = 200 out + 100 broken + 100 late · 0 waiting" in shown.press("run").picture.text, shown.note
        assert shown.picture.text.splitlines()[1:] != first
        assert len(shown.set(see="batches").picture.text.splitlines()[1].split()) > 7  # each batch is a step
    kq_cluster.admin.delete_topics(["play-games.bad"])["play-games.bad"].result(WAIT)
    assert "play-games.bad" in shown.press("run").note and " · 0 waiting" in shown.picture.text
    for done in kq_cluster.admin.delete_topics(["play-games", "play-games.late", "play-games.standings"]).values():
        done.result(WAIT)


def test_an_empty_topic_has_empty_standings_and_goes_on_from_them(stage: Stage) -> None:
    stage.registry.register(f"{stage.games}-value", seasons.schema(1))
    stage.run()
    assert stage.parquet.count() == stage.whole.count() == 0
    events = list(games.season(150))
    stage.tell(events)
    stage.run()
    assert plain(stage.parquet) == by_hand(events)


POINTS = {  # what fails, and whether it has done its work before
    "games written": (Snapshot, "write", True),
    "Kafka events": (frames, "put", True),
    "the pointer set": (Snapshot, "commit", True),
}


def test_a_batch_counts_at_every_moment_also_while_the_next_one_is_named(spark: Any, tmp_path: Path) -> None:
    kept, named = Snapshot(spark, str(tmp_path)), threading.Event()
    kept.commit(0, kept.prepare(0))

    seen: list[Any] = []

    def look() -> None:
        while not named.is_set():
            seen.append(kept.current())

    with ThreadPoolExecutor() as pool:
        looking, batch = pool.submit(look), 0
        while batch < 12 or len(seen) <= 10:  # both have had their turns
            batch += 1
            kept.commit(batch, kept.prepare(batch))
            kept.commit(batch, kept.prepare(batch))  # it came again
        named.set()
        looking.result()
    assert None not in seen
    assert kept.current() == batch


@pytest.mark.kq_partitions(2)
@pytest.mark.parametrize("points", [["Kafka events"], pytest.param(list(POINTS), marks=pytest.mark.nightly)], ids=len)
def test_a_batch_that_fails_at_any_point_comes_again_and_counts_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, points: list[str]
) -> None:
    events = list(games.season(400, **WRONG))
    stage.tell(events[:200])
    checkpoint = claim(stage.spark, stage.home, stage.cluster, stage.games, stage.out, keyed=True)
    half = Path(checkpoint, "offsets", ".0.5f1e9c4a-0000-4000-8000-000000000000.tmp")
    half.parent.mkdir(parents=True)
    half.touch()  # killed while it wrote its first offsets
    stage.run()
    stage.tell(events[200:])
    for where, name, after in map(POINTS.__getitem__, points):  # the same batch, again and again
        work = getattr(where, name)

        def fails(*args: Any, work: Any = work, after: bool = after) -> None:
            if after:
                work(*args)
            raise KeyError("power cut")

        with monkeypatch.context() as patched:
            patched.setattr(where, name, fails)
            with pytest.raises(KeyError, match="power cut"):
                stage.run()
    stage.run()
    noted = Path(stage.home, "checkpoint", "commits", "1")
    noted.rename(noted.with_name(".1.5f1e9c4a-0000-4000-8000-000000000000.tmp"))  # killed just before it was named
    stage.run()
    assert noted.exists()
    assert plain(stage.parquet) == by_hand(events)
    same(stage.kafka, stage.parquet)
