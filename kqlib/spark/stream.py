"""A decoded stream that takes up new schemas: `stream(items, registry, "football-value", each, checkpoint)`.

In:  a streaming frame, a registry, a subject, a function `each(good, bad, batch)`. Out: `Running`: to wait for and to stop.

A running plan cannot get another branch. If a batch has an id without a branch, and the registry knows it by now, the batch is not
committed. The query ends and starts again on its checkpoint, with the new branch. The same rows come again, and none twice, since
`each` has not seen them. Rows with an id that the registry does not know are bad, and the batch goes on.

Each batch is counted: rows = out + broken + late (`Running.counted`), so that no row is left out silently.

`each` may run several times for a batch, with the same rows and the same number. It must replace what it wrote, not add to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from kqlib.errors import KqError, NotAllowed
from kqlib.spark.decode import Decoded, decode, good
from kqlib.spark.rules import Broken, Rule, Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from kqlib.schemas import Registry

Each = Callable[["DataFrame", "DataFrame", int], object]
LOST = ("data may have been lost", "KAFKA_DATA_LOSS", "failOnDataLoss", "OffsetOutOfRange")


@dataclass(frozen=True, repr=False)
class Counted:
    """What became of the rows of a stream: rows = out + broken + late. broken: not decoded, or put aside by a rule.

    late: decoded, but too late to count.
    """

    rows: int = 0
    out: int = 0
    broken: int = 0
    late: int = 0

    def __add__(self, other: Counted) -> Counted:
        return Counted(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    def __repr__(self) -> str:
        return f"{self.rows:,} in = {self.out:,} out + {self.broken:,} broken + {self.late:,} late"


class Batches:
    """What became of some batches."""

    def __init__(self) -> None:
        self.counted = Counted()  # the rows of all batches since the start
        self.broke = Broken()  # of these, by rule and schema's id
        self.cause: Exception | None = None  # the exception of the last batch; Spark passes on its text only
        self.restarting = False  # for a new schema


class Running(Batches):
    """A running stream: `wait()` for its end, `stop()` it, look at its `query`."""

    def __init__(self, start: Callable[[Running], StreamingQuery]) -> None:
        super().__init__()
        self.restarts = 0  # for new schemas
        self.error: BaseException | None = None
        self.measure: Callable[[], tuple[int, int]] = lambda: (0, 0)  # rows and bytes of the state that `each` keeps
        self.version: Callable[[int], int | None] = lambda number: None  # of the subject, by a schema's id
        self._state = -1, (0, 0)  # after which batch
        self._start, self._stopping = start, False
        self._lock = threading.Lock()
        self.query: Any = start(self)
        self._thread = threading.Thread(target=self._watch, name="kqlib-stream", daemon=True)
        self._thread.start()

    @property
    def active(self) -> bool:
        """Does it run?"""
        return self._thread.is_alive()

    def state(self, batch: int) -> tuple[int, int]:
        """The rows and bytes of the state that `each` keeps, measured once a batch."""
        if batch != self._state[0]:
            with suppress(Exception):  # the next batch has just replaced these files
                self._state = batch, self.measure()
        return self._state[1]

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, for so many seconds at most; out: did it end? Its error is raised."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self.error is not None:
            raise self.error
        return True

    def stop(self) -> None:
        """End it. A batch that is not finished comes again at the next start."""
        with self._lock:
            self._stopping = True
        self.query.stop()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            error: BaseException | None = None
            try:
                self.query.awaitTermination()
            except Exception as ended:
                error = ended
            with self._lock:
                if self._stopping:
                    return
                if not self.restarting:
                    self.error = None if error is None else self._explained(error)
                    return
                self.restarting, self.cause, self.restarts = False, None, self.restarts + 1
                try:
                    self.query = self._start(self)
                except Exception as failed:
                    self.error = self._explained(failed)
                    return

    def _explained(self, error: BaseException) -> BaseException:
        """An exception of `each` as it was raised; Spark's own errors as a sentence."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if self.cause is not None and not isinstance(self.cause, PySparkException | Py4JError):
            return self.cause
        return explained(error if lost(error) or self.cause is None else self.cause)


def stream(
    df: DataFrame,
    registry: Registry,
    subject: str,
    each: Each,
    checkpoint: str,
    *,
    once: bool = False,
    late: str = "false",
    aside: Callable[[DataFrame], object] | None = None,
    rules: Sequence[Rule] = (),
    schema: Any = None,
) -> Running:
    """Decode a stream and give each batch to `each(good, bad, batch)`. Schemas that are registered meanwhile are taken up.

    once: end when all that is there now is done; else it goes on, without a pause between batches.
    late: an SQL condition; the rows for which it is true are counted as late (`_kq.value` is the decoded value).
    aside: a function that gets the late rows of each batch, as they came and with `_kq`, before `each`.
    rules: what a row has to meet (`rules.py`); the rows that are put aside are in `bad`. schema: as for `decode`.
    """
    if not getattr(df, "isStreaming", False):
        raise NotAllowed("stream(df, …) needs a streaming frame, from spark.readStream; decode(df, …) takes any other")
    if not callable(each):
        raise NotAllowed(f"each is a function of (good, bad, batch), not {type(each).__name__}")

    judge = Rules(rules, checkpoint) if rules else None

    def start(running: Running) -> StreamingQuery:
        decoded = decode(df, registry, subject, schema=schema)
        rows = judge.marked(decoded.rows) if judge else decoded.rows
        writer = rows.writeStream.foreachBatch(batch_of(decoded, each, running, late=late, aside=aside, judge=judge))
        writer = writer.option("checkpointLocation", checkpoint)
        return (writer.trigger(availableNow=True) if once else writer).start()

    running = Running(start)
    running.version = _versions(registry, subject)
    return running


def _versions(registry: Registry, subject: str) -> Callable[[int], int | None]:
    """The function that gives the version of a subject by its schema's id. The registry is asked about an id once."""
    known: dict[int, int | None] = {}

    def version(number: int) -> int | None:
        if number not in known:
            known[number] = None
            with suppress(KqError):
                known.update({registry.version(subject, each).id: each for each in registry.versions(subject)})
        return known[number]

    return version


def batch_of(
    decoded: Decoded,
    each: Each,
    running: Batches,
    *,
    late: str,
    aside: Callable[[DataFrame], object] | None,
    judge: Rules | None,
) -> Callable[[DataFrame, int], None]:
    """The function for a batch of rows and its number: it calls `each`, and counts in `running`."""

    def batch(rows: DataFrame, number: int) -> None:
        try:
            # decoded once, however often `each` reads it
            rows = (judge.judged(rows, number, late) if judge else rows).persist()
            found = decoded.unexpected(rows)
            if found and set(found) & set(decoded.registry.ids(decoded.subject)):
                running.restarting = True
                raise KqError(f"schema {found} appeared; the query starts again with it")
            broke, bad, rest = Broken(), decoded.quarantined(rows, found), rows
            if judge:
                broke, bad, rest = judge.counted(rows), Rules.explained(bad), rows.drop("_broke", "_id")
                judge.remember(rows, number)
            if aside is not None:
                aside(rest.where(f"_kq IS NOT NULL AND ({late})"))
            each(good(rest), bad, number)
            running.counted += _counted(rows, late)
            running.broke += broke
        except Exception as error:
            running.cause = error
            raise
        finally:
            rows.unpersist()

    return batch


def _counted(rows: DataFrame, late: str) -> Counted:
    """What became of a batch's rows."""
    decoded, is_late = "_kq IS NOT NULL", f"coalesce({late}, false)"
    conditions = (f"{decoded} AND NOT {is_late}", "_kq IS NULL", f"{decoded} AND {is_late}")
    return Counted(*rows.selectExpr("count(*)", *(f"count_if({each})" for each in conditions)).collect()[0])


# --- Spark's errors in a sentence ----------------------------------------------------------------------------------------


def explained(error: BaseException) -> KqError:
    """Why a stream or a batch ended, in a sentence. Lost data are explained, with what to do."""
    if isinstance(error, KqError):
        return error
    if lost(error):
        return NotAllowed(
            "Records that this query had still to read are gone: retention deleted them while it stood still, or their topic was "
            "made anew. Nothing was skipped in silence, and its checkpoint is as it was. Choose: go on with a gap, and know it "
            "(failOnDataLoss=false for one run; Spark only logs what it skips); or begin again from what is left, with a "
            "new checkpoint and new output. Then keep records longer than a stream may stand still (retention.ms). "
            f"Spark says: {first_line(str(error))}"
        )
    return NotAllowed(f"Spark ended the query: {first_line(str(error))}")


def lost(error: BaseException) -> bool:
    """Does Spark say that records are gone?"""
    return any(word in str(error) for word in LOST)


def first_line(text: str) -> str:
    """The line of Spark's error that says what happened."""
    stripped = [line.strip() for line in text.splitlines()]
    lines = [line for line in stripped if line and not line.startswith(("at ", "==", "Query ["))]
    about_loss = [line for line in lines if any(word in line for word in LOST)]
    return (about_loss or lines or ["no reason"])[0][:400]
