"""The outbox on a real node, killed at every point by SIGKILL: each committed job is done, and its effect is there once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from kqlib.virtual.client import Client
from kqlib.virtual.outbox import Outbox
from kqlib.workshop.promises.virtual import nodes
from tests.patience import WAIT

JOBS = 6
WORKER = """
import os, signal, sqlite3, sys
from kqlib.errors import LeaseLost
from kqlib.virtual.outbox import Outbox

url, queue, file, part, point, jobs = *sys.argv[1:6], int(sys.argv[6])

def here(name):
    if name == point:
        os.kill(os.getpid(), signal.SIGKILL)

db = sqlite3.connect(file)
outbox = Outbox(db)
if part != "writer":
    from kqlib.virtual.client import Client
    client = Client(url)
if part == "writer":
    for number in range(jobs):
        db.execute("INSERT INTO orders VALUES (?)", [number])
        outbox.add(queue, b"%d" % number)
        if number == jobs - 1:
            here("before the commit")
        db.commit()
    here("after the commit")
elif part == "mover":
    class Cut:
        def __init__(self, queue):
            self.queue = queue
        def put_many(self, puts):
            here("before the put")
            self.queue.put_many(puts)
            here("after the put")
    while outbox.move(lambda name: Cut(client.queue(name)), n=2):
        here("after the move")
else:
    queue = client.queue(queue, lease=2)
    while queue.depth():
        item = queue.claim(wait=1)
        if item is None:  # the lease of one who died
            continue
        here("before the effect")
        if outbox.first(item):
            db.execute("INSERT INTO effects VALUES (?)", [int(item.data)])
        here("within the effect")
        db.commit()
        here("after the effect")
        try:
            queue.ack(item)
        except LeaseLost:  # this process stood still for longer than the lease: the item comes again
            continue
        here("after the ack")
"""
# where the worker dies: which worker, jobs committed, copies of a job that come twice
POINTS = {
    "nowhere": ("writer", 6, 0),
    "before the commit": ("writer", 5, 0),
    "after the commit": ("writer", 6, 0),
    "before the put": ("mover", 6, 0),
    "after the put": ("mover", 6, 2),
    "after the move": ("mover", 6, 0),
    "before the effect": ("reader", 6, 0),
    "within the effect": ("reader", 6, 0),
    "after the effect": ("reader", 6, 0),
    "after the ack": ("reader", 6, 0),
}


@pytest.fixture(scope="module")
def url(kq_cluster):
    with nodes(kq_cluster, "outbox-test", partitions=2, many=1) as found:
        yield found[0]


@pytest.mark.parametrize("point", POINTS)
def test_wherever_it_dies_what_was_committed_is_done_once_and_nothing_else(url, tmp_path, point):
    dies, committed, doubles = POINTS[point]
    file, queue = tmp_path / "data.db", point.replace(" ", "-")
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE orders (number)")
        db.execute("CREATE TABLE effects (number)")
    for part in ("writer", "mover", "reader"):
        killed = run(url, queue, file, part, point if part == dies else "")
        assert killed == (part == dies and point != "nowhere")
        if killed and part != "writer":  # whoever moves or reads is started again; a writer's data is what it committed
            run(url, queue, file, part, "")
    orders = [number for (number,) in db.execute("SELECT number FROM orders ORDER BY number")]
    effects = [number for (number,) in db.execute("SELECT number FROM effects ORDER BY number")]
    outbox = Outbox(db)
    with Client(url) as client:
        copies = len(client.queue(queue).read().records) - len(orders)
        depth = client.queue(queue).depth()
    assert (orders, effects) == (list(range(committed)), list(range(committed)))
    assert (copies, depth, outbox.waiting()) == (doubles, 0, 0)
    db.close()


def test_a_job_that_a_node_refuses_goes_aside_and_all_others_are_put(url):
    with closing(sqlite3.connect(":memory:")) as db, Client(url) as client:
        outbox = Outbox(db)
        for queue, data in (("two words", b""), ("aside-a", bytes(2_000_000)), ("aside-b", b"1"), ("aside-a", b"2")):
            outbox.add(queue, data)
        db.commit()
        assert outbox.move(client.queue) == 4
        assert [len(client.queue(name).read().records) for name in ("aside-a", "aside-b")] == [1, 1]
        assert [each.queue for each in outbox.aside()] == ["two words", "aside-a"]
        assert "a queue's name has" in outbox.aside()[0].reason and "would take 2000" in outbox.aside()[1].reason


def run(url, queue, file, part, point):
    """One worker until its end; was it killed?"""
    command = [sys.executable, "-c", WORKER, url, queue, str(file), part, point, str(JOBS)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT, cwd=os.getcwd())
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode != 0
