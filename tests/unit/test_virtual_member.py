"""When a node's member asks the coordinator whether it was given something that it did not hear of."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kqlib.virtual import member as membership
from kqlib.virtual.member import Member


@pytest.mark.parametrize(
    ("free", "given", "asked", "anew"),
    [
        ([{2}, {2}], {1, 2}, 1, True),
        ([{2}, {2}], {1}, 1, False),
        ([{2}, {0}], {1, 2}, 0, False),
        ([set(), set()], {1}, 0, False),
    ],
    ids=["it was", "it was not", "another one each time", "nothing is free"],
)
def test_a_partition_that_nobody_has_at_two_looks_is_asked_for(
    free: list[set[int]], given: set[int], asked: int, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks, begun = list[int](), list[str]()
    monkeypatch.setattr(membership, "hears", lambda *_: True)
    monkeypatch.setattr(Member, "_given", lambda _: asks.append(1) or given)
    monkeypatch.setattr(Member, "_begin_anew", lambda _, why: begun.append(why))
    member = object.__new__(Member)
    vars(member).update(_look=0.0, _heard=0.0, _free=set(), _consumer=None, _lines=None, keepers={1: None})
    for nobodys in free:
        member._look = 0.0
        member.map = SimpleNamespace(partitions=3, owners=dict.fromkeys({0, 1, 2} - nobodys))  # type: ignore[assignment]
        member._listen()
    assert len(asks) == asked
    assert bool(begun) == anew
