"""What is counted of the four orders, and what a person reads: without a broker. The worker's process is real here too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.workshop import delivery, play
from kqlib.workshop.children import Children
from kqlib.workshop.delivery import CRASHES, CrashTable, Outcome

HERE = Kafka("127.0.0.1:1")  # nobody listens there, and nobody is asked


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
    with pytest.raises(NotAllowed, match=re.escape(words)):
        ask()


# --- a worker's process ------------------------------------------------------------------------------------------------


def dies(w: Any) -> None:
    w.nth = 2
    w.reached("work")


def breaks(w: Any) -> None:
    nowhere.to_be_found()  # type: ignore[name-defined]  # noqa: F821


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with Children(modules=[delivery.worker.__name__]) as made:
        yield made


@pytest.mark.parametrize(
    ("order", "crash", "at", "ended"),
    [
        (mine, None, 1, "read to the end"),
        (dies, "work", 2, "killed after work, at item 2"),
        (dies, "read", 2, "read to the end"),
        (
            breaks,
            None,
            1,
            "the worker failed in 'breaks', and what it did until then stays: NameError: name 'nowhere' is",
        ),
    ],
)
def test_a_life_in_a_process_of_its_own_ends_as_it_was_asked(
    children: Children, order: Callable[[Any], None], crash: str | None, at: int, ended: str
) -> None:
    job = {"topic": "football", "partitions": 1, "group": "workers", "crash": crash, "at": at}
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
