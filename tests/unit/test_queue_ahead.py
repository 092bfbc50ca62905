"""Attempts that are counted one commit ahead: every state that may be stored counts what a worker sees. No broker."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kqlib.queue import order
from kqlib.queue.ledger import Ledger
from kqlib.queue.partition import Partition
from tests.unit.records import Rec
from tests.unit.test_queue_partition import arrive, late, owner


class Stored:
    """A partition and the states that the broker may have: each commit is answered, refused, or its answer is lost."""

    def __init__(self, some: Partition) -> None:
        self.some = some
        self.states: list[tuple[str, int]] = [(some.ledger.text(), some.ledger.floor)]
        self.under_way: tuple[tuple[str, int], range] | None = None

    def send(self) -> None:
        if self.under_way is None:
            ledger, counted = self.some.ahead.state()
            self.some.ahead.sent(counted)
            self.under_way = (ledger.text(), ledger.floor), counted
            self.states.append(self.under_way[0])

    def answer(self, how: str) -> None:
        if self.under_way is not None and how == "stored":
            self.states = [self.under_way[0]]
            self.some.ahead.stored(self.under_way[1], time.monotonic())
        elif self.under_way is not None and how == "refused":
            self.states.pop()
        self.under_way = None

    def claim(self, most: int) -> list[int]:
        claimed = self.some.claim(most)
        if claimed.offsets and not self.some.ahead.covers(claimed, time.monotonic()):
            self.answer("stored")
            self.send()
            self.answer("stored")
        for text, floor in self.states:
            for offset, attempt in zip(claimed.offsets, claimed.attempts, strict=True):
                assert (Ledger.read(text, floor).attempts(offset) or 0) >= attempt
        self.some.start(claimed, 30)
        return claimed.offsets


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "claim", "ack", "send", "answer", "release", "give back", "discard", "arrive"]),
        st.integers(1, 4),
        st.sampled_from(["stored", "stored", "refused", "lost"]),
    ),
    min_size=20,
    max_size=40,
)


@given(STEPS)
@settings(max_examples=120, deadline=None)
def test_whatever_is_stored_counts_the_attempt_of_each_item_that_is_handed_out(steps: list[Any]) -> None:
    before, order.COUNT_FROM = order.COUNT_FROM, 2
    try:
        stored, out, end = Stored(some := owner()), list[int](), 20
        arrive(some, *(Rec(at) for at in range(end)))
        for what, many, how in steps:
            if what == "arrive":
                arrive(some, *(Rec(end + at, more=late(0.001) if at == 4 else None) for at in range(many)))
                end += many
            elif what == "claim":
                out += stored.claim(many)
            elif what == "discard" and end:
                some.discard(min(end - 1, many))
            elif what == "send":
                stored.send()
            elif what == "answer":
                stored.answer(how)
            elif out and what == "ack":
                some.ack(sorted(out[-many:]))
                del out[-many:]
            elif out:
                (some.unclaim if what == "give back" else some.release)(out.pop(), 0)
    finally:
        order.COUNT_FROM = before


def streaming(**how: Any) -> Partition:
    """A hundred are claimed and acked, and more are here."""
    some = owner(**how)
    arrive(some, *(Rec(at) for at in range(300)))
    some.ack(some.claim(100).offsets)
    return some


@pytest.mark.parametrize(
    ("how", "counted"),
    [({}, 100), ({"max_attempts": 4}, 100), ({"max_attempts": 3}, 0), ({"max_attempts": 1}, 0), ({"order": "key"}, 0)],
    ids=str,
)
def test_an_attempt_is_counted_ahead_only_where_it_neither_buries_nor_isolates_an_item(
    how: dict[str, Any], counted: int
) -> None:
    assert len(streaming(**how).ahead.state()[1]) == counted


def test_small_claims_are_counted_when_they_are_made() -> None:
    some = streaming()
    some.ack(some.claim(99).offsets)
    assert not some.ahead.state()[1]


def test_a_process_that_stood_still_has_its_claim_committed() -> None:
    some, now = streaming(), time.monotonic()
    some.ahead.stored(some.ahead.state()[1], now)
    claimed = some.claim(100)
    assert some.ahead.covers(claimed, now + 0.4) and not some.ahead.covers(claimed, now + 0.6)


def test_what_nobody_claims_is_not_counted_for_long() -> None:
    some = streaming()
    some.ahead.stored(some.ahead.state()[1], time.monotonic())
    version = some.version
    some.uncount()
    assert some.version > version and some.ahead.state()[0].attempts(100) is None
