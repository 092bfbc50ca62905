"""One site, several threads: a bad output, a slow handler, Ctrl-C or a close hold up nothing that is not theirs."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kqlib.errors import Closed, KqError, NotAllowed, TopicMissing, Unreachable
from kqlib.kafka import Kafka
from kqlib.queue import Queue, Site, claim, state, transactions, work
from kqlib.queue.ledger import Ledger
from tests.patience import PATIENCE, WAIT, until
from tests.promises import play
from tests.promises.queues import SESSION, Clock, Start, alone, data, drained, taken, topic

Within = Callable[..., float]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction gives up after three seconds, not twelve."""
    monkeypatch.setattr(transactions, "PATIENCE", 3.0 * PATIENCE)


@pytest.fixture
def running() -> Iterator[Callable[..., threading.Thread]]:
    """Start a thread that calls this; whatever it raises is its own."""
    threads: list[threading.Thread] = []

    def start(call: Callable[[], Any]) -> threading.Thread:
        def run() -> None:
            with suppress(KqError, KeyboardInterrupt):
                call()

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()


def took(call: Callable[[], Any]) -> float:
    """How many seconds this takes."""
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def silent(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From now on Kafka says nothing about this topic: it is not known to be missing, and takes nothing once it is deleted."""
    ask = state.topic_ids

    def ids(cluster: Kafka, topics: list[str], *rest: Any) -> Any:
        if name in topics:
            raise Unreachable(address=cluster.bootstrap, why=f"no answer about '{name}'")
        return ask(cluster, topics, *rest)

    monkeypatch.setattr(state, "topic_ids", ids)


# --- transactions have a thread of their own ------------------------------------------------------------------------------


@pytest.mark.parametrize("lately", [False, True], ids=["never written to", "written to just now"])
def test_a_step_into_a_topic_that_is_gone_says_so_at_once_and_its_lease_holds(
    kq_cluster: Kafka, name: str, here: Site, lately: bool
) -> None:
    gone = topic(kq_cluster)
    queue, nowhere = here.queue(name), here.queue(gone)
    queue.put(b"a")
    item = queue.claim(wait=WAIT)
    if lately:
        with here.transaction() as tx:
            tx.put(nowhere, b"before")
    play.delete(kq_cluster, gone)
    for _ in range(2):
        begun = time.monotonic()
        with pytest.raises(TopicMissing, match=f"'{gone}' does not exist"), queue.step(item) as step:
            step.put(nowhere, b"never")
        assert time.monotonic() - begun < 3 * PATIENCE
    with pytest.raises(TopicMissing), here.transaction() as tx:
        tx.put(nowhere, b"never")
    queue.ack(item)
    assert queue.depth() == 0


def test_a_step_whose_output_cannot_be_written_fails_alone_and_holds_nobody_up(
    kq_cluster: Kafka, name: str, here: Site, running: Any, within: Within, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = list[transactions.Ending](), here._session.endings.ask

    def noted(each: transactions.Ending) -> None:
        each.deadline += WAIT  # its time is up when the test says so
        asked.append(each)
        ask(each)

    here._session.endings.ask = noted  # type: ignore[method-assign]
    other, outputs, gone = (topic(kq_cluster) for _ in range(3))
    queue, second, out, nowhere = (here.queue(each, lease=60) for each in (name, other, outputs, gone))
    queue.put_many([(b"0", None), (b"1", None), (b"2", None)])
    second.put_many([(b"%d" % n, None) for n in range(30)])
    first, bad, beside = taken(queue, 3)
    items = taken(second, 30)
    with queue.step(first) as step:  # its producer knows both topics
        step.put(out, b"good")
        step.put(nowhere, b"good")
    silent(monkeypatch, gone)
    play.delete(kq_cluster, gone)
    reported: list[Any] = []

    def steps() -> None:
        with pytest.raises(Unreachable, match="Nothing of it happened") as error, queue.step(bad) as step:
            step.put(out, b"never")
            step.put(nowhere, b"never")
        reported.append((error.value, time.monotonic()))

    asked.clear()
    running(steps)
    within(WAIT, lambda: asked, "the step does not end")
    acks, good = [took(lambda: queue.ack(beside))], list[float]()
    for _ in range(5):
        acks.append(took(lambda: second.ack(items.pop())))
        second.put(b"more")
        acks.append(took(lambda: second.claim(wait=WAIT)))
        with second.step(items.pop()) as step:
            step.put(out, b"beside")
            begun = time.monotonic()
        good.append(time.monotonic() - begun)
        time.sleep(0.3)
    assert not reported and max(acks) < 2 * PATIENCE and max(good) < 3 * PATIENCE, (acks, good)
    asked[0].deadline = over = time.monotonic()  # its time is up
    within(WAIT, lambda: reported, "the step does not give up")
    assert reported[0][1] - over < 2 * PATIENCE and gone in str(reported[0][0])
    with queue.step(bad) as step:  # its lease holds as before
        step.put(out, b"again")
    assert queue.depth() == 0
    assert {value for value, _ in drained(out)} == {b"good", b"beside", b"again"}


# --- close ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claimed", [False, True], ids=["a transaction", "a step"])
def test_leaving_a_transaction_of_a_closed_site_is_refused_at_once_and_writes_nothing(
    kq_cluster: Kafka, name: str, claimed: bool
) -> None:
    site = Site(kq_cluster, name, session=SESSION)
    queue = site.queue(name)
    if claimed:
        queue.put(b"a")
    block = queue.step(queue.claim(wait=WAIT)) if claimed else site.transaction()
    with pytest.raises(Closed), block as transaction:
        transaction.put(queue, b"never")
        site.close()
        begun = time.monotonic()
    assert time.monotonic() - begun < 1 * PATIENCE
    with Site(kq_cluster, name, session=SESSION) as again:
        assert drained(again.queue(name), int(claimed)) == [(b"a", 1)] * claimed


VERBS: dict[str, Callable[[Queue, Any], Any]] = {
    "put": lambda q, item: q.put(b"never"),
    "put_many": lambda q, item: q.put_many([(b"never", None)]),
    "claim": lambda q, item: q.claim(),
    "claim_many": lambda q, item: q.claim_many(2, wait=5),
    "ack": lambda q, item: q.ack(item),
    "riding ack": lambda q, item: q.ack(item, wait=False),
    "ack_many": lambda q, item: q.ack_many([item]),
    "release": lambda q, item: q.release(item),
    "extend": lambda q, item: q.extend(item),
    "bury": lambda q, item: q.bury(item),
    "step": lambda q, item: q.step(item),
    "work": lambda q, item: q.work(print),
    "depth": lambda q, item: q.depth(),
    "stats": lambda q, item: q.stats(),
    "peek": lambda q, item: q.peek(),
    "purge": lambda q, item: q.purge(),
    "discard": lambda q, item: q.discard(item.id),
    "redrive": lambda q, item: q.redrive(),
    "transaction": lambda q, item: q.site.transaction(),
    "queue": lambda q, item: q.site.queue(q.name),
}


def test_every_verb_of_a_closed_site_is_refused_at_once_and_changes_nothing(kq_cluster: Kafka, name: str) -> None:
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name)
        queue.put(b"a")
        item = queue.claim(wait=WAIT)
    reported = {}
    for verb, call in VERBS.items():
        begun = time.monotonic()
        try:
            call(queue, item)
            reported[verb] = "nothing"
        except KqError as error:
            reported[verb] = type(error).__name__
        assert time.monotonic() - begun < 1 * PATIENCE, verb
    assert reported == dict.fromkeys(VERBS, "Closed")
    with Site(kq_cluster, name, session=SESSION) as again:
        assert drained(again.queue(name)) == [(b"a", 1)]


def test_a_close_ends_the_transaction_that_runs_and_who_comes_next_waits_for_nothing(
    kq_cluster: Kafka, name: str, running: Any, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "PATIENCE", WAIT)  # it does not give up before the close
    outputs, gone = topic(kq_cluster), topic(kq_cluster)
    site, reported = Site(kq_cluster, name, session=SESSION), list[Any]()
    queue, out, nowhere = (site.queue(each) for each in (name, outputs, gone))
    queue.put(b"a")
    item = queue.claim(wait=WAIT)
    silent(monkeypatch, gone)
    play.delete(kq_cluster, gone)

    def steps() -> None:
        try:
            with queue.step(item) as step:
                step.put(out, b"never")
                step.put(nowhere, b"never")
        except KqError as error:
            reported.append(type(error))

    thread = running(steps)
    (owner,) = site._session.partitions_of(name)
    within(WAIT, lambda: owner.ending, "the step does not end")
    assert took(site.close) < 5 * PATIENCE
    assert took(lambda: thread.join(WAIT)) < 1 * PATIENCE and reported == [Closed]
    with Site(kq_cluster, name, session=SESSION) as again:
        queue, out = again.queue(name), again.queue(outputs)
        begun = time.monotonic()
        out.put(b"after")
        assert data([out.claim(wait=WAIT)]) == [b"after"]  # not behind an open transaction
        assert data([queue.claim(wait=WAIT)]) == [b"a"]
        assert time.monotonic() - begun < 5 * PATIENCE


def test_a_close_leaves_a_handler_that_never_returns_behind_and_names_its_item(
    kq_cluster: Kafka, name: str, running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    site, at_work, gate = Site(kq_cluster, name, session=SESSION), threading.Event(), threading.Event()
    queue = site.queue(name)
    id_ = queue.put(b"a")

    def handler(_: Any) -> None:
        at_work.set()
        gate.wait(WAIT)

    running(lambda: queue.work(handler))
    try:
        assert at_work.wait(WAIT)
        assert took(site.close) < 5 * PATIENCE
        assert [id_ in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [True]
        with Site(kq_cluster, name, session=SESSION) as again:
            assert drained(again.queue(name)) == [(b"a", 2)]
    finally:
        gate.set()


def test_a_close_in_the_middle_of_a_rebalance_is_over_in_time_and_leaves_the_group(
    kq_cluster: Kafka, running: Any, start: Start, within: Within
) -> None:
    name = topic(kq_cluster, 2)
    site, gate = Site(kq_cluster, name, session=SESSION), threading.Event()
    queue, site._session.drain = site.queue(name, lease=60), WAIT
    queue.put_many([(b"%d" % n, b"%d" % n) for n in range(20)])
    assert queue.claim(wait=WAIT)

    def claims() -> None:
        while queue.claim_many(20):
            pass
        gate.wait(WAIT)

    try:
        running(claims)
        within(WAIT, lambda: queue.stats()["claimed"] == 20)
        worker = start(name)
        worker.say("claim", 20)
        within(20, lambda: any(owner.leaving for owner in list(site._session.partitions.values())), "no rebalance")
        site._session.drain = 3.0  # from the close on; the rebalance waits for its own
        assert took(site.close) < 5 * PATIENCE
        assert not site._session._thread.is_alive()
        assert worker.hear()
    finally:
        gate.set()


# --- handlers -------------------------------------------------------------------------------------------------------------


def stored(site: Site, name: str) -> int:
    """How many items of partition 0 are stored as done."""
    seen = site._looker.look([(name, 0)])[name, 0]
    if seen.committed is None:
        return 0
    ledger = Ledger.read(seen.metadata, seen.committed)
    return ledger.top - ledger.open


def test_an_ack_waits_for_no_other_handler(
    name: str, here: Site, running: Any, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "CLAIM_WAIT", WAIT)  # no claim stores it either
    queue, at_work, go_on = here.queue(name), threading.Semaphore(0), threading.Semaphore(0)
    queue.put_many([(b"%d" % n, None) for n in range(18)])
    begun = list[bytes]()

    def handler(item: Any) -> None:
        begun.append(item.data)
        if len(begun) % 4 == 0:
            at_work.release()
            go_on.acquire(timeout=WAIT)

    running(lambda: queue.work(handler, until="empty", ahead=4))
    try:
        took = list[float]()
        for done in (3, 7, 11, 15):
            assert at_work.acquire(timeout=WAIT)
            took.append(within(30, lambda done=done: stored(here, name) == done, "it waits for the handler that runs"))
            go_on.release()
        assert min(took) < 0.2 * PATIENCE, took  # one alone may be late on a busy machine
    finally:
        go_on.release(9)


@pytest.mark.parametrize("ahead", [0, 3])
def test_no_more_is_claimed_ahead_than_was_asked_for(kq_cluster: Kafka, name: str, here: Site, ahead: int) -> None:
    queue, claimed = here.queue(name), list[int]()
    queue.put_many([(b"%d" % n, None) for n in range(200)])

    def held() -> int:
        return sum(len(owner.leases) for owner in here._session.partitions_of(name))

    def handler(item: Any) -> None:
        if item.data in (b"120", b"121"):  # slow and quick ones
            until(lambda: held() == 1 + ahead, held)
            time.sleep(0.2)
        claimed.append(held())

    assert queue.work(handler, until="empty", ahead=ahead).done == 200
    assert max(claimed) == 1 + ahead


def test_a_close_gives_back_what_no_handler_has_begun(
    kq_cluster: Kafka, name: str, running: Any, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kqlib.queue.connection.CLOSE", WAIT)
    site, at_work, handled = Site(kq_cluster, name, session=SESSION), threading.Event(), list[bytes]()
    queue, site._session.drain = site.queue(name), WAIT
    queue.put_many([(b"%d" % n, None) for n in range(6)])

    def handler(item: Any) -> None:
        handled.append(item.data)
        if item.data == b"1":
            (owner,) = site._session.partitions_of(name)
            at_work.set()
            within(WAIT, lambda: owner.leaving, "the close does not begin")

    running(lambda: queue.work(handler, ahead=4))
    assert at_work.wait(WAIT)
    site.close()
    with Site(kq_cluster, name, session=SESSION) as again:
        assert drained(again.queue(name), 4) == [(b"%d" % n, 1) for n in range(2, 6)]
    assert handled == [b"0", b"1"]


def test_a_partition_that_goes_gives_back_what_no_handler_has_begun(
    kq_cluster: Kafka, running: Any, start: Start, within: Within
) -> None:
    name = topic(kq_cluster, 2)
    gate, handled = threading.Event(), list[bytes]()
    with Site(kq_cluster, name, session=SESSION) as site:
        queue = site.queue(name, lease=60)
        queue.put_many([(b"%d" % n, b"%d" % n) for n in range(20)])
        assert queue.claim(wait=WAIT)
        at_hand = lambda: sum(owner.view().fresh for owner in site._session.partitions_of(name))  # noqa: E731
        within(WAIT, lambda: at_hand() == 19, "the other records are not read")  # the one thread claims once

        def handler(item: Any) -> None:
            handled.append(item.data)
            gate.wait(WAIT)

        try:
            running(lambda: queue.work(handler, ahead=30))
            within(WAIT, lambda: queue.stats()["claimed"] == 20)
            worker = start(name)
            theirs = worker.do("claim", 20)
            assert set(theirs.values()) <= {1, 2} and list(theirs.values()).count(2) <= 2, theirs
        finally:
            gate.set()


# --- Ctrl-C ---------------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_finished_items_are_settled_leaves_no_lease(
    name: str, here: Site, running: Any, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, at_work, gate = here.queue(name, lease=0.6 * PATIENCE), threading.Event(), threading.Event()
    queue.put_many([(b"long", None), (b"quick", None)])
    settle, struck = queue._ack_jobs, list[bool]()

    def handler(item: Any) -> None:
        if item.data == b"long":
            at_work.set()
            gate.wait(WAIT)
        else:
            at_work.wait(WAIT)

    def strikes(batch: Any) -> None:
        if at_work.is_set() and not struck:
            struck.append(True)
            raise KeyboardInterrupt
        settle(batch)

    monkeypatch.setattr(queue, "_ack_jobs", strikes)
    worker = running(lambda: queue.work(handler, threads=2))
    try:
        within(WAIT, lambda: struck, "nothing was struck")
        (owner,) = here._session.partitions_of(name)
        within(3 * PATIENCE, lambda: 1 not in owner.leases, "the lease of what is finished is extended")
        assert worker.is_alive() and 0 in owner.leases
    finally:
        gate.set()


class CtrlC:
    """Presses Ctrl-C when this thread comes to the n-th line of these files. Not where a lock is taken or given back.

    Python hears a signal inside the body of a `with` or after its end; a trace would strike between the two, with the lock held.
    """

    def __init__(self, place: int, *names: str) -> None:
        self.left, self.names, self.pressed = place, names, False

    def __enter__(self) -> CtrlC:
        sys.settrace(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _look(self, frame: FrameType, what: str, _: Any) -> Any:
        path = Path(frame.f_code.co_filename)
        if path.parent.name != "queue" or path.stem not in self.names:
            return None
        if what == "line":
            self.left -= 1
            if self.left <= 0 and not getline(str(path), frame.f_lineno).lstrip().startswith("with "):
                self.pressed = True
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self._look


CLAIM = ("claim", "partition", "order", "window", "ledger", "item")


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=[pytest.mark.nightly, pytest.mark.limit(200)])])
def test_ctrl_c_at_any_line_of_a_claim_and_an_ack_loses_nothing_and_leaves_no_lease(
    kq_cluster: Kafka, name: str, step: int
) -> None:
    clock, place, pressed = Clock(), 1, True
    with alone(kq_cluster, name, clock=clock) as site:
        queue = site.queue(name, lease=1, max_attempts=None)
        assert queue.claim() is None
        while pressed:
            value, got = b"%d" % place, list[bytes]()
            queue.put(value)
            with suppress(KeyboardInterrupt), CtrlC(place, *CLAIM) as ctrl_c:
                item = queue.claim(wait=WAIT)
                queue.ack(item)
                got.append(item.data)
            pressed, begun = ctrl_c.pressed, time.monotonic()
            while queue.depth() and time.monotonic() - begun < 5 * PATIENCE:
                clock.now += 2  # a lease that was left behind is over
                for again in queue.claim_many(9, wait=0.5):
                    with suppress(KqError):
                        queue.ack(again)
                        got.append(again.data)
            assert queue.depth() == 0, f"what Ctrl-C struck at line {place} does not come again"
            assert set(got) <= {value}
            place += step
        assert place > 5 * step


def at_work() -> list[str]:
    """The threads of `work` that there are."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kq-work-")]


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=[pytest.mark.nightly, pytest.mark.limit(200)])])
def test_ctrl_c_at_any_line_of_work_ends_its_threads_and_leaves_no_lease(
    kq_cluster: Kafka, name: str, here: Site, within: Within, step: int
) -> None:
    queue = here.queue(name, lease=0.5, max_attempts=None)
    assert queue.claim() is None
    for place in range(1, 100, step):
        queue.put_many([(b"%d" % n, None) for n in range(4)])
        handled: list[bytes] = []

        def handler(item: Any, handled: list[bytes] = handled) -> None:
            time.sleep(0.02)
            handled.append(item.data)

        with suppress(KeyboardInterrupt), CtrlC(place, "work"):
            queue.work(handler, threads=2, until="empty")
        within(5, lambda: not at_work(), f"line {place}: its threads work on")
        assert queue.work(handler, threads=2, until="empty").buried == 0
        assert {*handled} == {b"0", b"1", b"2", b"3"} and queue.depth() == 0, place


# --- a site that cannot be made, one that failed --------------------------------------------------------------------------


def test_a_site_that_is_refused_at_its_start_leaves_the_older_one_at_work_and_its_name_free(
    kq_cluster: Kafka, name: str
) -> None:
    with Site(kq_cluster, name, session=SESSION) as older:
        queue = older.queue(name)
        queue.put_many([(b"a", None), (b"b", None)])
        item = queue.claim(wait=WAIT)
        for _ in range(2):
            with pytest.raises(NotAllowed, match=r"session=0\.2 is refused by the cluster"):
                Site(kq_cluster, name, session=0.2)
        queue.ack(item)
        with Site(kq_cluster, name, session=SESSION) as newer:
            with pytest.raises(Closed):
                queue.claim()
            assert drained(newer.queue(name)) == [(b"b", 1)]


@pytest.mark.parametrize("session", [15.1, 54, 600])
def test_a_site_takes_a_session_as_long_as_the_cluster_does(kq_cluster: Kafka, name: str, session: float) -> None:
    with Site(kq_cluster, name, session=session) as site:  # a third of it would be a heartbeat that brokers refuse
        site.queue(name).put(b"a")
        assert drained(site.queue(name)) == [(b"a", 1)]


def test_a_site_that_failed_says_so_anew_each_time_and_goes_on_when_it_can(
    kq_cluster: Kafka, name: str, here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, errors = here.queue(name), list[KqError]()
    queue.put(b"a")

    def refused(*_: Any, **__: Any) -> Any:
        raise NotAllowed("This user may not read the committed state")

    def lines(error: BaseException) -> int:
        count, trace = 0, error.__traceback__
        while trace:
            count, trace = count + 1, trace.tb_next
        return count

    with monkeypatch.context() as patch:
        patch.setattr(here._waiter, "look", refused)
        for _ in range(4):
            with pytest.raises(NotAllowed, match=r"^This user may not read the committed state$") as error:
                queue.claim()
            errors.append(error.value)
            here._session.begun[name] -= claim.ASSIGNED_WITHIN  # as if the first claim were long ago
        with pytest.raises(NotAllowed):
            queue.work(print)
    assert len({id(error) for error in errors}) == 4 and len({lines(error) for error in errors}) == 1
    assert errors[-1].__context__ is None
    done: list[bytes] = []
    assert queue.work(lambda item: done.append(item.data), until="empty").done == 1 and done == [b"a"]


def test_a_claim_waits_for_a_state_that_is_read_again_however_long_ago_the_first_claim_was(
    name: str, here: Site
) -> None:
    queue = here.queue(name)
    queue.put(b"a")
    assert queue.claim(wait=WAIT)
    member, (owner,) = here._session, here._session.partitions_of(name)
    with member.changed:
        member.begun[name] = owner.saved_at = time.monotonic() - 2 * claim.ASSIGNED_WITHIN
        with pytest.raises(KeyError):
            owner.unclaim(99)  # as Ctrl-C in the middle of a change: the state is given up
        assert data([queue.claim()]) == [b"a"]
