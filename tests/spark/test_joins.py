"""Joins by time: goals with the odds close to them, and with their club as it was at that time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

import kqlib as kq
from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.spark import as_of, items, near
from tests.patience import WAIT
from tests.promises.play import put

PATIENCE = 300


def time(second: float) -> datetime:
    """So many seconds after a moment in the past."""
    return datetime.fromtimestamp(1_000_000_000 + second, UTC)


def test_an_event_has_the_version_that_was_valid_at_its_time(spark: Any) -> None:
    events = [("ARS", time(at), at) for at in (5, 10, 14, 20, 99)] + [("CHE", time(50), 50), (None, time(50), 51)]
    clubs = [("ARS", time(10), 3, "a"), ("ARS", time(20), 5, "c"), ("ARS", time(20), 4, "b"), ("CHE", time(60), 6, "x")]
    found = as_of(
        spark.createDataFrame(events, "team string, at timestamp, number int"),
        spark.createDataFrame(clubs, "team string, timestamp timestamp, offset long, coach string"),
        "team",
    )
    rows = {row.number: row.coach for row in found.select("event.number", "version.coach").collect()}
    assert rows == {5: None, 10: "a", 14: "a", 20: "c", 99: "c", 50: None, 51: None}


def test_a_goal_has_the_odds_within_thirty_seconds_and_one_without_comes_once_the_watermark_has_passed(
    spark: Any, kq_cluster: Kafka, kq_topic: str, checkpoint: str
) -> None:
    odds = f"{kq_topic[:150]}.odds"
    kq.Plan({odds: kq.Topic(1, config={"retention.ms": "-1"})}).apply(kq_cluster, quiet=True)
    found = list[tuple[int, int | None]]()

    def send(topic: str, *seconds: int, game: str = "ARS-CHE", after: int = 1) -> None:
        for second in seconds:
            value, ms = json.dumps({"game": game, "second": second}).encode(), (1_000_000_000 + second + after) * 1000
            put(kq_cluster, topic, {"value": value, "timestamp": ms})

    def read(topic: str, stream: bool = True) -> Any:
        rows = items(spark, kq_cluster, topic, stream=stream)
        parsed = rows.selectExpr("timestamp", "from_json(string(value), 'game string, second int') AS it")
        return parsed.selectExpr("timestamp", "it.game", "it.second", "timestamp_seconds(1000000000 + it.second) AS at")

    def each(rows: Any, _: int) -> None:
        found.extend((row.left.second, row.right and row.right.second) for row in rows.collect())

    def run() -> list[tuple[int, int | None]]:
        found.clear()
        joined = near(read(kq_topic), read(odds), "game", within=30, late=60)
        writer = joined.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
        assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE)
        return sorted(found, key=str)

    send(kq_topic, 100, 200, 400)
    send(kq_topic, 210, after=61)  # late, for this rule of 60 s
    send(odds, 180, after=61)
    send(odds, 70, 69, 130, 131, 210)
    send(odds, 400, game="LIV-EVE")
    assert run() == [
        (100, 130),
        (100, 70),
        (200, 210),
    ]  # the watermark alone would take late ones: nothing newer was read
    send(odds, 420)
    assert run() == [(400, 420)]
    send(kq_topic, 500, 1000)
    send(odds, 1000)
    assert run() == [(1000, 1000), (500, None)]
    late = [(200, 180), (210, 180), (210, 210)]
    in_time = [(100, 130), (100, 70), (200, 210), (400, 420), (1000, 1000), (500, None)]
    for expected in (in_time, in_time + late):
        found.clear()
        each(near(read(kq_topic, stream=False), read(odds, stream=False), "game", within=30, late=60), 0)
        assert sorted(found, key=str) == sorted(expected, key=str)
        send(kq_topic, 210, after=0)  # they are put back with the time of their event
        send(odds, 180, after=0)
    for done in kq_cluster.admin.delete_topics([odds]).values():
        done.result(WAIT)


def test_a_frame_without_the_time_of_its_records_is_refused(spark: Any) -> None:
    goals = spark.createDataFrame([("ARS", time(1))], "game string, at timestamp")
    with pytest.raises(
        NotAllowed, match="needs the column `timestamp`, the record's time, and the left frame has none"
    ):
        near(goals, goals, "game")


def test_a_span_that_is_none_is_refused() -> None:
    for wrong in ({"within": -1}, {"late": "1 hour"}):
        with pytest.raises(NotAllowed, match=f"{next(iter(wrong))} is a number of seconds"):
            near(None, None, "game", **wrong)  # type: ignore[arg-type]
