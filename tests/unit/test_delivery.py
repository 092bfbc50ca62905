"""The step in four orders, what is counted, what a person reads: without a broker. The worker's process is real here too."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.workshop import delivery, play
from kqlib.workshop.children import Children
from kqlib.workshop.delivery import CRASHES, ORDERS, CrashTable, Outcome

HERE = Kafka("127.0.0.1:1")  # nobody listens there, and nobody is asked


# --- the orders, on a worker of paper ----------------------------------------------------------------------------------


class Killed(BaseException):
    """The power is gone."""


class Paper:
    """A worker whose Kafka is a few lists: the verbs of `Worker`, with what survives a life in `world`."""

    def __init__(self, world: dict[str, Any], crash: str | None) -> None:
        self.world, self.crash, self.nth = world, crash, 0
        self.open: tuple[list[str], int | None] | None = None  # results and offset of a transaction
        self.database = world["database"]
        self.consumer = SimpleNamespace(consumer_group_metadata=lambda: None)

    def transactional(self) -> Any:
        return SimpleNamespace(
            begin_transaction=lambda: setattr(self, "open", ([], None)),
            send_offsets_to_transaction=lambda offset, _: setattr(self, "open", (self.open[0], offset)),
            commit_transaction=self.end,
        )

    def end(self) -> None:
        results, offset = self.open
        self.world["done"] += results
        self.world["committed"], self.open = offset, None

    def items(self) -> Iterator[int]:
        for item in range(self.world["committed"], 5):
            self.nth += 1
            self.reached("read")
            yield item

    def work(self, item: int) -> bytes:
        self.reached("work")
        return b""

    def write(self, item: int, result: bytes) -> None:
        (self.world["done"] if self.open is None else self.open[0]).append(self.address(item))
        self.reached("write")

    def commit(self, item: int) -> None:
        self.world["committed"] = item + 1
        self.reached("commit")

    def after(self, item: int) -> int:
        return item + 1

    def address(self, item: int) -> str:
        return f"football/0/{item}"

    def reached(self, point: str) -> None:
        if point == self.crash and self.nth == 3:
            raise Killed


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("at-most-once", {"work": (1, 4, 0), "commit": (1, 4, 0)}),
        ("at-least-once", {"write": (0, 4, 1)}),
        ("exactly-once", {}),
        ("idempotent-sink", {}),
    ],
)
@pytest.mark.parametrize("crash", CRASHES)
def test_an_order_loses_or_doubles_only_where_its_name_says_so(order: str, crash: str, expected: dict) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE results (item TEXT PRIMARY KEY, result BLOB)")
        world = {"committed": 0, "done": [], "database": database}
        with contextlib.suppress(Killed):
            ORDERS[order](Paper(world, crash))  # type: ignore[arg-type]
            pytest.fail("nobody was killed")
        ORDERS[order](Paper(world, None))  # type: ignore[arg-type]
        written = Counter([*world["done"], *(item for (item,) in database.execute("SELECT item FROM results"))])
    assert Outcome.of(written[f"football/0/{n}"] for n in range(5)).counts == expected.get(crash, (0, 5, 0))


# --- what is counted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "worked", "expected"),
    [
        ([], [], (0, 0, 0, 0)),
        ([1, 1], [1, 1], (0, 2, 0, 0)),
        ([0, 1, 2], [1, 1, 2], (1, 1, 1, 1)),
        ([3, 7], [0, 9], (0, 0, 2, 1)),
    ],
)
def test_an_outcome_counts_items_and_not_copies(written: list[int], worked: list[int], expected: tuple) -> None:
    found = Outcome.of(written, worked)
    assert (*found.counts, found.again) == expected


def test_a_table_reads_the_same_as_its_picture_and_gives_each_cell() -> None:
    table = CrashTable({("first", "read"): Outcome(0, 2, 0), ("first", "write"): Outcome(1, 1, 0)})
    assert table["first", "write"].lost == 1
    assert (table.orders, table.crashes) == (["first"], ["read", "write"])
    assert repr(table) == table.draw().text == table._repr_mimebundle_()["text/plain"]
    assert repr(table).splitlines()[-1].endswith("once 2      lost 1, once 1")


# --- wrong arguments ---------------------------------------------------------------------------------------------------


def mine(w: delivery.Worker) -> None:
    """An order of one's own."""


def named(order: Any) -> str:
    return (
        f"there is no order {order!r}; there are 'at-most-once', 'at-least-once', 'exactly-once', 'idempotent-sink', or"
    )


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: delivery.run(HERE, "twice", "read"), named("twice")),
    (lambda: delivery.run(HERE, lambda w: None, "read"), "there is no order <function"),
    (
        lambda: delivery.run(HERE, "at-most-once", "lunch"),
        "a worker can be killed after read, work, write, commit, not after 'lunch'",
    ),
    (lambda: delivery.run("here", "at-most-once", "read"), "kq.delivery.table(lab.cluster), not str"),  # type: ignore[arg-type]
    (lambda: delivery.table(HERE, []), "a table wants at least one order, and each of them once"),
    (lambda: delivery.table(HERE, [mine, mine]), "each of them once"),
    (lambda: delivery.table(HERE, "exactly-once"), "a table wants a list of orders, as in ['exactly-once']"),
    (lambda: delivery.life(HERE, "a", "b", "idempotent-sink", group="g"), "as in Path('results.db'), not 'b'"),
    (lambda: delivery.life(HERE, "a", Path("b"), "exactly-once", group="g"), "done is a topic, by its name, not"),
    (lambda: delivery.life("here", "a", "b", "exactly-once", group="g"), "lab.cluster), not str"),  # type: ignore[arg-type]
    (lambda: delivery.life(HERE, "a", "b", "at-most-once", group=""), "as in group='workers', not ''"),
    (lambda: delivery.life(HERE, "a", "b", "at-most-once", group="g", crash="tea"), "not after 'tea'"),
    (lambda: delivery.life(HERE, "a", "b", "at-most-once", group="g", at=0), "1 for the first, not 0"),
]


@pytest.mark.parametrize(("ask", "words"), WRONG, ids=[words[:60] for _, words in WRONG])
def test_a_wrong_argument_is_reported_in_a_sentence_before_anything_is_started(
    ask: Callable[[], object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "Children", lambda **_: pytest.fail("a worker was started"))
    with pytest.raises(NotAllowed) as caught:
        ask()
    assert words in str(caught.value)


# --- a worker's process ------------------------------------------------------------------------------------------------


def dies(w: Any) -> None:
    w.nth = 2
    w.reached("work")


def breaks(w: Any) -> None:
    nowhere.to_be_found()  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("order", "crash", "at", "ended"),
    [
        (mine, None, 1, "read to the end"),
        (dies, "work", 2, "killed after work, at item 2"),
        (dies, "work", 3, "read to the end"),
        (dies, "read", 2, "read to the end"),
        (
            breaks,
            None,
            1,
            "the worker failed in 'breaks', and what it did until then stays: NameError: name 'nowhere' is",
        ),
        (breaks, "write", 1, "the worker failed in 'breaks'"),
    ],
)
def test_a_life_in_a_process_of_its_own_ends_as_it_was_asked(
    order: Callable[[Any], None], crash: str | None, at: int, ended: str
) -> None:
    job = {"topic": "football", "partitions": 1, "group": "workers", "crash": crash, "at": at}
    with Children() as children:
        try:
            found = repr(delivery._live(children, HERE, delivery._order(order), job))
        except NotAllowed as error:
            found = str(error)
    assert found.startswith(ended)


# --- the playground ----------------------------------------------------------------------------------------------------


def test_the_playground_fills_the_cells_that_were_run_and_points_at_the_chosen_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "run", lambda cluster, order, crash: Outcome(1, 3, 0))
    monkeypatch.setattr(
        delivery,
        "table",
        lambda cluster, orders: CrashTable({(orders[0], crash): Outcome(0, 4, 0) for crash in CRASHES}),
    )
    playground = play.delivery(HERE)
    assert playground.picture.title.endswith("16 not run yet")
    playground.set(order="at-most-once", killed_after="commit").press("run it")
    assert playground.picture.text.splitlines()[2].endswith("not run     not run      [lost 1, once 3]")
    playground.set(order="exactly-once").press("all of the row")
    assert playground.picture.text.splitlines()[4].endswith("once 4      once 4       [once 4]")
    assert playground.note == ""


def test_the_playground_wants_a_cluster() -> None:
    with pytest.raises(NotAllowed, match=r"as in kq\.play\.delivery\(lab\.cluster\), not str"):
        play.delivery("here")  # type: ignore[arg-type]
