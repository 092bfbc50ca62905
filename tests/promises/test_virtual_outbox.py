"""The outbox on a real node, killed at every point by SIGKILL: each committed job is done, and its effect is there once."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from kqlib.errors import LeaseLost
from kqlib.kafka import Kafka
from kqlib.virtual.client import Client
from kqlib.virtual.outbox import Outbox
from kqlib.workshop.children import ChildEnded, Children
from kqlib.workshop.promises.virtual import nodes
from tests.databases import Database, Steps, databases, server
from tests.patience import WAIT

JOBS = 6
GAMES = 7
SEED = random.randrange(2**32)
LONG = [pytest.mark.nightly, pytest.mark.limit(400)]
DAYS = [  # a database, orders and kills
    pytest.param("sqlite", (20, 3), id="sqlite, short"),
    pytest.param("sqlite", (200, 30), id="sqlite", marks=LONG),
    pytest.param("postgres", (200, 30), id="postgres", marks=LONG),
]
# where the worker dies: jobs that are committed then, copies of a job that come twice
POINTS = {
    "nowhere": (6, 0),
    "before the commit": (5, 0),
    "after the commit": (6, 0),
    "before the put": (6, 0),
    "after the put": (6, 2),
    "after the move": (6, 0),
    "before the effect": (6, 0),
    "within the effect": (6, 0),
    "after the effect": (6, 0),
    "after the ack": (6, 0),
}


def work(line: Connection, url: str, name: str, file: Path, dies: str) -> None:
    """Write the orders and their jobs, move the jobs, work on them; killed at one point of that. dies="": nothing is written."""

    def here(point: str) -> None:
        if point == dies:
            os.kill(os.getpid(), signal.SIGKILL)

    class Cut:
        """The queue, and the points before and after its answer."""

        def put_many(self, puts: list[Any]) -> None:
            here("before the put")
            queue.put_many(puts)
            here("after the put")

    with closing(sqlite3.connect(file)) as db, Client(url) as client:
        outbox, queue = Outbox(db), client.queue(name, lease=1, max_attempts=0)
        outbox.at_once = 2
        for number in range(JOBS if dies else 0):
            db.execute("INSERT INTO orders VALUES (?)", [number])
            outbox.add(name, b"%d" % number)
            if number == JOBS - 1:
                here("before the commit")
            db.commit()
        here("after the commit")
        while outbox.move(lambda _: Cut()):
            here("after the move")
        while queue.depth():
            item = queue.claim(wait=1)
            if item is None:  # the process before was killed with its lease
                continue
            here("before the effect")
            if outbox.first(item):
                db.execute("INSERT INTO effects VALUES (?)", [int(item.data or b"")])
            here("within the effect")
            db.commit()
            here("after the effect")
            try:
                queue.ack(item)
            except LeaseLost:  # this process stood still for longer than the lease: the item comes again
                continue
            here("after the ack")
    line.send("the end")


class Asked:
    """A queue that asks before and after each request whether to go on."""

    def __init__(self, queue: Any, step: Any) -> None:
        self.queue, self.step = queue, step

    def __getattr__(self, verb: str) -> Any:
        def asked(*what: Any, **how: Any) -> Any:
            self.step(f"before {verb}")
            answer = getattr(self.queue, verb)(*what, **how)
            self.step(verb)
            return answer

        return asked


def system(line: Connection, url: str, name: str, database: Database, how: tuple[int, int | str]) -> None:
    """Write so many orders with their jobs, move the jobs, work on them. It dies at this step, or before or after this request."""
    (orders, dies), steps = how, itertools.count(1)

    def step(request: str = "") -> None:
        if dies in (next(steps), request):
            os.kill(os.getpid(), signal.SIGKILL)

    with closing(database.connect()) as inner, Client(url) as client:
        db, queue = Steps(inner, step), Asked(client.queue(name, lease=1, max_attempts=0, order="key"), step)
        outbox, busy = Outbox(db, database.paramstyle), True
        outbox.at_once = 5
        while busy or outbox.waiting() or queue.depth():
            busy = written(db, outbox, name, orders)
            outbox.move(lambda _: queue)
            while (item := queue.claim(wait=0.1)) is not None:
                cursor = db.cursor()
                if outbox.first(item):
                    cursor.execute(f"INSERT INTO effects VALUES ({int(item.data)})")
                db.commit()
                with suppress(LeaseLost):  # it comes again
                    queue.ack(item)
    line.send("the end")


def written(db: Any, outbox: Outbox, name: str, orders: int) -> bool:
    """The next five orders, each with its job in one transaction; False: all are there."""
    cursor = db.cursor()
    cursor.execute("SELECT COUNT(*) FROM orders")
    ((first,),) = cursor.fetchmany(1)
    db.commit()
    for number in range(first, min(first + 5, orders)):
        cursor.execute(f"INSERT INTO orders VALUES ({number})")
        outbox.add(name, b"%d" % number, key=b"%d" % (number % GAMES))
        db.commit()
    return bool(first < orders)


@pytest.fixture(scope="module")
def url(kq_cluster: Kafka) -> Iterator[str]:
    with nodes(kq_cluster, "outbox-test", partitions=2, many=1) as found:
        yield found[0]


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with Children(modules=[__name__]) as children:
        yield children


@pytest.mark.parametrize("point", POINTS)
def test_wherever_it_dies_what_was_committed_is_done_once_and_nothing_else(
    url: str, children: Children, tmp_path: Path, point: str
) -> None:
    committed, doubles = POINTS[point]
    file, queue = tmp_path / "data.db", point.replace(" ", "-")
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE orders (number)")
        db.execute("CREATE TABLE effects (number)")
    killed = run(children, url, queue, file, point)
    assert killed == (point != "nowhere")
    if killed:
        run(children, url, queue, file, "")
    with closing(sqlite3.connect(file)) as db, Client(url) as client:
        orders = [number for (number,) in db.execute("SELECT number FROM orders ORDER BY number")]
        effects = [number for (number,) in db.execute("SELECT number FROM effects ORDER BY number")]
        copies = len(client.queue(queue).read().records) - len(orders)
        left = client.queue(queue).depth(), Outbox(db).waiting()
    assert (orders, effects) == (list(range(committed)), list(range(committed)))
    assert (copies, left) == (doubles, (0, 0))


@pytest.mark.parametrize(("kind", "day"), DAYS)
def test_a_system_that_is_killed_again_and_again_loses_no_order_and_doubles_come_under_one_id(
    url: str, children: Children, tmp_path: Path, kind: str, day: tuple[int, int]
) -> None:
    (orders, kills), draw = day, random.Random(SEED)
    database, name = databases(server(kind), tmp_path)(), f"orders-{kind}-{orders}"
    with closing(database.connect()) as db:
        for table in ("orders", "effects"):
            db.execute(f"CREATE TABLE {table} (number INTEGER)")
        db.commit()
    steps = [draw.randrange(1, 14 * orders // kills) for _ in range(kills - 2)]  # an order takes more than 16 steps
    deaths = ["before put_many", "put_many", *steps, "never"]  # by chance nobody may die between the two
    killed = [run(children, url, name, database, (orders, dies), doing=system) for dies in deaths]
    assert killed == [True] * kills + [False], f"seed {SEED}"
    with closing(database.connect()) as db, Client(url) as client:
        for table in ("orders", "effects"):
            rows = db.execute(f"SELECT number FROM {table} ORDER BY number").fetchall()
            assert [number for (number,) in rows] == list(range(orders)), f"{table}, seed {SEED}"
        audit = client.queue(name, "audit", order="any")
        copies = [(int(item.data or b""), item.headers["outbox-id"]) for item in taken(audit)]
    first = dict(reversed(copies))  # an order -> the id
    assert len(first) == len(set(copies)) == orders, f"an order under two ids, seed {SEED}"
    assert len(copies) > orders, "the second one died after a put"
    for game in range(GAMES):
        numbers = list(dict.fromkeys(number for number, _ in copies if number % GAMES == game))
        assert numbers == sorted(numbers), f"seed {SEED}"
    print(f"{orders} orders, {kills} restarts, {len(copies) - orders} doubles, seed {SEED}")


def taken(queue: Any) -> Iterator[Any]:
    """All items."""
    while items := queue.claim_many(100):
        yield from items
        queue.ack_many(items)


def run(children: Children, *arguments: Any, doing: Any = work) -> bool:
    """One worker until its end; was it killed?"""
    try:
        return bool(children.fork(doing, *arguments).receive(WAIT) != "the end")
    except ChildEnded as ended:
        assert ended.why == ""
        return True


def test_a_job_that_a_node_refuses_goes_aside_and_all_others_are_put(url: str) -> None:
    with closing(sqlite3.connect(":memory:")) as db, Client(url) as client:
        outbox = Outbox(db)
        for queue, data in (("two words", b""), ("aside-a", bytes(2_000_000)), ("aside-b", b"1"), ("aside-a", b"2")):
            outbox.add(queue, data)
        db.commit()
        assert outbox.move(client.queue) == 4
        assert [len(client.queue(name).read().records) for name in ("aside-a", "aside-b")] == [1, 1]
        assert [each.queue for each in outbox.aside()] == ["two words", "aside-a"]
        assert "a queue's name has" in outbox.aside()[0].reason and "would take 2000" in outbox.aside()[1].reason
