"""Once more: old records through the same transformation, and dead letters repaired and put back. Dry first, then in earnest.

In:  a topic and from where to where; or a queue and a function that repairs. Out: `Replayed`: how many, partition by partition.

`replay` is a backfill by Spark. Without a transform a record keeps its key, value, headers and timestamp, and its partition if the
target has as many. So a replayed topic gives the same standings, audit and quarantine as its original. With a transform a record has
what the transform returns. The header kq-replay, the name of the run, is always added. The header kq-replay-of, the record that it
was made of, is added if the transform returns the column `id`. Spark's own Kafka sink cannot write a timestamp, so each task has a
producer. It writes at least once: a task that is tried again writes its records again. Where a record must not count twice, keep the
column `id` and count each kq-replay-of of a run once.

`repair` goes through the queue's own verbs: a dead letter is put back and done in one transaction, for its own site only, last in
line, at attempt 1. A crash in the middle leaves each letter either dead or put back.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib import topics
from kqlib.errors import KqError, LeaseLost, NotAllowed, NotInTime, PayloadTooLarge, TopicMissing
from kqlib.kafka import Kafka, settings
from kqlib.queue import Item, Put, Queue, dead, look
from kqlib.queue.arguments import OURS, count
from kqlib.queue.item import Out, size
from kqlib.queue.transactions import Ending
from kqlib.spark import frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN, OF = "kq-replay", "kq-replay-of"
ID = "concat_ws('/', topic, partition, offset) AS id"
SENT = 120.0  # seconds for the last records of a task
PEM = settings.FILES | {"ssl.ca.location": "ssl.ca.pem"}
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

    transform: what the stream does with `items`, a frame to a frame with key, value and timestamp; None: as they are. run: the run's
    name in the headers; give it again to write the same run again.
    """
    if source == target:
        raise NotAllowed(f"a replay of '{source}' into itself would put everything twice: name another topic")
    name, there = _run(run), topics.existing(cluster, [target]).get(target)
    if there is None:
        raise TopicMissing(topic=target)
    where: dict[str, Any] = {"start": start, "end": end}
    if transform is None:  # with its headers as they are: in the map that `items` makes each name is there once
        made = whole = frames.read(spark, cluster, source, **where).selectExpr("*", ID)
    else:
        whole = frames.items(spark, cluster, source, **where)
        made = _shape(transform(whole))
    if not dry:
        made.persist()  # computed once, for its count and for writing
    try:
        written, oldest = _by_partition(made)
        counted = written if made is whole else _by_partition(whole)[0]
        _keeps(target, there, oldest)
        if not dry:
            same = transform is None and len(cluster.partitions(source)) == there.partitions
            _write(made, cluster, target, name, same)
        return Replayed(name, dry, counted, written)
    finally:
        made.unpersist()


def _keeps(target: str, there: topics.Existing, oldest: int | None) -> None:
    """`NotAllowed` where the topic would not keep the records' times, or not the records."""
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


def _shape(made: Any) -> DataFrame:
    """A transformation gives a frame with key, value and timestamp."""
    columns = getattr(made, "columns", None)
    if columns is None:
        raise NotAllowed(f"a transform takes a frame and returns one, not {type(made).__name__}")
    if not {"key", "value", "timestamp"} <= set(columns):
        has = ", ".join(columns) or "nothing"
        raise NotAllowed(f"a transform returns a frame with key, value and timestamp; this one has {has}")
    frame: DataFrame = made
    return frame


def _by_partition(frame: DataFrame) -> tuple[dict[int, int], int | None]:
    """How many rows came of which partition, and the oldest time in milliseconds; without a column `partition` all are under -1."""
    from pyspark.sql import functions as f

    where = "partition" if "partition" in frame.columns else "-1 AS partition"
    found = frame.selectExpr(where, "coalesce(unix_millis(timestamp), 0) AS ms").groupBy("partition")
    rows = found.agg(f.count("*"), f.min("ms")).orderBy("partition").collect()
    return {row[0]: row[1] for row in rows}, min((row[2] for row in rows), default=None)


def _write(rows: DataFrame, cluster: Kafka, target: str, run: str, same: bool) -> None:
    """Each Spark partition by a producer of its own. same: every record into the partition that it came from."""
    more = [name if name in rows.columns else f"NULL AS {name}" for name in ("headers", "id")]
    where = "partition" if same else "-1 AS partition"
    out = rows.selectExpr("key", "value", "unix_millis(timestamp) AS ms", where, *more)
    files = {name for name in PEM if Path(str(cluster._own.get(name, ""))).is_file()}  # other machines do not have them
    own = {name: value for name, value in cluster._own.items() if name not in files}
    own |= {PEM[name]: Path(cluster._own[name]).read_text() for name in files}
    try:
        out.foreachPartition(partial(_send, cluster.bootstrap, own, target, run))
    except Exception as error:
        said = re.search(r"(?:errors|kafka|cimpl)\.\S*: (.+)", str(error))
        why = said[1] if said else str(error).splitlines()[0]
        raise NotAllowed(
            f"The replay into '{target}' stopped: {why}. What was written stays there. Once the cause is gone, replay again with "
            f"run='{run}': a record that is there twice has the same header {OF}"
        ) from None


def _send(bootstrap: str, own: Mapping[str, Any], target: str, run: str, rows: Iterable[Any]) -> None:
    """Runs on an executor: these rows as records, in their order; it returns when all are acknowledged."""
    from kqlib.kafka.clients import Producer

    failed: list[str] = []

    def done(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error.str())

    producer = Producer(Kafka(bootstrap, dict(own)).client(acks="all", linger_ms=20, enable_idempotence=True))
    for row in rows:
        record = {"value": _bytes(row.value), "key": _bytes(row.key), "headers": _headers(row, run)}
        while not failed:
            try:
                producer.produce(target, partition=row.partition, timestamp=row.ms, on_delivery=done, **record)
                break
            except BufferError:  # its queue is full: let it send
                producer.poll(0.1)
        producer.poll(0)
        if failed:
            break
    left = producer.flush(SENT)
    if failed:
        raise NotAllowed(failed[0])
    if left:
        raise NotInTime(seconds=SENT, why=f"the records to be in '{target}'", last=f"{left} are not acknowledged")


def _headers(row: Any, run: str) -> list[tuple[str, bytes | None]]:
    """The record's own headers, and where it comes from. The marks of an earlier replay are left out."""
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
        raise PayloadTooLarge(topic=queue.name, size=taken, limit=queue.facts.limit, safe="Nothing was stored.")
    return out
