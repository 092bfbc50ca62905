"""Rows that were put aside: late ones, and rows that could not be decoded. A topic keeps them as they came; they can be put back.

In:  rows of a batch with `cause` and `why`. Out: a record for each, and `put_back`, which makes the original record of it again.

    key        topic/partition/offset of the row: its id
    value      its bytes
    headers    its own, then kq-cause, kq-why, kq-schema, kq-key (its key), kq-time (the time with which it is put back)

A late row is put back with the time of its event. So it is in time, and the standings become what they would have been. Other rows
keep their time. A batch that comes again writes its rows again; `put_back` takes each id once. It reads the ids that are back from
the target's header kq-replay-of. So the target must keep its records as long as this topic does. Run one `put_back` at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed
from kqlib.spark import frames
from kqlib.spark.replay import OF, Replayed, Transform, replay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kqlib.kafka import Kafka

STORY = {  # what each header has, as an SQL expression
    "kq-cause": "cause",
    "kq-why": "why",
    "kq-schema": "string(schema_id)",
    "kq-key": "key",
    "kq-time": "string(unix_millis(timestamp))",
}
_OURS = ", ".join(f"'{name}'" for name in STORY)


def put_aside(rows: DataFrame, cluster: Kafka, topic: str) -> None:
    """Write rows of `frames.read` with their `cause`, `why` and `schema_id`; see the top of this module."""
    story = ", ".join(f"struct('{name}' AS key, binary({each}) AS value)" for name, each in STORY.items())
    own = f"filter(coalesce(headers, array()), each -> each.key NOT IN ({_OURS}))"
    where = "binary(concat_ws('/', topic, partition, offset)) AS key"
    frames.put(rows.selectExpr(where, "value", f"concat({own}, array({story})) AS headers"), cluster, topic)


def put_back(
    spark: SparkSession,
    cluster: Kafka,
    aside: str,
    target: str,
    *,
    mend: Transform | None = None,
    run: str | None = None,
    dry: bool = True,
) -> Replayed:
    """Write rows that were put aside into `target` again, each id once, however often this is called; dry=True only counts.

    mend: a function of a frame that repairs `key`, `value` or `timestamp`; it also sees `id`, `cause`, `why` and `headers`. Rows that
    it leaves out stay aside. run: the run's name in the headers.
    """
    done = frames.read(spark, cluster, target).select(frames.header(OF).alias("id")).where("id IS NOT NULL")

    def back(rows: DataFrame) -> DataFrame:
        left = originals(rows).dropDuplicates(["id"]).join(done, "id", "left_anti")
        made = left if mend is None else mend(left)
        if "id" not in getattr(made, "columns", ["id"]):
            raise NotAllowed(
                "a function that mends rows keeps their column id: without it they would be put back again each time"
            )
        return made

    return replay(spark, cluster, aside, target, transform=back, run=run, dry=dry)


def originals(rows: DataFrame) -> DataFrame:
    """The rows of `items` as they were before they were put aside, with id, cause and why."""
    return rows.selectExpr(
        "partition",
        "string(key) AS id",
        "headers['kq-key'] AS key",
        "value",
        "timestamp_millis(bigint(string(headers['kq-time']))) AS timestamp",
        f"map_filter(headers, (name, _) -> name NOT IN ({_OURS})) AS headers",
        "string(headers['kq-cause']) AS cause",
        "string(headers['kq-why']) AS why",
    )
