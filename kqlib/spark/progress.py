"""How far a stream is: as numbers, as a line for people, and as a group whose lag all tools of Kafka show.

In:  a running query. Out: `seen(running)`, a `Progress`; `show(running, name)`, which prints it; `follow(query, cluster, group)`,
which commits the offsets of the checkpoint for a group. Spark itself commits nothing, so without `follow` no tool sees its lag.

Spark never reads the commits of that group, and moving them changes nothing. Only the checkpoint says where a query goes on.
"""

from __future__ import annotations

import ast
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TextIO

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.queue.arguments import site_name
from kqlib.runtime.notebook import display_handle
from kqlib.spark.stream import Counted, explained

log = logging.getLogger("kqlib.spark")
EVERY = 0.3  # seconds between two looks
Offsets = dict[str, dict[int, int]]


@dataclass(frozen=True, repr=False)
class Broke:
    """How many rows of a schema broke a rule. schema: its id. version: in its subject; None if unknown."""

    rule: str
    schema: int
    version: int | None
    rows: int

    def __repr__(self) -> str:
        which = "" if self.version is None else f" (version {self.version})"
        return f"rule '{self.rule}': {self.rows:,} rows of schema {self.schema}{which} broke it"


@dataclass(frozen=True, repr=False)
class Progress:
    """A stream after a batch: its number, its rows, rows a second, and the lag (records that are not read yet).

    state: of Spark's operators, and of the standings.
    """

    batch: int = -1
    rows: int = 0
    rate: float = 0.0
    lag: int = 0
    total: int = 0  # rows since this query was started
    counted: Counted | None = None  # what became of them, if `kq.spark.stream` runs it
    seconds: float = 0.0  # that the batch took
    lags: dict[str, int] = field(default_factory=dict)  # by partition, as in 'games/0'
    watermark: str | None = None  # None: the query has none, as the standings have none
    state_rows: int = 0
    state_bytes: int = 0
    restarts: int = 0  # of the query, for new schemas
    broke: list[Broke] = field(default_factory=list)  # by rule and schema, since the process was started

    @classmethod
    def read(cls, reports: list[Any]) -> Progress:
        """From a query's `recentProgress`. Before the first batch is done the batch is -1.

        Spark also reports while nothing arrives: without rows, but with the lag.
        """
        if not reports:
            return cls()
        last = next((each for each in reversed(reports) if each["numInputRows"]), reports[-1])
        rate, total = last.get("processedRowsPerSecond") or 0.0, sum(int(each["numInputRows"]) for each in reports)
        behind, operators = lags(reports[-1]), reports[-1].get("stateOperators") or ()
        return cls(
            int(last["batchId"]),
            int(last["numInputRows"]),
            float(rate),
            sum(behind.values()),
            total,
            seconds=(last.get("durationMs") or {}).get("triggerExecution", 0) / 1000,
            lags=behind,
            watermark=(reports[-1].get("eventTime") or {}).get("watermark"),
            state_rows=sum(int(each["numRowsTotal"]) for each in operators),
            state_bytes=sum(int(each["memoryUsedBytes"]) for each in operators),
        )

    @classmethod
    def noted(cls, values: dict[str, Any] | None) -> Progress:
        """From its `asdict`, as JSON has it."""
        found = dict(values or {})
        counted, broke = found.get("counted"), [Broke(**each) for each in found.get("broke", ())]
        return cls(**found | {"counted": Counted(**counted) if counted else None, "broke": broke})

    def __repr__(self) -> str:
        if self.batch < 0:
            return "no batch yet"
        counted = f" · {self.counted}" if self.counted else ""
        return f"batch {self.batch} · {self.rows:,} rows · {self.rate:,.0f} rows/s · lag {self.lag:,} records{counted}"

    @property
    def details(self) -> str:
        """What `repr` leaves out."""
        behind = f" · watermark {self.watermark}" if self.watermark else ""
        state = f"state {self.state_rows:,} rows, {self.state_bytes:,} bytes"
        return f"{self.seconds:.2f} s a batch · {state}{behind} · restarts {self.restarts}"

    @property
    def facts(self) -> dict[str, int]:
        """Numbers that are equal on every run."""
        return {"rows": self.total, "lag": self.lag} | ({} if self.counted is None else asdict(self.counted))


def ends(report: Any) -> Offsets:
    """Up to where a batch has read the topics of all its Kafka sources."""
    return _offsets(report, "endOffset")


def lags(report: Any) -> dict[str, int]:
    """How many records were there that this batch has not read, by partition, as in {'games/0': 12}."""
    read = ends(report)
    return {
        f"{topic}/{number}": max(0, offset - read.get(topic, {}).get(number, 0))
        for topic, parts in _offsets(report, "latestOffset").items()
        for number, offset in parts.items()
    }


def _offsets(report: Any, what: str) -> Offsets:
    found: Offsets = {}
    for source in report["sources"]:
        value = source.get(what)
        if isinstance(value, str) and value.startswith("{"):  # PySpark gives the text of a dict
            value = ast.literal_eval(value)
        if isinstance(value, dict):
            for topic, parts in value.items():
                found.setdefault(topic, {}).update({int(number): int(offset) for number, offset in parts.items()})
    return found


# --- a group that shows the lag -----------------------------------------------------------------------------------------


class Follower:
    """Commits a query's offsets for a group, until `stop()` or the query's end. `committed`: the last ones."""

    def __init__(self, query: Any, cluster: Kafka, group: str) -> None:
        self.query, self.cluster, self.group = query, cluster, site_name(group)
        self.committed: Offsets = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kq-follow", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Commit what is known, and nothing after that."""
        self._stop.set()
        self._thread.join(15)

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        from kqlib.kafka.clients import Consumer

        # A consumer outside of the group may commit while the group has no members. The AdminClient's call for this can end the
        # process while the coordinator is away.
        with closing(Consumer(self.cluster.client(group_id=self.group, group_protocol="classic"))) as consumer:
            over = False
            while not over:
                over = self._stop.wait(EVERY)
                query = self.query() if callable(self.query) else self.query
                with suppress(Exception):  # the JVM is gone: the caller of the query gets the error
                    over |= not query.isActive
                    self._commit(consumer, query)

    def _commit(self, consumer: Any, query: Any) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        report = query.lastProgress
        found = ends(report) if report else {}
        if not found or found == self.committed:
            return
        offsets = [TopicPartition(topic, n, offset) for topic, parts in found.items() for n, offset in parts.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:  # the coordinator moves: the next look tries again
            log.info("group '%s': %s", self.group, error.args[0].str(), extra={"group": self.group})
        else:
            self.committed = found


def follow(query: Any, cluster: Kafka, group: str) -> Follower:
    """From now on `kq kafka consumer-groups --describe --group GROUP` shows how far this query is.

    query: a StreamingQuery, or a function that returns the present one of a stream that restarts. The group has no members.
    """
    if not callable(query) and not hasattr(query, "lastProgress"):
        raise NotAllowed(f"follow needs a streaming query that runs, not {type(query).__name__}")
    return Follower(query, cluster, group)


# --- for people ---------------------------------------------------------------------------------------------------------


class ProgressLine:
    """Prints progress: a line that changes in a terminal, a line for each change in a file, a stable text in a notebook."""

    def __init__(self, name: str, out: TextIO | None = None) -> None:
        self.name, self.out = name, out or sys.stdout
        self._last, self._width, self._handle = "", 0, display_handle()

    def update(self, text: str, facts: dict[str, int]) -> None:
        """Show `text`, or in a notebook `facts`. The same text is shown once."""
        if text == self._last:
            return
        self._last = text
        if self._handle is not None:
            self._show(facts)
            return
        line = f"{self.name}: {text}"
        self.out.write(f"\r{line.ljust(self._width)}" if self.out.isatty() else f"{line}\n")
        self._width = len(line)
        self.out.flush()

    def end(self, facts: dict[str, int]) -> None:
        """Show the last state. A notebook stores it, so it has only what is the same on every run."""
        if self._handle is not None:
            self._show(facts)
        elif self.out.isatty():
            self.out.write("\n")

    def _show(self, facts: dict[str, int]) -> None:
        text = " · ".join([self.name, *(f"{what} {value:,}" for what, value in facts.items())])
        self._handle.update({"text/plain": text}, raw=True)


def seen(running: Any, reports: list[Any] | None = None) -> Progress:
    """Where a stream is now. running: the result of `kq.spark.stream` or `standings`. reports: its query's `recentProgress`."""
    now = Progress.read(list(running.query.recentProgress) if reports is None else reports)
    rows, size = running.state(now.batch)
    more = {"state_rows": now.state_rows + rows, "state_bytes": now.state_bytes + size}
    return replace(now, counted=running.counted, restarts=running.restarts, broke=broken(running), **more)


def broken(running: Any) -> list[Broke]:
    """How many rows broke which rule, by schema, since the stream was started."""
    found = sorted(running.broke.items())
    return [Broke(rule, number, running.version(number), rows) for (rule, number), rows in found]


def show(
    running: Any,
    name: str,
    stop: Callable[[], bool] = lambda: False,
    note: Callable[[Progress], object] = lambda _: None,
) -> Progress:
    """Wait for a stream and print its progress. End it when `stop` returns True; a stopped batch comes again at the next start.

    running: the result of `kq.spark.stream` or `standings`. note: is called with each progress that differs from the one before.
    """
    line, now, over = ProgressLine(name), Progress(), False
    rows: dict[tuple[str, int], int] = {}  # of each batch, since Spark remembers the last hundred only
    while not over and not stop():
        over, before = running.wait(EVERY), now
        try:
            reports = list(running.query.recentProgress)
        except Exception as error:  # the JVM is gone
            raise explained(error) from None
        for each in reports:
            at = (str(each["runId"]), int(each["batchId"]))
            rows[at] = max(rows.get(at, 0), int(each["numInputRows"]))
        now = replace(seen(running, reports), total=sum(rows.values()))
        if now != before:
            note(now)
        line.update(repr(now), now.facts)
    if not over:
        running.stop()
    line.end(now.facts)
    return now
