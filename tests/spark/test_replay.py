"""Old records once more, and dead letters repaired and put back: dry first, then exactly what was said."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from confluent_kafka import Producer

import kqlib as kq
from kqlib.broker import Kafka
from kqlib.errors import NotAllowed, PayloadTooLarge, TopicMissing
from kqlib.spark import audit, repair, replay


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
    producer = Producer(kq_cluster.client())
    for at in range(10):
        own = [("kind", b"goal"), ("kq-due", b"1")]
        producer.produce(source, b"%d" % at, b"key-%d" % at, partition=at % 2, headers=own)
    assert producer.flush(20) == 0

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
        [("kind", b"goal"), ("kq-replay", b"fill-1"), ("kq-origin", f"{source}/0/3".encode())],
    )
    with pytest.raises(TopicMissing):
        replay(spark, kq_cluster, source, "nobody-made-this")
    with pytest.raises(NotAllowed, match="a frame with key and value; this one has key"):
        replay(spark, kq_cluster, source, target, transform=lambda rows: rows.select("key"))


def test_dead_letters_are_repaired_and_put_back_once_each(
    spark: Any, kq_cluster: Kafka, names: tuple[str, str]
) -> None:
    name, target = names
    with kq.Site(kq_cluster, "eu", session=2) as site:
        queue = site.queue(name)
        queue.put_many([kq.Put(b"%d" % at, key=b"k%d" % at, headers={"mine": b"1"}) for at in range(8)])
        for item in [queue.claim(wait=10) for _ in range(6)]:
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
        back = [queue.claim(wait=10) for _ in range(7)]
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
    with kq.Site(kq_cluster, "eu", session=2) as site:
        queue = site.queue(names[0])
        queue.put(b"poison")
        queue.bury(queue.claim(wait=10), "broken")  # type: ignore[arg-type]

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
        assert repair(queue, lambda item: item.data, dry=False).written and queue.claim(wait=10).data == b"poison"  # type: ignore[union-attr]
