"""`kq pipeline backfill`: standings counted anew beside their stream, then switched; nothing is lost, and nothing counts twice."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.schemas import Registry
from kqlib.spark import Rule, backfill, standings
from kqlib.topics import Plan, Topic
from kqlib.workshop import games, snapshot
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import SeasonEvent
from tests.patience import WAIT
from tests.spark.hand import by_hand

AWAY = Rule(
    "no home goals", "kind <> 'goal' OR NOT startswith(game, team)"
)  # it changes the table, as a new rule should


def meets(event: SeasonEvent) -> bool:
    """The same rule by hand."""
    return event.kind != "goal" or not event.game.startswith(event.team)


class Season:
    """A season of football in a topic, its live stream, and the topic of its standings."""

    def __init__(self, spark: Any, cluster: Kafka, topic: str, home: str) -> None:
        self.cluster, self.games, self.out, self.registry = cluster, topic, f"{topic}.table", Registry(cluster=cluster)
        Plan({self.out: Topic(1, compact=True)}).apply(cluster, quiet=True)
        self.how: dict[str, Any] = {"registry": self.registry, "home": home}
        self.spark, self.events = spark, list(games.season(260, seed=5, sport="football"))
        self.sent = 0

    def play(self, upto: int) -> None:
        """More events come."""
        more = self.events[self.sent : upto]
        seasons.produce(self.cluster, self.games, seasons.messages(more, self.registry, f"{self.games}-value"))
        self.sent = upto

    def live(self, *rules: Rule) -> None:
        """The stream, until it has read what is there."""
        assert standings(self.spark, self.cluster, self.games, self.out, once=True, rules=rules, **self.how).wait(WAIT)

    def again(self, **how: Any) -> Any:
        """A backfill with another rule."""
        return backfill(self.spark, self.cluster, self.games, self.out, rules=[AWAY], **self.how | how)

    def topic(self) -> list[tuple[Any, ...]]:
        """The standings as a reader of the topic has them."""
        codec, last = self.registry.codec(f"{self.out}-value"), dict[bytes, bytes | None]()
        for records in snapshot.records(self.cluster, self.out).values():
            last |= {record.key(): record.value() for record in records}
        rows = [tuple(codec.decode(value).values()) for value in last.values() if value]
        return sorted(rows, key=lambda row: (row[0], row[2]))

    def expected(self, rule: bool) -> list[tuple[Any, ...]]:
        """The same by hand."""
        return by_hand(each for each in self.events[: self.sent] if meets(each) or not rule)


@pytest.fixture
def season(spark: Any, kq_cluster: Kafka, kq_topic: str, tmp_path: Any) -> Season:
    return Season(spark, kq_cluster, kq_topic, str(tmp_path / "home"))


def test_a_backfill_changes_the_topic_to_what_the_new_rule_makes_of_the_same_rows(season: Season) -> None:
    with pytest.raises(NotAllowed, match="has committed no batch, so there is nothing to count anew"):
        season.again()
    season.play(90)
    season.live()
    before = season.topic()
    found = season.again(switch=True)
    broken = sum(not meets(each) for each in season.events[:90])
    assert (found.counted.rows, found.counted.broken, found.switched) == (90, broken, True) and broken > 2
    assert sum(found.teams.values()) == len(before) and found.teams["changed"] > len(found.first) == 10
    assert season.topic() == season.expected(rule=True) != before == season.expected(rule=False)


@pytest.mark.nightly  # the test above is the cut: without a stream that goes on meanwhile
def test_a_stream_goes_on_beside_a_backfill_and_after_it_and_no_row_counts_twice(
    season: Season, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["kqlib.spark.backfill"], "PAUSE", 1 / 100_000)
    season.play(90)
    season.live()
    lines: list[str] = []
    first = season.again(rate=25 * 100_000, tell=lines.append)  # slices of 25
    assert lines[-1] == "90 of 90 records" and len(lines) == 4 and not first.switched
    assert season.topic() == season.expected(rule=False)  # the live one
    season.play(165)
    season.live()
    assert season.topic() == season.expected(rule=False)
    second = season.again(switch=True)
    assert first.counted.rows + second.counted.rows == 165 and second.start == first.start
    assert season.topic() == season.expected(rule=True)
    season.play(260)
    season.live(AWAY)
    assert season.topic() == season.expected(rule=True)
    other = season.again(start={0: second.end[0], 1: second.end[1]} if len(second.end) == 2 else dict(second.end))
    assert other.counted.rows == 95 and other.teams["changed"] > 0  # only the last ones count
