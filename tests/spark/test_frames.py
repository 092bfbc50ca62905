"""Topics, ledgers and registries as frames on a real Kafka, and the lag that Kafka's own tools see."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

import kqlib as kq
from kqlib.errors import KqError, TopicMissing
from kqlib.kafka import Kafka, reading
from kqlib.spark import follow, frames, items, ledger, letters, registry
from kqlib.spark.progress import Progress
from kqlib.spark.stream import explained
from tests.patience import WAIT, until
from tests.promises.play import decided, put

BEGAN = datetime(2026, 5, 4, 18, 0, tzinfo=UTC)


@pytest.mark.kq_partitions(2)
def test_a_topic_is_a_typed_frame_of_what_is_committed(spark: Any, kq_cluster: Kafka, kq_topic: str) -> None:
    put(
        kq_cluster,
        kq_topic,
        {"value": b"a", "key": b"k", "partition": 0, "headers": [("x", b"1"), ("y", None), ("x", b"2")]},
        {"value": None, "key": None, "partition": 0},
        {"value": b"", "key": b"", "partition": 1},
    )
    producer = Producer(kq_cluster.client(transactional_id=kq_topic))
    producer.init_transactions(WAIT)
    for value, end in ((b"taken back", producer.abort_transaction), (b"meant", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(kq_topic, value, partition=1)
        producer.flush(WAIT)
        end(WAIT)
    decided(kq_cluster, kq_topic)
    whole = items(spark, kq_cluster, kq_topic)
    kinds = {
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "id": "string",
        "key": "binary",
        "value": "binary",
    }
    assert dict(whole.dtypes) == kinds | {"timestamp": "timestamp", "headers": "map<string,binary>"}
    rows = whole.orderBy("partition", "offset").collect()
    assert [(row["id"], row["key"], row["value"]) for row in rows] == [
        (f"{kq_topic}/0/0", b"k", b"a"),
        (f"{kq_topic}/0/1", None, None),
        (f"{kq_topic}/1/0", b"", b""),
        (f"{kq_topic}/1/3", None, b"meant"),
    ]
    assert [row["headers"] for row in rows] == [{"x": b"2", "y": None}, {}, {}, {}]
    put(kq_cluster, kq_topic, {"value": b"later", "partition": 0})
    assert whole.count() == 4  # its range was fixed when it was made
    some = items(spark, kq_cluster, kq_topic, start={0: 1, 1: 3}, end={0: 2, 1: 4})
    assert sorted(row["id"] for row in some.collect()) == [f"{kq_topic}/0/1", f"{kq_topic}/1/3"]


def test_a_topic_is_read_from_a_time_on(spark: Any, kq_cluster: Kafka) -> None:
    topic = f"timed-{secrets.token_hex(3)}"
    kq.Plan({topic: kq.QueueTopic(partitions=2)}).apply(kq_cluster, quiet=True)  # kept for ever: these records are old
    times = [round((BEGAN + timedelta(minutes=at)).timestamp() * 1000) for at in range(6)]
    put(kq_cluster, topic, *({"value": b"%d" % at, "partition": 0, "timestamp": when} for at, when in enumerate(times)))

    def values(**where: Any) -> list[bytes]:
        return [row["value"] for row in items(spark, kq_cluster, topic, **where).orderBy("offset").collect()]

    minute = timedelta(minutes=1)
    cases: dict[tuple[Any, Any], list[bytes]] = {
        (BEGAN + 2 * minute, "latest"): [b"2", b"3", b"4", b"5"],
        (BEGAN + 1.5 * minute, BEGAN + 4 * minute): [b"2", b"3"],
        (BEGAN - minute, BEGAN + minute): [b"0"],
        (BEGAN + 9 * minute, "latest"): [],
        (BEGAN + 4 * minute, BEGAN): [],
    }
    assert {case: values(start=case[0], end=case[1]) for case in cases} == cases


def test_an_empty_topic_is_an_empty_frame_and_a_missing_one_an_error(
    spark: Any, kq_cluster: Kafka, kq_topic: str
) -> None:
    assert items(spark, kq_cluster, kq_topic).count() == 0
    for ask in (items, letters):
        with pytest.raises(TopicMissing):
            ask(spark, kq_cluster, "nobody-made-this")
    with pytest.raises(TopicMissing):
        ledger(spark, kq_cluster, "nobody-made-this", "eu")


def test_ledger_and_letters_as_frames(spark: Any, kq_cluster: Kafka) -> None:
    name = f"football-{secrets.token_hex(3)}"
    kq.Plan({name: kq.QueueTopic(partitions=1)}).apply(kq_cluster, quiet=True)
    with kq.Site(kq_cluster, "eu") as site:
        queue = site.queue(name)
        queue.put_many([kq.Put(b"%d" % at) for at in range(5)])
        taken = [queue.claim(wait=WAIT) for _ in range(4)]
        queue.ack(taken[1])
        queue.bury(taken[2], "broken")
        (row,) = ledger(spark, kq_cluster, name, "eu").collect()
        assert (row["floor"], row["top"], row["end"], row["depth"], row["low"], row["mark"]) == (0, 4, 5, 3, 0, 0)
        assert [tuple(each) for each in row["open"]] == [(0, 1), (3, 1)]
    (story,) = letters(spark, kq_cluster, name).collect()
    assert (story["item"], story["site"], story["attempts"], story["reason"]) == (f"{name}/0/2", "eu", 1, "broken")
    assert timedelta(0) <= story["buried"] - story["created"] < timedelta(minutes=10) and story["value"] == b"2"


def test_a_registry_is_a_frame(spark: Any) -> None:
    known = kq.schemas.Registry()
    first = known.register("goal", {"type": "record", "name": "Goal", "fields": [{"name": "game", "type": "string"}]})
    rows = registry(spark, known).collect()
    assert [(row["subject"], row["version"], row["id"]) for row in rows] == [("goal", 1, first)]
    assert '"game"' in rows[0]["schema"]


@pytest.mark.kq_partitions(2)
def test_kafkas_own_tools_see_how_far_a_stream_is(
    spark: Any, kq_cluster: Kafka, kq_topic: str, checkpoint: str, within: Callable[..., float]
) -> None:
    def run(once: bool) -> Any:
        writer = items(spark, kq_cluster, kq_topic, stream=True).writeStream.foreachBatch(lambda rows, number: None)
        writer = writer.option("checkpointLocation", checkpoint)
        return (writer.trigger(availableNow=True) if once else writer).start()

    group = f"kq-{kq_topic}"
    put(kq_cluster, kq_topic, *({"value": b"x", "partition": at % 2} for at in range(10)))
    query = run(once=True)
    with follow(query, kq_cluster, group) as follower:
        query.awaitTermination()
        within(60, lambda: follower.committed == {kq_topic: {0: 5, 1: 5}}, "nothing was committed for the group")
    put(kq_cluster, kq_topic, *({"value": b"y", "partition": 0} for _ in range(7)))
    assert reading.committed(kq_cluster, group, kq_topic, [0, 1]) == {0: 5, 1: 5}
    # The topic grows while the stream runs: what comes into the new partition is read from its first record.
    query = run(once=False)
    with follow(lambda: query, kq_cluster, group) as follower:
        kq_cluster.admin.create_partitions([NewPartitions(kq_topic, 3)])[kq_topic].result(WAIT)
        kq_cluster.wait_for_topic(kq_topic, 3)
        put(kq_cluster, kq_topic, {"value": b"z", "partition": 2})
        within(120, lambda: follower.committed.get(kq_topic) == {0: 12, 1: 5, 2: 1}, f"last: {follower.committed}")
        query.stop()
    assert Progress.read(list(query.recentProgress)).lag == 0
    rows = [line.split() for line in kq_cluster.kafka("consumer-groups", "--describe", "--group", group).splitlines()]
    seen = {row[2]: (row[3], row[5]) for row in rows if row[1:2] == [kq_topic]}
    assert seen == {"0": ("12", "0"), "1": ("5", "0"), "2": ("1", "0")}


def test_a_frame_whose_records_are_gone_before_it_is_read_fails(spark: Any, kq_cluster: Kafka, kq_topic: str) -> None:
    put(kq_cluster, kq_topic, *({"value": b"%d" % at} for at in range(4)))
    whole = items(spark, kq_cluster, kq_topic)
    (future,) = kq_cluster.admin.delete_records([TopicPartition(kq_topic, 0, 2)]).values()
    future.result(WAIT)
    until(lambda: frames.bounds(kq_cluster, kq_topic)[0] == {0: 2})
    with pytest.raises(Exception) as error:
        whole.collect()
    assert isinstance(explained(error.value), KqError) and "are gone" in str(explained(error.value))
