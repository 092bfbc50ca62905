"""Standings while the games go on: exact, however often the driver is killed.

In:  a topic of events (framed Avro, any version).
Out: a compacted topic keyed by team, and Parquet (`snapshot.py`). From that topic a second stream makes each team's form (`form`).

    games ──► standings ──► out (compacted) ──► form ──► out.form (compacted)
                 └──► home/teams/batch=…, home/current/…

Standings are an aggregate (a team's points) over an aggregate (a game's score). Spark refuses two of them in update mode, and Parquet
cannot be updated. So each micro-batch is folded into the games of the batch before, by the functions that also work on a whole topic
(`table.py`). foreachBatch writes Parquet under the batch's number, then the changed rows to Kafka, then the file in `current`. A batch
that comes again writes the same again. Spark keeps no state: its checkpoint has offsets only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from confluent_kafka import KafkaException

from kqlib.errors import NotAllowed
from kqlib.kafka.clients import Producer
from kqlib.spark import frames
from kqlib.spark.aside import put_aside
from kqlib.spark.rules import Rule
from kqlib.spark.snapshot import Files, LocalFiles, Snapshot, check_topics, checkpoint, claim
from kqlib.spark.stream import Running, stream
from kqlib.spark.table import COLUMNS, COUNTS, LATE, came_late, facts, late_rows, table, whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kqlib.kafka import Kafka
    from kqlib.schemas import Registry

PARQUET = re.compile(r"part-.+|_SUCCESS|\..+\.crc")  # what Spark writes: a Delta table beside it has _delta_log


def _record(name: str, *fields: dict[str, str]) -> dict[str, Any]:
    teams = ({"name": "league", "type": "string"}, {"name": "team", "type": "string"})
    return {"type": "record", "name": name, "namespace": "kq.season", "fields": [*teams, *fields]}


def _ints(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "type": "int"} for name in names]


STANDING = _record("Standing", *_ints("place", *COUNTS), {"name": "results", "type": "string"})
FORM = _record(
    "Form",
    {"name": "form", "type": "string", "doc": "the last five results, the newest last"},
    *_ints("winning", "most_wins", "most_unbeaten"),
)
AT_ONCE = 200_000  # rows of a batch at most, so that the start after a long pause is many batches
WRITE = 60.0  # seconds for a transaction
WAITING = 50_000  # records that are not acknowledged
SMALL = 4 * 2**20  # bytes in Spark's own form: some ten thousand decoded rows


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
    quarantine: str | None = None,
    late_topic: str | None = None,
    subject: str | None = None,
    rules: Sequence[Rule] = (),
    schema: Any = None,
    parquet: str | None = None,
    **options: Any,
) -> Running:
    """Keep the standings of the events in `games`: in the compacted topic `out`, keyed by team, and in Parquet under `home`.

    late: seconds after which a row no longer counts. once: end when all that is there is done.
    quarantine, late_topic: topics for the rows that cannot be decoded, and for late ones (`put_back`); without them they are only
    counted (`counted`). subject: of the schemas of `games`, by default GAMES-value; a replayed topic has that of its original.
    rules: what an event has to meet (`rules.py`). schema: the one that reads the events, by default the subject's latest one.
    parquet: a folder for the standings as Parquet; each batch replaces it. options: further ones of Spark's Kafka reader.
    """
    place = _claimed(spark, cluster, home, games, out, quarantine, late_topic)
    if parquet:
        check_folder(Files(spark, parquet), home)
    kept, encoded = Snapshot(spark, home), encoder(registry, out)

    def each(good: DataFrame, bad: DataFrame, batch: int) -> None:
        before = kept.prepare(batch)
        advance(kept, good, late, batch, before)
        frames.put(encoded(_changed(kept, batch, before)), cluster, out)
        if parquet:
            export(kept.read("teams", batch), parquet)
        if quarantine:
            put_aside(bad, cluster, quarantine)
        kept.commit(batch, before)

    kept.switch(lambda teams: publish(encoded(teams), cluster, out))  # a backfill that was killed
    kept.check()
    if parquet and kept.current() is not None:  # a backfill may have changed it, or the folder is new
        export(kept.read("teams"), parquet)
    events = frames.read(spark, cluster, games, stream=True, **{"maxOffsetsPerTrigger": AT_ONCE, **options})
    condition = came_late(late, "_kq.value")
    aside = None if late_topic is None else lambda rows: put_aside(late_rows(rows), cluster, late_topic)
    how: dict[str, Any] = {"once": once, "late": condition, "aside": aside, "rules": rules, "schema": schema}
    running = stream(events, registry, subject or f"{games}-value", each, place, **how)
    running.measure = kept.size
    return running


def form(
    spark: SparkSession,
    cluster: Kafka,
    standings: str,
    out: str,
    *,
    registry: Registry,
    home: str,
    once: bool = False,
    **options: Any,
) -> Running:
    """From the topic of standings each team's last five results and its records, in the compacted topic `out`, keyed by team."""
    place = _claimed(spark, cluster, home, standings, out)
    number = registry.register(f"{out}-value", FORM)
    schema = registry.schema(number)
    names = [field["name"] for field in FORM["fields"]]

    def each(good: DataFrame, bad: DataFrame, batch: int) -> None:
        values = frames.avro(names, schema, number).alias("value")
        frames.put(forms(latest(good)).select(_key(), values), cluster, out)

    rows = frames.read(spark, cluster, standings, stream=True, **{"maxOffsetsPerTrigger": AT_ONCE, **options})
    return stream(rows, registry, f"{standings}-value", each, place, once=once)


def _claimed(spark: SparkSession, cluster: Kafka, home: str, source: str, out: str, *more: str | None) -> str:
    """The path of the checkpoint, once all topics are there: TopicMissing now, and not in the middle of a batch."""
    checkpoint(home)
    check_topics(cluster, source, out, *more)
    return claim(spark, home, cluster, source, out, keyed=True)


def latest(good: DataFrame) -> DataFrame:
    """The last value of each key, as compaction leaves it."""
    from pyspark.sql import functions as f

    last = good.groupBy("key").agg(f.max_by("value", f.col("offset")).alias("value"))
    return last.select("value.*")


def forms(standing: DataFrame) -> DataFrame:
    """Form and records, from a team's last standing alone. So it does not matter how many came before."""
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


def advance(kept: Snapshot, good: DataFrame, late: float, batch: int, before: int | None) -> None:
    """Write this batch's games and table as Parquet."""
    rows = facts(good, late)
    if before is not None:
        rows = kept.read("games", before).unionByName(rows)
    played = kept.write("games", batch, whole(_together(rows)))
    kept.write("teams", batch, table(_together(played)).coalesce(1))


def check_folder(found: Files | LocalFiles, home: str) -> None:
    """`NotAllowed` if this folder has other files than Parquet of Spark: a batch would delete them."""
    folder, others = found.home, sorted(name for name in found.sizes("") if not PARQUET.fullmatch(name))
    one, other = _real(folder), _real(home)
    if f"{one}/".startswith(f"{other}/"):
        others, has = [home], f"is in {home}, which has other files"
    elif f"{other}/".startswith(f"{one}/"):
        others, has = [home], f"is the one in which {home} is"
    elif others:
        has = f"has other files, such as {others[0]}"
    if others:
        raise NotAllowed(f"each batch replaces the folder {folder}, and it {has}: name an empty one")


def _real(path: str) -> str:
    """A path on this machine without links and '..'; one on another file system as it is."""
    if "://" in path and not path.startswith("file:"):
        return path.rstrip("/")
    return os.path.realpath(urlsplit(path).path if path.startswith("file:") else path)


def export(teams: DataFrame, folder: str) -> None:
    """Put this Parquet in the place of the folder. A batch that comes again does it again."""
    where, slash, name = folder.rstrip("/").rpartition("/")
    teams.write.mode("overwrite").parquet(f"{folder.rstrip('/')}.new")
    Files(teams.sparkSession, where if slash else ".").replace(f"{name}.new", name)


def encoder(registry: Registry, out: str) -> Callable[[DataFrame], DataFrame]:
    """The function that makes keys and values of teams."""
    number = registry.register(f"{out}-value", STANDING)
    value = frames.avro(COLUMNS, registry.schema(number), number).alias("value")
    return lambda teams: teams.select(_key(), value)


def publish(now: DataFrame, cluster: Kafka, topic: str) -> None:
    """Make this the last value of every key in a topic, and delete the other keys: in one transaction."""
    from pyspark.sql import functions as f

    then = frames.read(now.sparkSession, cluster, topic).groupBy("key").agg(f.max_by("value", "offset").alias("was"))
    changed = now.join(then, "key", "full").where("NOT (value <=> was)").select("key", "value").collect()
    producer = Producer(cluster.client(transactional_id=f"kq-backfill-{topic}"))
    try:
        producer.init_transactions(WRITE)
        producer.begin_transaction()
        for row in changed:
            producer.produce(topic, row.value and bytes(row.value), bytes(row.key))
            if len(producer) > WAITING:
                producer.flush(WRITE)
        producer.commit_transaction(WRITE)
    except KafkaException as error:
        raise NotAllowed(
            f"Kafka did not take the {len(changed):,} changed rows for '{topic}': {error.args[0].str()}. Readers see none of them. "
            "The switch is noted: the next start of the stream ends it, and so does this command"
        ) from None


def _together(frame: DataFrame) -> DataFrame:
    """A small frame as one partition. Then it needs no shuffle, and the jobs of a shuffle are most of the cost of a small batch."""
    size = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    return frame.coalesce(1) if int(size) < SMALL else frame


def _changed(kept: Snapshot, batch: int, before: int | None) -> DataFrame:
    """The teams whose row differs from the batch before."""
    now = kept.read("teams", batch).coalesce(1)
    if before is None:
        return now
    then = kept.read("teams", before).coalesce(1).hint("shuffle_hash")  # one partition each: no shuffle
    return now.join(then, now.columns, "left_anti")


def _key() -> Any:
    from pyspark.sql import functions as f

    return f.col("team").cast("binary").alias("key")
