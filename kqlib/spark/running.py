"""A decoded stream that meets new schemas: `stream(items, registry, "football-value", each, checkpoint)`.

In:  a streaming frame, a registry, a subject, a function `each(good, bad, batch)`. Out: `Running`: to wait for and to stop.

A running plan cannot gain a branch. So when a batch holds an id that has none, and the registry knows it by now, the batch is not
committed: the query ends, and starts again on its checkpoint with the new branch; the same rows come again, and none twice, since
`each` never saw them. An id that the registry does not know either is bad, and the batch goes on.

Each batch is counted: rows = out + broken + late (`Running.counted`), so that no row is left out in silence.

`each` runs once or several times for a batch, with the same rows and number: what it writes it must replace, not add.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kqlib.errors import KqError, NotAllowed
from kqlib.spark.decode import Decoded, decode, good
from kqlib.spark.progress import Counted, explained, lost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from kqlib.schemas import Registry

Each = Callable[["DataFrame", "DataFrame", int], object]


class Running:
    """A stream that runs: `wait()` for its end, `stop()` it, look at its `query`."""

    def __init__(self, start: Callable[[Running], StreamingQuery]) -> None:
        self.restarts = 0  # how often a new schema came
        self.counted = Counted()  # what became of the rows of all batches since the start
        self.error: BaseException | None = None
        self._start, self._stopping, self._again = start, False, False
        self._cause: Exception | None = None
        self._lock = threading.Lock()
        self.query: Any = start(self)
        self._thread = threading.Thread(target=self._watch, name="kqlib-stream", daemon=True)
        self._thread.start()

    @property
    def active(self) -> bool:
        """Does it run?"""
        return self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for its end, so many seconds at most; did it end? What went wrong is raised."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self.error is not None:
            raise self.error
        return True

    def stop(self) -> None:
        """End it; a batch that is under way comes again at the next start."""
        with self._lock:
            self._stopping = True
        self.query.stop()
        self._thread.join()

    def again(self) -> None:
        """Start it anew when this batch has failed: called from within one."""
        self._again = True

    def failed(self, cause: Exception) -> None:
        """What this batch failed of, as it was raised: Spark would tell it as text."""
        self._cause = cause

    def _watch(self) -> None:
        while True:
            try:
                self.query.awaitTermination()
            except Exception as error:
                self.error = error
            with self._lock:
                if self._stopping or not self._again:
                    break
                self._again, self.error, self._cause, self.restarts = False, None, None, self.restarts + 1
                try:
                    self.query = self._start(self)
                except Exception as error:
                    self.error = error
                    break
        if self._stopping:
            self.error = None
        elif self.error is not None:
            from py4j.protocol import Py4JError
            from pyspark.errors import PySparkException

            spark_said = self._cause is None or isinstance(self._cause, PySparkException | Py4JError)
            told = self.error if lost(self.error) else self._cause or self.error  # the cause alone says it in a line
            self.error = explained(told) if spark_said else self._cause


def stream(
    df: DataFrame,
    registry: Registry,
    reader: str,
    each: Each,
    checkpoint: str,
    *,
    schema: Any = None,
    once: bool = False,
    every: str | None = None,
    late: str = "false",
) -> Running:
    """Decode a stream and give each batch to `each(good, bad, batch)`; a schema that appears meanwhile is taken up.

    once: end when everything that is there now is done. every: '10 seconds' between batches; else as fast as they come.
    late: a condition in SQL; rows of which it is true are counted as late (`_kq.value` is the decoded value).
    """
    if not getattr(df, "isStreaming", False):
        raise NotAllowed("stream(df, …) needs a streaming frame, from spark.readStream; decode(df, …) takes any other")
    if not callable(each):
        raise NotAllowed(f"each is a function of (good, bad, batch), not {type(each).__name__}")
    if once and every:
        raise NotAllowed("a stream runs once, or every so often: say one of them")
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": every} if every else {}

    def start(running: Running) -> StreamingQuery:
        decoded = decode(df, registry, reader, schema=schema)
        writer = decoded.rows.writeStream.foreachBatch(_batch(decoded, each, running, late))
        writer = writer.option("checkpointLocation", checkpoint)
        return (writer.trigger(**trigger) if trigger else writer).start()

    return Running(start)


def _batch(decoded: Decoded, each: Each, running: Running, late: str) -> Callable[[DataFrame, int], None]:
    def batch(rows: DataFrame, number: int) -> None:
        rows = rows.persist()  # decoded once, whatever `each` does with it
        try:
            found = decoded.unexpected(rows)
            if found and set(found) & set(decoded.registry.ids(decoded.subject)):
                running.again()
                raise KqError(f"schema {found} appeared; the query starts again with it")
            each(good(rows), decoded.quarantined(rows, found), number)
            running.counted += _counted(rows, late)
        except Exception as error:
            running.failed(error)
            raise
        finally:
            rows.unpersist()

    return batch


def _counted(rows: DataFrame, late: str) -> Counted:
    """What became of a batch's rows."""
    decoded, is_late = "_kq IS NOT NULL", f"coalesce({late}, false)"
    conditions = (f"{decoded} AND NOT {is_late}", "_kq IS NULL", f"{decoded} AND {is_late}")
    return Counted(*rows.selectExpr("count(*)", *(f"count_if({each})" for each in conditions)).collect()[0])
