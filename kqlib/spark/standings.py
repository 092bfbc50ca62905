"""Standings while the games go on: a stream of streams, exact however often it is killed.

In:  a topic of events (framed Avro, any version). Out: a compacted topic keyed by team, and a Parquet snapshot (`snapshot.py`); from
     that topic a second stream makes each team's form and records (`form`).

    games ──► standings ──► out (compacted) ──► form ──► out.form (compacted)
                 └──► home/teams/batch=…, home/current/…

Why this shape. Standings are an aggregate (a team's points) over an aggregate (a game's score), and Spark refuses two in a row in
update mode; Parquet takes no updates at all. So each micro-batch is folded into the games of the batch before (`table.py`, the same
functions as for a batch over everything) and written by foreachBatch: Parquet under the batch's number, then what changed to Kafka,
then the pointer. A batch that comes again writes the same again. Spark keeps no state for it: the checkpoint is offsets only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kqlib.spark import checkpoint, sinks
from kqlib.spark.running import Running, stream
from kqlib.spark.session import source
from kqlib.spark.snapshot import Snapshot
from kqlib.spark.table import COLUMNS, COUNTS, LATE, came_late, facts, table, whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kqlib.kafka import Kafka
    from kqlib.schemas import Registry

STANDING = {
    "type": "record",
    "name": "Standing",
    "namespace": "kq.season",
    "fields": [
        {"name": "league", "type": "string"},
        {"name": "team", "type": "string"},
        *({"name": name, "type": "int"} for name in ("place", *COUNTS)),
        {"name": "results", "type": "string"},
    ],
}
FORM = {
    "type": "record",
    "name": "Form",
    "namespace": "kq.season",
    "fields": [
        {"name": "league", "type": "string"},
        {"name": "team", "type": "string"},
        {"name": "form", "type": "string", "doc": "the last five results, the newest last"},
        *({"name": name, "type": "int"} for name in ("winning", "most_wins", "most_unbeaten")),
    ],
}
AT_ONCE = 200_000  # rows a batch at most: the first start after a long pause is many batches, not one
SMALL = 4 * 2**20  # bytes, as Spark has them: of decoded rows some ten thousand


def standings(
    spark: SparkSession,
    cluster: Kafka,
    games: str,
    out: str,
    *,
    registry: Registry,
    home: str,
    late: float = LATE,
    once: bool = False,
    every: str | None = None,
    quarantine: str | None = None,
    subject: str | None = None,
    **options: Any,
) -> Running:
    """Keep the standings of the events in `games`: in the compacted topic `out`, keyed by team, and in Parquet under `home`.

    late: seconds after which a row does not count any more. once: end when all that is there is done. every: '10 seconds'.
    quarantine: a topic for the rows that cannot be decoded; without one they are only counted (`counted`). subject: of the schemas of
    `games`, by default GAMES-value; a replayed topic has that of its original. options: further ones of Spark's Kafka reader.
    """
    checkpoint.path(home)
    for topic in (games, out, *filter(None, [quarantine])):
        cluster.partitions(topic)  # TopicMissing now, and not in the middle of a batch
    place = checkpoint.claim(spark, home, cluster, games, out)
    kept, number = Snapshot(spark, home), registry.register(f"{out}-value", STANDING)
    schema = registry.schema(number)
    kept.check()

    def each(good: DataFrame, bad: DataFrame, batch: int) -> None:
        before = kept.before(batch)
        _advance(kept, good, late, batch, before)
        changed = _changed(kept, batch, before)
        values = changed.select(_key(), sinks.avro(COLUMNS, schema, number).alias("value"))
        sinks.put(values, cluster, out, batch)
        if quarantine:
            sinks.quarantine(bad, cluster, quarantine, batch)
        kept.commit(batch, before)

    events = _read(spark, cluster, games, options)
    how: dict[str, Any] = {"once": once, "every": every, "late": came_late(late, "_kq.value")}
    return stream(events, registry, subject or f"{games}-value", each, place, **how)


def form(
    spark: SparkSession,
    cluster: Kafka,
    standings: str,
    out: str,
    *,
    registry: Registry,
    home: str,
    once: bool = False,
    every: str | None = None,
    **options: Any,
) -> Running:
    """From the standings topic each team's last five results and its records, into the compacted topic `out`, keyed by team."""
    checkpoint.path(home)
    for topic in (standings, out):
        cluster.partitions(topic)
    place = checkpoint.claim(spark, home, cluster, standings, out)
    number = registry.register(f"{out}-value", FORM)
    schema = registry.schema(number)
    names = [field["name"] for field in FORM["fields"]]  # type: ignore[index]

    def each(good: DataFrame, bad: DataFrame, batch: int) -> None:
        derived = forms(latest(good))
        sinks.put(derived.select(_key(), sinks.avro(names, schema, number).alias("value")), cluster, out, batch)

    told = _read(spark, cluster, standings, options)
    return stream(told, registry, f"{standings}-value", each, place, once=once, every=every)


def latest(good: DataFrame) -> DataFrame:
    """The last value of each key: what compaction will leave."""
    from pyspark.sql import functions as f

    last = good.groupBy("key").agg(f.max_by("value", f.col("offset")).alias("value"))
    return last.select("value.*")


def forms(standing: DataFrame) -> DataFrame:
    """Form and records of standings: a function of the last value of a team alone, so it does not matter how many came before."""
    from pyspark.sql import functions as f

    def longest(others: str) -> Any:
        return f.array_max(f.transform(f.split("results", f"[{others}]"), f.length))

    return standing.select(
        "league",
        "team",
        f.right("results", f.lit(5)).alias("form"),
        f.length(f.regexp_extract("results", "(W*)$", 1)).alias("winning"),
        longest("DL").alias("most_wins"),
        longest("L").alias("most_unbeaten"),
    )


def _advance(kept: Snapshot, good: DataFrame, late: float, batch: int, before: int | None) -> None:
    """This batch's games and table, as Parquet."""
    told = facts(good, late)
    if before is not None:
        told = kept.read("games", before).unionByName(told)
    played = kept.write("games", batch, whole(_together(told)))
    kept.write("teams", batch, table(_together(played)).coalesce(1))


def _together(frame: DataFrame) -> DataFrame:
    """What is small as one partition: no shuffle, no job for each side of one, which is most of what a small batch costs."""
    size = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    return frame.coalesce(1) if int(size) < SMALL else frame


def _changed(kept: Snapshot, batch: int, before: int | None) -> DataFrame:
    """The teams whose row is another than a batch ago."""
    now = kept.read("teams", batch).coalesce(1)
    if before is None:
        return now
    then = kept.read("teams", before).coalesce(1).hint("shuffle_hash")  # in one place both: nothing to send around
    return now.join(then, now.columns, "left_anti")


def _key() -> Any:
    from pyspark.sql import functions as f

    return f.col("team").cast("binary").alias("key")


def _read(spark: SparkSession, cluster: Kafka, topic: str, options: dict[str, Any]) -> DataFrame:
    told = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": AT_ONCE, **options}
    return spark.readStream.format("kafka").options(**source(cluster, topic, **told)).load()
