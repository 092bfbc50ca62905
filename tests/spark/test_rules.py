"""Quality rules: what breaks one is kept, put aside or ends the stream, and is counted by rule and schema."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import Any

import pytest

import kqlib as kq
from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.spark import Rule, frames, put_back, stream
from kqlib.spark.aside import put_aside
from kqlib.spark.rules import Rules
from tests.promises.play import put

PATIENCE = 300
FIRST = 1_000_000_000_000
FIELDS = [{"name": "id", "type": "int"}, {"name": "home", "type": "string"}, {"name": "score", "type": ["null", "int"]}]
FIELDS_2 = [*FIELDS, {"name": "away", "type": "string", "default": "CHE"}]
SCORE, TEAMS = Rule("score", "score >= 0"), Rule("two teams", "home <> away", then="keep")
ONCE = Rule("once an hour", "id", within=3600)


class Games:
    """A topic of games in two versions, and one for the games that are put aside."""

    def __init__(self, spark: Any, cluster: Kafka, home: Path) -> None:
        self.spark, self.cluster, self.home = spark, cluster, home
        self.name = f"games-{secrets.token_hex(3)}"
        self.bad, self.registry = f"{self.name}.bad", kq.schemas.Registry()
        for_ever = {"retention.ms": "-1"}
        kq.Plan({name: kq.Topic(1, config=for_ever) for name in (self.name, self.bad)}).apply(cluster, quiet=True)
        self.codecs = [
            self.registry.codec(f"{self.name}-value", {"type": "record", "name": "Game", "fields": fields})
            for fields in (FIELDS, FIELDS_2)
        ]

    def put(self, *games: tuple[int, str, int | None, float], version: int = 2) -> None:
        """Games as (id, home, score, seconds)."""
        for number, home, score, at in games:
            value = {"id": number, "home": home, "score": score} | ({"away": "CHE"} if version == 2 else {})
            data, when = self.codecs[version - 1].encode(value), FIRST + int(at * 1000)
            record = {"value": data, "key": b"k%d" % number, "timestamp": when, "headers": [("a", b"1")]}
            put(self.cluster, self.name, record)

    def run(self, *rules: Rule) -> tuple[list[int], dict[tuple[str, int], int], Any]:
        """The ids that came out; how many rows broke which rule in which version; what became of the rows."""
        out = dict[int, list[int]]()

        def each(good: Any, bad: Any, batch: int) -> None:
            out[batch] = [row.id for row in good.select("value.id").collect()]
            put_aside(bad, self.cluster, self.bad)

        rows = frames.read(self.spark, self.cluster, self.name, stream=True)
        subject, place = f"{self.name}-value", str(self.home / "checkpoint")
        running = stream(rows, self.registry, subject, each, place, once=True, rules=rules)
        assert running.wait(PATIENCE)
        numbers = {number: at for at, number in enumerate(self.registry.ids(subject), 1)}
        broke = {(name, numbers[number]): count for (name, number), count in running.broke.items()}
        return sorted(number for ids in out.values() for number in ids), broke, running.counted

    def aside(self) -> list[tuple[Any, ...]]:
        """Id, cause, why of each row that was put aside."""
        found = []
        for record in kq.snapshot.records(self.cluster, self.bad)[0]:
            headers = dict(record.headers() or [])
            found.append((record.key(), headers["kq-cause"], headers["kq-why"]))
        return found


@pytest.fixture
def games(spark: Any, kq_cluster: Kafka, tmp_path: Path) -> Games:
    return Games(spark, kq_cluster, tmp_path)


def test_a_row_that_breaks_a_rule_is_counted_and_put_aside_and_comes_back_when_it_is_mended(games: Games) -> None:
    games.put((1, "ARS", -1, 0), (2, "ARS", None, 1), (3, "ARS", 3, 2), version=1)
    games.put((4, "CHE", 4, 3), (5, "CHE", -5, 4), (6, "ARS", 6, 5))
    out, broke, counted = games.run(SCORE, TEAMS, ONCE)
    assert out == [3, 4, 6]  # a null score is not at least 0
    assert broke == {("score", 1): 2, ("score", 2): 1, ("two teams", 2): 2}
    assert (counted.rows, counted.out, counted.broken) == (6, 3, 3)
    name = games.name.encode()
    assert games.aside() == [
        (name + b"/0/0", b"rule", b"score"),
        (name + b"/0/1", b"rule", b"score"),
        (name + b"/0/4", b"rule", b"score, two teams"),
    ]
    new = games.codecs[1].encode({"id": 5, "home": "ARS", "score": 5, "away": "CHE"})

    def mend(rows: Any) -> Any:
        from pyspark.sql import functions as f

        return rows.where("why LIKE '%two teams%'").withColumn("value", f.lit(new))

    how = {"spark": games.spark, "cluster": games.cluster, "aside": games.bad, "target": games.name, "mend": mend}
    assert put_back(**how, dry=False).written == {0: 1}
    last = kq.snapshot.records(games.cluster, games.name)[0][-1]
    assert (last.key(), last.timestamp()[1], last.value()) == (b"k5", FIRST + 4000, new)
    headers = dict(last.headers() or [])
    assert headers.pop("kq-replay") and headers == {"a": b"1", "kq-replay-of": name + b"/0/4"}
    assert games.run(SCORE, TEAMS, ONCE)[:2] == ([5], {})


def test_an_id_comes_once_in_an_hour_also_in_the_next_batch_and_in_a_batch_that_comes_again(games: Games) -> None:
    games.put((1, "ARS", 1, 0), (2, "ARS", 1, 0), (1, "ARS", 1, 3599), (2, "ARS", 1, 3600), (3, "ARS", 1, 3600))
    assert games.run(ONCE)[:2] == ([1, 2, 2, 3], {("once an hour", 2): 1})
    games.put((2, "ARS", 1, 7199), (3, "ARS", 1, 7200), (1, "ARS", 1, 7200))
    for again in range(2):
        out, broke, _ = games.run(ONCE)
        assert (out, broke) == ([1, 3], {("once an hour", 2): 1}), f"the batch came {again + 1} times"
        (games.home / "checkpoint/commits/1").unlink()
    assert sorted(path.name for path in (games.home / "checkpoint-seen").glob("batch*")) == ["batch=0", "batch=1"]


def test_another_value_that_comes_once_is_not_compared_with_those_before_and_a_gap_is_refused(games: Games) -> None:
    scores = Rule("once an hour", "score", within=3600)
    games.put((1, "ARS", 8, 0), (2, "ARS", 9, 0))
    assert games.run(ONCE)[:2] == ([1, 2], {})
    games.put((3, "ARS", 1, 10), (4, "ARS", 1, 10))
    assert games.run(scores)[:2] == ([3], {("once an hour", 2): 1})  # the ids 1 and 2 are no scores
    games.put((5, "ARS", 5, 20))
    assert games.run()[0] == [5]
    games.put((6, "ARS", 5, 30))
    with pytest.raises(NotAllowed, match=r"was left out in batch 2, or .*batch=2 is lost.* Delete .*checkpoint-seen"):
        games.run(scores)
    shutil.rmtree(games.home / "checkpoint-seen")
    assert games.run(scores)[:2] == ([6], {})


def test_a_rule_that_too_many_rows_break_stops_the_stream_and_nothing_of_the_batch_is_written(games: Games) -> None:
    games.put(*((at, "ARS", at - 1, at) for at in range(10)))
    with pytest.raises(NotAllowed, match=r"1 of 10 rows break the rule 'score' \(score >= 0\), .*/0/0: more than 9.0%"):
        games.run(Rule("score", "score >= 0", then="stop", above=0.09))
    assert games.aside() == []
    out, broke, _ = games.run(Rule("score", "score >= 0", then="stop", above=0.1))
    assert (out, broke) == (list(range(1, 10)), {("score", 2): 1}) and len(games.aside()) == 1


def test_a_condition_that_spark_cannot_read_is_refused_with_its_rule(spark: Any) -> None:
    rows = spark.sql("SELECT struct(struct(1 AS score) AS value) AS _kq")
    for that, says in (
        ("scor >= 0", r"cannot read 'scor >= 0': \[UNRESOLVED_COLUMN"),
        ("score >=", r"cannot read 'score >=': \[PARSE_SYNTAX_ERROR"),
        ("score", "is no condition, but of type int"),
    ):
        with pytest.raises(NotAllowed, match=f"rule 'score': .*{says}"):
            Rules([Rule("score", that)], "checkpoint").marked(rows)
