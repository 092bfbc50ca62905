"""One partition in one process, without Kafka and with a clock of the test's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kqlib.queue import fetch, terms
from kqlib.queue.incidents import Incident
from kqlib.queue.ledger import Ledger
from kqlib.queue.partition import ALONE, Partition
from kqlib.queue.terms import Terms
from tests.promises.queues import Clock
from tests.unit.records import Rec


def owner(ledger: Ledger | None = None, low: int = 0, mark: int = 0, **how: Any) -> Partition:
    clock = Clock()
    made = Partition(
        Terms("football", "here", clock=clock, **{"max_attempts": None, **how}), 0, ledger or Ledger(), low, mark
    )
    made.window.position = made.window.target()
    return made


def take(some: Partition, most: int = 9, seconds: float = 30) -> list[tuple[int, int]]:
    """Claim, and begin the lease as if the claim had been committed."""
    claimed = some.claim(most)
    some.start(claimed, seconds)
    return list(zip(claimed.offsets, claimed.attempts, strict=True))


def number(some: Partition, offset: int) -> int:
    return some.leases[offset].number


def arrive(some: Partition, *records: Rec) -> None:
    some.arrive(records)


def late(seconds: float) -> list[tuple[str, bytes]]:
    return [("kq-due", str(round((time.time() + seconds) * 1000)).encode())]


def opened(ledger: Ledger) -> dict[int, int]:
    return {offset: attempts for start, end, attempts in ledger.runs() for offset in range(start, end)}


# --- who comes next -----------------------------------------------------------------------------------------------------


def test_what_came_back_goes_before_what_is_new_and_in_the_logs_order() -> None:
    some = owner()
    arrive(some, *(Rec(n) for n in range(5)))
    assert take(some, 3) == [(0, 1), (1, 1), (2, 1)]
    some.release(2, 0)
    some.release(0, 0)
    assert take(some, 3) == [(0, 2), (2, 2), (3, 1)]


def test_a_claim_of_more_than_a_machine_can_count_takes_what_is_there() -> None:
    some = owner()
    arrive(some, Rec(0))
    assert take(some, 10**30) == [(0, 1)]


def test_ctrl_c_while_an_expired_lease_is_given_back_drops_the_partition_which_would_lose_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock's look is also made by those who only ask (`queue.blocked`): the lease would never end."""
    some = owner()
    arrive(some, Rec(0))
    take(some)

    def pressed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(some, "_release", pressed)
    some.terms.clock.now += 31
    with pytest.raises(KeyboardInterrupt):
        some.why_blocked()
    assert some.dropped


def test_an_expired_lease_gives_the_item_back_and_an_extended_one_does_not() -> None:
    some = owner()
    arrive(some, Rec(0), Rec(1))
    take(some, 2, seconds=10)
    some.extend(1, 60)
    some.terms.clock.now += 11
    assert some.why_not(0, 0, number(some, 0)) == "its lease has expired"
    assert take(some) == [(0, 2)] and some.why_not(1, 0, number(some, 1)) == ""
    some.extend(1, 1)
    some.terms.clock.now += 2
    assert take(some) == [(1, 2)]


REFUSED: dict[str, tuple[Callable[[Partition], Any], str]] = {
    "it holds": (lambda o: None, ""),
    "acked before": (lambda o: o.ack([0]), "it is done already"),
    "released": (lambda o: o.release(0, 0), "its lease ended, and it was or will be handed out again"),
    "claimed again": (lambda o: (o.release(0, 0), take(o)), "its lease ended, and it was or will be handed out again"),
    "expired": (lambda o: setattr(o.terms.clock, "now", 131), "its lease has expired"),
    "in a transaction": (lambda o: o.begin_ending(0), "it is being buried or its step is ending"),
    "purged": (lambda o: o.purge(5), "it is done already"),
    "dropped": (lambda o: setattr(o, "dropped", "gone"), "gone"),
    "taken again": (
        lambda o: setattr(o.ledger, "epoch", 1),
        "this partition was given up and taken again since it was claimed",
    ),
}


@pytest.mark.parametrize(("happens", "why"), REFUSED.values(), ids=REFUSED)
def test_a_receipt_says_why_it_no_longer_holds(happens: Callable[[Partition], Any], why: str) -> None:
    some = owner()
    arrive(some, Rec(0))
    take(some)
    mine = number(some, 0)
    happens(some)
    assert some.why_not(0, 0, mine) == why


def test_what_is_due_later_is_passed_over_and_comes_at_its_time() -> None:
    some = owner()
    arrive(some, Rec(0, more=late(50)), Rec(1))
    assert take(some) == [(1, 1)] and opened(some.ledger) == {0: 0, 1: 1}
    some.release(1, 20)
    assert some.next_change() == pytest.approx(120, abs=0.1)
    some.terms.clock.now += 21
    assert take(some) == [(1, 2)]
    some.terms.clock.now += 30
    assert (0, 1) in take(some)


@pytest.mark.parametrize("delayed", [0, 1], ids=["the older was delayed", "the newer was delayed"])
def test_of_one_that_became_due_and_one_that_was_released_the_older_is_first(delayed: int) -> None:
    some = owner()
    arrive(some, *(Rec(n, more=late(60) if n == delayed else None) for n in (0, 1)))
    assert take(some) == [(1 - delayed, 1)]
    some.terms.clock.now += 61
    some.release(1 - delayed, 0)
    assert [offset for offset, _ in take(some)] == [0, 1]


def test_an_item_of_another_site_counts_as_done_and_one_of_an_empty_name_is_everybodys() -> None:
    some = owner()
    arrive(some, *(Rec(n, more=[("kq-site", site)]) for n, site in enumerate((b"there", b"here", b""))))
    assert take(some) == [(1, 1), (2, 1)] and some.ledger.floor == 1


def test_a_moment_far_ahead_is_named_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(terms, "_warned", set())
    some = owner()
    arrive(some, *(Rec(n, more=late(30 * 24 * 3600)) for n in (0, 1)))
    assert take(some) == [] and caplog.text.count("720 hours from now. A delay is at most 900 s") == 1


def test_by_key_the_first_of_each_is_out_and_what_frees_it_lets_the_next_go() -> None:
    some = owner(order="key")
    arrive(some, Rec(0, b"a"), Rec(1, b"a"), Rec(2, b"b"), Rec(3), Rec(4, b"a"))
    assert take(some) == [(0, 1), (2, 1), (3, 1)]
    some.release(0, 5)
    assert take(some) == []
    some.terms.clock.now += 6
    assert take(some) == [(0, 2)]
    some.ack([0])
    assert take(some) == [(1, 1)]
    some.begin_ending(1)
    assert take(some) == []
    some.end([1], done=True)
    assert take(some) == [(4, 1)]


def test_by_key_nothing_goes_out_before_all_that_is_open_was_read() -> None:
    ledger = Ledger()
    ledger.claim(range(4))
    ledger.ack([1])
    some = owner(ledger, order="key")
    arrive(some, Rec(0, b"a"))
    assert take(some) == [] and some.window.target() == 2
    some.window.position = 2
    arrive(some, Rec(2, b"a"), Rec(3, b"b"), Rec(4, b"b"))
    assert take(some) == [(0, 2), (3, 2)]


@pytest.mark.parametrize("acked", [True, False], ids=["done", "used up"])
def test_an_inherited_item_on_its_last_two_attempts_is_out_alone(acked: bool) -> None:
    ledger = Ledger()
    ledger.claim([0])  # its worker is gone
    some = owner(ledger, max_attempts=3)
    arrive(some, *(Rec(n) for n in range(4)))
    assert take(some) == [(0, 2)] and take(some) == [] and some.why_blocked() == ALONE
    some.release(0, 20)
    assert some.why_blocked() == "" and take(some, 2) == [(1, 1), (2, 1)]
    some.terms.clock.now += 21
    assert take(some) == [] and some.why_blocked() == ALONE  # the others are out
    some.ack([1, 2])
    assert some.why_blocked() == "" and take(some) == [(0, 3)]
    some.ack([0]) if acked else some.release(0, 0)
    assert take(some) == [(3, 1)] and some.used_up == ([] if acked else [0])
    arrive(some, Rec(4))
    assert take(some) == [(4, 1)]  # also while the used up one is buried


@pytest.mark.parametrize("most", [1, 2, 3])
def test_items_that_no_dead_owner_had_go_out_together(most: int) -> None:
    some = owner(max_attempts=most)
    arrive(some, Rec(0), Rec(1))
    for attempt in range(1, most + 1):
        assert take(some) == [(0, attempt), (1, attempt)] and some.why_blocked() == ""
        some.release(0, 0)
        some.release(1, 0)
    assert take(some) == [] and some.used_up == [0, 1]


def test_what_was_acked_does_not_stay_listed_until_its_lease_would_have_ended() -> None:
    some = owner()
    for first in range(0, 30_000, 1_000):
        arrive(some, *(Rec(n) for n in range(first, first + 1_000)))
        some.ack([offset for offset, _ in take(some, 1_000, seconds=300)])
    arrive(some, Rec(30_000), Rec(30_001))
    assert take(some, 2, seconds=10) == [(30_000, 1), (30_001, 1)]
    assert sum(len(offsets) for _, offsets in some.leases._ends) == some.leases._listed < 12_000
    some.terms.clock.now += 11
    assert take(some, 2) == [(30_000, 2), (30_001, 2)]


def test_a_claim_that_was_not_handed_out_is_taken_back_once() -> None:
    some = owner()
    arrive(some, Rec(0))
    claimed = some.claim(1)
    assert claimed.offsets == [0] and claimed.attempts == [1]
    some.undo(claimed.lease.thread)
    some.undo(claimed.lease.thread)
    assert opened(some.ledger) == {0: 0} and take(some) == [(0, 1)]


DRAINS = {
    "handed out, by the thread that closes": ("self", 30.0, {0: 0}, False),
    "handed out, by another thread": (0, 30.0, {0: 1}, True),
    "not handed out yet": (0, None, {0: 0}, False),
}


@pytest.mark.parametrize(("thread", "seconds", "left", "busy"), DRAINS.values(), ids=DRAINS)
def test_a_drain_gives_back_what_nobody_works_on(thread: Any, seconds: float | None, left: dict, busy: bool) -> None:
    some = owner()
    arrive(some, Rec(0))
    claimed = some.claim(1)
    if seconds:
        some.start(claimed, seconds)
    closing = claimed.lease.thread if thread == "self" else thread
    assert bool(some.at_work(closing)) is busy
    some.give_back(closing)
    assert opened(some.ledger) == left


def test_a_full_ledger_blocks_and_says_so_and_goes_on_when_there_is_space() -> None:
    some = owner()
    arrive(some, *(Rec(n) for n in range(3_500)))
    got = take(some, 3_500)
    assert 3_190 < len(got) < 3_250 and "the ledger is full" in some.blocked
    assert take(some, 1) == []
    some.ack([offset for offset, _ in got])
    assert len(take(some, 3_500)) == 3_500 - len(got) and some.blocked == ""


# --- what is read ---------------------------------------------------------------------------------------------------------


def test_it_seeks_from_open_run_to_open_run_then_to_the_top() -> None:
    ledger = Ledger()
    ledger.claim([0, 1, 5_000, 9_000])
    ledger.ack([0])
    some = owner(ledger)
    assert some.window.target() == 1
    some.window.position = 1
    arrive(some, Rec(1), Rec(2))
    assert some.window.target() == 5_000
    some.window.position = 5_000
    arrive(some, Rec(5_000))
    some.window.position = some.window.target()
    arrive(some, Rec(9_000))
    assert some.window.target() == 9_001
    assert take(some) == [(1, 2), (5_000, 2), (9_000, 2)]


def test_what_is_not_found_twice_is_lost_and_only_then() -> None:
    ledger = Ledger()
    ledger.claim(range(4))
    some = owner(ledger)
    arrive(some, Rec(0), Rec(3))
    assert some.losses.items == 0 and some.window.target() == 1
    some.window.position = 1
    arrive(some, Rec(3))
    assert some.losses.items == 2 and some.window.target() == 4 and take(some) == [(0, 2), (3, 2)]


def test_a_transactions_marks_are_nothing_to_do() -> None:
    some = owner()
    arrive(some, Rec(0), Rec(2))
    some.end_seen(5)
    assert take(some) == [(0, 1), (2, 1)] and some.ledger.top == 5 and some.ledger.open == 2
    some.ack([0, 2])
    assert some.ledger.floor == 5 and some.losses.items == 0
    some.end_seen(3)  # an old one
    assert some.window.head == 5


DELAYED = {  # due in, the second header, comes after
    "clocks alike": (5, b"5", 5),
    "read late: due at its moment": (2, b"5", 2),
    "due already": (-3, b"5", 0),
    "the producer's clock is ahead": (3605, b"5.0", 5),
    "a delay of no length": (3605, b"0", 0),
    "without the second header": (3605, b"", 900),
    "a delay that is no number": (3605, b"soon", 900),
    "a delay that is not finite": (3605, b"nan", 900),
    "a longer delay than there is": (3605, b"1e9", 900),
}


@pytest.mark.parametrize(("due", "delay", "seconds"), DELAYED.values(), ids=DELAYED)
def test_a_delayed_item_comes_at_its_moment_and_never_later_than_its_delay_after_it_was_read(
    due: float, delay: bytes, seconds: float
) -> None:
    some = owner()
    arrive(some, Rec(0, more=[*late(due), ("kq-delay", delay)]))
    if seconds:
        assert take(some) == []
        some.terms.clock.now += seconds - 0.1
        assert take(some) == []
        some.terms.clock.now += 0.2
    assert take(some) == [(0, 1)]


def test_a_delay_begins_when_the_item_is_read_not_when_it_is_looked_at_or_read_again() -> None:
    some, headers = owner(), [*late(3605), ("kq-delay", b"5")]
    arrive(some, Rec(0), Rec(1, more=headers))
    some.terms.clock.now += 3
    arrive(some, Rec(2))
    assert take(some, 1) == [(0, 1)] and take(some) == [(2, 1)]
    before = some.window.bytes
    some.drop_payloads()
    assert some.window.bytes < before and 1 not in some.window.records and 2 in some.window.records
    some.terms.clock.now += 1.9
    assert take(some) == []
    some.terms.clock.now += 0.2
    assert take(some) == [] and some.window.target() == 1
    some.window.position = 1
    arrive(some, Rec(1, more=headers))
    assert take(some) == [(1, 1)]
    some.ack([0, 1, 2])
    assert some.order._due_at == {}


def test_a_purge_ends_leases_below_it_and_keeps_what_is_above() -> None:
    some = owner()
    arrive(some, *(Rec(n) for n in range(6)))
    take(some, 3)
    some.release(0, 50)
    some.purge(4)
    assert some.leases == {} and some.ledger.floor == 4 and take(some) == [(4, 1), (5, 1)]
    some.terms.clock.now += 60
    assert take(some) == [(4, 2), (5, 2)]


def test_the_leader_is_known_when_everything_up_to_the_head_was_read() -> None:
    some, reads = owner(), fetch.Fetch(SimpleNamespace(paused=set()), print)  # type: ignore[arg-type]
    for offset, epoch, known in ((0, None, -1), (1, 0, 0), (2, 4, 4)):
        reads._arrive_at(some, [Rec(offset, epoch=epoch)])
        assert some.ledger.leader == known
    some.purge(6)
    for offset, known in ((3, -1), (4, -1), (5, 5)):  # one below the mark may have been written under a later leader
        reads._arrive_at(some, [Rec(offset, epoch=5)])
        assert some.ledger.leader == known


def test_a_transaction_that_fails_leaves_the_lease_as_it_was() -> None:
    some = owner()
    arrive(some, Rec(0), Rec(1))
    take(some)
    mine = number(some, 0)
    some.begin_ending(0)
    assert opened(some.with_acked([0])) == {1: 1} and opened(some.ledger) == {0: 1, 1: 1}
    some.end([0], done=False)
    assert some.why_not(0, 0, mine) == ""
    some.terms.clock.now += 31
    assert take(some) == [(0, 2), (1, 2)]


def test_discarding_takes_one_out_of_the_line() -> None:
    some = owner()
    arrive(some, Rec(0), Rec(1), Rec(2))
    take(some, 1)
    assert some.discard(0) == "it is claimed" and some.discard(1) == ""
    assert some.discard(1) == "it is not there, or done already"
    assert take(some) == [(2, 1)]


def test_nobody_waits_for_a_delayed_item_that_was_discarded() -> None:
    some = owner()
    arrive(some, Rec(0, more=late(600)))
    assert some.discard(0) == ""
    assert some.counts()["delayed"] == 0 and not some.in_hand()


# --- whatever happens ------------------------------------------------------------------------------------------------------

VERBS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "claim", "claim", "ack", "ack", "release", "later", "time", "end"]),
        st.integers(0, 50),
    ),
    max_size=80,
)
KEYS = [None, b"a", b"b"]


@given(VERBS, st.sampled_from(["any", "key"]), st.sampled_from([None, 4]))
@settings(max_examples=80, deadline=None)
def test_whatever_happens_nothing_is_out_twice_nothing_is_forgotten_and_keys_keep_their_order(
    verbs: list, order: str, most: int | None
) -> None:
    some, done, out = owner(order=order, max_attempts=most), set[int](), dict[int, int]()
    read = 0
    for verb, value in verbs:
        if verb == "arrive":
            arrive(
                some,
                *(
                    Rec(read + n, KEYS[(read + n) % 3], late(9) if (read + n) % 7 == 6 else None)
                    for n in range(value % 6)
                ),
            )
            read += value % 6
        elif verb == "claim":
            for offset, attempt in take(some, value % 5 + 1, 20):
                assert offset not in done and offset not in out
                out[offset] = attempt
            keys = [KEYS[offset % 3] for offset in out if offset % 3]
            assert order == "any" or len(keys) == len(set(keys))
        elif verb == "time":
            some.terms.clock.now += value
            some.tidy()
            out = {offset: n for offset, n in out.items() if offset in some.leases}
        elif out and (offset := sorted(out)[value % len(out)]) is not None:
            del out[offset]
            if verb == "ack":
                some.ack([offset])
                done.add(offset)
            elif verb == "end":
                some.begin_ending(offset)
                some.end([offset], done=value % 2 == 0)
                if value % 2:
                    out[offset] = 1
                else:
                    done.add(offset)
            else:
                some.release(offset, 10 if verb == "later" else 0)
        assert set(opened(some.ledger)).isdisjoint(done) and set(out) == set(some.leases)
    for _ in range(60):  # in the end everything comes out, or is used up
        some.terms.clock.now += 40
        some.tidy()
        some.ack([offset for offset, _ in take(some, 100)])
    used = set(some.used_up)
    assert set(opened(some.ledger)) == used if order == "any" else used <= set(opened(some.ledger))
    assert used or (some.ledger.floor == some.ledger.top == read and not some.order._busy)


# --- a rewind ------------------------------------------------------------------------------------------------------------


def skipped(end: int, at: int, start: int = 0) -> Incident:
    return Incident("skipped", start, end, end - start, at)


def test_what_is_put_back_goes_out_once_and_before_what_is_new() -> None:
    some = owner(Ledger(5, 5, 1, "id"))
    some.losses.incidents = [skipped(3, at=1), skipped(5, at=2, start=3)]
    arrive(some, Rec(5))
    some.rewind(1, back=True)
    assert [each.at for each in some.losses.incidents] == [2] and some.losses.version == some.awaited == some.version
    some.rewind(1, back=True)
    assert some.window.target() == 0 and some.ledger.floor == 0
    some.window.position = 0
    arrive(some, Rec(0), Rec(1, None, [("kq-site", b"there")]), Rec(3))  # another site's, and no record at 2
    some.window.position = some.window.target()
    arrive(some, Rec(3))
    assert take(some) == [(0, 1), (5, 1)] and some.losses.items == 0
    some.ack([0, 5])
    assert some.ledger.floor == 6 and some.ledger.open == 0


@pytest.mark.parametrize(
    "killed", [False, True], ids=["one owner", "the first one dies before it notes what it put back"]
)
def test_what_does_not_fit_into_the_ledger_is_put_back_later_and_nothing_twice(killed: bool) -> None:
    some, seen = owner(Ledger(9_000, 9_000, 1, "id")), list[int]()
    some.losses.incidents = [skipped(9_000, at=1)]
    if killed:
        some.rewind(1, back=True)
        some = owner(Ledger.read(some.ledger.text(), some.ledger.floor))
        some.losses.incidents = [skipped(9_000, at=1)]
    while some.losses.incidents:
        some.rewind(1, back=True)
        assert Ledger.read(some.ledger.text(), some.ledger.floor).open == some.ledger.open
        back = list(opened(some.ledger))
        assert back and sum(each.items for each in some.losses.incidents) == 9_000 - len(seen) - len(back)
        some.window.position = back[0]
        arrive(some, *map(Rec, back))
        assert len(take(some, len(back))) == len(back)
        some.ack(back)
        seen += back
    assert seen == list(range(9_000)) and some.ledger.floor == 9_000


def test_the_next_owner_knows_what_was_put_back_and_is_no_item_of_this_site() -> None:
    dead = owner(Ledger(6, 6, 1, "id"))
    dead.losses.incidents = [skipped(4, at=1)]
    dead.rewind(1, back=True)
    some = owner(Ledger.read(dead.ledger.text(), dead.ledger.floor))
    for _ in range(2):
        some.window.position = some.window.target()
        arrive(some, Rec(1, None, [("kq-site", b"there")]), Rec(3))  # no record at 0: retention took it; at 2 a mark
    some.window.position = some.window.target()
    arrive(some, Rec(3))
    some.losses.log_begins(1)
    assert take(some) == [(3, 1)] and some.losses.items == 1
    some.ack([3])
    assert some.ledger.open == 0


def test_what_is_forgotten_is_not_put_back() -> None:
    some = owner(Ledger(5, 5, 1, "id"))
    some.losses.incidents = [skipped(5, at=1)]
    some.rewind(1, back=False)
    assert not some.losses.incidents and some.ledger.floor == 5 and some.losses.version == some.version


# --- a log that begins later ---------------------------------------------------------------------------------------------


def claimed(top: int, *done: int) -> Ledger:
    ledger = Ledger()
    ledger.claim(range(top))
    ledger.ack(done)
    return ledger


# claimed up to, done of these, where the log begins, purged up to, and then: lost, floor
BEGINS: dict[str, tuple[Ledger, int, int, tuple[int, int]]] = {
    "where it did": (claimed(4, 0), 0, 0, (0, 1)),
    "above what is done": (claimed(4, 0, 1), 2, 0, (0, 2)),
    "above an open one": (claimed(4, 1), 2, 0, (1, 2)),
    "above all that was claimed": (claimed(4, 1), 4, 0, (3, 4)),
    "above what nobody has read": (claimed(4, 1), 9, 0, (3 + 5, 9)),
    "above what was purged": (claimed(4, 1), 9, 9, (0, 9)),
    "above what was purged and some more": (claimed(4), 9, 6, (3, 9)),
    "in a new queue": (claimed(0), 0, 0, (0, 0)),
}


@pytest.mark.parametrize(("ledger", "low", "mark", "expected"), BEGINS.values(), ids=BEGINS)
def test_what_retention_took_before_it_was_done_is_counted_once(
    ledger: Ledger, low: int, mark: int, expected: tuple[int, int]
) -> None:
    some = owner(ledger.copy(), low, mark)
    assert (some.losses.items, some.ledger.floor) == expected


def test_gaps_below_the_logs_beginning_are_lost_and_others_are_transactions_marks() -> None:
    some = owner()
    arrive(some, *(Rec(n) for n in range(4)))
    assert take(some, 2) == [(0, 1), (1, 1)]
    arrive(some, Rec(10))  # 4 to 9 are not there
    some.losses.log_begins(10)
    assert some.losses.items == 6
    arrive(some, Rec(12))
    some.end_seen(14)
    some.losses.log_begins(10)
    some.losses.log_begins(99)  # nothing is counted twice
    assert some.losses.items == 6
    assert take(some) == [(2, 1), (3, 1), (10, 1), (12, 1)] and opened(some.ledger) == dict.fromkeys(
        [0, 1, 2, 3, 10, 12], 1
    )


@pytest.mark.parametrize("offsets", [[0], [4, 5, 0, 1], [4, 0, 6]], ids=["at once", "behind the last", "with a gap"])
def test_a_log_that_begins_anew_is_another_one(offsets: list[int]) -> None:
    some = owner()
    assert some.arrive([Rec(n) for n in range(4)])
    assert not some.arrive([Rec(n) for n in offsets])
