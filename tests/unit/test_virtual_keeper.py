"""A partition's thread with a pen that is no Kafka: when it answers, what it says when it cannot, and that it proves what it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kqlib.errors import KqError
from kqlib.queue.item import Out, Put
from kqlib.virtual import keeper as room
from kqlib.virtual.errors import NotFound, NotMine, Unavailable
from kqlib.virtual.keeper import Keeper, Op
from kqlib.virtual.pen import Broken, Fenced
from kqlib.virtual.shelf import Shelf
from kqlib.virtual.states import Place
from kqlib.virtual.takeover import Taken
from kqlib.virtual.work import Asked
from tests.patience import PATIENCE, WAIT


class Pen:
    """Writes into a list; can be made to fail."""

    def __init__(self) -> None:
        self.written: list[list[Out]] = []
        self.fails: Exception | None = None
        self.before: Callable[[], None] = lambda: None

    def write(self, outs: Sequence[Out]) -> list[int]:
        self.before()
        if self.fails:
            raise self.fails
        start = sum(map(len, self.written))
        self.written.append(list(outs))
        return list(range(start, start + len(outs)))

    def close(self) -> None:
        pass


class Message:
    """What a consumer would give."""

    def __init__(self, queue: str, offset: int, value: bytes = b"x") -> None:
        self._key, self._offset, self._value = queue.encode(), offset, value

    def error(self) -> None:
        return None

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value

    def offset(self) -> int:
        return self._offset

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000


PROOF = Out("games.offsets", b"mine", b"owner", None, 0)


@pytest.fixture
def pen() -> Pen:
    return Pen()


@pytest.fixture
def keeper(pen: Pen) -> Iterator[Keeper]:
    begun: Any = lambda _: Taken(Shelf(Place("games", 0, 1)), pen, 0, 0.0, 3)  # type: ignore[arg-type]  # noqa: E731
    keeper = Keeper(0, begun, lambda *_: None, lambda _: [PROOF])
    until(lambda: keeper.state == "serving")
    yield keeper
    keeper.drop("the test is over")
    keeper.join(WAIT)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def paused(pen: Pen) -> tuple[threading.Event, threading.Event]:
    """Let the pen wait before it writes: an event that it has begun, one to let it go on."""
    begun, go = threading.Event(), threading.Event()

    def before() -> None:
        begun.set()
        go.wait(WAIT)

    pen.before = before
    return begun, go


def put(seen: bool = False) -> Op:
    return Op(lambda shelf, out: shelf.put("q", [Put(b"x")], out), seen=seen)


def depth() -> Op:
    return Op(lambda shelf, _: shelf.depth("q", "c"))


def claim(wait: float = 0.0) -> Op:
    run: Any = lambda shelf, out: shelf.claim(("q", "c"), 1, 30.0, Asked(), out)  # noqa: E731
    return Op(run, "q", time.monotonic() + wait, [])


def test_a_write_is_answered_after_its_commit_and_never_before(keeper: Keeper, pen: Pen) -> None:
    answered_early = []
    op = put()
    pen.before = lambda: answered_early.append(op.future.done())
    assert keeper.ask(op).result(WAIT) == [0] and answered_early == [False]


def test_what_comes_while_a_commit_runs_shares_the_next_one(keeper: Keeper, pen: Pen) -> None:
    begun, go = paused(pen)
    futures = [keeper.ask(put())]
    assert begun.wait(WAIT)
    futures += [keeper.ask(put()) for _ in range(20)]
    go.set()
    assert sorted(future.result(WAIT)[0] for future in futures) == list(range(21))
    assert [len(outs) for outs in pen.written] == [1, 20]


def test_a_put_is_answered_when_this_node_has_read_it(keeper: Keeper) -> None:
    future = keeper.ask(put(seen=True))
    assert keeper.ask(depth()).result(WAIT) == 0 and not future.done()
    keeper.arrive([Message("q", 0)])
    assert future.result(WAIT) == [0] and keeper.ask(depth()).result(WAIT) == 1


def test_an_answer_to_a_reader_brings_a_proof_when_the_last_one_is_old(
    keeper: Keeper, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "PROVE", 3600.0)
    keeper.ask(depth()).result(WAIT)
    many = len(pen.written)
    keeper.ask(depth()).result(WAIT)
    assert len(pen.written) == many  # it is fresh
    monkeypatch.setattr(room, "PROVE", 0.0)
    keeper.ask(depth()).result(WAIT)
    assert len(pen.written) == many + 1 and pen.written[-1] == [PROOF]


def test_a_claim_waits_for_its_queue_and_holds_nobody_up(keeper: Keeper) -> None:
    waiting = keeper.ask(claim(wait=20))
    assert keeper.ask(depth()).result(WAIT) == 0
    keeper.arrive([Message("other", 0)])
    assert keeper.ask(depth()).result(WAIT) == 0 and not waiting.done()
    keeper.arrive([Message("q", 1, b"here")])
    assert [given.kept.data for given in waiting.result(WAIT)] == [b"here"]


def test_a_claim_that_waits_in_vain_gets_nothing_in_time(keeper: Keeper) -> None:
    start = time.monotonic()
    assert keeper.ask(claim(wait=0.2)).result(WAIT) == [] and 0.15 < time.monotonic() - start < 5 * PATIENCE


def test_who_has_gone_is_not_given_anything(keeper: Keeper) -> None:
    waiting = keeper.ask(claim(wait=20))
    keeper.ask(depth()).result(WAIT)
    assert waiting.cancel()
    keeper.arrive([Message("q", 0)])
    assert len(keeper.ask(claim()).result(WAIT)) == 1


def test_a_verb_that_must_see_what_is_committed_gets_a_transaction_of_its_own(keeper: Keeper, pen: Pen) -> None:
    seen: list[int] = []
    begun, go = paused(pen)
    first = keeper.ask(put())
    assert begun.wait(WAIT)
    second, third = put(), Op(lambda shelf, _: seen.append(keeper.written), alone=True)
    keeper.inbox.put(second)
    keeper.inbox.put(third)
    go.set()
    assert first.result(WAIT) == [0] and second.future.result(WAIT) == [1] and third.future.result(WAIT) is None
    assert seen == [2]


ENDS: tuple[tuple[Exception, type[KqError], bool, str], ...] = (
    (Fenced("fenced"), NotMine, True, "lost"),
    (Broken("timed out", unknown=True), Unavailable, True, "broken"),
    (Broken("aborted", unknown=False), Unavailable, False, "broken"),
    (ValueError("a bug"), Unavailable, False, "broken"),
)


@pytest.mark.parametrize("case", ENDS, ids=lambda case: repr(case[0]))
def test_who_waits_is_told_how_it_ended_and_nobody_is_left_waiting(
    keeper: Keeper, pen: Pen, case: tuple[Exception, type[KqError], bool, str]
) -> None:
    error, kind, unknown, state = case
    parked = keeper.ask(claim(wait=60))
    keeper.ask(depth()).result(WAIT)
    pen.fails = error
    failed = keeper.ask(put())
    with pytest.raises(kind) as said:
        failed.result(WAIT)
    assert said.value.unknown is unknown
    with pytest.raises(kind):
        parked.result(WAIT)
    until(lambda: keeper.state == state)
    with pytest.raises(kind):
        keeper.ask(depth()).result(WAIT)


def test_a_refusal_changes_nothing_and_the_partition_goes_on(keeper: Keeper) -> None:
    with pytest.raises(NotFound):
        keeper.ask(Op(lambda shelf, out: shelf.delete("q", 0, out))).result(WAIT)
    assert len(keeper.ask(put()).result(WAIT)) == 1


def test_who_leaves_writes_its_last_words_and_answers_nobody_any_more(keeper: Keeper, pen: Pen) -> None:
    parked = keeper.ask(claim(wait=60))
    keeper.leave([PROOF])
    keeper.join(WAIT)
    assert pen.written[-1] == [PROOF]
    for future in (parked, keeper.ask(depth())):
        with pytest.raises(NotMine):
            future.result(WAIT)


def test_nothing_is_answered_before_the_log_was_read_to_its_end(pen: Pen) -> None:
    begun: Any = lambda _: Taken(Shelf(Place("games", 0, 1)), pen, 2, 0.0, 1)  # type: ignore[arg-type]  # noqa: E731
    keeper = Keeper(0, begun, lambda *_: None, lambda _: [PROOF])
    with pytest.raises(Unavailable, match="its records are being read"):
        keeper.ask(depth()).result(WAIT)
    keeper.arrive([Message("q", 0), Message("q", 1)])
    until(lambda: keeper.state == "serving")
    assert keeper.ask(depth()).result(WAIT) == 2
    keeper.drop("over")
    keeper.join(WAIT)


def test_the_owner_before_is_waited_for_until_its_proof_is_over(pen: Pen) -> None:
    ready = time.monotonic() + 0.5
    begun: Any = lambda _: Taken(Shelf(Place("games", 0, 1)), pen, 0, ready, 1)  # type: ignore[arg-type]  # noqa: E731
    keeper = Keeper(0, begun, lambda *_: None, lambda _: [PROOF])
    until(lambda: keeper.state == "serving")
    assert time.monotonic() >= ready
    keeper.drop("over")
    keeper.join(WAIT)
