"""Once more: old records through the same transformation, and dead letters repaired and put back. Dry first, then in earnest.

In:  a topic and from where to where; or a queue and a function that repairs. Out: `Replayed`: how many, partition by partition.

`replay` is a backfill by Spark. Each record that it writes says so in its headers (kq-replay: the name of the run, kq-origin: the
record that it was made of). Spark's Kafka sink writes at least once: a task that is tried again writes its records again, and
whoever must not count twice counts each kq-origin of a run once.

`repair` goes through the queue's own verbs: a dead letter is put back and done in one transaction, for its own site only, last in
line, at attempt 1. A crash in the middle leaves each letter either dead or put back.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kqlib.broker import Kafka
from kqlib.errors import KqError, LeaseLost, NotAllowed, PayloadTooLarge
from kqlib.queue import Item, Put, Queue, dead, look
from kqlib.queue.arguments import OURS, count
from kqlib.queue.ending import Ending
from kqlib.queue.item import Out, size
from kqlib.spark import frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN, ORIGIN = "kq-replay", "kq-origin"
MOST = 100_000  # dead letters of one dry run
AT_ONCE = 100  # dead letters of a transaction
Transform = Callable[["DataFrame"], "DataFrame"]
Fix = Callable[[Item], "bytes | Put | None"]


@dataclass(frozen=True, repr=False)
class Replayed:
    """What a replay did, or would do: records read and written, by the partition they were read from; `left`: not put back."""

    run: str
    dry: bool
    read: Mapping[int, int]
    written: Mapping[int, int]
    left: Mapping[int, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        numbers = sorted({*self.read, *self.written, *self.left})
        heads = ["partition", "read", "would be written" if self.dry else "written", *["left"] * bool(self.left)]
        parts: list[Mapping[int, int]] = [self.read, self.written, *([self.left] if self.left else [])]
        rows = [[str(n), *(f"{each.get(n, 0):,}" for each in parts)] for n in numbers]
        rows.append(["all", *(f"{sum(each.values()):,}" for each in parts)])
        wide = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
        return "\n".join("  ".join(cell.rjust(wide[at]) for at, cell in enumerate(row)) for row in [heads, *rows])


# --- a backfill -----------------------------------------------------------------------------------------------------------


def replay(
    spark: SparkSession,
    cluster: Kafka,
    source: str,
    target: str,
    *,
    transform: Transform | None = None,
    start: frames.Place = "earliest",
    end: frames.Place = "latest",
    run: str | None = None,
    dry: bool = True,
) -> Replayed:
    """Write a topic's records once more, from a time or from offsets, into another topic; dry=True only counts.

    transform: what the stream does with `items`, a frame to a frame with key and value; None: as they are. run: the run's name in
    the headers; give it again to write the same run again.
    """
    if source == target:
        raise NotAllowed(f"a replay of '{source}' into itself would put everything twice: name another topic")
    name = _run(run)
    cluster.partitions(target)  # TopicMissing, before anything is read
    whole = frames.items(spark, cluster, source, start=start, end=end)
    made = _shape(whole if transform is None else transform(whole))
    read = _by_partition(whole)
    if dry:
        return Replayed(name, True, read, _by_partition(made))
    made.persist()  # computed once, for its count and for writing
    try:
        _write(made, cluster, target, name)
        return Replayed(name, False, read, _by_partition(made))
    finally:
        made.unpersist()


def _run(name: Any) -> str:
    if name is None:
        return f"replay-{secrets.token_hex(4)}"
    if isinstance(name, str) and re.fullmatch(r"[!-~]([ -~]{0,98}[!-~])?", name):
        return name
    raise NotAllowed(f"a run's name is text of 1 to 100 printable ASCII characters, not {name!r}")


def _shape(made: Any) -> DataFrame:
    """A transformation gives a frame with key and value."""
    columns = getattr(made, "columns", None)
    if columns is None:
        raise NotAllowed(f"a transform takes a frame and returns one, not {type(made).__name__}")
    if "value" not in columns or "key" not in columns:
        raise NotAllowed(
            f"a transform returns a frame with key and value; this one has {', '.join(columns) or 'nothing'}"
        )
    frame: DataFrame = made
    return frame


def _by_partition(frame: DataFrame) -> dict[int, int]:
    """How many rows came of which partition; a transformation that forgets it has them all under -1."""
    if "partition" not in frame.columns:
        return {-1: frame.count()}
    return {row["partition"]: row["count"] for row in frame.groupBy("partition").count().orderBy("partition").collect()}


def _write(rows: DataFrame, cluster: Kafka, target: str, run: str) -> None:
    """Key and value as text or bytes, the record's own headers, and ours."""
    from pyspark.sql import functions as f

    from kqlib.spark.session import sink

    marks = [f.struct(f.lit(RUN).alias("key"), f.lit(run.encode()).alias("value"))]
    if "id" in rows.columns:
        marks.append(f.struct(f.lit(ORIGIN).alias("key"), f.col("id").cast("binary").alias("value")))
    headers = f.array(*marks)
    if "headers" in rows.columns:
        own = f.filter(f.map_entries("headers"), lambda each: ~each.key.startswith(OURS))
        headers = f.concat(f.coalesce(own, f.array().cast("array<struct<key:string,value:binary>>")), headers)
    rows.select("key", "value", headers.alias("headers")).write.format("kafka").options(**sink(cluster, target)).save()


# --- dead letters -------------------------------------------------------------------------------------------------------


def repair(queue: Queue, fix: Fix, *, n: int | None = None, dry: bool = True) -> Replayed:
    """Put a queue's dead letters back as `fix(item)` makes them: new data, a `Put`, or None to leave one dead.

    n: at most so many are put back. dry=True only counts: nothing is claimed or written. Works on the partitions of this process.
    """
    if not isinstance(queue, Queue):
        raise NotAllowed(f"repair wants a queue of a site, as in site.queue('football'), not {type(queue).__name__}")
    if not callable(fix):
        raise NotAllowed(f"fix is called with a dead item, and {type(fix).__name__} cannot be called")
    most = MOST if n is None else count("n", n)
    letters = queue.dead
    return _would(queue, letters, fix, most) if dry else _really(queue, letters, fix, most)


def _would(queue: Queue, letters: Queue, fix: Fix, most: int) -> Replayed:
    read, back, left = Counter[int](), Counter[int](), Counter[int]()
    for item in look.peek(queue.site, letters.name, MOST):
        if sum(back.values()) >= most:
            break
        read[item.partition] += 1
        fixed = _fixed(queue, item, fix)
        (left if fixed is None else back)[item.partition] += 1
    return Replayed("repair", True, read, back, left)


def _really(queue: Queue, letters: Queue, fix: Fix, most: int) -> Replayed:
    read, back, left = Counter[int](), Counter[int](), Counter[int]()
    kept: dict[str, Item] = {}  # stay claimed until the end, so that they do not come again meanwhile
    try:
        while (room := most - sum(back.values())) > 0 and (items := letters.claim_many(min(AT_ONCE, room))):
            new = [item for item in items if item.id not in kept]
            kept |= {item.id: item for item in items}
            if not new:
                break
            read.update(item.partition for item in new)
            fixed = {item: out for item in new if (out := _fixed(queue, item, fix)) is not None}
            left.update(item.partition for item in new if item not in fixed)
            _put_back(queue, letters, fixed)
            back.update(item.partition for item in fixed)
            for item in fixed:
                del kept[item.id]
    finally:
        for item in kept.values():
            with suppress(LeaseLost):
                letters.release(item)
    return Replayed("repair", False, read, back, left)


def _put_back(queue: Queue, letters: Queue, fixed: dict[Item, Out]) -> None:
    """All of them in one transaction: there, and done here."""
    if not fixed:
        return
    with queue._member.changed:
        held = [(letters._held(item), item.offset, item.lease) for item in fixed]
        queue.site._end(Ending(list(fixed.values()), held))


def _fixed(queue: Queue, item: Item, fix: Fix) -> Out | None:
    """The record that puts it back, as redrive would write it, but for what was repaired."""
    try:
        said = fix(item)
    except KqError:
        raise
    except Exception as error:
        raise NotAllowed(f"fix failed on {item.id} ({type(error).__name__}: {error}); it stays dead") from error
    plain = dead.back(item.record, queue.name, queue.site.name)
    if said is None:
        return None
    if isinstance(said, Put):
        ours = [each for each in plain.headers or [] if each[0].startswith(OURS)]
        out = plain._replace(value=said.data, key=said.key, headers=[*said.all_headers, *ours])
    elif isinstance(said, bytes):
        out = plain._replace(value=said)
    else:
        raise NotAllowed(f"fix returns bytes, a Put or None, not {type(said).__name__} (for {item.id})")
    taken = size(out.value, out.key, out.headers or [])
    if taken > queue.facts.limit:
        raise PayloadTooLarge(topic=queue.name, size=taken, limit=queue.facts.limit)
    return out
