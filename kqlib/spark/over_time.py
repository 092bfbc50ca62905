"""A queue over time: how many were put and ended in each bucket, how many were open at its end, how old the oldest was, how
long items took.

In:  items with created, ended and verdict, as the audit has them. Out: one row a bucket; works on any frame with those columns.

Spark counts the items by the pair of buckets in which they were put and ended. There are few such pairs, however many items
there are; the rest is a walk along them (`timeline`), which is pure.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kqlib.spark.frames import few
from kqlib.spark.verdict import OPEN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
TIMED = ("once", "doubled", "dead", "redriven")  # ended, and it is known when
HEALTH = (
    "queue string, site string, bucket timestamp, put long, ended long, depth long, oldest double, "
    "p50 double, p95 double, p99 double"
)
LATENCIES = [0.5, 0.95, 0.99]


class Pair(NamedTuple):
    """So many items were put in one bucket and ended in another (None: they have not); `first`: when the first was put. Seconds."""

    bucket: int
    gone: int | None
    n: int
    first: float
    counts: bool = True  # False: nobody knows when they ended (missing, removed, purged), so they are in no depth


class Bucket(NamedTuple):
    """One bucket; `oldest`: the age of the oldest item that was open at its end."""

    bucket: int
    put: int
    ended: int
    depth: int
    oldest: float | None


def length(bucket: str) -> int:
    """A bucket's seconds: '10 minutes' is 600."""
    number, unit = bucket.split()
    return int(number) * UNITS[unit.rstrip("s")]


def bucketed(moment: Column, bucket: str) -> Column:
    """When the bucket of a moment begins; null for none (Spark's own window() drops such rows)."""
    from pyspark.sql import functions as f

    size = length(bucket)
    return f.timestamp_seconds(f.floor(f.unix_seconds(moment) / size) * size)


def timeline(pairs: Iterable[Pair], size: int, now: float) -> list[Bucket]:
    """Every bucket in which something was put or ended, in order."""
    put, ended, came, went = Counter[int](), Counter[int](), defaultdict[int, list[Pair]](list), Counter[int]()
    for pair in pairs:
        put[pair.bucket] += pair.n
        if pair.counts:
            came[pair.bucket].append(pair)
        if pair.gone is not None:
            ended[pair.gone] += pair.n
            went[max(pair.gone, pair.bucket)] += pair.n  # a clock that is behind: not open before it was put
    waiting: list[tuple[float, float]] = []  # (first, gone) of what was put so far: the oldest on top
    found, depth = [], 0
    for bucket in sorted({*put, *ended}):
        for pair in came[bucket]:
            depth += pair.n
            heapq.heappush(waiting, (pair.first, float("inf") if pair.gone is None else pair.gone))
        depth -= went[bucket]
        while waiting and waiting[0][1] <= bucket:
            heapq.heappop(waiting)
        oldest = max(0.0, min(bucket + size, now) - waiting[0][0]) if waiting else None
        found.append(Bucket(bucket, put[bucket], ended[bucket], depth, oldest))
    return found


def health(items: DataFrame, bucket: str, now: float) -> DataFrame:
    """queue, site, bucket, put, ended, depth and oldest (seconds) at the bucket's end or now, p50, p95, p99 (seconds)."""
    from pyspark.sql import functions as f

    ended = f.when(f.col("verdict").isin(*TIMED), f.col("ended"))
    timed = items.withColumn("gone", bucketed(ended, bucket))
    counts = f.col("verdict").isin(*TIMED, *OPEN).alias("counts")
    seconds = [f.unix_seconds(each).alias(each) for each in ("bucket", "gone")]
    latency = f.percentile_approx(f.when(f.col("gone").isNotNull(), f.col("latency")), LATENCIES, 1000).alias("took")
    first = (f.unix_micros(f.min("created")) / 1e6).alias("first")
    pairs = timed.groupBy("queue", "site", *seconds, counts).agg(f.count("*").alias("n"), first).collect()
    took = timed.where("gone IS NOT NULL").groupBy("queue", "site", seconds[1]).agg(latency).collect()
    return few(items.sparkSession, _rows(pairs, took, length(bucket), now), HEALTH)


def _rows(pairs: Iterable[Any], took: Iterable[Any], size: int, now: float) -> list[tuple[Any, ...]]:
    """The timeline of each queue and site, with the latencies of what ended in each bucket."""
    by: Mapping[tuple[str, str], list[Pair]] = defaultdict(list)
    for row in pairs:
        by[row["queue"], row["site"]].append(Pair(row["bucket"], row["gone"], row["n"], row["first"], row["counts"]))
    known = {(row["queue"], row["site"], row["gone"]): row["took"] for row in took}
    return [
        (*name, datetime.fromtimestamp(each.bucket, UTC), *each[1:], *known.get((*name, each.bucket), [None] * 3))
        for name, those in sorted(by.items())
        for each in timeline(those, size, now)
    ]
