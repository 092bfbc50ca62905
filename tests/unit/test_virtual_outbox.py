"""The outbox without a queue server: jobs live and die with the database's transaction; wrong input is refused."""

from __future__ import annotations

import re
import sqlite3
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest

from kqlib.errors import BadPayload, NotAllowed
from kqlib.virtual.outbox import HEADER, Outbox
from tests.patience import WAIT


class Queues:
    """Queues in memory, which may fail."""

    def __init__(self):
        self.puts, self.fails = {}, set()

    def __call__(self, name):
        return SimpleNamespace(put_many=lambda puts: self._put(name, puts))

    def _put(self, name, puts):
        if name in self.fails:
            raise OSError("away")
        self.puts.setdefault(name, []).extend(puts)


@pytest.fixture
def connection():
    made = sqlite3.connect(":memory:")
    made.execute("CREATE TABLE games (name)")
    yield made
    made.close()


@pytest.fixture
def outbox(connection):
    return Outbox(connection)


def test_a_job_is_there_with_its_data_or_not_at_all(connection, outbox):
    for name, commits in (("kept", True), ("lost", False)):
        connection.execute("INSERT INTO games VALUES (?)", [name])
        outbox.add("goals", name.encode())
        connection.commit() if commits else connection.rollback()
    queues = Queues()
    assert outbox.move(queues) == 1
    assert [put.data for put in queues.puts["goals"]] == [b"kept"]
    assert connection.execute("SELECT name FROM games").fetchall() == [("kept",)]


def test_a_moved_job_is_what_was_added_with_its_id(connection, outbox):
    name = outbox.add("goals", None, key=b"ARS-CHE", headers={"by": b"\xff", "of": None}, delay=2)
    connection.commit()
    queues = Queues()
    outbox.move(queues)
    (put,) = queues.puts["goals"]
    assert (put.data, put.key, put.delay) == (None, b"ARS-CHE", 2)
    assert put.headers == {"by": b"\xff", "of": None, HEADER: name.encode()}
    assert (outbox.waiting(), outbox.move(queues)) == (0, 0)


def test_jobs_move_in_the_order_they_were_added_and_no_more_than_asked(connection, outbox):
    for number in range(5):
        outbox.add("goals", b"%d" % number)
    connection.commit()
    queues = Queues()
    assert [outbox.move(queues, n=2) for _ in range(4)] == [2, 2, 1, 0]
    assert [put.data for put in queues.puts["goals"]] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_queue_that_is_away_keeps_its_jobs_and_others_that_came_before_are_gone(connection, outbox):
    outbox.add("a", b"1"), outbox.add("b", b"2"), connection.commit()
    queues = Queues()
    queues.fails = {"b"}
    with pytest.raises(OSError, match="away"):
        outbox.move(queues)
    assert repr(outbox) == "Outbox('kq_outbox', 1 waiting)"
    queues.fails.clear()
    outbox.move(queues)
    assert {name: len(puts) for name, puts in queues.puts.items()} == {"a": 1, "b": 1}


def test_jobs_of_an_open_transaction_are_not_moved_before_their_data_is_there(connection, outbox):
    connection.execute("INSERT INTO games VALUES ('half')")
    outbox.add("goals", b"half")
    with pytest.raises(NotAllowed, match="a transaction is open, and its jobs are not committed"):
        outbox.move(Queues())
    connection.rollback()
    assert (outbox.move(Queues()), outbox.waiting()) == (0, 0)


def test_two_who_move_at_once_lose_nothing_and_what_comes_twice_has_the_same_id(tmp_path):
    file, queues, both = tmp_path / "jobs.db", Queues(), threading.Barrier(2)
    with closing(sqlite3.connect(file)) as db, db:
        names = [Outbox(db).add("goals", b"%d" % at) for at in range(40)]

    class Together:
        """Both have read the same jobs before either takes one out."""

        def put_many(self, puts):
            both.wait(WAIT)
            queues("goals").put_many(puts)

    def move():
        own = sqlite3.connect(file, timeout=WAIT)
        Outbox(own).move(lambda _: Together(), n=40)
        own.close()

    movers = [threading.Thread(target=move) for _ in range(2)]
    for mover in movers:
        mover.start()
    for mover in movers:
        mover.join(WAIT)
    assert sorted(put.headers[HEADER].decode() for put in queues.puts["goals"]) == sorted(names * 2)
    with closing(sqlite3.connect(file)) as db, db:
        inbox = Outbox(db)
        assert inbox.waiting() == 0
        items = [SimpleNamespace(headers=put.headers) for put in queues.puts["goals"]]
        assert sum(inbox.first(item) for item in items) == len(names)


def test_a_reader_does_each_id_once_and_a_rolled_back_effect_again(connection, outbox):
    item = SimpleNamespace(headers={HEADER: b"7"})
    assert outbox.first(item)
    connection.rollback()
    assert outbox.first(item)
    connection.commit()
    assert not outbox.first(item)
    assert outbox.first(SimpleNamespace(headers={}))  # nobody's outbox: no id, so it is one


class Formatted:
    """A connection of a driver that writes parameters in another way."""

    __module__ = "elsewhere"

    def __init__(self, mark, inner):
        self.inner, self.mark = inner, mark

    def cursor(self):
        cursor = self.inner.cursor()

        def execute(sql, values):
            assert not values or self.mark in sql
            numbers = re.findall(r":(\d)", sql)
            assert numbers == [str(at + 1) for at in range(len(numbers))]
            return cursor.execute(re.sub(r"%s|:\d", "?", sql), values)

        return SimpleNamespace(execute=execute, fetchmany=cursor.fetchmany, close=cursor.close)

    def commit(self):
        self.inner.commit()


@pytest.mark.parametrize(("style", "mark"), [("format", "%s"), ("pyformat", "%s"), ("numeric", ":1")])
def test_other_drivers_are_spoken_to_in_their_words(connection, style, mark):
    outbox, queues = Outbox(Formatted(mark, connection), paramstyle=style), Queues()
    outbox.add("goals", b"1")
    assert outbox.move(queues) == 1


WRONG = {
    "no connection": (lambda c: Outbox(3), NotAllowed, "a DB-API connection, and int has no cursor"),
    "a table that is no word": (lambda c: Outbox(c, "a; DROP"), NotAllowed, "a table's name is a plain word"),
    "a driver that nobody knows": (lambda c: Outbox(Formatted("?", c)), NotAllowed, "say the driver's paramstyle"),
    "a style that nobody knows": (
        lambda c: Outbox(c, paramstyle="named"),
        NotAllowed,
        "one of qmark, format, pyformat",
    ),
    "a queue without a name": (lambda c: Outbox(c).add("", b""), NotAllowed, "a queue's name is text, not ''"),
    "text": (lambda c: Outbox(c).add("goals", "1"), BadPayload, "put takes bytes or None, not str"),
    "its own header": (
        lambda c: Outbox(c).add("goals", b"", headers={HEADER: b"1"}),
        NotAllowed,
        "is the outbox's own",
    ),
    "a delay of days": (lambda c: Outbox(c).add("goals", b"", delay=86400), NotAllowed, "delay is a number of seconds"),
    "to move none": (lambda c: Outbox(c).move(Queues(), 0), NotAllowed, "n is a whole number, at least 1, not 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_refused_with_a_sentence(connection, case):
    call, error, says = WRONG[case]
    with pytest.raises(error, match=says):
        call(connection)
