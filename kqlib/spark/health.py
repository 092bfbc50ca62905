"""A queue over time: for each bucket how many items were put and done, how many were open at its end, ages and latencies.

In:  the items of an audit, with created, ended and verdict. Out: a row for each bucket.

Spark counts items by the two buckets in which they were put and done. These pairs are few, whatever the number of items. `timeline`
computes the rest from them, without Spark.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kqlib.spark.frames import few

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OPEN = ("waiting", "in flight")  # verdicts of items that are not done
TIMED = ("once", "doubled", "dead", "redriven")  # verdicts of items whose end has a time
UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
HEALTH = (
    "queue string, site string, bucket timestamp, put long, ended long, depth long, oldest double, "
    "p50 double, p95 double, p99 double"
)
LATENCIES = [0.5, 0.95, 0.99]


class Pair(NamedTuple):
    """`n` items were put in one bucket and done in another (None: not yet). `first`: when the first was put. All in seconds."""

    bucket: int
    gone: int | None
    n: int
    first: float
    counts: bool = True  # False: their end has no time (missing, removed, purged), so they are in no depth


class Bucket(NamedTuple):
    """One bucket. `oldest`: the age of the oldest item that was open at its end."""

    bucket: int
    put: int
    ended: int
    depth: int
    oldest: float | None


def length(bucket: str) -> int:
    """The length of a bucket in seconds: '10 minutes' is 600."""
    number, unit = bucket.split()
    return int(number) * UNITS[unit.rstrip("s")]


def bucketed(moment: Column, bucket: str) -> Column:
    """The begin of a moment's bucket; null stays null (Spark's own window() drops such rows)."""
    from pyspark.sql import functions as f

    size = length(bucket)
    return f.timestamp_seconds(f.floor(f.unix_seconds(moment) / size) * size)


def timeline(pairs: Iterable[Pair], size: int, now: float) -> list[Bucket]:
    """Every bucket in which an item was put or done, in order."""
    put, ended, came, went = Counter[int](), Counter[int](), defaultdict[int, list[Pair]](list), Counter[int]()
    for pair in pairs:
        put[pair.bucket] += pair.n
        if pair.counts:
            came[pair.bucket].append(pair)
        if pair.gone is not None:
            ended[pair.gone] += pair.n
            went[max(pair.gone, pair.bucket)] += pair.n  # a slow clock: an item is not open before it was put
    waiting: list[tuple[float, float]] = []  # a heap of (first, gone): the oldest is on top
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
    """queue, site, bucket, put, ended; depth and oldest (seconds) at the bucket's end or now; p50, p95, p99 (seconds)."""
    from pyspark.sql import functions as f

    ended = f.when(f.col("verdict").isin(*TIMED), f.col("ended"))
    timed = items.withColumn("gone", bucketed(ended, bucket))
    counts = f.col("verdict").isin(*TIMED, *OPEN).alias("counts")
    seconds = [f.unix_seconds(each).alias(each) for each in ("bucket", "gone")]
    first = (f.unix_micros(f.min("created")) / 1e6).alias("first")
    pairs = timed.groupBy("queue", "site", *seconds, counts).agg(f.count("*").alias("n"), first).collect()
    took = f.percentile_approx("latency", LATENCIES, 1000).alias("took")
    latencies = timed.where("gone IS NOT NULL").groupBy("queue", "site", seconds[1]).agg(took).collect()
    return few(items.sparkSession, _rows(pairs, latencies, length(bucket), now), HEALTH)


def _rows(pairs: Iterable[Any], latencies: Iterable[Any], size: int, now: float) -> list[tuple[Any, ...]]:
    """The timeline of each queue and site, with the latencies of the items that were done in each bucket."""
    by: Mapping[tuple[str, str], list[Pair]] = defaultdict(list)
    for row in pairs:
        by[row["queue"], row["site"]].append(Pair(row["bucket"], row["gone"], row["n"], row["first"], row["counts"]))
    took = {(row["queue"], row["site"], row["gone"]): row["took"] for row in latencies}
    return [
        (*name, datetime.fromtimestamp(each.bucket, UTC), *each[1:], *took.get((*name, each.bucket), [None] * 3))
        for name, those in sorted(by.items())
        for each in timeline(those, size, now)
    ]
