"""Which states a commit carries. No broker."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.queue.commits import Commits
from tests.unit.test_queue_partition import Rec, arrive, owner


class Consumer:
    """Remembers what was committed."""

    def __init__(self) -> None:
        self.committed: list[int] = []

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        self.committed += [part.partition for part in offsets]
        return offsets


@pytest.mark.parametrize(
    ("what", "value"), [("frozen", 1), ("dropped", "a change was broken off")], ids=["a transaction runs", "given up"]
)
def test_no_commit_is_made_for_a_partition_whose_state_is_a_transactions_or_unknown(what: str, value: Any) -> None:
    changed, notes = threading.Condition(), SimpleNamespace(get=lambda *_: "-", post=lambda *_: None)
    owners = {("football", number): owner() for number in (0, 1)}
    for number, each in owners.items():
        arrive(each, Rec(0))
        each.partition = number[1]
        each.changed()
        each.wanted = each.version
    consumer = Consumer()
    member: Any = SimpleNamespace(
        changed=changed,
        committed=changed,
        owners=owners,
        next_try=0.0,
        consumer=consumer,
        notes=notes,
        site="here",
        note=print,
    )
    setattr(owners["football", 1], what, value)
    assert Commits(member).run() and consumer.committed == [0]
    setattr(owners["football", 1], what, type(value)())
    assert Commits(member).run() and consumer.committed == [0, 1]
