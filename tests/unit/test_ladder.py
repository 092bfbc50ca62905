"""The rungs on paper: each fits on a screen, says what it costs, and the ladder has them in their order."""

import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kqlib.kafka import Kafka
from kqlib.workshop import ladder
from kqlib.workshop.ladder import LADDER, DeletedList, RungItem, SaveOffset

SCREEN = 75


@pytest.mark.parametrize("name", LADDER)
def test_a_rung_fits_on_a_screen(name):
    assert len(inspect.getsource(LADDER[name]).splitlines()) <= SCREEN


@pytest.mark.parametrize("name", LADDER)
def test_a_rung_knows_what_it_costs(name):
    costs = LADDER[name].costs
    lines, commits = costs["lines · commits an item"].split(" · ")
    assert 10 < int(lines) < 120
    assert commits[0] in "01"
    assert costs["gives up"]


def test_the_lines_of_the_rung_below_count_too():
    def lines(name):
        return int(LADDER[name].costs["lines · commits an item"].split(" · ")[0])

    assert lines("deleted list") > lines("save offset") + 30


class Example:
    """A docstring is no line."""

    here = 1

    def verb(self):
        """Nor is this."""
        # nor this
        return self.here


def test_lines_are_lines_of_code():
    assert ladder._lines(Example) == 6  # a docstring leaves a pass


class OneThread:
    """A connection that finds out if two threads use it at once. SQLite mixes up their answers then, or ends the process."""

    def __init__(self):
        self.used = threading.Lock()

    def execute(self, *_):
        assert self.used.acquire(blocking=False)
        time.sleep(0.001)
        return self

    def fetchall(self):
        self.used.release()
        return []


def test_threads_use_the_connection_of_a_deleted_list_one_after_the_other(monkeypatch):
    monkeypatch.setattr(SaveOffset, "__init__", lambda rung, cluster, name: setattr(rung, "topic", name))
    rung = DeletedList(Kafka("127.0.0.1:1"), "football", ":memory:")
    rung.db.close()
    rung.db = OneThread()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda offset: rung.ack(RungItem(0, offset, b"")), range(40)))
