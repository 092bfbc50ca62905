"""Joins by time: two streams whose events are close together, and events with the version that was valid at their time.

    near(goals, odds, "game", within=30)    each goal with the odds at most thirty seconds away
    as_of(goals, clubs, "team")             each goal with the row of its club at that time

In:  frames with a column for the key and a column for the event's time; `as_of`: the rows of a compacted topic.
Out: a frame with two columns, which are structs: the row of the left side, and the row that was found, or null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kqlib.errors import NotAllowed
from kqlib.queue.arguments import seconds
from kqlib.spark.table import LATE, MOST, came_late

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def near(
    left: DataFrame, right: DataFrame, on: str, *, at: str = "at", within: float = 30, late: float = LATE
) -> DataFrame:
    """Each row of `left` with each row of `right` that has the same `on` and is at most `within` seconds away: `left`, `right`.

    Rows that came more than `late` seconds after their event are left out: the rule of the standings (`came_late`). Both frames
    need `timestamp`, the record's time, and may be streams. Their watermark is `late` behind the newest event, and says what Spark may
    forget. A left row without a right one comes in a later batch and stays so. To correct it, call this on frames of both topics
    after the late rows were put back.
    """
    from pyspark.sql import functions as f

    gap, delay = seconds("within", within, 0, MOST), seconds("late", late, 0, MOST)

    def side(frame: DataFrame, name: str) -> DataFrame:
        if "timestamp" not in frame.columns:
            raise NotAllowed(f"near(…) needs the column `timestamp`, the record's time, and the {name} frame has none")
        event = f"struct({at} AS at) AS value"
        every = frame.selectExpr(f"struct(*) AS {name}", f"{on} AS {name}_on", f"{at} AS {name}_at", "timestamp", event)
        marked = every.where(f"({came_late(delay)}) IS NOT TRUE").drop("timestamp", "value")
        return marked.withWatermark(f"{name}_at", f"{delay} seconds")

    span = f"INTERVAL '{gap}' SECOND"
    close = f"left_on = right_on AND right_at BETWEEN left_at - {span} AND left_at + {span}"
    return side(left, "left").join(side(right, "right"), f.expr(close), "left").select("left", "right")


def as_of(events: DataFrame, versions: DataFrame, on: str, *, at: str = "at") -> DataFrame:
    """Each event with the last version of its `on` that was put at its time or before: `event`, `version`.

    versions: rows of a topic with `timestamp` and `offset`, as `items` has them; not a stream. In a stream of events call this in
    each batch, with new versions. Compaction removes old versions, and then an older event has none. So set min.compaction.lag.ms
    of that topic to more than events may be late.
    """
    from pyspark.sql import functions as f

    earlier = "struct(a.timestamp, a.offset) < struct(b.timestamp, b.offset)"
    every = f"array_sort(collect_list(struct(timestamp, offset, version)), (a, b) -> if({earlier}, -1, 1)) AS versions"
    history = versions.selectExpr(f"{on} AS _on", "timestamp", "offset", "struct(*) AS version").groupBy("_on")
    mine = events.selectExpr("struct(*) AS event", f"{on} AS _on", f"{at} AS _at")
    valid = "filter(versions, each -> each.timestamp <= _at)"
    found = mine.join(history.agg(f.expr(every)), "_on", "left")
    return found.selectExpr("event", f"try_element_at({valid}, -1).version AS version")
