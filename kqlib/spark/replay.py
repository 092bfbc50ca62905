"""Old records written again, and dead letters repaired and put back. A dry run, which is the default, only counts.

In:  a topic and the range to read; or a queue and a function that repairs.
Out: `Replayed`: how many records, by partition.

`replay` is a backfill by Spark. Without a transform a record keeps its key, value, headers and timestamp, and its partition if the
target has as many. So a replayed topic gives the same standings, audit and quarantine as its original. With a transform a record has
what the transform returns. The header kq-replay, the name of the run, is always added. The header kq-replay-of, the id of the original
record, is added if the transform returns the column `id`. Spark's own Kafka sink cannot write a timestamp, so each task has a
producer. It writes at least once: a task that is tried again writes its records again. Where a record must not count twice, keep the
column `id` and count each kq-replay-of of a run once.

`repair` is `queue.redrive` with new data: a dead letter is put back and done in one transaction, for its own site only, last in line,
at attempt 1. After a crash each letter is either dead or put back.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib import topics
from kqlib.errors import KqError, NotAllowed, PayloadTooLarge, TopicMissing
from kqlib.kafka import Kafka, settings
from kqlib.kafka.writing import write
from kqlib.queue import Item, Put, Queue, dead
from kqlib.queue.arguments import OURS, count
from kqlib.queue.item import Out
from kqlib.queue.redrive import Choice, Redrive
from kqlib.spark import frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN, OF = "kq-replay", "kq-replay-of"
ID = "concat_ws('/', topic, partition, offset) AS id"
FLUSH = 120.0  # seconds for the last records of a task
PEM = settings.FILES | {"ssl.ca.location": "ssl.ca.pem"}
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
        columns = {"read": self.read, "would be written" if self.dry else "written": self.written}
        if self.left:
            columns["left"] = self.left
        rows = [["partition", *columns]]
        for number in sorted({*self.read, *self.written, *self.left}):
            rows.append([str(number), *(f"{counts.get(number, 0):,}" for counts in columns.values())])
        rows.append(["all", *(f"{sum(counts.values()):,}" for counts in columns.values())])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)


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
    """Write a topic's records again, from a time or from offsets, into another topic; dry=True only counts.

    transform: what the stream does with `items`: a frame to a frame with key, value and timestamp; None: as they are. run: the run's
    name in the headers; give it again to write the same run again.
    """
    if source == target:
        raise NotAllowed(f"a replay of '{source}' into itself would put everything twice: name another topic")
    _check_order(frames.place("start", start), frames.place("end", end))
    name, there = _run(run), topics.existing(cluster, [target]).get(target)
    if there is None:
        raise TopicMissing(topic=target)
    where: dict[str, Any] = {"start": start, "end": end}
    if transform is None:  # not `items`: its map of headers has each name only once
        made = whole = frames.read(spark, cluster, source, **where).selectExpr("*", ID)
    else:
        whole = frames.items(spark, cluster, source, **where)
        made = _checked(transform(whole))
    if not dry:
        made.persist()  # computed once, for its count and for writing
    try:
        written, oldest = _by_partition(made)
        read = written if made is whole else _by_partition(whole)[0]
        _check_keeps(target, there, oldest)
        if not dry:
            same = transform is None and len(cluster.partitions(source)) == there.partitions
            _write(made, cluster, target, name, same)
        return Replayed(name, dry, read, written)
    finally:
        made.unpersist()


def _check_keeps(target: str, there: topics.Existing, oldest: int | None) -> None:
    """`NotAllowed` if the topic would not keep the timestamps or the records."""
    kept = int(there.config.get("retention.ms", -1)) if "delete" in there.config.get("cleanup.policy", "") else -1
    if there.config.get("message.timestamp.type") == "LogAppendTime":
        raise NotAllowed(
            f"'{target}' gives each record the time of its arrival (message.timestamp.type=LogAppendTime), so the records would lose "
            "theirs. Nothing was written. Set it to CreateTime, or name another topic"
        )
    if oldest is None:
        return
    if oldest <= 0:
        raise NotAllowed(
            "some of these records have no timestamp, and Kafka would give them the present time. Nothing was written. "
            "Replay with a transform that sets the column timestamp"
        )
    if 0 <= kept < datetime.now(UTC).timestamp() * 1000 - oldest:
        when = datetime.fromtimestamp(oldest / 1000, UTC)
        raise NotAllowed(
            f"'{target}' keeps records for {kept / 3_600_000:g} h, and the oldest here is of {when:%Y-%m-%d %H:%M} UTC: Kafka would "
            "delete it at once. Nothing was written. Set retention.ms=-1 on that topic, or replay from a later start"
        )


def _run(name: Any) -> str:
    if name is None:
        return f"replay-{secrets.token_hex(4)}"
    if isinstance(name, str) and re.fullmatch(r"[!-~]([ -~]{0,98}[!-~])?", name):
        return name
    raise NotAllowed(f"a run's name is text of 1 to 100 printable ASCII characters, not {name!r}")


def _check_order(start: frames.Place, end: frames.Place) -> None:
    """A start after the end is a slip: nothing would be written."""
    wrong = isinstance(start, datetime) and isinstance(end, datetime) and start > end
    if isinstance(start, Mapping) and isinstance(end, Mapping):
        wrong = any(at > end.get(number, at) for number, at in start.items())
    if wrong:
        raise NotAllowed(f"the start, {start}, is after the end, {end}")


def _checked(made: Any) -> DataFrame:
    """The frame of a transform; `NotAllowed` unless it has key, value and timestamp."""
    columns = getattr(made, "columns", None)
    if columns is None:
        raise NotAllowed(f"a transform takes a frame and returns one, not {type(made).__name__}")
    if not {"key", "value", "timestamp"} <= set(columns):
        has = ", ".join(columns) or "nothing"
        raise NotAllowed(f"a transform returns a frame with key, value and timestamp; this one has {has}")
    return made


def _by_partition(frame: DataFrame) -> tuple[dict[int, int], int | None]:
    """The number of rows by partition, and the oldest time in milliseconds. Without a column `partition` all are under -1."""
    from pyspark.sql import functions as f

    where = "partition" if "partition" in frame.columns else "-1 AS partition"
    found = frame.selectExpr(where, "coalesce(unix_millis(timestamp), 0) AS ms").groupBy("partition")
    rows = found.agg(f.count("*"), f.min("ms")).orderBy("partition").collect()
    return {row[0]: row[1] for row in rows}, min((row[2] for row in rows), default=None)


def _write(rows: DataFrame, cluster: Kafka, target: str, run: str, same: bool) -> None:
    """Write each Spark partition by a producer of its own. same: each record goes into the partition that it came from."""
    more = [name if name in rows.columns else f"NULL AS {name}" for name in ("headers", "id")]
    where = "partition" if same else "-1 AS partition"
    out = rows.selectExpr("key", "value", "unix_millis(timestamp) AS ms", where, *more)
    files = {name for name in PEM if Path(str(cluster._own.get(name, ""))).is_file()}  # other machines do not have them
    own = {name: value for name, value in cluster._own.items() if name not in files}
    own |= {PEM[name]: Path(cluster._own[name]).read_text() for name in files}
    try:
        out.foreachPartition(partial(_send, cluster.bootstrap, own, target, run))
    except Exception as error:
        found = re.search(r"(?:errors|kafka|cimpl)\.\S*: (.+)", str(error))
        why = found[1] if found else str(error).splitlines()[0]
        raise NotAllowed(
            f"The replay into '{target}' stopped: {why}. What was written stays there. Once the cause is gone, replay again with "
            f"run='{run}': a record that is there twice has the same header {OF}"
        ) from None


def _send(bootstrap: str, own: Mapping[str, Any], target: str, run: str, rows: Iterable[Any]) -> None:
    """Write these rows in their order; return when all are acknowledged. Runs on an executor."""
    records = (
        {"topic": target, "partition": row.partition, "timestamp": row.ms}
        | {"value": _bytes(row.value), "key": _bytes(row.key), "headers": _headers(row, run)}
        for row in rows
    )
    if why := write(Kafka(bootstrap, dict(own)), records, FLUSH, acks="all", linger_ms=20, enable_idempotence=True):
        raise NotAllowed(why)


def _headers(row: Any, run: str) -> list[tuple[str, bytes | None]]:
    """The record's own headers, the run, and the original record; not the marks of an earlier replay."""
    own = row.headers or []
    if isinstance(own, dict):
        own = reversed(own.items())  # `items` has the last header first
    kept = [(name, _bytes(value)) for name, value in own if name not in (RUN, OF)]
    return [*kept, (RUN, run.encode()), *([(OF, row.id.encode())] if row.id else [])]


def _bytes(value: Any) -> bytes | None:
    """Text or bytes, as Spark's own sink takes them."""
    return value if value is None else value.encode() if isinstance(value, str) else bytes(memoryview(value))


# --- dead letters -------------------------------------------------------------------------------------------------------


def repair(queue: Queue, fix: Fix, *, n: int | None = None, dry: bool = True) -> Replayed:
    """Put a queue's dead letters back as `fix(item)` makes them: new data, a `Put`, or None to leave one dead.

    n: at most so many are put back. dry=True only counts. Works on the partitions of this process, like `queue.redrive`.
    """
    if not isinstance(queue, Queue):
        raise NotAllowed(f"repair needs a queue of a site, as in site.queue('football'), not {type(queue).__name__}")
    if not callable(fix):
        raise NotAllowed(f"fix is called with a dead item, and {type(fix).__name__} cannot be called")
    most = sys.maxsize if n is None else count("n", n)
    run = Repair(queue, fix, dry)
    run.run(most)
    return Replayed("repair", dry, run.read, run.written, run.left)


class Repair(Redrive):
    """A redrive of letters that are mended first. It counts by partition."""

    def __init__(self, queue: Queue, fix: Fix, dry: bool) -> None:
        super().__init__(queue.dead, queue, Choice(), dry_run=dry, force=True)
        self.fix = fix
        self.read, self.written, self.left = Counter[int](), Counter[int](), Counter[int]()

    def _out(self, letter: Item) -> Out | None:
        """The record that puts the letter back; None: it stays dead."""
        fixed = self._fixed(letter)
        self.read[letter.partition] += 1
        (self.left if fixed is None else self.written)[letter.partition] += 1
        return fixed

    def _fixed(self, letter: Item) -> Out | None:
        try:
            made = self.fix(letter)
        except KqError:
            raise
        except Exception as error:
            raise NotAllowed(f"fix failed on {letter.id} ({type(error).__name__}: {error}); it stays dead") from error
        if made is None:
            return None
        out = dead.back(letter.record, self.into.name, self.into.site.name)
        if isinstance(made, Put):
            ours = [each for each in out.headers or [] if each[0].startswith(OURS)]
            out = out._replace(value=made.data, key=made.key, headers=[*made.all_headers, *ours])
        elif isinstance(made, bytes):
            out = out._replace(value=made)
        else:
            raise NotAllowed(f"fix returns bytes, a Put or None, not {type(made).__name__} (for {letter.id})")
        if out.size > self._limit:
            raise PayloadTooLarge(topic=self.into.name, size=out.size, limit=self._limit, safe="Nothing was stored.")
        return out
