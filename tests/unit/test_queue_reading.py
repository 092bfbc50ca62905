"""What a partition's owner makes of a log that begins later than it did: what is lost is counted, what is at hand stays."""

from __future__ import annotations

import pytest

from kqlib.queue.ledger import Ledger
from tests.unit.test_queue_owner import Rec, arrive, opened, owner, take


def state(top: int, *done: int) -> Ledger:
    ledger = Ledger()
    ledger.claim(range(top))
    ledger.ack(done)
    return ledger


# claimed up to, done of these, where the log begins, purged up to, and then: lost, floor
BEGINS: dict[str, tuple[Ledger, int, int, tuple[int, int]]] = {
    "where it did": (state(4, 0), 0, 0, (0, 1)),
    "above what is done": (state(4, 0, 1), 2, 0, (0, 2)),
    "above an open one": (state(4, 1), 2, 0, (1, 2)),
    "above all that was claimed": (state(4, 1), 4, 0, (3, 4)),
    "above what nobody has read": (state(4, 1), 9, 0, (3 + 5, 9)),
    "above what was purged": (state(4, 1), 9, 9, (0, 9)),
    "above what was purged and some more": (state(4), 9, 6, (3, 9)),
    "in a new queue": (state(0), 0, 0, (0, 0)),
}


@pytest.mark.parametrize(("ledger", "low", "mark", "expected"), BEGINS.values(), ids=BEGINS)
def test_what_retention_took_before_it_was_done_is_counted_once(
    ledger: Ledger, low: int, mark: int, expected: tuple[int, int]
) -> None:
    some = owner(ledger.copy(), low, mark)
    assert (some.lost, some.ledger.floor) == expected


def test_gaps_below_the_logs_beginning_are_lost_and_others_are_transactions_marks() -> None:
    some = owner()
    arrive(some, *(Rec(n) for n in range(4)))
    assert take(some, 2) == [(0, 1), (1, 1)]
    arrive(some, Rec(10))  # 4 to 9 are not there
    some.log_begins(10)
    assert some.lost == 6
    arrive(some, Rec(12))
    some.end_seen(14)
    some.log_begins(10)
    some.log_begins(99)  # nothing is counted twice
    assert some.lost == 6
    assert take(some) == [(2, 1), (3, 1), (10, 1), (12, 1)] and opened(some.ledger) == dict.fromkeys(
        [0, 1, 2, 3, 10, 12], 1
    )


@pytest.mark.parametrize("offsets", [[0], [4, 5, 0, 1], [4, 0, 6]], ids=["at once", "behind the last", "with a gap"])
def test_a_log_that_begins_anew_is_another_one(offsets: list[int]) -> None:
    some = owner()
    assert some.arrive([Rec(n) for n in range(4)])
    assert not some.arrive([Rec(n) for n in offsets])
