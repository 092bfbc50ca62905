"""Was every item done exactly once? `kq.spark.audit(spark, cluster, "football", "drupal-eu", results="football.results")`

In:  a queue, a site and the topic of its results. The dead letters, the ledger and the purge marks are found from there.
Out: `Audit`: a verdict for each item, counts by time, ids of faulty items; depth, age and latency over time.

A result names its item: `step.put` writes the headers kq-item and kq-by (the site). Results of other workers name their item in a
header of their own or in their key: `of="key"`. Every record becomes a row of numbers, and the rows of an item are added up. The
ledger is then joined to the sums. That is one shuffle, and no join of large frames. `queue_state` says in which order things are read.

The verdict is the first condition of RULE that is true. A result or a dead letter counts more than the ledger: the ledger was read
first, and an item that was open then may have been done since. The columns of the rule:

    results, dead    how many results and dead letters of this site name the item
    again            how many items of the queue are this dead item, put back
    theirs           put back by another site, for itself
    marked           below a purge mark
    state            in the ledger: done, open (handed out, or passed over), waiting (at or above the top)
    attempts         of an open item: how often it was handed out
    unseen           so old that retention or compaction may have removed its result or dead letter before the audit

'missing' is an item that is done and has no result. If it is also `unseen`, nobody can know, and it is 'removed'.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Self

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.queue.arguments import count, site_name
from kqlib.queue.dead import DEAD
from kqlib.queue.item import AGAIN, BY, ITEM, SITE
from kqlib.spark import frames, health, queue_state
from kqlib.spark.queue_state import Ends, QueueState
from kqlib.spark.replay import OF

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RULE = (
    ("another site's", "theirs"),
    ("doubled", "results > {outputs} OR dead > 1 OR again > 1 OR (results > 0 AND dead + again > 0)"),
    ("once", "results = {outputs}"),
    ("redriven", "again = 1"),
    ("dead", "dead = 1"),
    ("purged", "marked"),
    ("in flight", "state = 'open' AND attempts > 0"),
    ("waiting", "state = 'open' OR state = 'waiting'"),
    ("removed", "state = 'done' AND unseen"),
    ("missing", "state = 'done'"),
)
VERDICTS = tuple(verdict for verdict, _ in RULE)
FAULTS = ("missing", "doubled")
OPEN = health.OPEN  # not done yet: the next audit may say something else

BUCKET = re.compile(r"[1-9]\d{0,5} (second|minute|hour|day|week)s?")
SHOWN = 100  # ids of faulty items that are listed for each bucket
OPEN_ITEMS = "partition int, offset long, attempts int"


@dataclass(frozen=True)
class AuditRequest:
    """What is audited: a queue, a site, the topic of results, what names an item in a result, and how many results an item has."""

    queue: str
    site: str
    results: str
    of: str = ITEM
    bucket: str = "1 hour"
    outputs: int = 1

    def __post_init__(self) -> None:
        site_name(self.site)
        for what, value in (("queue", self.queue), ("results", self.results), ("of", self.of)):
            if not isinstance(value, str) or not value:
                raise NotAllowed(f"{what} is a name, not {value!r}")
        if self.results in (self.queue, self.queue + DEAD):
            raise NotAllowed(f"results are in a topic of their own, not in '{self.results}'")
        count("outputs", self.outputs)
        if not isinstance(self.bucket, str) or not BUCKET.fullmatch(self.bucket):
            raise NotAllowed(f"bucket is a time in words, like '10 minutes' or '1 hour', not {self.bucket!r}")

    def read_state(self, cluster: Kafka) -> QueueState:
        """The state of the queue, its results and, if it has any, its dead letters."""
        letters = self.queue + DEAD
        topics = [self.queue, self.results] + [letters] * (letters in cluster.describe().topics)
        return queue_state.read_state(cluster, self.queue, self.site, topics)

    def unseen(self, cluster: Kafka, seen: QueueState, known: Ends) -> dict[int, int]:
        """See `queue_state.unseen`; known: up to where the topics were read before."""
        return queue_state.unseen(cluster, seen, self.queue, self.results, keyed=self.of == "key", known=known)


def audit(
    spark: SparkSession,
    cluster: Kafka,
    queue: str,
    site: str,
    *,
    results: str,
    of: str = ITEM,
    outputs: int = 1,
    bucket: str = "1 hour",
    since: datetime | None = None,
) -> Audit:
    """A verdict for each item of a queue and a site. It is right while workers run.

    results: the topic that workers write into. of: the header of a result that names its item, or "key". outputs: how many results
    an item has. bucket: the length of a bucket of time. since: only items put then or later.
    """
    asked = AuditRequest(queue, site, results, of, bucket, outputs)
    if since is not None and not isinstance(frames.place("since", since), datetime):
        raise NotAllowed(f"since is a datetime with its zone, not {since!r}")
    seen = asked.read_state(cluster)
    begin = seen.lows if since is None else _since(cluster, seen, queue, since)
    rows = sums(spark, cluster, asked, begin, seen.ends)
    found = judged(spark, rows, seen, asked.unseen(cluster, seen, {}), outputs).where("created IS NOT NULL")
    return Audit(asked, seen, found.persist(), cluster)


def _since(cluster: Kafka, seen: QueueState, queue: str, since: datetime) -> Ends:
    """The first offset to read in each topic. A result is put after its item, by a clock that may differ."""
    earlier = since - timedelta(seconds=queue_state.CLOCKS)
    return {
        topic: frames.offsets(cluster, topic, since if topic == queue else earlier, seen.lows[topic], seen.ends[topic])
        for topic in seen.ends
    }


class Audit:
    """The verdicts: `.counts`, `.table`, `.offending`, `.health`, and `.items`, a row for each item. `close()` frees memory."""

    def __init__(self, asked: AuditRequest, seen: QueueState, found: DataFrame, cluster: Kafka) -> None:
        self.asked, self._found, self._seen, self._cluster = asked, found, seen, cluster
        self.items = named(found, asked)  # not persisted: names and ids would take most of the memory

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of items with each verdict."""
        found = {row["verdict"]: row["count"] for row in self.items.groupBy("verdict").count().collect()}
        return {verdict: found.get(verdict, 0) for verdict in VERDICTS}

    @property
    def right(self) -> bool:
        """Is nothing missing and nothing doubled?"""
        return not any(self.counts[fault] for fault in FAULTS) and not self.gone

    @property
    def gone(self) -> int:
        """How many offsets left the log (retention) before the site was done with them. They cannot be audited."""
        return sum(part.gone for part in self._seen.parts.values())

    @property
    def begun(self) -> bool:
        """Has the site ever committed a state of this queue?"""
        return any(part.seen.committed is not None for part in self._seen.parts.values())

    @property
    def depth(self) -> int:
        """How many items are not done."""
        return sum(self.counts[verdict] for verdict in OPEN)

    @property
    def table(self) -> DataFrame:
        """A row for each queue, site and bucket: the number of items, and a column for each verdict."""
        from pyspark.sql import functions as f

        each = [f.count_if(f.col("verdict") == verdict).alias(column(verdict)) for verdict in VERDICTS]
        return self.items.groupBy("queue", "site", "bucket").agg(f.count("*").alias("items"), *each).orderBy("bucket")

    @property
    def offending(self) -> DataFrame:
        """The faulty items: how many there are in each bucket, and the first hundred ids."""
        from pyspark.sql import functions as f

        places = f.slice(f.array_sort(f.collect_list(f.struct("partition", "offset", "id"))), 1, SHOWN)
        faulty = self.items.where(f.col("verdict").isin(*FAULTS)).groupBy("queue", "site", "bucket", "verdict")
        found = faulty.agg(f.count("*").alias("count"), places.alias("ids"))
        return found.withColumn("ids", f.col("ids.id")).orderBy("bucket", "verdict")

    @property
    def health(self) -> DataFrame:
        """A row for each bucket: items put and done, open items and the oldest's age at its end, latencies."""
        return health.health(self.items, self.asked.bucket, self._seen.taken)

    def ids(self, verdict: str) -> list[str]:
        """The ids with this verdict, in the order of the log; at most a hundred thousand."""
        if verdict not in VERDICTS:
            raise NotAllowed(f"a verdict is one of {', '.join(VERDICTS)}, not {verdict!r}")
        found = self.items.where(self.items["verdict"] == verdict).orderBy("partition", "offset")
        return [row["id"] for row in found.select("id").limit(100_000).collect()]

    def write(self, topic: str) -> None:
        """Write every verdict into a topic, keyed by site and item. A compacted topic keeps the last verdict of each."""
        publish(self.items, self._cluster, topic)

    def close(self) -> None:
        """Free the memory. The frames are read again if they are used again."""
        self._found.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {verdict}" for verdict, count in self.counts.items() if count) or "no items"
        more = f"; {self.gone:,} left the log before they were done" if self.gone else ""
        return f"Audit('{self.asked.queue}', site '{self.asked.site}': {counts}{more})"


# --- records as numbers, added up ---------------------------------------------------------------------------------------


def sums(spark: SparkSession, cluster: Kafka, asked: AuditRequest, begin: Ends, upto: Ends) -> DataFrame:
    """A row for each item: what the records in these ranges say about it, added up."""
    found = []
    for topic, ends in upto.items():
        raw = frames.span(spark, cluster, topic, {n: begin.get(topic, {}).get(n, 0) for n in ends}, ends)
        found.append(_item_rows(raw, asked) if topic == asked.queue else _ending_rows(raw, asked, topic))
    return added(reduce(lambda one, other: one.unionByName(other), found))


def added(rows: DataFrame, *kept: str) -> DataFrame:
    """All rows of an item as one. kept: further columns, in which at most one row has a value."""
    from pyspark.sql import functions as f

    totals = [f.sum(name).alias(name) for name in ("results", "dead", "again")]
    firsts = [f.min("created").alias("created"), f.max("theirs").alias("theirs"), f.min("ended").alias("ended")]
    return rows.groupBy("partition", "offset").agg(*firsts, *totals, *(f.max(name).alias(name) for name in kept))


def _row(partition: Any, offset: Any, **values: Any) -> list[Column]:
    """A row of numbers. A column without a value is 0, false or null."""
    from pyspark.sql import functions as f

    never = f.lit(None).cast("timestamp")
    numbers = [values.get(name, f.lit(0)).cast("long").alias(name) for name in ("results", "dead", "again")]
    times = [values.get(name, never).alias(name) for name in ("created", "ended")]
    at = [partition.cast("int").alias("partition"), offset.cast("long").alias("offset")]
    return [*at, *times, values.get("theirs", f.lit(False)).alias("theirs"), *numbers]


def _item_rows(raw: DataFrame, asked: AuditRequest) -> DataFrame:
    """A row for each item, and one for the dead item that it was before."""
    from pyspark.sql import functions as f

    site, again = frames.header(SITE), frames.header(AGAIN)
    ours = site.isNull() | (site == asked.site)
    itself = f.struct(*_row(f.col("partition"), f.col("offset"), created=f.col("timestamp"), theirs=~ours))
    was = f.struct(*_row(*_place(again, asked.queue), again=ours.cast("int")))
    return raw.select(f.inline(f.filter(f.array(itself, was), lambda row: row.offset.isNotNull())))


def _ending_rows(raw: DataFrame, asked: AuditRequest, topic: str) -> DataFrame:
    """A row for each result or dead letter of this site: it belongs to the item that it names."""
    from pyspark.sql import functions as f

    if topic == asked.results:
        item = f.col("key").cast("string") if asked.of == "key" else frames.header(asked.of)
        by, what = frames.header(BY), "results"
        # what `put_back` wrote into this topic once more is the result that it was before
        raw = raw.where(~f.coalesce(f.startswith(frames.header(OF), f.lit(f"{topic}/")), f.lit(False)))
    else:
        item, by, what = frames.header("kq-origin"), frames.header("kq-dead-site"), "dead"
    ours = raw.where(by.isNull() | (by == asked.site))
    rows = ours.select(*_row(*_place(item, asked.queue), ended=f.col("timestamp"), **{what: f.lit(1)}))
    return rows.where("offset IS NOT NULL AND partition IS NOT NULL")


def _place(item: Column, queue: str) -> tuple[Column, Column]:
    """Partition and offset of an id of this queue; null for anything else."""
    from pyspark.sql import functions as f

    partition = f.substring_index(f.substring_index(item, "/", -2), "/", 1).try_cast("int")
    offset = f.substring_index(item, "/", -1).try_cast("long")
    ours = f.concat_ws("/", f.lit(queue), partition, offset) == item  # exactly as kqlib writes an id
    return f.when(ours, partition), f.when(ours, offset)


# --- the verdict --------------------------------------------------------------------------------------------------------


def case(outputs: int = 1) -> str:
    """The rule as one SQL expression."""
    lines = [f"WHEN {condition.format(outputs=outputs)} THEN '{_quoted(verdict)}'" for verdict, condition in RULE]
    return f"CASE {' '.join(lines)} END"


def _quoted(word: str) -> str:
    return word.replace("'", "''")


def column(verdict: str) -> str:
    """A verdict as the name of a column: another_sites."""
    return verdict.replace(" ", "_").replace("'", "")


def judged(spark: SparkSession, rows: DataFrame, seen: QueueState, unseen: dict[int, int], outputs: int) -> DataFrame:
    """Each item with its state in the ledger and its verdict. A row without `created` belongs to an item that was not read."""
    from pyspark.sql import functions as f

    open_items = [(number, *each) for number, part in seen.parts.items() for each in part.open]
    whole = rows.withColumn("attempts", f.lit(None).cast("int"))
    if open_items:
        whole = rows.join(f.broadcast(frames.few(spark, open_items, OPEN_ITEMS)), ["partition", "offset"], "left")
    top = by_partition({number: part.ledger.top for number, part in seen.parts.items()})
    state = f.when(f.col("attempts").isNotNull(), "open").when(f.col("offset") >= top, "waiting").otherwise("done")
    marked = f.col("offset") < by_partition({number: part.mark for number, part in seen.parts.items()})
    old = f.unix_seconds("created") < by_partition(unseen)
    with_state = whole.withColumn("state", state).withColumn("marked", marked).withColumn("unseen", old)
    return with_state.withColumn("verdict", f.expr(case(outputs))).drop("marked", "unseen")


def by_partition(offsets: dict[int, int]) -> Column:
    """The value of each row's partition, 0 for an unknown one: looked up in a constant array, without a join."""
    from pyspark.sql import functions as f

    row = [f.lit(offsets.get(number, 0)).cast("long") for number in range(max(offsets, default=0) + 1)]
    return f.coalesce(f.get(f.array(*row), f.col("partition")), f.lit(0))


def named(found: DataFrame, asked: AuditRequest) -> DataFrame:
    """The frame for people: with names, ids, buckets and latencies."""
    from pyspark.sql import functions as f

    return found.select(
        f.lit(asked.queue).alias("queue"),
        f.lit(asked.site).alias("site"),
        f.concat_ws("/", f.lit(asked.queue), "partition", "offset").alias("id"),
        "partition",
        "offset",
        "created",
        health.bucketed(f.col("created"), asked.bucket).alias("bucket"),
        *("verdict", "state", "attempts", "results", "dead", "ended"),
        ((f.unix_micros("ended") - f.unix_micros("created")) / 1e6).alias("latency"),
    )


def publish(items: DataFrame, cluster: Kafka, topic: str) -> None:
    """Write verdicts as records: the key is 'site id', the value JSON."""
    from pyspark.sql import functions as f

    cluster.partitions(topic)  # TopicMissing, before anything is computed
    names = ("queue", "site", "id", "verdict", "state", "attempts", "results", "dead", "created", "ended")
    key, value = f.concat_ws(" ", "site", "id"), f.to_json(f.struct(*names))
    frames.put(items.select(key.cast("binary").alias("key"), value.cast("binary").alias("value")), cluster, topic)
