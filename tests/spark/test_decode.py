"""Decoding on a real Spark: every version is right, every broken row has a cause, no row is lost; batch and stream."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import pytest

from kqlib.command.main import main
from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.schemas import Registry
from kqlib.schemas.wire import HEAD
from kqlib.spark import decode, source, stream
from kqlib.spark.decode import CAUSES
from kqlib.topics import Plan, Topic
from kqlib.workshop import games, snapshot
from kqlib.workshop.decoding import samples
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import produce
from tests.patience import WAIT
from tests.promises.play import put
from tests.spark.same import same

PATIENCE = 180


def frame(spark: Any, *values: bytes | None) -> Any:
    return spark.createDataFrame([(n, value) for n, value in enumerate(values)], "n int, value binary")


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Row", "namespace": "kq", "fields": list(fields)}


def test_every_version_is_read_as_the_codec_reads_it(spark: Any) -> None:
    registry, rows = Registry(), list(games.season(800, corrections=0.1))
    events = [data for _, data, _ in seasons.messages(rows, registry, "s")]
    good = decode(frame(spark, *events), registry, "s").good
    codec = registry.codec("s", seasons.schema(4))
    expected = [{**codec.decode(data), "at": row.at} for row, data in zip(rows, events, strict=True)]
    found = good.selectExpr("n", "value.*", "unix_millis(value.at) as millis").orderBy("n").collect()
    assert [{**each.asDict(), "at": each.millis} for each in found] == [
        {**value, "n": n, "millis": value["at"]} for n, value in enumerate(expected)
    ]


EVOLVED: list[tuple[Any, dict[str, Any]]] = [  # the writer's type, and what the reader makes of it
    ("int", {"type": "long"}),
    ("int", {"type": "double"}),
    ("float", {"type": "double"}),
    ("string", {"type": ["null", "string"], "default": None}),
    ("string", {"name": "renamed", "type": "string", "aliases": ["f4"]}),
    ("int", {"name": "new", "type": "int", "default": 7}),
    (["null", "int"], {"type": ["null", "int"], "default": None}),
    ({"type": "array", "items": "int"}, {"type": {"type": "array", "items": "long"}}),
    ({"type": "map", "values": "string"}, {"type": {"type": "map", "values": "string"}}),
    (
        {"type": "enum", "name": "E", "symbols": ["x", "y"]},
        {"type": {"type": "enum", "name": "E", "symbols": ["x"], "default": "x"}},
    ),
    ("boolean", {"type": "boolean"}),
    ("bytes", {"type": "bytes"}),
]


def test_what_schemas_do_to_each_other_is_done_as_fastavro_does_it(spark: Any) -> None:
    """Defaults, promotions, aliases, unions, enums: a field each, all in one record."""
    registry = Registry("NONE")
    old = record(*({"name": f"f{n}", "type": kind} for n, (kind, _) in enumerate(EVOLVED)))
    new = record(*({"name": f"f{n}", **field} for n, (_, field) in enumerate(EVOLVED)))
    codec = registry.codec("s", old)
    events = [codec.encode(value) for value in samples(old)]
    reads = registry.codec("s", new)
    found = [row.value.asDict() for row in decode(frame(spark, *events), registry, "s").good.orderBy("n").collect()]
    assert found == [{name: _plain(each) for name, each in reads.decode(data).items()} for data in events]
    assert len(found) >= 3


def _plain(value: Any) -> Any:
    return bytearray(value) if isinstance(value, bytes) else value


def test_every_kind_of_broken_row_is_named_and_none_is_lost(spark: Any) -> None:
    registry = Registry("NONE")
    codec = registry.codec("s", seasons.schema(1))
    other = registry.codec("another", record({"name": "a", "type": "int"})).encode({"a": 1})
    (row,) = games.season(1, sport="football")
    whole = codec.encode(seasons.value(row))
    assert whole and other
    huge = whole[:7] + b"\xfe\xff\xff\xff\x0f"  # says that two gigabytes of text follow
    rows = {
        "null": None,
        "short": whole[:4],
        "magic": b"\x01" + whole[1:],
        "unknown id": b"\0\0\0\x27\x0f" + whole[5:],
        "wrong schema": other,
        "truncated": whole[:-1],
        "trailing bytes": whole + b"\0",
    }
    decoded = decode(frame(spark, whole, *rows.values(), huge, whole + whole), registry, "s")
    bad = {found.n: found.cause for found in decoded.bad.collect()}
    assert list(bad.values())[: len(rows)] == list(rows)
    assert bad[len(rows) + 1] in {"truncated", "broken"}  # and Spark is alive
    assert bad[len(rows) + 2] == "trailing bytes"
    assert [found.n for found in decoded.good.collect()] == [0]
    kept = {found.n: found.value for found in decoded.bad.collect()}
    assert [None if kept[n + 1] is None else bytes(kept[n + 1]) for n in range(len(rows))] == list(rows.values())


def test_a_record_of_nothing_but_nulls_is_a_value_and_a_broken_one_is_not(spark: Any) -> None:
    registry = Registry()
    codec = registry.codec("s", record({"name": "a", "type": ["null", "string"], "default": None}))
    nothing = codec.encode({"a": None})
    assert nothing
    decoded = decode(frame(spark, nothing, nothing[:-1], nothing + b"\0"), registry, "s")
    assert [(row.n, row.value.a) for row in decoded.good.collect()] == [(0, None)]
    assert {row.n: row.cause for row in decoded.bad.collect()} == {1: "truncated", 2: "trailing bytes"}


def test_a_row_is_decoded_once_though_it_is_looked_at_twice(spark: Any) -> None:
    registry = Registry()
    list(seasons.messages(games.season(200), registry, "s"))
    plan = decode(frame(spark), registry, "s").good._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_avro(") == 4  # a branch each


def test_every_row_is_good_or_bad_and_none_is_lost(spark: Any) -> None:
    """Bytes damaged at random: good and bad together are what came in; what is good is what fastavro reads."""
    chance, registry = random.Random(7), Registry()
    events: list[bytes | None] = [data for _, data, _ in seasons.messages(games.season(300), registry, "s")]
    for n in range(1500):
        data = bytearray(events[n % 300] or b"")
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(5 * (chance.random() > 0.1), len(data) + 1)
            data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        events.append(bytes(data))
    came = frame(spark, *events).persist()
    decoded = decode(came, registry, "s")
    good, bad = decoded.good.persist(), decoded.bad.persist()
    assert good.count() + bad.count() == len(events)
    same(good.select("n").union(bad.select("n")), came.select("n"))
    causes = Counter(row.cause for row in bad.collect())
    assert set(causes) <= set(CAUSES)
    plain = Registry()  # to Java a time that no Python can hold is a time, and text that is no UTF-8 is text
    for version in registry.versions("s"):
        text = seasons.schema(version).replace('"logicalType": "timestamp-millis"', '"doc": ""')
        codec = plain.codec("s", text.replace('"string"', '"bytes"'))
    read = set()
    for n, data in enumerate(events):
        try:
            codec.decode(data)
            read.add(n)
        except Exception:
            continue
    found = {row.n for row in good.select("n").collect()}
    assert len(read - found) <= 20  # a time that no 64 bits of microseconds hold; 6 of these rows have one
    assert not found - read
    assert len(found & read) >= 300
    for each in (came, good, bad):
        each.unpersist()


# --- streams -----------------------------------------------------------------------------------------------------------


class Seen:
    """What a stream gave to `each`."""

    def __init__(self) -> None:
        self.good: dict[int, list[Any]] = {}
        self.bad: dict[int, list[Any]] = {}
        self.came = threading.Event()

    def __call__(self, good: Any, bad: Any, batch: int) -> None:
        columns = "partition", "offset"
        self.good[batch] = [tuple(row) for row in good.select(*columns).collect()]
        self.bad[batch] = [(row.partition, row.offset, row.cause) for row in bad.collect()]
        self.came.set()

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return sorted(place for rows in self.good.values() for place in rows)


def read(spark: Any, cluster: Kafka, topic: str, **more: Any) -> Any:
    events = source(cluster, topic, startingOffsets="earliest", **more)
    return spark.readStream.format("kafka").options(**events).load()


def test_of_many_ids_that_nobody_expected_the_one_that_the_registry_has_is_found(spark: Any) -> None:
    registry = Registry()
    registry.register("s", seasons.schema(1))
    other = registry.register("other", record({"name": "n", "type": "int"}))
    rubbish = [HEAD.pack(0, 1000 + n) + b"x" for n in range(2000)]
    rows = [*rubbish, HEAD.pack(0, other) + b"x", HEAD.pack(0, other + 1) + b"x"]
    mixed = decode(frame(spark, *rows), registry, "s")
    assert registry.register("s", seasons.schema(2)) == other + 1  # after the frame was made
    assert mixed.unexpected(mixed.rows) == [other, other + 1]
    found = {row["cause"]: row["count"] for row in mixed.bad.groupBy("cause").count().collect()}
    assert found == {"unknown id": 2000, "wrong schema": 1, "new schema": 1}


@pytest.mark.kq_partitions(2)
def test_a_schema_that_appears_in_flight_is_taken_up_and_no_row_is_lost_or_doubled(
    spark: Any, kq_cluster: Kafka, kq_topic: str, checkpoint: str, within: Any
) -> None:
    registry, seen = Registry(), Seen()
    first = list(games.season(300, sport="football", versions=(1,)))
    produce(kq_cluster, kq_topic, seasons.messages(first, registry, "s"))
    running = stream(read(spark, kq_cluster, kq_topic), registry, "s", seen, checkpoint)
    within(PATIENCE, lambda: len(seen.offsets) == 300)
    assert registry.versions("s") == [1]
    later = list(games.season(200, seed=8, sport="football", versions=(2, 3)))
    produce(kq_cluster, kq_topic, seasons.messages(later, registry, "s"))
    within(PATIENCE, lambda: len(seen.offsets) >= 500 or not running.active)
    assert running.active, running.error
    assert running.restarts >= 1
    running.stop()
    assert not any(seen.bad.values())
    assert len(set(seen.offsets)) == len(seen.offsets) == 500


def test_an_id_that_nobody_knows_is_bad_and_the_stream_goes_on_from_its_checkpoint_as_the_topic_grows(
    spark: Any, kq_cluster: Kafka, kq_topic: str, checkpoint: str
) -> None:
    registry, seen = Registry(), Seen()
    events = list(seasons.messages(games.season(50, sport="football", versions=(1,)), registry, "s"))
    produce(kq_cluster, kq_topic, events)
    stream(read(spark, kq_cluster, kq_topic), registry, "s", seen, checkpoint, once=True).wait(PATIENCE)
    put(kq_cluster, kq_topic, b"\0\0\0\x27\x0f??")
    produce(kq_cluster, kq_topic, events[:10])
    again = stream(read(spark, kq_cluster, kq_topic), registry, "s", seen, checkpoint, once=True)
    assert again.wait(PATIENCE)
    assert again.restarts == 0
    assert seen.offsets == [(0, n) for n in range(61) if n != 50]
    assert [row for rows in seen.bad.values() for row in rows] == [(0, 50, "unknown id")]


def test_records_that_retention_took_before_they_were_read_end_the_stream_with_a_sentence(
    spark: Any, kq_cluster: Kafka, kq_topic: str, checkpoint: str
) -> None:
    from confluent_kafka import TopicPartition

    registry, seen = Registry(), Seen()
    events = list(seasons.messages(games.season(40, sport="football", versions=(1,)), registry, "s"))
    produce(kq_cluster, kq_topic, events[:10])
    stream(read(spark, kq_cluster, kq_topic), registry, "s", seen, checkpoint, once=True).wait(PATIENCE)
    produce(kq_cluster, kq_topic, events[10:])
    for done in kq_cluster.admin.delete_records([TopicPartition(kq_topic, 0, 20)]).values():  # as retention does
        done.result(WAIT)
    failed = stream(read(spark, kq_cluster, kq_topic), registry, "s", seen, checkpoint, once=True)
    with pytest.raises(NotAllowed, match="still to read are gone"):
        failed.wait(PATIENCE)
    assert seen.offsets == [(0, n) for n in range(10)]
    lossy = read(spark, kq_cluster, kq_topic, failOnDataLoss=False)
    assert stream(lossy, registry, "s", seen, checkpoint, once=True).wait(PATIENCE)
    assert seen.offsets == [(0, n) for n in range(40) if not 10 <= n < 20]


def test_the_command_fills_a_topic_and_refuses_one_that_would_forget_the_games_at_once(
    kq_cluster: Kafka, kq_topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KQ_BOOTSTRAP", kq_cluster.bootstrap)
    words = ["games", "produce", "--rows", "700", "--broken", "0.05", "--topic"]
    for upto in (700, 1400):  # a second time it goes on in the same topic
        assert main([*words, kq_topic]) == 0
        assert sum(map(len, snapshot.records(kq_cluster, kq_topic).values())) == upto
    assert f"700 rows are in '{kq_topic}'" in capsys.readouterr().out
    Plan({f"{kq_topic}.short": Topic(1, config={"retention.ms": "3600000"})}).apply(kq_cluster, quiet=True)
    assert main([*words, f"{kq_topic}.short"]) == 2
    assert "keeps records for 1 h, and these games were played years ago" in capsys.readouterr().err
    kq_cluster.admin.delete_topics([f"{kq_topic}.short"])[f"{kq_topic}.short"].result(WAIT)
