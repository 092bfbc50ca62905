"""How far a stream is: as numbers, as a line, as a small table, and as a group whose lag every tool of Kafka's shows.

In:  a streaming query that runs. Out: `Progress`; `follow(query, cluster, group)`, which commits for a group what the checkpoint
has behind it. Spark keeps its offsets in the checkpoint and commits nothing: without this no lag is seen by anybody.

The group is a shadow: Spark never reads its commits, and moving them moves nothing. The checkpoint alone says where a query goes on.
"""

from __future__ import annotations

import ast
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, TextIO

from kqlib.errors import KqError, NotAllowed
from kqlib.kafka import Kafka
from kqlib.queue.arguments import site_name

log = logging.getLogger("kqlib.spark")
EVERY = 0.3  # seconds
LOST = ("data may have been lost", "KAFKA_DATA_LOSS", "failOnDataLoss", "OffsetOutOfRange")


@dataclass(frozen=True, repr=False)
class Counted:
    """What became of the rows of a stream: rows = out + broken + late. broken: not decoded; late: decoded, and too late to count."""

    rows: int = 0
    out: int = 0
    broken: int = 0
    late: int = 0

    def __add__(self, other: Counted) -> Counted:
        mine, theirs = astuple(self), astuple(other)
        return Counted(*(one + two for one, two in zip(mine, theirs, strict=True)))

    def __repr__(self) -> str:
        return f"{self.rows:,} in = {self.out:,} out + {self.broken:,} broken + {self.late:,} late"


@dataclass(frozen=True, repr=False)
class Progress:
    """A stream after a batch: `batch` (its number), `rows` (in it), `rate` (rows a second), `lag` (records not read yet)."""

    batch: int = -1
    rows: int = 0
    rate: float = 0.0
    lag: int = 0
    total: int = 0  # rows since this query was started
    counted: Counted | None = None  # what became of them, where `kq.spark.stream` runs it

    @classmethod
    def of(cls, query: Any) -> Progress:
        """A query's progress now; batch -1 before the first one is done."""
        return cls.read(list(query.recentProgress))

    @classmethod
    def read(cls, said: list[Any]) -> Progress:
        """What Spark said of its last batches, oldest first. It also says something while nothing comes: no rows, and the lag."""
        if not said:
            return cls()
        last = next((each for each in reversed(said) if each["numInputRows"]), said[-1])
        rate, total = last.get("processedRowsPerSecond") or 0.0, sum(int(each["numInputRows"]) for each in said)
        return cls(int(last["batchId"]), int(last["numInputRows"]), float(rate), lag(said[-1]), total)

    def __repr__(self) -> str:
        if self.batch < 0:
            return "no batch yet"
        became = f" · {self.counted}" if self.counted else ""
        return f"batch {self.batch} · {self.rows:,} rows · {self.rate:,.0f} rows/s · lag {self.lag:,} records{became}"

    @property
    def facts(self) -> dict[str, int]:
        """What is the same on every run."""
        return {"rows": self.total, "lag": self.lag} | ({} if self.counted is None else asdict(self.counted))


def ends(said: Any) -> dict[str, dict[int, int]]:
    """Up to where a batch has read, topic by topic, of all its Kafka sources."""
    return _offsets(said, "endOffset")


def lag(said: Any) -> int:
    """How many records were there that this batch has not read."""
    read, latest = ends(said), _offsets(said, "latestOffset")
    return sum(
        max(0, offset - read.get(topic, {}).get(number, 0))
        for topic, parts in latest.items()
        for number, offset in parts.items()
    )


def _offsets(said: Any, what: str) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for source in said["sources"]:
        value = source.get(what)
        if isinstance(value, str) and value.startswith("{"):  # PySpark gives the text of a dict
            value = ast.literal_eval(value)
        if isinstance(value, dict):
            for topic, parts in value.items():
                found.setdefault(topic, {}).update({int(number): int(offset) for number, offset in parts.items()})
    return found


# --- a group that shows the lag -----------------------------------------------------------------------------------------


class Follower:
    """Commits for a group what a query's checkpoint has behind it, until `stop()` or the query's end. `committed`: the last one."""

    def __init__(self, query: Any, cluster: Kafka, group: str) -> None:
        self.query, self.cluster, self.group = query, cluster, site_name(group)
        self.committed: dict[str, dict[int, int]] = {}
        self.trouble = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="kq-follow", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Commit what is known, and no more after that."""
        self._stop.set()
        self._thread.join(15)

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _go_on(self) -> None:
        from kqlib.kafka.clients import Consumer

        # A consumer that joins nothing may commit for a group without members. The AdminClient's call for this can end the
        # whole process while the coordinator is away.
        with closing(Consumer(self.cluster.client(group_id=self.group, group_protocol="classic"))) as member:
            over = False
            while not over:
                over = self._stop.wait(EVERY)
                query = self.query() if callable(self.query) else self.query
                with suppress(Exception):  # a JVM that is gone: the query's own caller hears of it
                    over |= not query.isActive
                    self._look(member, query)

    def _look(self, member: Any, query: Any) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        said = query.lastProgress
        found = ends(said) if said else {}
        if not found or found == self.committed:
            return
        wanted = [TopicPartition(topic, n, offset) for topic, parts in found.items() for n, offset in parts.items()]
        try:
            member.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:  # its coordinator moves: the next look tries again
            self.trouble = error.args[0].str()
            log.info("group '%s': %s", self.group, self.trouble)
        else:
            self.committed, self.trouble = found, ""


def follow(query: Any, cluster: Kafka, group: str) -> Follower:
    """From now on `kq kafka consumer-groups --describe --group GROUP` shows how far this query is.

    query: a StreamingQuery, or a function that gives the present one where it is restarted now and then. The group has no members.
    """
    if not callable(query) and not hasattr(query, "lastProgress"):
        raise NotAllowed(f"follow wants a streaming query that runs, not {type(query).__name__}")
    return Follower(query, cluster, group)


# --- for people ---------------------------------------------------------------------------------------------------------


class Shown:
    """Progress as somebody watches it: one line that changes in a terminal, a line a batch in a file, a table in a notebook."""

    def __init__(self, name: str, out: TextIO | None = None) -> None:
        self.name, self.out = name, out or sys.stdout
        self._last, self._handle, self._wide = "", _notebook(name), 0

    def say(self, text: str, **facts: int) -> None:
        """What is the case now: `text`, or in a notebook `facts`. The same twice is said once."""
        if text == self._last:
            return
        self._last = text
        if self._handle is not None:
            self._handle.update(Table(self.name, facts))
            return
        line = f"{self.name}: {text}"
        self.out.write(f"\r{line.ljust(self._wide)}" if self.out.isatty() else f"{line}\n")
        self._wide = len(line)
        self.out.flush()

    def end(self, **facts: int) -> None:
        """The last state. In a notebook only what is the same on every run (rows, lag), so that it can be stored and compared."""
        if self._handle is not None:
            self._handle.update(Table(self.name, facts))
        elif self.out.isatty():
            self.out.write("\n")


@dataclass(frozen=True, repr=False)
class Table:
    """A few numbers as a picture with a text twin."""

    name: str
    facts: dict[str, int]

    def __repr__(self) -> str:
        return " · ".join([self.name, *(f"{what} {value:,}" for what, value in self.facts.items())])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        cells = "".join(
            f"<tr><td>{what}</td><td style='text-align:right'>{n:,}</td></tr>" for what, n in self.facts.items()
        )
        return {
            "text/plain": repr(self),
            "text/html": f"<table><tr><th colspan='2'>{self.name}</th></tr>{cells}</table>",
        }


def _notebook(name: str) -> Any:
    """Where a notebook shows the table; None elsewhere."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    if shell is None or shell.__class__.__name__ != "ZMQInteractiveShell":
        return None
    return display(Table(name, {}), display_id=True)


def show(running: Any, name: str, stop: Callable[[], bool] = lambda: False) -> Progress:
    """Watch a stream to its end: a line in a terminal, in a notebook a small table whose last state is the same on every run."""
    shown = Shown(name)
    last = attend(running, shown, stop)
    shown.end(**last.facts)
    return last


def attend(running: Any, shown: Shown | None = None, stop: Callable[[], bool] = lambda: False) -> Progress:
    """Wait until a stream ends, or end it when `stop` says so; what it failed of is a sentence of ours.

    running: what `kq.spark.stream` or `standings` gives, or a StreamingQuery. A batch that is stopped comes again at the next start.
    """
    wait = running.wait if hasattr(running, "wait") else running.awaitTermination
    rows: dict[tuple[str, int], int] = {}  # of each batch: Spark itself remembers the last hundred
    now, over = Progress(), False
    while not over and not stop():
        try:
            over = wait(EVERY)
            said = list((running.query if hasattr(running, "query") else running).recentProgress)
        except Exception as error:
            raise explained(error) from None
        for each in said:
            at = (str(each["runId"]), int(each["batchId"]))
            rows[at] = max(rows.get(at, 0), int(each["numInputRows"]))
        now = replace(Progress.read(said), total=sum(rows.values()), counted=getattr(running, "counted", None))
        if shown is not None:
            shown.say(repr(now), **now.facts)
    if not over:
        running.stop()
    return now


def explained(error: BaseException) -> KqError:
    """What stopped a stream or a batch, in a sentence; what Spark says of lost data, with what to do about it."""
    if isinstance(error, KqError):
        return error
    said = str(error).strip()
    if lost(error):
        return NotAllowed(
            "Records that this query had still to read are gone: retention deleted them while it stood still, or their topic was "
            "made anew. Nothing was skipped in silence, and its checkpoint is as it was. Choose: go on with a gap, and know it "
            "(failOnDataLoss=false for one run; Spark only logs what it skips); or begin again from what is left, with a "
            "new checkpoint and new output. Then keep records longer than a stream may stand still (retention.ms). "
            f"Spark says: {first_line(said)}"
        )
    return NotAllowed(f"Spark ended the query: {first_line(said)}")


def lost(error: BaseException) -> bool:
    """Does Spark say that records are gone?"""
    return any(word in str(error) for word in LOST)


def first_line(said: str) -> str:
    """The line of an error of Spark's that says what happened."""
    lines = [
        line.strip()
        for line in said.splitlines()
        if line.strip() and not line.strip().startswith(("at ", "==", "Query ["))
    ]
    telling = [line for line in lines if any(word in line for word in LOST)]
    return (telling or lines or ["no reason"])[0][:400]


__all__ = ["Counted", "Follower", "Progress", "Shown", "attend", "ends", "explained", "follow", "lag", "lost", "show"]
