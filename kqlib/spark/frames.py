"""Kafka as DataFrames: the options of Spark's reader and writer, and frames of topics, dead letters and ledgers.

In:  a session, a cluster, names; where to begin and end, by offset or by time.
Out: frames, batch or streaming, with typed columns; `put` writes a frame. Nothing is committed.

The range of a batch frame is fixed when the frame is made, so two counts of it give the same number. It ends where the committed
records end. A streaming frame goes on; partitions that are added later are read from their first record.

    topic     the name of the topic               id       kqlib's id of the record: football/3/41
    partition, offset                             key, value   bytes as they are; None stays null
    timestamp when it was put                     headers  a map from name to bytes (the last one of each name)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib.errors import Closed, NotAllowed
from kqlib.kafka import Kafka, settings
from kqlib.queue import state
from kqlib.queue.dead import DEAD
from kqlib.schemas.wire import HEAD, MAGIC
from kqlib.spark import queue_state

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kqlib.schemas import Registry

Place = str | datetime | Mapping[int, int]  # "earliest", "latest", a time, or an offset for each partition
Offsets = dict[int, int]
# Two to three times as many rows as with the defaults, which fetch 500 at a time (2 M small rows: 0.6 → 1.3 M rows/s).
READING = {
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",  # records of aborted transactions are left out
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(8 * 2**20),
    "kafka.fetch.max.bytes": str(64 * 2**20),
    # At a log's end Spark asks for its bounds, on the connection on which the next fetch waits: half a second by default.
    "kafka.fetch.max.wait.ms": "10",
}
LEDGER = (
    "queue string, site string, partition int, topic_id string, epoch long, low long, floor long, top long, end long, "
    "mark long, depth long, open array<struct<offset: long, attempts: int>>"
)
SCHEMAS = "subject string, version int, id int, schema string"


# --- the options of Spark's reader and writer ----------------------------------------------------------------------------


def source(cluster: Kafka, *topics: str, **more: Any) -> dict[str, str]:
    """The options of Spark's Kafka reader: `spark.read.format("kafka").options(**kq.spark.source(cluster, "football")).load()`.

    They are the cluster's address, the client's settings, committed records only, and settings for speed. A setting that Spark's
    clients do not have is refused by name: `NotAllowed`. more: further options in Spark's words, as in startingOffsets="earliest".
    """
    if wrong := [each for each in topics if not isinstance(each, str) or not each or "," in each]:
        raise NotAllowed(f"a topic is named by a text, not {wrong[0]!r}")
    named = {"subscribe": ",".join(topics)} if topics else {}
    return _options(READING, _client(cluster, writes=False), named, more)


def sink(cluster: Kafka, topic: str | None = None, **more: Any) -> dict[str, str]:
    """The options of Spark's Kafka writer. Without a topic the column `topic` names the topic of each row."""
    named = {} if topic is None else {"topic": topic}
    return _options({"includeHeaders": "true"}, _client(cluster, writes=True), named, more)


def _options(*parts: Mapping[str, Any]) -> dict[str, str]:
    """All of them as text; later ones overrule earlier ones. The repr of the dict shows no password."""
    return settings.hidden({name: str(value) for part in parts for name, value in part.items()})


def _client(cluster: Any, writes: bool) -> dict[str, str]:
    """The address and the client's settings for Java's clients."""
    if cluster is None:
        raise NotAllowed("which cluster? A lab's is lab.cluster, one's own kq.connect()")
    check_cluster(cluster)
    carried, left = settings.for_spark(cluster._own, writes)
    if left:
        raise NotAllowed(
            f"Spark's Kafka clients cannot take over these settings of your client: {', '.join(left)}. Nothing was read or written. "
            "Give Spark a file without them (--config FILE or KQ_KAFKA_CONFIG)"
        )
    if file := carried.pop("ssl.truststore.location", None):  # executors on other machines do not have the file
        carried["ssl.truststore.certificates"] = Path(file).read_text()
    return {"kafka.bootstrap.servers": cluster.bootstrap} | {f"kafka.{name}": each for name, each in carried.items()}


def check_cluster(cluster: Any) -> None:
    """Raise an error unless this is an open cluster."""
    if not hasattr(cluster, "bootstrap"):
        raise NotAllowed(f"cluster is a cluster, as in session(lab.cluster), not {type(cluster).__name__}")
    if cluster._closed:
        raise Closed(thing="cluster")


# --- a topic ------------------------------------------------------------------------------------------------------------


def items(spark: SparkSession, cluster: Kafka, topic: str, **where: Any) -> DataFrame:
    """A topic's records as a frame: `kq.spark.items(spark, cluster, "football", start=monday)`.

    where: start, end: "earliest", "latest", a datetime (the first record put then or later), or {partition: offset}.
    stream=True: a streaming frame, which has no end.
    Anything else is an option of Spark's Kafka source, such as maxOffsetsPerTrigger=10_000.
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
    """The same as `items`, as Spark's source gives it: headers are an array of (key, value), or null."""
    if not isinstance(topic, str) or not topic:
        raise NotAllowed(f"a topic is named by text, as in 'football', not {topic!r}")
    place("start", start)
    place("end", end)
    if stream and end != "latest":
        raise NotAllowed("a stream has no end: leave `end` out, or stop the query when it has read enough")
    lows, ends = bounds(cluster, topic)
    begin = offsets(cluster, topic, start, lows, ends)
    if not stream:
        return span(spark, cluster, topic, begin, offsets(cluster, topic, end, lows, ends), **options)
    whole = start if isinstance(start, str) else json.dumps({topic: begin})
    return spark.readStream.format("kafka").options(**source(cluster, topic, startingOffsets=whole, **options)).load()


def span(
    spark: SparkSession, cluster: Kafka, topic: str, begin: Mapping[int, int], upto: Mapping[int, int], **options: Any
) -> DataFrame:
    """Exactly the records from `begin` to before `upto` in each partition that `begin` names."""
    ends = {number: max(offset, upto.get(number, offset)) for number, offset in begin.items()}
    asked = {
        "assign": json.dumps({topic: sorted(begin)}),  # leaves out partitions that are added later
        "startingOffsets": json.dumps({topic: dict(begin)}),
        "endingOffsets": json.dumps({topic: ends}),
    }
    return spark.read.format("kafka").options(**source(cluster, **asked, **options)).load()


def header(name: str) -> Column:
    """A header of `read`'s rows as text: the first of that name, or null."""
    from pyspark.sql import functions as f

    # without a lambda: Spark interprets those row by row
    at = f.array_position(f.col("headers.key"), name).cast("int") - 1
    return f.get("headers", at).value.cast("string")


def put(frame: DataFrame, cluster: Kafka, topic: str) -> None:
    """Write `key`, `value` and, if there are any, `headers`."""
    frame.write.format("kafka").options(**sink(cluster, topic)).save()


def avro(columns: Any, schema: str, number: int) -> Column:
    """These columns as one value in Confluent's wire format."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import to_avro

    head = f.lit(HEAD.pack(MAGIC, number))
    return f.concat(head, to_avro(f.struct(*columns), schema))


# --- where a topic begins and ends --------------------------------------------------------------------------------------


def place(what: str, value: Any) -> Place:
    """Check a place in a topic."""
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


def bounds(cluster: Kafka, topic: str) -> tuple[Offsets, Offsets]:
    """The first offset of each partition, and the end of what is committed."""
    numbers = list(cluster.partitions(topic))
    lows, ends = state.bounds(cluster, [(topic, number) for number in numbers], 10)
    return {number: lows[topic, number] for number in numbers}, {number: ends[topic, number] for number in numbers}


def offsets(cluster: Kafka, topic: str, at: Place, lows: Offsets, ends: Offsets) -> Offsets:
    """A place as an offset for each partition; an offset outside of the log is `NotAllowed`."""
    if isinstance(at, str):
        return dict(lows if at == "earliest" else ends)
    if isinstance(at, datetime):
        found = state.since(cluster, [(topic, number) for number in ends], at.timestamp())
        return {n: max(lows[n], min(found.get((topic, n), end), end)) for n, end in ends.items()}
    if set(at) != set(ends):
        numbers = ", ".join(str(number) for number in sorted(ends))
        raise NotAllowed(f"'{topic}' has the partitions {numbers}: say an offset for each of them, and for no other")
    for number, offset in at.items():
        if offset < lows[number]:
            raise NotAllowed(
                f"'{topic}', partition {number} begins at offset {lows[number]} and you ask for {offset}: retention has deleted "
                f"{lows[number] - offset} records. Ask from {lows[number]} or 'earliest', and know that they are missing"
            )
        if offset > ends[number]:
            raise NotAllowed(f"'{topic}', partition {number} ends at offset {ends[number]} and you ask for {offset}")
    return dict(at)


# --- what a queue leaves behind -----------------------------------------------------------------------------------------


def letters(spark: SparkSession, cluster: Kafka, queue: str, **where: Any) -> DataFrame:
    """A queue's dead letters with their story: `item`, `site`, `attempts`, `reason`, `created`, `buried`, `cut`, and the record."""
    from pyspark.sql import functions as f

    story = [
        header("kq-origin").alias("item"),
        header("kq-dead-site").alias("site"),
        header("kq-attempts").cast("int").alias("attempts"),
        header("kq-reason").alias("reason"),
        f.timestamp_millis(header("kq-created").cast("long")).alias("created"),
        f.timestamp_millis(header("kq-buried").cast("long")).alias("buried"),
        header("kq-cut").alias("cut"),
    ]
    record = ("topic", "partition", "offset", "key", "value", "timestamp")
    return read(spark, cluster, queue + DEAD, **where).select(*story, *record)


def ledger(spark: SparkSession, cluster: Kafka, queue: str, site: str) -> DataFrame:
    """A site's state of a queue, a row for each partition.

    low, end: the bounds of the log. Below `floor` everything is done; between floor and `top` everything but `open`, which has the
    attempts; from `top` on nothing was handed out. mark: everything below it was purged.
    """
    rows = []
    for number, part in queue_state.ledgers(cluster, queue, site).items():
        its, seen = part.ledger, part.seen
        open_items = [{"offset": offset, "attempts": attempts} for offset, attempts in part.open]
        offsets = (seen.low, its.floor, its.top, seen.end, part.mark, part.depth)
        rows.append((queue, site, number, seen.topic_id, its.epoch, *offsets, open_items))
    return few(spark, rows, LEDGER)


def registry(spark: SparkSession, known: Registry) -> DataFrame:
    """A registry's schemas: subject, version, id, schema."""
    found = [(name, known.version(name, number)) for name in known.subjects() for number in known.versions(name)]
    return few(spark, [(name, each.number, each.id, each.schema) for name, each in found], SCHEMAS)


def few(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: str) -> DataFrame:
    """A frame of some thousand rows, made in the JVM: `createDataFrame` of a list would start Python on the executors."""
    from pyspark.sql import functions as f

    names = [field.split()[0] for field in re.split(r", (?![^<]*>)", schema)]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows], default=datetime.isoformat)
    return spark.range(1, numPartitions=1).select(f.inline(f.from_json(f.lit(text), f"array<struct<{schema}>>")))
