"""Kafka as DataFrames with typed columns: a topic's items, results, dead letters, a site's ledger, a registry's schemas.

In:  a session, a cluster, names; from where to where, by offset or by time. Out: frames, batch or streaming; nothing is committed.

A batch frame's range is fixed when it is made: counted twice it says the same twice, whatever arrives meanwhile. It goes to the
ends of what is committed; records of open or aborted transactions are not in it. A streaming frame begins where it is told and
goes on; partitions that are added later are read from their first record.

    topic     the topic it came from              id       what kqlib calls the record: football/3/41
    partition, offset                             key, value   bytes, as they are; None stays null
    timestamp when it was put                     headers  map from name to bytes (of equal names the last)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotAllowed, TopicMissing, Unreachable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kqlib.kafka import Kafka
    from kqlib.schemas import Registry

Place = str | datetime | Mapping[int, int]  # "earliest", "latest", a time, or an offset for each partition
Offsets = dict[int, int]
ITEM, BY, AGAIN = (
    "kq-item",
    "kq-by",
    "kq-again",
)  # headers: which item it came of, which site made it, which dead item it is
LEDGER = (
    "queue string, site string, partition int, topic_id string, epoch long, low long, floor long, top long, end long, "
    "mark long, depth long, open array<struct<offset: long, attempts: int>>"
)
SCHEMAS = "subject string, version int, id int, schema string"


# --- a topic ------------------------------------------------------------------------------------------------------------


def items(spark: SparkSession, cluster: Kafka, topic: str, **where: Any) -> DataFrame:
    """A topic's records as a frame: `kq.spark.items(spark, cluster, "football", start=monday)`.

    where: start, end: "earliest", "latest", a datetime (the first record put then or later), or {partition: offset}; stream=True: a
    streaming frame, which has no end; options of Spark's Kafka source, such as maxOffsetsPerTrigger=10_000.
    """
    from pyspark.sql import functions as f

    raw = read(spark, cluster, topic, **where)
    names = f.transform("headers", lambda each: each.key)
    last = f.filter("headers", lambda each, at: at + 1 == f.array_position(names, each.key))
    identity = f.concat_ws("/", "topic", "partition", "offset").alias("id")
    made = f.map_from_entries(last).alias("headers")
    return raw.withColumn("headers", f.reverse(f.coalesce("headers", f.array()))).select(
        "topic", "partition", "offset", identity, "key", "value", "timestamp", made
    )


def read(
    spark: SparkSession,
    cluster: Kafka,
    topic: str,
    *,
    start: Place = "earliest",
    end: Place = "latest",
    stream: bool = False,
    **options: Any,
) -> DataFrame:
    """The same as `items`, as Spark's source gives it: headers are an array of (key, value), null where there are none."""
    from kqlib.spark.session import source

    _topic(topic)
    place("start", start), place("end", end)
    if stream and end != "latest":
        raise NotAllowed("a stream has no end: leave `end` out, or stop the query when it has read enough")
    lows, ends = bounds(cluster, topic)
    begin = offsets(cluster, topic, start, lows, ends)
    if not stream:
        return span(spark, cluster, topic, begin, offsets(cluster, topic, end, lows, ends), **options)
    whole = start if isinstance(start, str) else json.dumps({topic: begin})
    reader = spark.readStream.format("kafka").options(**source(cluster, topic, startingOffsets=whole))
    return reader.options(**options).load()


def span(
    spark: SparkSession, cluster: Kafka, topic: str, begin: Mapping[int, int], upto: Mapping[int, int], **options: Any
) -> DataFrame:
    """Exactly the records from `begin` to before `upto`, partition by partition; what `begin` does not name is not read."""
    from kqlib.spark.session import source

    ends = {number: max(offset, upto.get(number, offset)) for number, offset in begin.items()}
    bounds = {"startingOffsets": json.dumps({topic: dict(begin)}), "endingOffsets": json.dumps({topic: ends})}
    asked = {
        "assign": json.dumps({topic: sorted(begin)}),
        **bounds,
    }  # assign: partitions that are added later are not in it
    return spark.read.format("kafka").options(**source(cluster), **asked).options(**options).load()


def header(name: str) -> Column:
    """One header of what `read` gives, as text: the first of that name, null if there is none."""
    from pyspark.sql import functions as f

    # no lambda: those are interpreted row by row, and this is asked of every record
    at = f.array_position(f.col("headers.key"), name).cast("int") - 1
    return f.get("headers", at).value.cast("string")


def place(what: str, value: Any) -> Place:
    """A place in a topic, checked before anything is asked."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise NotAllowed(f"{what} is a time with its zone, as in datetime(2026, 5, 1, tzinfo=UTC), not {value!r}")
        return value
    if isinstance(value, Mapping) and value and all(_whole(number) and _whole(at) for number, at in value.items()):
        return value
    if isinstance(value, str) and value in ("earliest", "latest"):
        return value
    raise NotAllowed(f"{what} is 'earliest', 'latest', a datetime or {{partition: offset}}, not {value!r}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _topic(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise NotAllowed(f"a topic is named by text, as in 'football', not {name!r}")
    return name


# --- where a topic begins and ends --------------------------------------------------------------------------------------


def bounds(cluster: Kafka, topic: str) -> tuple[Offsets, Offsets]:
    """The first offset of each partition, and the end of what is committed."""
    from kqlib.queue import state

    numbers = list(cluster.partitions(topic))
    lows, ends = state.bounds(cluster, [(topic, number) for number in numbers], 10)
    return {number: lows[topic, number] for number in numbers}, {number: ends[topic, number] for number in numbers}


def offsets(cluster: Kafka, topic: str, at: Place, lows: Offsets, ends: Offsets) -> Offsets:
    """A place as an offset for each partition; what lies outside of the log is `NotAllowed`, never moved in silence."""
    if isinstance(at, str):
        return dict(lows if at == "earliest" else ends)
    if isinstance(at, datetime):
        return {
            number: max(lows[number], min(found, ends[number])) for number, found in _by_time(cluster, topic, at, ends)
        }
    strange = sorted(set(at) ^ set(ends))
    if strange:
        raise NotAllowed(
            f"'{topic}' has the partitions {_list(ends)}: say an offset for each of them, and for no other"
        )
    for number, offset in at.items():
        if offset < lows[number]:
            raise NotAllowed(
                f"'{topic}', partition {number} begins at offset {lows[number]} and you ask for {offset}: retention has deleted "
                f"{lows[number] - offset} records. Ask from {lows[number]} or 'earliest', and know that they are missing"
            )
        if offset > ends[number]:
            raise NotAllowed(f"'{topic}', partition {number} ends at offset {ends[number]} and you ask for {offset}")
    return dict(at)


def _list(numbers: Mapping[int, Any]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))


def _by_time(cluster: Kafka, topic: str, at: datetime, ends: Offsets) -> list[tuple[int, int]]:
    """The first offset put at that time or later; the end where there is none."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    from kqlib.queue.answers import as_ours, first, not_allowed
    from kqlib.queue.rights import Right

    spec = OffsetSpec.for_timestamp(round(at.timestamp() * 1000))
    admin = cluster.admin  # held while it works
    try:
        asked = admin.list_offsets({TopicPartition(topic, number): spec for number in ends}, request_timeout=10)
        found = {part.partition: future.result(11).offset for part, future in asked.items()}
    except KafkaException as error:
        safe, doing = "Nothing was changed.", "look for a time in the log"
        lacks = not_allowed(Right("DESCRIBE", "topic", topic), cluster, safe)
        raise as_ours(first(error), cluster.bootstrap, doing, safe, topic, lacks=lacks) from None
    except TimeoutError:
        raise Unreachable(address=cluster.bootstrap, why="no answer about a time in the log") from None
    return [(number, offset if offset >= 0 else ends[number]) for number, offset in found.items()]


# --- what a queue leaves behind -----------------------------------------------------------------------------------------


def results(spark: SparkSession, cluster: Kafka, topic: str, *, of: str = ITEM, **where: Any) -> DataFrame:
    """What came of items: `item` (the id of the item that it came of), `site` (who did it), and the record.

    of: the header that names the item; `step.put` writes kq-item. "key": the record's key does. where: start, end, stream.
    """
    from pyspark.sql import functions as f

    raw = read(spark, cluster, topic, **where)
    item = f.col("key").cast("string") if of == "key" else header(of)
    return raw.select(
        item.alias("item"), header(BY).alias("site"), "topic", "partition", "offset", "key", "value", "timestamp"
    )


def letters(spark: SparkSession, cluster: Kafka, queue: str, **where: Any) -> DataFrame:
    """A queue's dead letters with their story: `item`, `site`, `attempts`, `reason`, `created`, `buried`, `cut`, and the record."""
    from pyspark.sql import functions as f

    from kqlib.queue.dead import DEAD

    raw = read(spark, cluster, queue + DEAD, **where)
    story = [
        header("kq-origin").alias("item"),
        header("kq-dead-site").alias("site"),
        header("kq-attempts").cast("int").alias("attempts"),
        header("kq-reason").alias("reason"),
        f.timestamp_millis(header("kq-created").cast("long")).alias("created"),
        f.timestamp_millis(header("kq-buried").cast("long")).alias("buried"),
        header("kq-cut").alias("cut"),
    ]
    return raw.select(*story, "topic", "partition", "offset", "key", "value", "timestamp")


def ledger(spark: SparkSession, cluster: Kafka, queue: str, site: str) -> DataFrame:
    """A site's state of a queue, a row a partition: what is open, with attempts; below `floor` and between floor and `top` the
    rest is done; from `top` on nobody has looked. `mark`: everything below was purged. `low`, `end`: of the log."""
    from kqlib.spark import cut

    seen = cut.states(cluster, queue, site)
    return few(spark, [(queue, site, number, *part.row) for number, part in sorted(seen.items())], LEDGER)


def registry(spark: SparkSession, known: Registry) -> DataFrame:
    """A registry's schemas: subject, version, id, schema."""
    found = [(name, known.version(name, number)) for name in known.subjects() for number in known.versions(name)]
    rows = [(name, each.number, each.id, each.schema) for name, each in found]
    return few(spark, rows, SCHEMAS)


def few(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: str) -> DataFrame:
    """Some thousands of rows as a frame, made in the JVM: `createDataFrame` of a list starts Python on the executors for it."""
    from pyspark.sql import functions as f

    names = [field.split()[0] for field in re.split(r", (?![^<]*>)", schema)]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows], default=datetime.isoformat)
    return spark.range(1, numPartitions=1).select(f.inline(f.from_json(f.lit(text), f"array<struct<{schema}>>")))


def there(cluster: Kafka, topic: str) -> bool:
    """Does this topic exist?"""
    try:
        cluster.partitions(topic)
    except TopicMissing:
        return False
    return True
