"""Old records written again, and dead letters repaired and put back: a dry run first, then the same for real."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from confluent_kafka import Producer

import kqlib as kq
from kqlib.errors import NotAllowed, PayloadTooLarge, TopicMissing
from kqlib.kafka import Kafka
from kqlib.spark import audit, decode, items, repair, replay, table
from kqlib.spark.table import games
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import FOR_EVER, produce
from tests.patience import WAIT
from tests.promises.play import put
from tests.spark.hand import by_hand


@pytest.fixture
def names(kq_cluster: Kafka) -> tuple[str, str]:
    """A queue and another topic."""
    name = f"football-{secrets.token_hex(3)}"
    kq.Plan({name: kq.QueueTopic(partitions=2), f"{name}.again": kq.Topic(2)}).apply(kq_cluster, quiet=True)
    return name, f"{name}.again"


def test_a_backfill_says_how_many_and_then_writes_them_marked(
    spark: Any, kq_cluster: Kafka, names: tuple[str, str]
) -> None:
    source, target = names
    own = [("kind", b"goal"), ("kq-due", b"1")]
    rows = ({"value": b"%d" % at, "key": b"key-%d" % at, "partition": at % 2, "headers": own} for at in range(10))
    put(kq_cluster, source, *rows)

    def odd_ones(rows: Any) -> Any:
        return rows.where("cast(cast(value as string) as int) % 4 <> 0").withColumn("value", rows["key"])

    where = {"transform": odd_ones, "start": {0: 1, 1: 0}, "run": "fill-1"}
    dry = replay(spark, kq_cluster, source, target, **where)
    assert (dry.read, dry.written, dry.dry) == ({0: 4, 1: 5}, {0: 2, 1: 5}, True)
    assert not any(kq.snapshot.records(kq_cluster, target).values())
    done = replay(spark, kq_cluster, source, target, **where, dry=False)
    assert (done.read, done.written, done.dry) == (dry.read, dry.written, False)
    found = [record for records in kq.snapshot.records(kq_cluster, target).values() for record in records]
    assert sorted(record.value() for record in found) == [b"key-%d" % at for at in (1, 2, 3, 5, 6, 7, 9)]
    one = next(record for record in found if record.value() == b"key-6")
    assert (one.key(), one.headers()) == (
        b"key-6",
        [("kind", b"goal"), ("kq-due", b"1"), ("kq-replay", b"fill-1"), ("kq-replay-of", f"{source}/0/3".encode())],
    )
    was = kq.snapshot.records(kq_cluster, source)[0][3]
    assert one.timestamp() == was.timestamp()
    with pytest.raises(TopicMissing):
        replay(spark, kq_cluster, source, "nobody-made-this")
    with pytest.raises(NotAllowed, match="a frame with key, value and timestamp; this one has key"):
        replay(spark, kq_cluster, source, target, transform=lambda rows: rows.select("key"))


def test_a_replayed_topic_gives_the_same_standings_and_quarantine_as_its_original(
    spark: Any, kq_cluster: Kafka, names: tuple[str, str]
) -> None:
    source, target = (f"{name}.games" for name in names)
    plan = {name: kq.Topic(2, config=FOR_EVER) for name in (source, target)}
    kq.Plan(plan).apply(kq_cluster, quiet=True)
    registry, subject = kq.schemas.Registry(), f"{source}-value"
    events = list(kq.games.season(900, late=0.2, doubled=0.05, broken=0.02))
    produce(kq_cluster, source, seasons.messages(events, registry, subject))
    replay(spark, kq_cluster, source, target, dry=False)

    def audited(topic: str) -> list[Any]:
        with audit(spark, kq_cluster, topic, "auditors", results=names[0], bucket="1 week") as seen:
            return [*map(tuple, seen.table.drop("queue").collect()), seen.health.collect()[-1]["depth"]]

    assert audited(target) == audited(source) and audited(source)[-1] == 900

    def seen(topic: str) -> tuple[list[Any], list[Any]]:
        found = decode(items(spark, kq_cluster, topic), registry, subject)
        rows = table(games(found.good)).collect()
        bad = found.bad.select("partition", "key", "value", "timestamp", "schema_id", "cause", "why").collect()
        return sorted(map(tuple, rows), key=lambda row: (row[0], row[2])), sorted(map(tuple, bad), key=str)

    ours, theirs = seen(target), seen(source)
    late = sum(row[11] for row in ours[0])
    wrong = [row for row in theirs[0] if row not in ours[0]]
    assert ours == theirs, f"{len(wrong)} of {len(theirs[0])} teams differ, {late} rows are late"
    assert theirs[0] == by_hand(row for row in events if not row.damage) and late > 5 and len(theirs[1]) > 5


def test_a_replay_there_and_back_gives_the_same_records(spark: Any, kq_cluster: Kafka, names: tuple[str, str]) -> None:
    source, there, back = names[0], f"{names[0]}.there", f"{names[0]}.back"
    kq.Plan({name: kq.Topic(2, config=FOR_EVER) for name in (there, back)}).apply(kq_cluster, quiet=True)
    producer = Producer(kq_cluster.client())
    several = [("twice", b"1"), ("kind", b""), ("twice", b"2"), ("none", None), ("kq-due", b"7")]
    for at, (key, value) in enumerate(((b"k", b"v"), (None, b"v"), (b"k", None), (b"", b""), (b"\xff\0", b"\xff"))):
        for part in (0, 1):
            headers = several if at % 2 == part else None
            producer.produce(
                source, value, key, partition=part, timestamp=seasons.FIRST + 1001 * at + part, headers=headers
            )
    assert producer.flush(WAIT) == 0
    replay(spark, kq_cluster, source, there, dry=False)
    replay(spark, kq_cluster, there, back, dry=False)

    def seen(topic: str) -> list[Any]:
        """Key, value, time and headers but ours of each record, partition by partition."""
        rows = [row for part in (0, 1) for row in kq.snapshot.records(kq_cluster, topic)[part]]
        ours = ("kq-replay", "kq-replay-of")
        heads = [[head for head in row.headers() or [] if head[0] not in ours] for row in rows]
        places = [(row.partition(), row.key(), row.value(), row.timestamp()) for row in rows]
        return list(zip(places, heads, strict=True))

    assert len(seen(source)) == 10
    assert seen(back) == seen(source)


def test_a_replay_into_a_topic_that_would_not_keep_the_times_or_the_records_is_refused(
    spark: Any, kq_cluster: Kafka, names: tuple[str, str]
) -> None:
    source, target = names
    topics = {
        f"{target}.now": {"message.timestamp.type": "LogAppendTime"},
        f"{target}.hour": {"retention.ms": 3_600_000},
        f"{target}.small": FOR_EVER | {"max.message.bytes": 500},
    }
    kq.Plan({name: kq.Topic(2, config=config) for name, config in topics.items()}).apply(kq_cluster, quiet=True)
    produce(kq_cluster, source, [(b"k", b"v", seasons.FIRST)])
    cases = {
        f"{target}.now": "gives each record the time of its arrival",
        f"{target}.hour": "keeps records for 1 h, and the oldest here is of 2000-01-01",
    }
    for topic, says in cases.items():
        for dry in (True, False):
            with pytest.raises(NotAllowed, match=says):
                replay(spark, kq_cluster, source, topic, dry=dry)
        assert not any(kq.snapshot.records(kq_cluster, topic).values())
    produce(kq_cluster, source, [(b"k", b"v" * 1000, seasons.FIRST)])
    with pytest.raises(NotAllowed, match=r"stopped: .*too large.* replay again with run='r1'"):
        replay(spark, kq_cluster, source, f"{target}.small", run="r1", dry=False)
    with pytest.raises(NotAllowed, match="a frame with key, value and timestamp; this one has key, value"):
        replay(spark, kq_cluster, source, target, transform=lambda rows: rows.select("key", "value"))


def test_dead_letters_are_repaired_and_put_back_once_each(
    spark: Any, kq_cluster: Kafka, names: tuple[str, str]
) -> None:
    name, target = names
    with kq.Site(kq_cluster, "eu") as site:
        queue = site.queue(name)
        queue.put_many([kq.Put(b"%d" % at, key=b"k%d" % at, headers={"mine": b"1"}) for at in range(8)])
        for item in [queue.claim(wait=WAIT) for _ in range(6)]:
            assert item is not None
            queue.bury(item, "broken")
        dead = {item.data for item in queue.dead.peek(10)}

        def fix(item: kq.queue.Item) -> bytes | kq.Put | None:
            assert item.data is not None and item.headers["kq-reason"] == b"broken"
            if item.data == min(dead):
                return None
            return kq.Put(b"put " + item.data, key=item.key) if item.data == max(dead) else b"mended " + item.data

        dry = repair(queue, fix)
        assert (sum(dry.read.values()), sum(dry.written.values()), sum(dry.left.values())) == (6, 5, 1)
        assert sum(repair(queue, fix, n=2).written.values()) == 2 and queue.dead.depth() >= 6
        done = repair(queue, fix, dry=False)
        assert (done.read, done.written, done.left) == (dry.read, dry.written, dry.left)
        (left,) = queue.dead.peek(10)
        assert left.data == min(dead)
        back = [queue.claim(wait=WAIT) for _ in range(7)]
        assert all(item is not None and item.attempt == 1 for item in back) and queue.claim() is None
        repaired = {item.data: (item.key, item.headers) for item in back if item and item.data and b" " in item.data}
        some = sorted(dead - {min(dead), max(dead)})
        assert repaired == {
            **{b"mended " + data: (b"k" + data, {"mine": b"1"}) for data in some},
            b"put " + max(dead): (b"k" + max(dead), {}),
        }
        with audit(spark, kq_cluster, name, "eu", results=target) as seen:
            assert (seen.counts["redriven"], seen.counts["dead"], seen.counts["in flight"]) == (5, 1, 7)
        with audit(spark, kq_cluster, name, "us", results=target) as theirs:
            assert (theirs.counts["another site's"], theirs.counts["waiting"]) == (5, 8)


def test_a_repair_that_fails_leaves_every_letter_where_it_was(kq_cluster: Kafka, names: tuple[str, str]) -> None:
    with kq.Site(kq_cluster, "eu") as site:
        queue = site.queue(names[0])
        queue.put(b"poison")
        queue.bury(queue.claim(wait=WAIT), "broken")  # type: ignore[arg-type]

        def refuses(item: kq.queue.Item) -> bytes:
            raise ValueError("no idea")

        cases: list[tuple[Any, type[Exception], str]] = [
            (refuses, NotAllowed, r"fix failed on .*\.dead/\d/0 \(ValueError: no idea\); it stays dead"),
            (lambda item: "text", NotAllowed, "fix returns bytes, a Put or None, not str"),
            (lambda item: b"x" * 3_000_000, PayloadTooLarge, "takes"),
            ("fix", NotAllowed, "fix is called with a dead item, and str cannot be called"),
        ]
        for fix, kind, says in cases:
            for dry in (True, False):
                with pytest.raises(kind, match=says):
                    repair(queue, fix, dry=dry)
        with pytest.raises(NotAllowed, match="n is a whole number, at least 1"):
            repair(queue, lambda item: item.data, n=0)
        assert queue.depth() == 0
        assert repair(queue, lambda item: item.data, dry=False).written and queue.claim(wait=WAIT).data == b"poison"  # type: ignore[union-attr]
