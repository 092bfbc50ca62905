"""A partition's thread without Kafka: when it answers, how it refuses, and that it proves what it answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kqlib.errors import KqError
from kqlib.queue.item import Out, Put
from kqlib.virtual import partition
from kqlib.virtual.errors import NotFound, NotMine, Unavailable
from kqlib.virtual.ownership import Taken
from kqlib.virtual.partition import Operation, PartitionServer
from kqlib.virtual.store import ItemStore, Place
from kqlib.virtual.writer import Fenced, WriteFailed
from tests.patience import PATIENCE, WAIT, until
from tests.unit.records import Rec


class Writer:
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


PROOF, FAREWELL = (Out("games.offsets", value, b"owner", None, 0) for value in (b"mine", b"left"))


class Ownership:
    """Gives an empty store, at once."""

    def __init__(self, writer: Writer, end: int = 0, ready: float = 0.0) -> None:
        self.writer, self.end, self.ready = writer, end, ready

    def take_over(self, *_: Any) -> Taken:
        return Taken(ItemStore(Place("games", 0, 1)), self.writer, self.end, self.ready, 3)  # type: ignore[arg-type]

    def proof(self, *_: Any) -> Out:
        return PROOF

    def farewell(self, *_: Any) -> list[Out]:
        return [FAREWELL]


def server_of(writer: Writer, **how: Any) -> PartitionServer:
    return PartitionServer(Ownership(writer, **how), 0, lambda *_: None)  # type: ignore[arg-type]


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def server(writer: Writer) -> Iterator[PartitionServer]:
    server = server_of(writer)
    until(lambda: server.state == "serving")
    yield server
    server.drop("the test is over")
    server.join(WAIT)


def paused(writer: Writer) -> tuple[threading.Event, threading.Event]:
    """Let the writer wait before it writes: an event that it has begun, one to let it go on."""
    begun, go = threading.Event(), threading.Event()

    def before() -> None:
        begun.set()
        go.wait(WAIT)

    writer.before = before
    return begun, go


def put(seen: bool = False) -> Operation:
    return Operation(lambda store, out: store.put("q", [Put(b"x")], out), seen=seen)


def depth() -> Operation:
    return Operation(lambda store, _: store.depth("q", "c"))


def claim(wait: float = 0.0) -> Operation:
    run: Any = lambda store, out: store.claim(("q", "c"), 1, 30.0, out)  # noqa: E731
    return Operation(run, "q", time.monotonic() + wait)


def test_a_write_is_answered_after_its_commit_and_never_before(server: PartitionServer, writer: Writer) -> None:
    answered_early = []
    op = put()
    writer.before = lambda: answered_early.append(op.future.done())
    assert server.ask(op).result(WAIT) == [0] and answered_early == [False]


def test_what_comes_while_a_commit_runs_shares_the_next_one(server: PartitionServer, writer: Writer) -> None:
    begun, go = paused(writer)
    futures = [server.ask(put())]
    assert begun.wait(WAIT)
    futures += [server.ask(put()) for _ in range(20)]
    go.set()
    assert sorted(future.result(WAIT)[0] for future in futures) == list(range(21))
    assert [len(outs) for outs in writer.written] == [1, 20]


def test_a_put_is_answered_when_this_node_has_read_it(server: PartitionServer) -> None:
    future = server.ask(put(seen=True))
    assert server.ask(depth()).result(WAIT) == 0 and not future.done()
    server.arrive([Rec(0, b"q")])
    assert future.result(WAIT) == [0] and server.ask(depth()).result(WAIT) == 1


def test_an_answer_to_a_reader_brings_a_proof_when_the_last_one_is_old(
    server: PartitionServer, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "PROVE", 3600.0)
    server.ask(depth()).result(WAIT)
    many = len(writer.written)
    server.ask(depth()).result(WAIT)
    assert len(writer.written) == many  # it is fresh
    monkeypatch.setattr(partition, "PROVE", 0.0)
    server.ask(depth()).result(WAIT)
    assert len(writer.written) == many + 1 and writer.written[-1] == [PROOF]


def test_a_claim_waits_for_its_queue_and_holds_nobody_up(server: PartitionServer) -> None:
    waiting = server.ask(claim(wait=20))
    assert server.ask(depth()).result(WAIT) == 0
    server.arrive([Rec(0, b"other")])
    assert server.ask(depth()).result(WAIT) == 0 and not waiting.done()
    server.arrive([Rec(1, b"q", data=b"here")])
    assert [item.record.data for item in waiting.result(WAIT)] == [b"here"]


def test_a_claim_that_waits_in_vain_gets_nothing_in_time(server: PartitionServer) -> None:
    start = time.monotonic()
    assert server.ask(claim(wait=0.2)).result(WAIT) is None and 0.15 < time.monotonic() - start < 5 * PATIENCE


def test_who_has_gone_is_not_given_anything(server: PartitionServer) -> None:
    waiting = server.ask(claim(wait=20))
    server.ask(depth()).result(WAIT)
    assert waiting.cancel()
    server.arrive([Rec(0, b"q")])
    assert len(server.ask(claim()).result(WAIT)) == 1


def test_a_verb_that_must_see_what_is_committed_gets_a_transaction_of_its_own(
    server: PartitionServer, writer: Writer
) -> None:
    seen: list[int] = []
    begun, go = paused(writer)
    first = server.ask(put())
    assert begun.wait(WAIT)
    second, third = put(), Operation(lambda store, _: seen.append(server.written), alone=True)
    server.inbox.put(second)
    server.inbox.put(third)
    go.set()
    assert first.result(WAIT) == [0] and second.future.result(WAIT) == [1] and third.future.result(WAIT) is None
    assert seen == [2]


ENDS: tuple[tuple[Exception, type[KqError], bool, str], ...] = (
    (Fenced("fenced"), NotMine, True, "lost"),
    (WriteFailed("timed out", unknown=True), Unavailable, True, "broken"),
    (WriteFailed("aborted", unknown=False), Unavailable, False, "broken"),
    (ValueError("a bug"), Unavailable, False, "broken"),
)


@pytest.mark.parametrize("case", ENDS, ids=lambda case: repr(case[0]))
def test_all_that_wait_get_the_reason_of_the_end(
    server: PartitionServer, writer: Writer, case: tuple[Exception, type[KqError], bool, str]
) -> None:
    error, kind, unknown, state = case
    parked = server.ask(claim(wait=60))
    server.ask(depth()).result(WAIT)
    writer.fails = error
    failed = server.ask(put())
    with pytest.raises(kind) as response:
        failed.result(WAIT)
    assert response.value.unknown is unknown
    with pytest.raises(kind):
        parked.result(WAIT)
    until(lambda: server.state == state)
    with pytest.raises(kind):
        server.ask(depth()).result(WAIT)


def test_a_refusal_changes_nothing_and_the_partition_goes_on(server: PartitionServer) -> None:
    with pytest.raises(NotFound):
        server.ask(Operation(lambda store, out: store.delete("q", 0, out))).result(WAIT)
    assert len(server.ask(put()).result(WAIT)) == 1


def test_who_leaves_writes_its_last_words_and_answers_nobody_any_more(server: PartitionServer, writer: Writer) -> None:
    parked = server.ask(claim(wait=60))
    server.leave()
    server.join(WAIT)
    assert writer.written[-1] == [FAREWELL]
    for future in (parked, server.ask(depth())):
        with pytest.raises(NotMine):
            future.result(WAIT)


def test_nothing_is_answered_before_the_log_was_read_to_its_end(writer: Writer) -> None:
    server = server_of(writer, end=2)
    with pytest.raises(Unavailable, match="its records are being read"):
        server.ask(depth()).result(WAIT)
    server.arrive([Rec(0, b"q"), Rec(1, b"q")])
    until(lambda: server.state == "serving")
    assert server.ask(depth()).result(WAIT) == 2
    server.drop("over")
    server.join(WAIT)


def test_the_owner_before_is_waited_for_until_its_proof_is_over(writer: Writer) -> None:
    ready = time.monotonic() + 0.5
    server = server_of(writer, ready=ready)
    until(lambda: server.state == "serving")
    assert time.monotonic() >= ready
    server.drop("over")
    server.join(WAIT)
