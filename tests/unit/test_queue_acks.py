"""What an ack says when its partition is lost, or was never here. No broker: `small_process` has the queue's own code."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from kqlib.errors import LeaseLost
from kqlib.queue import Item, answers
from kqlib.queue.assigned import Loading, condition
from kqlib.queue.ledger import Ledger
from kqlib.queue.session import Session
from tests.unit.small_process import AT, LEASE, NOW, RECORDS, Process


def holding(many: int) -> tuple[Process, list[Item]]:
    """A process that has claimed so many items, one at a time; their attempts are stored."""
    process = Process("A")
    session = process.session
    session.loadings[AT] = loading = Loading(AT, "raise", ledger=Ledger())
    own = session.take_over(loading, 0)
    assert own is not None
    own.changed()
    own.saved = own.version
    own.window.position = 0
    own.arrive(RECORDS[:many])
    items: list[Item] = []
    for _ in range(many):
        items += process.queue._hand_out(process.queue._choose(1), LEASE)
    own.saved = own.version
    return process, items


def test_ack_many_of_an_earlier_process_is_refused_before_this_one_has_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, items = holding(1)
    later = Process("B")
    later.session.changed = condition(threading.RLock())
    later.queue._allowed_at = -1  # nobody has asked for the user's rights yet
    monkeypatch.setattr(answers, "check", lambda *_, **__: None)
    with pytest.raises(LeaseLost, match=r"1 of 1 were not acked.*does not have its partition") as error:
        later.queue.ack_many(items)
    assert error.value.items == items


@pytest.mark.parametrize("many", [False, True], ids=["ack", "ack_many"])
def test_an_ack_that_was_stored_is_no_lost_lease_although_a_later_one_was_not(
    monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    process, (stored, later) = holding(2)
    session = process.session
    own = session.partitions[AT]

    def lost(_: float) -> None:
        """The state is stored, a later ack comes, and the partition is lost before the first one's thread goes on."""
        sent = process.commits.send(process.commits.due(NOW)[0], NOW)
        process.queue.ack(later, wait=False)
        process.commits.answered(sent, {}, NOW, True)
        session.drop(AT, "this partition went to another process")

    monkeypatch.setattr(session, "save", lambda partitions: Session.save(cast(Any, session), partitions))
    monkeypatch.setattr(session.committed, "wait", lost, raising=False)
    monkeypatch.setattr(session, "unstick", lambda: None, raising=False)
    process.queue.ack_many([stored]) if many else process.queue.ack(stored)
    assert own.dropped and own.ledger.attempts(later.offset) is None and own.saved < own.version
