"""Did every item get done exactly once? `kq.spark.audit(spark, cluster, "football", "drupal-eu", results="football.results")`

In:  a queue, a site, the topic of its results; the dead letters, the ledger and the purge marks are found from there.
Out: `Audit`: a verdict an item, counted by time, offending ids; depth, age and latency over time; all of it as frames.

A result names its item: `step.put` writes the header kq-item (and kq-by, the site). Results of other workers name it in a header
of their own or in their key: `of="key"`. Every record becomes a row of numbers, all rows of an item are added up, and the ledger
is joined to that: one shuffle, no join of large frames. When each thing is read matters: see `cut`. What the words mean: `verdict`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.queue.arguments import count, site_name
from kqlib.queue.dead import DEAD
from kqlib.queue.item import SITE
from kqlib.spark import cut, frames, over_time
from kqlib.spark.verdict import FAULTS, OPEN, VERDICTS, case, column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BUCKET = re.compile(r"[1-9]\d{0,5} (second|minute|hour|day|week)s?")
SKEW = timedelta(seconds=cut.SKEW)  # with `since`, results are read from that much before
SHOWN = 100  # offending ids of a bucket that are listed
OPEN_ONES = "partition int, offset long, attempts int"


@dataclass(frozen=True)
class Asked:
    """What is audited: a queue, a site, where results are, what in them names the item, how many an item has."""

    queue: str
    site: str
    results: str
    of: str = frames.ITEM
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

    def topics(self, cluster: Kafka) -> list[str]:
        """The queue's topic, its results, its dead letters if there are any."""
        return [self.queue, self.results] + [self.queue + DEAD] * frames.there(cluster, self.queue + DEAD)

    def unseen(self, cluster: Kafka, seen: cut.Cut, known: cut.Ends) -> dict[int, int]:
        """Up to when items may have an ending that was removed before it was read; `known`: what was read before."""
        return cut.unseen(cluster, seen, self.queue, self.results, keyed=self.of == "key", known=known)


def audit(
    spark: SparkSession,
    cluster: Kafka,
    queue: str,
    site: str,
    *,
    results: str,
    of: str = frames.ITEM,
    outputs: int = 1,
    bucket: str = "1 hour",
    since: datetime | None = None,
) -> Audit:
    """Every item of a queue, and what became of it for this site; right while workers run.

    results: the topic that workers write into. of: the header of a result that names its item, or "key". outputs: how many results
    an item has. bucket: how time is cut into pieces. since: only items put then or later.
    """
    asked = Asked(queue, site, results, of, bucket, outputs)
    if since is not None and not isinstance(frames.place("since", since), datetime):
        raise NotAllowed(f"since is a datetime with its zone, not {since!r}")
    seen = cut.take(cluster, queue, site, asked.topics(cluster))
    begin = seen.lows if since is None else _since(cluster, seen, queue, since)
    every = facts(spark, cluster, asked, begin, seen.ends)
    found = judged(spark, every, seen, asked.unseen(cluster, seen, {}), outputs).where("created IS NOT NULL")
    return Audit(asked, seen, found.persist(), cluster)


def _since(cluster: Kafka, seen: cut.Cut, queue: str, since: datetime) -> cut.Ends:
    """Where to begin in each topic; results are put after their items, by clocks that may differ."""
    return {
        topic: frames.offsets(
            cluster, topic, since if topic == queue else since - SKEW, seen.lows[topic], seen.ends[topic]
        )
        for topic in seen.ends
    }


class Audit:
    """What became of every item: `.counts`, `.table`, `.offending`, `.health`, and `.items`, all of them. `close()` frees memory."""

    def __init__(self, asked: Asked, seen: cut.Cut, found: DataFrame, cluster: Kafka) -> None:
        self.asked, self._found, self._seen, self._cluster = asked, found, seen, cluster
        self.items = named(found, asked)  # names and ids are made anew each time: they would be most of what is kept

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many items have which verdict."""
        found = {row["verdict"]: row["count"] for row in self.items.groupBy("verdict").count().collect()}
        return {verdict: found.get(verdict, 0) for verdict in VERDICTS}

    @property
    def right(self) -> bool:
        """Is nothing missing and nothing doubled?"""
        return not any(self.counts[fault] for fault in FAULTS) and not self.gone

    @property
    def gone(self) -> int:
        """Offsets that left the log (retention) before the site was done with them: nobody can audit what is not there."""
        return sum(part.gone for part in self._seen.parts.values())

    @property
    def depth(self) -> int:
        """How many items were not done yet."""
        return sum(self.counts[verdict] for verdict in OPEN)

    @property
    def table(self) -> DataFrame:
        """A row for each queue, site and bucket: how many items, and how many of them have which verdict."""
        from pyspark.sql import functions as f

        each = [f.count_if(f.col("verdict") == verdict).alias(column(verdict)) for verdict in VERDICTS]
        return self.items.groupBy("queue", "site", "bucket").agg(f.count("*").alias("items"), *each).orderBy("bucket")

    @property
    def offending(self) -> DataFrame:
        """What is missing or doubled: how many in each bucket, and the first hundred ids of them."""
        from pyspark.sql import functions as f

        wrong = self.items.where(f.col("verdict").isin(*FAULTS))
        places = f.slice(f.array_sort(f.collect_list(f.struct("partition", "offset", "id"))), 1, SHOWN)
        found = wrong.groupBy("queue", "site", "bucket", "verdict").agg(
            f.count("*").alias("count"), places.alias("ids")
        )
        return found.withColumn("ids", f.col("ids.id")).orderBy("bucket", "verdict")

    @property
    def health(self) -> DataFrame:
        """Over time: how many were put and ended, how many were open at a bucket's end, the oldest's age, how long items took."""
        return over_time.health(self.items, self.asked.bucket, self._seen.taken)

    def ids(self, verdict: str) -> list[str]:
        """The ids with this verdict, in the order of the log; at most a hundred thousand."""
        if verdict not in VERDICTS:
            raise NotAllowed(f"a verdict is one of {', '.join(VERDICTS)}, not {verdict!r}")
        found = self.items.where(self.items["verdict"] == verdict).orderBy("partition", "offset")
        return [row["id"] for row in found.select("id").limit(100_000).collect()]

    def write(self, topic: str) -> None:
        """Every verdict into a topic, keyed by site and item: compacted, it keeps the last word on each."""
        publish(self.items, self._cluster, topic)

    def close(self) -> None:
        """The frames are read again when they are used again."""
        self._found.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        said = [f"{count:,} {verdict}" for verdict, count in self.counts.items() if count]
        more = f"; {self.gone:,} left the log before they were done" if self.gone else ""
        asked = self.asked
        return f"Audit('{asked.queue}', site '{asked.site}': {', '.join(said) or 'no items'}{more})"


# --- records as numbers, added up ---------------------------------------------------------------------------------------


def facts(spark: SparkSession, cluster: Kafka, asked: Asked, begin: cut.Ends, upto: cut.Ends) -> DataFrame:
    """What the records in these ranges say about each item: a row an item, numbers added up."""
    from functools import reduce

    found = []
    for topic, ends in upto.items():
        raw = frames.span(spark, cluster, topic, {n: begin.get(topic, {}).get(n, 0) for n in ends}, ends)
        found.append(raw.select(_inline(_rows(asked, topic))) if topic == asked.queue else _endings(raw, asked, topic))
    return added(reduce(lambda one, other: one.unionByName(other), found))


def added(rows: DataFrame, *kept: str) -> DataFrame:
    """All rows of an item as one. kept: further columns, of which one row at most has a value."""
    from pyspark.sql import functions as f

    sums = [f.sum(name).alias(name) for name in ("results", "dead", "again")]
    firsts = [f.min("created").alias("created"), f.max("theirs").alias("theirs"), f.min("ended").alias("ended")]
    return rows.groupBy("partition", "offset").agg(*firsts, *sums, *(f.max(name).alias(name) for name in kept))


def _row(partition: Any, offset: Any, **said: Any) -> list[Column]:
    """A row of numbers; what is not said is nothing."""
    from pyspark.sql import functions as f

    never = f.lit(None).cast("timestamp")
    numbers = [said.get(name, f.lit(0)).cast("long").alias(name) for name in ("results", "dead", "again")]
    times = [said.get(name, never).alias(name) for name in ("created", "ended")]
    at = [partition.cast("int").alias("partition"), offset.cast("long").alias("offset")]
    return [*at, *times, said.get("theirs", f.lit(False)).alias("theirs"), *numbers]


def _rows(asked: Asked, topic: str) -> Column:
    """An item's own row, and one for the dead item that it is: an array of them."""
    from pyspark.sql import functions as f

    site, again = frames.header(SITE), frames.header(frames.AGAIN)
    ours = site.isNull() | (site == asked.site)
    itself = f.struct(*_row(f.col("partition"), f.col("offset"), created=f.col("timestamp"), theirs=~ours))
    was = f.struct(*_row(*_place(again, asked.queue), again=ours.cast("int")))
    return f.filter(f.array(itself, was), lambda row: row.offset.isNotNull())


def _inline(rows: Column) -> Column:
    from pyspark.sql import functions as f

    return f.inline(rows)


def _endings(raw: DataFrame, asked: Asked, topic: str) -> DataFrame:
    """Results or dead letters of this site: a row each for the item that they name."""
    from pyspark.sql import functions as f

    if topic == asked.results:
        item = f.col("key").cast("string") if asked.of == "key" else frames.header(asked.of)
        by, what = frames.header(frames.BY), "results"
    else:
        item, by, what = frames.header("kq-origin"), frames.header("kq-dead-site"), "dead"
    ours = raw.where(by.isNull() | (by == asked.site))
    rows = ours.select(*_row(*_place(item, asked.queue), ended=f.col("timestamp"), **{what: f.lit(1)}))
    return rows.where("offset IS NOT NULL AND partition IS NOT NULL")


def _place(item: Column, queue: str) -> tuple[Column, Column]:
    """Partition and offset of an item of this queue; null for everything else."""
    from pyspark.sql import functions as f

    partition = f.substring_index(f.substring_index(item, "/", -2), "/", 1).try_cast("int")
    offset = f.substring_index(item, "/", -1).try_cast("long")
    ours = f.concat_ws("/", f.lit(queue), partition, offset) == item  # written as kqlib writes it, and by nobody else
    return f.when(ours, partition), f.when(ours, offset)


# --- the verdict --------------------------------------------------------------------------------------------------------


def judged(spark: SparkSession, found: DataFrame, seen: cut.Cut, unseen: dict[int, int], outputs: int) -> DataFrame:
    """Each item with what the ledger says of it, and the verdict. A row without `created` belongs to no item that was read."""
    from pyspark.sql import functions as f

    open_ones = [(number, *each) for number, part in seen.parts.items() for each in part.open]
    whole = found.withColumn("attempts", f.lit(None).cast("int"))
    if open_ones:
        whole = found.join(f.broadcast(frames.few(spark, open_ones, OPEN_ONES)), ["partition", "offset"], "left")
    top = by_partition({number: part.ledger.top for number, part in seen.parts.items()})
    state = f.when(f.col("attempts").isNotNull(), "open").when(f.col("offset") >= top, "waiting").otherwise("done")
    marked = f.col("offset") < by_partition({number: part.mark for number, part in seen.parts.items()})
    old = f.unix_seconds("created") < by_partition(unseen)
    with_state = whole.withColumn("state", state).withColumn("marked", marked).withColumn("unseen", old)
    return with_state.withColumn("verdict", f.expr(case(outputs))).drop("marked", "unseen")


def by_partition(offsets: dict[int, int]) -> Column:
    """The offset of each row's partition; 0 for a partition that is not there. A constant to look up, and no join."""
    from pyspark.sql import functions as f

    row = [f.lit(offsets.get(number, 0)).cast("long") for number in range(max(offsets, default=0) + 1)]
    return f.coalesce(f.get(f.array(*row), f.col("partition")), f.lit(0))


def named(found: DataFrame, asked: Asked) -> DataFrame:
    """The frame as people see it: names, ids, buckets, latency."""
    from pyspark.sql import functions as f

    identity = f.concat_ws("/", f.lit(asked.queue), "partition", "offset")
    latency = f.unix_micros("ended") - f.unix_micros("created")
    return found.select(
        f.lit(asked.queue).alias("queue"),
        f.lit(asked.site).alias("site"),
        identity.alias("id"),
        "partition",
        "offset",
        "created",
        over_time.bucketed(f.col("created"), asked.bucket).alias("bucket"),
        "verdict",
        "state",
        "attempts",
        "results",
        "dead",
        "ended",
        (latency / 1e6).alias("latency"),
    )


def publish(items: DataFrame, cluster: Kafka, topic: str) -> None:
    """Verdicts as records: the key is 'site id', the value JSON."""
    from pyspark.sql import functions as f

    from kqlib.spark.session import sink

    cluster.partitions(topic)  # TopicMissing, before anything is computed
    said = f.to_json(
        f.struct("queue", "site", "id", "verdict", "state", "attempts", "results", "dead", "created", "ended")
    )
    rows = items.select(f.concat_ws(" ", "site", "id").cast("binary").alias("key"), said.cast("binary").alias("value"))
    rows.write.format("kafka").options(**sink(cluster, topic)).save()
