"""The exercises of 10-virtual-queues: which node has a queue, reading one's own in a shared partition, and a mover for an outbox."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from kqlib import virtual
from kqlib.topics import Plan
from kqlib.workshop.checks import Case, Exercise, Tried
from kqlib.workshop.checks.broker import kafka, new_topic


def node_of(hashed: int, owners: dict) -> str | None:
    return owners[str((hashed & 0x7FFFFFFF) % len(owners))]


def by_abs(hashed: int, owners: dict) -> str | None:
    """abs() is not the mask: it turns -5 into 5. The mask only takes the sign bit away."""
    return owners[str(abs(hashed) % len(owners))]


def with_the_sign(hashed: int, owners: dict) -> str | None:
    """A negative hash needs its sign bit taken away first: hashed & 0x7fffffff."""
    return owners[str(hashed % len(owners))]


def by_and(hashed: int, owners: dict) -> str | None:
    """`& (n - 1)` equals a modulo only where n is a power of two. Use %."""
    masked = hashed & 0x7FFFFFFF
    return owners[str(masked & (len(owners) - 1))]


def those_that_are_there(hashed: int, owners: dict) -> str | None:
    """The partition depends on the number of all partitions, not of those that have an owner now."""
    there = [owner for owner in owners.values() if owner]
    return there[(hashed & 0x7FFFFFFF) % len(there)]


TWO = {"0": "http://a", "1": "http://b"}
THREE = {"0": "http://a", "1": "http://b", "2": "http://c"}
SIX = {str(number): f"http://{name}" for number, name in enumerate("abcdef")}
NODE = Exercise(
    id="10.1",
    ask="without the sign bit, modulo the number of partitions; and that partition's owner, if it has one",
    task="return the address of the node that owns the queue's partition, or None",
    cases=[
        Case((275646681, TWO), "http://b", hint="The hash is odd: with two partitions it is partition 1."),
        Case(
            (479470107, THREE), "http://a", "three is no power of two", "479470107 is a multiple of three: partition 0."
        ),
        Case((-2138650532, THREE), "http://a", hint="Without its sign bit it is 8833116, a multiple of three."),
        Case((-1892391194, SIX), "http://a", hint="Without its sign bit it is 255092454, a multiple of six."),
        Case(
            (316155434, {**THREE, "2": None}), None, hint="No node has partition 2 now. No other node has its queues."
        ),
        Case((-2147483648, TWO), "http://a", hint="The smallest of 32 bits: without its sign bit it is 0."),
    ],
    hints=(
        "Three steps: take the sign bit away, find the partition, look it up. Which operator takes one bit away?",
        "masked = hashed & 0x7fffffff; the partition is masked % len(owners); the map's keys are text.",
    ),
    solution=node_of,
    wrong=(by_abs, with_the_sign, by_and, those_that_are_there),
)


def own(log: list, queue: str, start: int, limit: int) -> tuple[list, int]:
    found: list = []
    for offset in range(start, len(log)):
        if len(found) == limit:
            return found, offset
        if log[offset] == queue:
            found.append(offset)
    return found, max(start, len(log))


def behind_the_last_found(log: list, queue: str, start: int, limit: int) -> tuple[list, int]:
    """Where nothing was found you stay at `start`, for ever. What you looked at counts, not what you found."""
    found = [offset for offset in range(start, len(log)) if log[offset] == queue][:limit]
    return found, found[-1] + 1 if found else start


def a_page_of_the_partition(log: list, queue: str, start: int, limit: int) -> tuple[list, int]:
    """The limit counts the records of your queue, not those of its neighbours."""
    page = range(start, min(len(log), start + limit))
    return [offset for offset in page if log[offset] == queue], page.stop


def always_the_end(log: list, queue: str, start: int, limit: int) -> tuple[list, int]:
    """With `limit` records found you did not look at the rest: `next` is behind the last one."""
    found = [offset for offset in range(start, len(log)) if log[offset] == queue][:limit]
    return found, len(log)


SCAN = Exercise(
    id="10.2",
    ask="the records of one queue, and how far was looked",
    task="return a list of offsets, and the offset where the next page begins",
    cases=[
        Case((["A", "A", "A"], "A", 0, 10), ([0, 1, 2], 3), hint="All three are yours, and the log ends at 3."),
        Case((["B"] * 6, "A", 0, 10), ([], 6), hint="None is yours, and yet you have looked at six records."),
        Case((["B", "A", "B", "B"], "A", 0, 10), ([1], 4), hint="You looked at what lies behind your last one too."),
        Case((["B", "B", "B", "A"], "A", 0, 2), ([3], 4), hint="The limit counts your records, not the neighbour's."),
        Case((["A", "B", "A", "A"], "A", 0, 2), ([0, 2], 3), hint="Two are enough: offset 3 was not looked at."),
        Case((["A", "B"], "A", 0, 1), ([0], 1), hint="One is enough: offset 1 was not looked at."),
        Case((["A", "B", "A", "A"], "A", 3, 2), ([3], 4), hint="It goes on at offset 3."),
        Case((["A", "B"], "A", 2, 2), ([], 2), hint="There is nothing new: `next` is the same place."),
    ],
    hints=(
        "Walk from start to the end of the log, over all records. When do you stop before the end?",
        "Stop in front of the first record that you do not look at: once you have `limit` of your own. Else `next` is len(log).",
    ),
    solution=own,
    wrong=(behind_the_last_found, a_page_of_the_partition, always_the_end),
)


def mover(connection: Any, queue: Callable[[str], Any]) -> None:
    for number, name, data in connection.execute("SELECT id, queue, data FROM jobs ORDER BY id").fetchall():
        queue(name).put_many([(data, None)])
        connection.execute("DELETE FROM jobs WHERE id = ?", [number])
        connection.commit()


def deletes_first(connection: Any, queue: Callable[[str], Any]) -> None:
    for number, name, data in connection.execute("SELECT id, queue, data FROM jobs ORDER BY id").fetchall():
        connection.execute("DELETE FROM jobs WHERE id = ?", [number])
        connection.commit()
        queue(name).put_many([(data, None)])


def never_deletes(connection: Any, queue: Callable[[str], Any]) -> None:
    for _, name, data in connection.execute("SELECT id, queue, data FROM jobs ORDER BY id").fetchall():
        queue(name).put_many([(data, None)])


def never_commits(connection: Any, queue: Callable[[str], Any]) -> None:
    for number, name, data in connection.execute("SELECT id, queue, data FROM jobs ORDER BY id").fetchall():
        queue(name).put_many([(data, None)])
        connection.execute("DELETE FROM jobs WHERE id = ?", [number])


def all_into_one(connection: Any, queue: Callable[[str], Any]) -> None:
    rows = connection.execute("SELECT id, queue, data FROM jobs ORDER BY id").fetchall()
    if rows:
        queue(rows[0][1]).put_many([(data, None) for _, _, data in rows])
    connection.execute("DELETE FROM jobs")
    connection.commit()


JOBS = [("ARS-CHE", b"goal 1"), ("LIV-MUN", b"goal 2"), ("ARS-CHE", b"goal 3")]


class Killed(BaseException):
    """The process of the mover ends here."""


def dying(queue: Any, when: str, deaths: list[str]) -> Any:
    """A queue at whose first put the mover dies, before or after the items are stored."""

    class Dying:
        def put_many(self, items: Any) -> Any:
            if when == "before" and not deaths:
                deaths.append(when)
                raise Killed
            queue.put_many(items)
            if when == "after" and not deaths:
                deaths.append(when)
                raise Killed

    return Dying()


def moved(answer: Callable[..., Any], client: Any, when: str) -> tuple[list[str], int]:
    """Have the answer move the jobs of a new table: the jobs that are missing, and the number of rows that are left."""
    deaths: list[str] = []
    with tempfile.TemporaryDirectory() as home:
        file = Path(home) / "jobs.db"
        with closing(sqlite3.connect(file)) as made:
            made.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, queue, data)")
            made.executemany("INSERT INTO jobs (queue, data) VALUES (?, ?)", JOBS)
            made.commit()
        for _ in range(2):  # a process that died is started again, with a connection of its own
            with closing(sqlite3.connect(file)) as connection, suppress(Killed):
                answer(connection, lambda name: dying(client.queue(name), when, deaths))
        with closing(sqlite3.connect(file)) as after:
            [[left]] = after.execute("SELECT count(*) FROM jobs").fetchall()
    there = [
        (name, data) for name in sorted({name for name, _ in JOBS}) for _, data in client.queue(name).read().records
    ]
    return [data.decode() for name, data in JOBS if (name, data) not in there], left


STORIES = {  # when the mover dies: in words, and a hint for jobs that are missing then
    "never": ("nothing happens to it", "Each row names its queue: queue(name).put_many([(data, None)])."),
    "before": (
        "it dies before its first put",
        "The row was deleted before the queue had the job. Put first, then delete.",
    ),
    "after": ("it dies after its first put", "The row must stay in the table until the put is stored."),
}
LEFT = "A row is gone only when its deletion is committed. What does your function do after the put?"


def moving(answer: Callable[..., Any]) -> Iterator[Tried]:
    """Three movers on real queues: one that nothing happens to, one that dies before its first put and one that dies after it."""
    cluster = kafka()
    for when, (story, hint) in STORIES.items():
        topic = f"{new_topic(cluster)}-jobs"
        Plan(virtual.topics(topic, 1)).apply(cluster, quiet=True)
        with virtual.Node(cluster, topic) as node, virtual.Client(node.url) as client:
            missing, left = moved(answer, client, when)
        yield Tried(f"{story}: jobs that are not in their queue", missing, [], "each job is in its queue", hint)
        yield Tried(f"{story}: rows that are still in the table", left, 0, "and the table is empty", LEFT)


MOVER = Exercise(
    id="10.3",
    ask="put first, then delete, then commit: a job may come twice, and none is lost",
    task="move each row of `jobs` into the queue that it names, and take it out of the table",
    probe=moving,
    hints=(
        'Read the rows: connection.execute("SELECT id, queue, data FROM jobs ORDER BY id").fetchall(). Which write comes first?',
        "For each row: queue(name).put_many([(data, None)]), then DELETE FROM jobs WHERE id = ?, then connection.commit().",
    ),
    solution=mover,
    wrong=(deletes_first, never_deletes, never_commits, all_into_one),
    seconds=60,
)
