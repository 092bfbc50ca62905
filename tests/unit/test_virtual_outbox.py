"""The outbox without a queue server: jobs live and die with the database's transaction, whatever is killed or comes between."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.errors import BadPayload, KqError, NotAllowed, PayloadTooLarge, TopicMissing
from kqlib.queue.item import Put
from kqlib.virtual.names import checked
from kqlib.virtual.outbox import HEADER, Outbox
from tests.databases import KINDS, Database, Steps, databases, server
from tests.patience import WAIT

LARGE = 1_000


class Queues:
    """Queues in memory, which refuse what a node refuses."""

    def __init__(self) -> None:
        self.puts: list[tuple[str, Put]] = []
        self.missing: set[str] = set()
        self.away: set[str] = set()

    def __call__(self, name: str) -> Any:
        checked("queue", name)
        if name in self.missing:
            raise TopicMissing(topic=name)
        return SimpleNamespace(put_many=lambda puts: self._put(name, puts))

    def _put(self, name: str, puts: list[Put]) -> None:
        if name in self.away:
            raise KqError("no node answers")
        for put in puts:
            if len(put.data or b"") > LARGE:
                raise PayloadTooLarge(topic=name, size=len(put.data or b""), limit=LARGE, safe="Nothing was stored.")
            if "bad" in put.headers:
                raise BadPayload("the node refuses it")
        self.puts += [(name, put) for put in puts]

    def datas(self) -> list[bytes | None]:
        return [put.data for _, put in self.puts]


@pytest.fixture(params=KINDS)
def new(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Database]:
    return databases(server(request.param), tmp_path)


@pytest.fixture
def database(new: Callable[[], Database]) -> Database:
    database = new()
    with closing(database.connect()) as db:
        db.execute("CREATE TABLE games (name VARCHAR(9))")
        db.commit()
    return database


@pytest.fixture
def db(database: Database) -> Iterator[Any]:
    with closing(database.connect()) as db:
        yield db


def games(database: Database) -> list[str]:
    """What is committed, as another connection sees it."""
    with closing(database.connect()) as other:
        return [name for (name,) in other.execute("SELECT name FROM games").fetchall()]


def in_transaction(db: Any) -> bool:
    return bool(db.in_transaction if hasattr(db, "in_transaction") else db.info.transaction_status)


def test_a_job_is_there_with_its_data_or_not_at_all(database: Database, db: Any) -> None:
    outbox = Outbox(db)
    for name, commits in (("kept", True), ("lost", False)):
        db.execute(f"INSERT INTO games VALUES ('{name}')")
        outbox.add("goals", name.encode())
        db.commit() if commits else db.rollback()
    queues = Queues()
    assert outbox.move(queues) == 1
    assert queues.datas() == [b"kept"]
    assert games(database) == ["kept"]


def test_a_moved_job_is_what_was_added_with_its_id(database: Database, db: Any) -> None:
    outbox = Outbox(db)
    name = outbox.add("goals", None, key=b"ARS-CHE", headers={"by": b"\xff", "of": None}, delay=2)
    db.commit()
    queues = Queues()
    outbox.move(queues)
    ((_, put),) = queues.puts
    assert (put.data, put.key, put.delay) == (None, b"ARS-CHE", 2)
    assert put.headers == {"by": b"\xff", "of": None, HEADER: name.encode()}
    assert (outbox.waiting(), outbox.move(queues)) == (0, 0)


def test_jobs_move_in_the_order_they_were_added_a_few_at_once(database: Database, db: Any) -> None:
    outbox = Outbox(db)
    outbox.at_once = 2
    for number in range(5):
        outbox.add("goals", b"%d" % number)
    db.commit()
    queues = Queues()
    assert [outbox.move(queues) for _ in range(4)] == [2, 2, 1, 0]
    assert queues.datas() == [b"0", b"1", b"2", b"3", b"4"]


def test_jobs_keep_their_order_though_the_clock_of_the_second_writer_is_behind(
    database: Database, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, queues = Outbox(db), Queues()
    outbox.add("goals", b"1", b"ARS-CHE")
    db.commit()
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    with closing(database.connect()) as other:
        for data in (b"2", b"3"):
            Outbox(other).add("goals", data, b"ARS-CHE")
        other.commit()
    outbox.move(queues)
    assert queues.datas() == [b"1", b"2", b"3"]


@pytest.mark.parametrize("at", range(3), ids=["first statement", "second statement", "commit"])
def test_in_sqlite_an_id_is_above_all_that_are_committed_whenever_another_writer_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """It comes before a statement of `add`, or before the commit, and its clock is ahead."""
    database, ids = databases("", tmp_path)(), list[str]()
    steps = itertools.count(1_000)  # nobody comes while the tables are made
    with closing(database.connect()) as db, closing(database.connect(wait=False)) as other:

        def step() -> None:
            if next(steps) == at:
                with monkeypatch.context() as clock, suppress(sqlite3.OperationalError):  # locked: it would wait
                    clock.setattr(time, "time_ns", lambda: 4 * 10**18)
                    name = Outbox(other).add("goals", b"ahead")
                    other.commit()
                    ids.append(name)

        steady = Steps(db, step)
        outbox = Outbox(steady, database.paramstyle)
        steps = itertools.count()  # of the job
        ids.append(outbox.add("goals", b"1"))
        steady.commit()
    assert ids == sorted(ids)
    assert len(ids) == (2 if at == 0 else 1), "from the first statement on it would wait"


def test_backlog_and_age_are_metrics(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, queues = Outbox(db), Queues()
    queues.missing = {"nowhere"}
    none = {"kqlib_outbox_waiting_jobs": 0, "kqlib_outbox_aside_jobs": 0}
    assert numbers(outbox) == none
    outbox.add("nowhere", b"1")
    db.commit()
    outbox.move(queues)
    for _ in range(2):
        outbox.add("goals", b"2")
    db.commit()
    in_a_minute = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: in_a_minute)
    found = numbers(outbox)
    assert 59 <= found.pop("kqlib_outbox_oldest_job_age_seconds") <= 60 + WAIT
    assert found == {"kqlib_outbox_waiting_jobs": 2, "kqlib_outbox_aside_jobs": 1}
    outbox.move(queues)
    assert numbers(outbox) == none | {"kqlib_outbox_aside_jobs": 1}
    assert not in_transaction(db)


def numbers(outbox: Outbox) -> dict[str, float]:
    lines = [line.split() for line in outbox.metrics().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_rows_may_be_dicts(db: Any) -> None:
    db.row_factory = as_dicts
    outbox, queues = Outbox(db), Queues()
    queues.missing = {"nowhere"}
    names = [outbox.add("nowhere", b"1", b"k"), outbox.add("nowhere", b"2", b"k")]
    outbox.add("goals", b"3")
    db.commit()
    assert (outbox.waiting(), outbox.move(queues), outbox.waiting(), queues.datas()) == (3, 3, 0, [b"3"])
    assert [each.id for each in outbox.aside()] == names
    assert outbox.back() == 2
    assert outbox.first(SimpleNamespace(headers={HEADER: b"7"}))


def as_dicts(cursor: Any, *row: Any) -> Any:
    """A row factory of sqlite3, which is called with a row, and one of psycopg, which returns what is called with a row."""

    def made(values: Any) -> dict[str, Any]:
        return dict(zip([each[0] for each in cursor.description or ()], values, strict=True))

    return made(*row) if row else made


def test_a_queue_that_is_away_keeps_its_jobs_and_sets_nothing_aside(db: Any) -> None:
    outbox, queues = Outbox(db), Queues()
    outbox.add("a", b"1")
    outbox.add("b", b"2")
    db.commit()
    queues.away = {"b"}
    with pytest.raises(KqError, match="no node answers"):
        outbox.move(queues)
    assert (repr(outbox), outbox.aside(), in_transaction(db)) == ("Outbox(1 waiting)", [], False)
    queues.away.clear()
    outbox.move(queues)
    assert queues.datas() == [b"1", b"2"]


def test_a_reader_does_each_id_once_and_a_rolled_back_effect_again(db: Any) -> None:
    outbox = Outbox(db)
    item = SimpleNamespace(headers={HEADER: b"7"})
    assert outbox.first(item)
    db.rollback()
    assert outbox.first(item)
    db.commit()
    assert not outbox.first(item)
    assert outbox.first(SimpleNamespace(headers={}))  # nobody's outbox: no id, so it is one


def test_two_readers_of_one_id_do_its_effect_once(database: Database, db: Any) -> None:
    item = SimpleNamespace(headers={HEADER: b"7"})
    with closing(database.connect(wait=False)) as other:
        first, second = Outbox(db), Outbox(other)
        assert first.first(item)
        with pytest.raises(other.OperationalError):  # it would wait for the other one's commit
            second.first(item)
        other.rollback()
        db.commit()
        assert not second.first(item)


# --- the caller's transaction ---


@pytest.mark.parametrize("before", [True, False], ids=["tables there", "tables not there"])
def test_an_outbox_that_is_made_in_a_transaction_leaves_it_open_and_its_rollback_takes_all_back(
    database: Database, db: Any, before: bool
) -> None:
    if before:
        Outbox(db)
    db.execute("INSERT INTO games VALUES ('half')")
    outbox = Outbox(db)
    outbox.add("goals", b"half")
    assert in_transaction(db)
    db.rollback()
    assert games(database) == []
    db.execute("INSERT INTO games VALUES ('whole')")
    outbox.add("goals", b"whole")  # the same outbox, though its tables were taken back as well
    db.commit()
    assert (games(database), outbox.waiting()) == (["whole"], 1)


@pytest.mark.parametrize("verb", ["move", "waiting", "repr", "aside", "back"])
def test_no_verb_ends_a_transaction_that_it_did_not_begin(database: Database, db: Any, verb: str) -> None:
    outbox = Outbox(db)
    db.execute("INSERT INTO games VALUES ('half')")
    if verb in ("move", "back"):
        with pytest.raises(NotAllowed, match="a transaction is open"):
            outbox.move(Queues()) if verb == "move" else outbox.back()
    elif verb == "repr":
        repr(outbox)
    else:
        getattr(outbox, verb)()
    db.rollback()
    assert games(database) == []


def test_a_driver_that_is_always_in_a_transaction_is_left_in_it(tmp_path: Path) -> None:
    """psycopg begins one with any statement, and says by `info` whether it has."""

    class Driver:
        def __init__(self, inner: sqlite3.Connection) -> None:
            self.inner = inner
            self.info = SimpleNamespace(transaction_status=0)

        def cursor(self) -> sqlite3.Cursor:
            if not self.inner.in_transaction:
                self.inner.execute("BEGIN")
            self.info.transaction_status = 2
            return self.inner.cursor()

        def commit(self) -> None:
            self.inner.commit()
            self.info.transaction_status = 0

        def rollback(self) -> None:
            self.inner.rollback()
            self.info.transaction_status = 0

    database = Database("", str(tmp_path / "data.db"))
    with closing(database.connect()) as inner:
        inner.execute("CREATE TABLE games (name)")
        db = Driver(inner)
        outbox = Outbox(db, paramstyle="qmark")  # a transaction of its own, which it ends
        assert (outbox.waiting(), outbox.aside(), outbox.move(Queues())) == (0, [], 0)
        db.cursor().execute("INSERT INTO games VALUES ('half')")
        assert Outbox(db, paramstyle="qmark").waiting() == 0
        with pytest.raises(NotAllowed, match="a transaction is open"):
            outbox.move(Queues())
        db.rollback()
        assert games(database) == []


@pytest.fixture
def postgres(tmp_path: Path) -> Database:
    return databases(server("postgres"), tmp_path)()


@pytest.mark.nightly
def test_who_has_no_right_to_make_tables_uses_those_that_are_there(postgres: Database) -> None:
    with closing(postgres.connect()) as db:
        db.execute(f"CREATE ROLE {postgres.name} LOGIN")
        db.commit()
        with closing(postgres.connect(user=postgres.name)) as clerk:
            with pytest.raises(clerk.ProgrammingError, match="does not exist"):
                Outbox(clerk)
            assert not in_transaction(clerk)
            Outbox(db)
            db.execute(f"GRANT USAGE ON SCHEMA {postgres.name} TO {postgres.name}")
            db.execute(
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {postgres.name} TO {postgres.name}"
            )
            db.commit()
            outbox = Outbox(clerk)
            outbox.add("goals", b"1")
            clerk.commit()
            assert outbox.move(Queues()) == 1


@pytest.mark.nightly
def test_many_may_make_the_tables_at_once(postgres: Database) -> None:
    failed: list[Exception] = []
    start = threading.Barrier(8)

    def make() -> None:
        try:
            with closing(postgres.connect()) as db:
                start.wait(WAIT)
                assert Outbox(db).waiting() == 0
        except Exception as error:
            failed.append(error)

    makers = [threading.Thread(target=make) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(WAIT)
    assert failed == []


@pytest.mark.nightly
def test_a_mover_whose_connection_is_gone_says_so(postgres: Database) -> None:
    with closing(postgres.connect()) as db, closing(postgres.connect(autocommit=True)) as other:
        outbox = Outbox(db)
        other.execute("SELECT pg_terminate_backend(%s)", [db.info.backend_pid])
        for _ in range(2):
            with pytest.raises(db.OperationalError):
                outbox.move(Queues())


@pytest.mark.nightly
def test_a_connection_that_commits_by_itself_keeps_the_transactions_of_its_caller(postgres: Database) -> None:
    with closing(postgres.connect(autocommit=True)) as db:
        outbox, queues = Outbox(db), Queues()
        with db.transaction():
            outbox.add("goals", b"kept")
            with pytest.raises(NotAllowed, match="a transaction is open"):
                outbox.move(queues)
            assert outbox.waiting() == 1
        with db.transaction(force_rollback=True):
            outbox.add("goals", b"lost")
        outbox.add("goals", b"alone")
        assert (outbox.move(queues), queues.datas()) == (2, [b"kept", b"alone"])


# --- jobs that cannot be put ---

CANNOT: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("two words", {"data": b"x"}, "a queue's name has"),
    ("nowhere", {"data": b"x"}, "'nowhere' does not exist on this cluster"),
    ("large", {"data": bytes(LARGE + 1)}, "would take 1001 bytes"),
    ("refused", {"data": b"x", "headers": {"bad": b""}}, "the node refuses it"),
)


@pytest.mark.parametrize(("queue", "job", "reason"), CANNOT, ids=[queue[:10] for queue, *_ in CANNOT])
def test_a_job_that_cannot_be_put_goes_aside_with_its_reason_and_all_others_move(
    db: Any, queue: str, job: dict[str, Any], reason: str
) -> None:
    outbox, queues = Outbox(db), Queues()
    queues.missing = {"nowhere"}
    outbox.add("first", b"1")
    bad = outbox.add(queue, **job)
    outbox.add("last", b"2"), db.commit()
    assert outbox.move(queues) == 3
    assert queues.datas() == [b"1", b"2"]
    (aside,) = outbox.aside()
    assert (aside.id, aside.queue, outbox.waiting()) == (bad, queue, 0)
    assert reason in aside.reason
    assert outbox.move(queues) == 0


def test_later_jobs_of_its_key_go_aside_with_it_and_those_of_other_keys_do_not(db: Any) -> None:
    outbox, queues = Outbox(db), Queues()
    names = [outbox.add("a", bytes(LARGE + 1), b"k"), outbox.add("a", b"2", b"k")]
    outbox.add("a", b"3", b"other"), outbox.add("a", b"4"), outbox.add("b", b"5", b"k"), db.commit()
    assert outbox.move(queues) == 5
    names.append(outbox.add("a", b"6", b"k"))  # long after it
    outbox.add("a", b"7", b"other"), db.commit()
    assert outbox.move(queues) == 2
    assert queues.datas() == [b"3", b"4", b"5", b"7"]
    assert [each.id for each in outbox.aside()] == names
    assert names[0] in outbox.aside()[2].reason


UNREADABLE = ("", "{", "[]", "null", "7", "[" * 100_000, '{"data": "!", "key": null, "headers": {}, "delay": 0}')


def test_a_row_that_cannot_be_read_goes_aside_and_all_others_move(database: Database, db: Any) -> None:
    outbox, queues = Outbox(db), Queues()
    outbox.add("goals", b"1")
    for at, job in enumerate(UNREADABLE):
        db.cursor().execute(f"INSERT INTO kq_outbox VALUES ('{at}', 'goals', '{job}')")
    outbox.add("goals", b"2"), db.commit()
    assert outbox.move(queues) == 2 + len(UNREADABLE)
    assert queues.datas() == [b"1", b"2"]
    assert all("the job in the table cannot be read" in each.reason for each in outbox.aside())
    assert (len(outbox.aside()), outbox.waiting()) == (len(UNREADABLE), 0)


def test_what_went_aside_comes_back_in_its_order_when_the_reason_is_gone(db: Any) -> None:
    outbox, queues = Outbox(db), Queues()
    queues.missing = {"late"}
    names = [outbox.add("late", b"%d" % at, b"k") for at in range(3)]
    db.commit()
    outbox.move(queues)
    assert (outbox.waiting(), len(outbox.aside()), queues.puts) == (0, 3, [])
    queues.missing.clear()
    assert (outbox.back(), outbox.waiting(), outbox.aside()) == (3, 3, [])
    outbox.move(queues)
    assert [put.headers[HEADER] for _, put in queues.puts] == [name.encode() for name in names]


# --- killed at each statement ---


def killed(database: Database, log: Path, at: int) -> bool:
    """A process that moves everything, and is killed at its step number `at`; False: it came to its end before."""
    child = os.fork()
    if not child:
        left = at

        def step() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def put(name: str, puts: list[Put]) -> None:
            step()
            Queues()(name).put_many(puts)
            with log.open("ab") as out:
                out.write(b"".join((each.data or b"") + b"\n" for each in puts))
            step()

        outbox = Outbox(Steps(database.connect(), step), database.paramstyle)
        outbox.at_once = 3
        while outbox.move(lambda name: SimpleNamespace(put_many=lambda puts: put(name, puts))):
            pass
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def test_a_mover_that_is_killed_at_any_statement_loses_no_job_and_puts_each_at_least_once(
    database: Database, tmp_path: Path
) -> None:
    """In a process of its own, without threads: it forks one mover after the other."""
    lines = "import sys; from tests.unit.test_virtual_outbox import everywhere; everywhere(*sys.argv[1:])"
    command = [sys.executable, "-c", lines, database.server, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def everywhere(server: str, folder: str) -> None:
    """A mover is killed at its first step, another one at its second …, until one comes to its end."""
    datas, new = {b"0", b"1", b"3", b"4"}, databases(server, Path(folder, "killed"))
    Path(folder, "killed").mkdir()
    at, alive = 0, False
    while not alive:
        database, log = new(), Path(folder, f"{at}.log")
        log.touch()
        with closing(database.connect()) as db:
            outbox = Outbox(db)
            for number in range(5):
                outbox.add(f"q{number % 2}", b"%d" % number if number != 2 else bytes(LARGE + 1), b"k%d" % number)
            db.commit()
        alive = not killed(database, log, at)
        assert alive or not killed(database, log, 10_000), "the next one comes to its end"
        with closing(database.connect()) as db:
            outbox = Outbox(db)
            assert (set(log.read_bytes().split()), outbox.waiting(), len(outbox.aside())) == (datas, 0, 1), f"step {at}"
        at += 1
    assert at > 15, "it was killed at each of so many steps"


# --- two at once ---

JOBS = ((b"1", b"k"), (bytes(LARGE + 1), b"k"), (b"3", b"k"), (b"4", b"other"), (b"5", None))


def test_two_that_move_at_once_lose_nothing_and_block_neither_each_other_nor_those_who_add(database: Database) -> None:
    """Both have read the same jobs, and wait in the queue's answer: who adds meanwhile is not held up by them."""
    queues, both, names = Queues(), threading.Barrier(3), []
    with closing(database.connect()) as db:
        outbox = Outbox(db)
        outbox.add("large", bytes(LARGE + 1), b"k")
        names = [outbox.add("goals", b"%d" % at) for at in range(20)]
        db.commit()
    met, failed = threading.local(), []

    def put(name: str, puts: list[Put]) -> None:
        if name == "goals" and not getattr(met, "once", False):
            met.once = True
            both.wait(WAIT)  # all have come so far
            both.wait(WAIT)  # a job was added
        queues(name).put_many(puts)

    def move() -> None:
        try:
            with closing(database.connect()) as own:
                Outbox(own).move(lambda name: SimpleNamespace(put_many=lambda puts: put(name, puts)))
        except Exception as error:
            failed.append(error)
            both.abort()

    movers = [threading.Thread(target=move) for _ in range(2)]
    for mover in movers:
        mover.start()
    both.wait(WAIT)
    with closing(database.connect(wait=False)) as other:  # an error at once, if it is locked
        names.append(Outbox(other).add("goals", b"meanwhile"))
        other.commit()
    both.wait(WAIT)
    for mover in movers:
        mover.join(WAIT)
    assert failed == []
    with closing(database.connect()) as db:
        outbox = Outbox(db)
        assert (outbox.waiting(), {each.queue for each in outbox.aside()}) == (1, {"large"})
        outbox.move(queues)
        assert {put.headers[HEADER].decode() for _, put in queues.puts} == set(names)  # type: ignore[union-attr]
        assert outbox.back() == 1, "it is aside once, though two have set it aside"


def test_another_mover_at_any_statement_of_the_first_changes_neither_the_order_of_a_key_nor_what_is_aside(
    new: Callable[[], Database],
) -> None:
    """The second one moves one, two, … jobs between two statements of the first, unless it would have to wait then."""
    at, over = 0, False
    while not over:
        overs = [moved_between(new(), at, n) for n in range(1, 6)]
        over, at = all(overs), at + 1
    assert at > 10, "the second one came between so many statements"


def moved_between(database: Database, at: int, n: int) -> bool:
    """Another mover, of n jobs, comes at step `at` of a mover; True: there are not so many steps."""
    queues, left, failed = Queues(), at, list[Exception]()
    with closing(database.connect()) as db, closing(database.connect(wait=False)) as other:
        outbox, second = Outbox(other), Outbox(other)
        second.at_once = n
        names = [outbox.add("goals", data, key) for data, key in JOBS]
        other.commit()

        def step() -> None:
            nonlocal left
            left -= 1
            if left == -1:
                try:
                    second.move(queues)
                except other.OperationalError as error:  # locked: it would wait
                    failed.append(error)

        first = Outbox(Steps(db, step), database.paramstyle)
        while first.waiting():
            first.move(queues)
        there = f"step {at}, {n} jobs, {failed}"
        assert list(dict.fromkeys(queues.datas())) == [b"1", b"4", b"5"], there
        aside = {each.id: each.reason for each in outbox.aside()}
        assert list(aside) == [names[1], names[2]], there
        assert "would take" in aside[names[1]] and names[1] in aside[names[2]], there
        assert outbox.waiting() == 0, there
    return left >= 0


# --- drivers, wrong calls ---


class Formatted:
    """A connection of a driver that writes parameters in another way."""

    __module__ = "elsewhere"

    def __init__(self, mark: str, inner: sqlite3.Connection) -> None:
        self.inner, self.mark = inner, mark

    def cursor(self) -> Any:
        cursor = self.inner.cursor()

        def execute(sql: str, values: Any) -> Any:
            assert not values or self.mark in sql
            numbers = re.findall(r":(\d)", sql)
            assert numbers == [str(at + 1) for at in range(len(numbers))]
            return cursor.execute(re.sub(r"%s|:\d", "?", sql), values)

        return SimpleNamespace(execute=execute, fetchmany=cursor.fetchmany, close=cursor.close)

    def commit(self) -> None:
        self.inner.commit()


@pytest.mark.parametrize(("style", "mark"), [("format", "%s"), ("pyformat", "%s"), ("numeric", ":1")])
def test_other_drivers_are_spoken_to_in_their_words(style: str, mark: str) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        outbox, queues = Outbox(Formatted(mark, db), paramstyle=style), Queues()
        outbox.add("goals", b"1")
        assert outbox.move(queues) == 1


WRONG: dict[str, tuple[Callable[[Any], object], type[KqError], str]] = {
    "no connection": (lambda c: Outbox(3), NotAllowed, "a DB-API connection, and int has no cursor"),
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
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_refused_with_a_sentence(case: str) -> None:
    call, error, says = WRONG[case]
    with closing(sqlite3.connect(":memory:")) as db, pytest.raises(error, match=says):
        call(db)
