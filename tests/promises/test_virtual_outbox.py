"""The outbox on a real node, killed at every point by SIGKILL: each committed job is done, and its effect is there once."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
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
from tests.patience import WAIT

JOBS = 6
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
        outbox, queue = Outbox(db), client.queue(name, lease=1)
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


def run(children: Children, *arguments: Any) -> bool:
    """One worker until its end; was it killed?"""
    try:
        return bool(children.fork(work, *arguments).receive(WAIT) != "the end")
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
