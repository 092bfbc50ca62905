"""A season in a topic, a driver that works it and can be killed, and the files of its checkpoint as they appear.

In:  a cluster, a directory. Out: `Season.wrong`: Parquet and Kafka compared with the same standings by hand.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import select
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast
from zlib import crc32

from kqlib.kafka import Kafka
from kqlib.schemas import Registry
from kqlib.spark.table import COLUMNS
from kqlib.topics import Plan, Topic
from kqlib.workshop import games, snapshot
from kqlib.workshop.children import ChildEnded, Children
from kqlib.workshop.driver import LIFE
from kqlib.workshop.games import seasons
from kqlib.workshop.games.seasons import FOR_EVER, produce
from kqlib.workshop.wire.processes import GONE, process_state
from tests.patience import PATIENCE, until
from tests.spark.hand import by_hand

ROWS = 30  # of each batch
ENDS = 10.0 * PATIENCE  # seconds until a JVM that was killed is gone
Row = list[Any]


def taken(kind: str, nth: int, share: str) -> bool:
    """Is the nth point of this kind one of this share, as 3/7? Each is in one share, also where a run has more or fewer of them."""
    at, shares = map(int, share.split("/"))
    return (crc32(kind.encode()) + nth) % shares == at - 1


class Season:
    """A topic of games, a topic of standings, and a directory: `add` rows, let a driver work them, then look what is `wrong`."""

    def __init__(self, cluster: Kafka, home: Path, size: int = 20_000) -> None:
        self.cluster, self.home, self.size, self.games = cluster, home, size, f"games-{secrets.token_hex(3)}"
        self.out = f"{self.games}.table"
        Plan({self.games: Topic(2, config=FOR_EVER), self.out: Topic(1, compact=True)}).apply(cluster, quiet=True)
        self.registry = Registry(cluster=cluster)
        season = games.season(size, late=0.03, doubled=0.05, corrections=0.1)
        # By game: so some rows are enough to change the standings, and each batch writes to both sinks.
        self._season, self.added = sorted(season, key=lambda row: (row.round, row.league, row.game)), 0

    @property
    def truth(self) -> list[tuple[Any, ...]]:
        """The standings of all rows that were added, by hand."""
        return by_hand(self._season[: self.added])

    def add(self, rows: int = ROWS) -> None:
        """More rows are in the topic, so many or some more: they change the standings."""
        before, start = self.truth, self.added
        self.added += rows
        while self.truth == before:
            self.added += 1
        more = self._season[start : self.added]
        produce(self.cluster, self.games, seasons.messages(more, self.registry, f"{self.games}-value"))

    def wrong(self, parquet: list[Row] | None) -> list[str]:
        """The sinks that differ from the standings of all rows by hand. parquet: what a driver that lives has read there."""
        assert parquet is not None, "the driver was killed: what it wrote is not judged"
        last = {each.key(): each.value() for each in snapshot.records(self.cluster, self.out)[0]}
        values = [self.registry.codec().decode(value) for value in last.values()]
        kafka = [[value[column] for column in COLUMNS] for value in values]
        found = {"Parquet": parquet, "Kafka": kafka}
        return [sink for sink, rows in found.items() if table(rows) != self.truth]


def table(rows: list[Row]) -> list[tuple[Any, ...]]:
    """In the order of `by_hand`."""
    return sorted(map(tuple, rows), key=lambda row: (row[0], row[2]))


class Driver:
    """A Spark driver, with its Python and its JVM as processes that can be killed."""

    def __init__(
        self,
        children: Children,
        cluster: Kafka,
        *,
        config: dict[str, str] | None = None,
        sink: dict[str, str] | None = None,
        executors: int = 0,
    ) -> None:
        """config: of its session. sink: more options of what writes to Kafka. executors: it waits for so many of them."""
        self._process = children.fork(serve, (cluster.bootstrap, cluster._own), config or {}, sink or {}, executors)
        self.python, self.jvm = self._process.receive(LIFE)

    def work(self, season: Season, moment: int = -1, most: int = 10_000) -> list[Row] | None:
        """The standings of all that is there, and their rows as Parquet. None: it was killed. `ChildEnded`: it failed by itself.

        moment: of its changes, when it kills itself. most: rows of a batch.
        """
        try:
            self._process.send((season.games, season.out, str(season.home), moment, most))
            rows: list[Row] = self._process.receive(LIFE)
        except ChildEnded as ended:
            if ended.why:
                raise
            self.kill()
            return None
        return rows

    def kill(self) -> None:
        """End both processes, and wait until they are gone: a stream has one driver."""
        self._process.kill()
        until(lambda: all(process_state(each) in GONE for each in (self.python, self.jvm)))


def serve(
    line: Connection, where: tuple[str, Any], config: dict[str, str], sink: dict[str, str], executors: int
) -> None:
    """The driver's own process: it works each season that it is sent."""
    from kqlib.spark import frames, session, standings
    from kqlib.spark.session import QUICK
    from kqlib.spark.snapshot import Files, Snapshot

    left, module = -1, cast(Any, sys.modules["kqlib.spark.session"])
    module.PATIENCE = LIFE  # for an executor: nothing is measured here

    def step() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def counted(work: Callable[..., Any]) -> Callable[..., Any]:
        def both_sides(*args: Any) -> Any:
            step()
            made = work(*args)
            step()
            return made

        return both_sides

    changes = ((Files, "_create"), (Files, "write"), (Files, "delete"), (Snapshot, "write"), (frames, "put"))
    for place, name in changes:
        setattr(place, name, counted(getattr(place, name)))
    cluster = Kafka(*where)
    options = frames.sink
    frames.sink = lambda *to: options(*to) | sink
    # Spark's own workers import from there
    os.environ["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)
    small = {"spark.driver.extraJavaOptions": QUICK, "spark.sql.shuffle.partitions": "2"}
    spark = session(cluster, config=small | config)
    memory = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
    jvm = module._now.jvm._child
    line.send((os.getpid(), jvm.pid))
    while True:
        source, out, home, left, most = line.recv()
        try:
            until(lambda: memory().size() == executors + 1)  # the driver counts as one
            how: dict[str, Any] = {"registry": Registry(cluster=cluster), "home": home, "once": True}
            standings(spark, cluster, source, out, maxOffsetsPerTrigger=most, **how).wait()
            left = -1
            line.send([list(row) for row in Snapshot(spark, home).read("teams").collect()])
        except Exception:
            if jvm.wait(ENDS) != -signal.SIGKILL:
                raise
            return  # its JVM was killed: its connections close a moment before it is gone


CREATED, MOVED = 0x100, 0x80  # inotify's events


@contextmanager
def killed_at(pid: int, folder: Path, name: str) -> Iterator[list[str]]:
    """Inside, the process dies of SIGKILL when a file of this name appears below the folder. Out: the names that have appeared.

    A name is as it is written or renamed; a number at random in it is a `*`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    libc, names, places = ctypes.CDLL(None, use_errno=True), list[str](), dict[int, Path]()
    watch, (over, end) = libc.inotify_init1(os.O_CLOEXEC), os.pipe()

    def appeared(path: Path) -> None:
        if path.is_dir():
            follow(path)
        elif (found := re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "*", str(path.relative_to(folder)))) not in names:
            if found == name:
                os.kill(pid, signal.SIGKILL)
            names.append(found)

    def follow(path: Path) -> None:
        places[libc.inotify_add_watch(watch, os.fsencode(path), CREATED | MOVED)] = path
        for each in sorted(path.iterdir()):  # it was there before the watch
            appeared(each)

    def look() -> None:
        while watch in select.select([watch, over], [], [])[0]:
            data = os.read(watch, 1 << 16)
            while data:
                place, _, _, size = struct.unpack_from("iIII", data)
                appeared(places[place] / os.fsdecode(data[16 : 16 + size].rstrip(b"\0")))
                data = data[16 + size :]

    follow(folder)
    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield names
    finally:
        os.close(end)
        looking.join()
        os.close(over)
        os.close(watch)
