"""When a member asks the coordinator about its share, and when it joins anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.kafka.members import Group, Member
from kqlib.queue import assignment_check
from kqlib.queue.assignment_check import ASK_EVERY, AssignmentCheck

GIVE_UP = 10.0


def statistics(lost: int, state: str = "up") -> str:
    """What librdkafka says."""
    brokers = {"1": {"req_timeouts": 0}, "GroupCoordinator": {"req_timeouts": lost}}
    return json.dumps({"brokers": brokers, "cgrp": {"state": state}})


class Coordinator:
    """It tells what this member has (`given`) and what it is to keep (`kept`), at once."""

    def __init__(self, given: set[int], kept: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.member = Member("me", "site", "/127.0.0.1", self._parts(given), self._parts(kept))
        monkeypatch.setattr(assignment_check.threading, "Thread", AtOnce)

    @staticmethod
    def _parts(numbers: set[int]) -> list[tuple[str, int]]:
        return [("football", number) for number in numbers]

    def describe_group(self, group: str) -> Group:
        """Its answer."""
        self.asked += 1
        return Group("STABLE", [self.member], None)


class AtOnce:
    """A thread that runs when it is started."""

    def __init__(self, target: Callable[..., None], args: list[Any], **how: object) -> None:
        self.start = partial(target, *args)


@pytest.mark.parametrize(
    ("given", "kept", "after"),
    [
        ({1, 2}, {1, 2}, None),
        ({1, 2, 3}, {1, 2, 3}, ASK_EVERY),
        ({1, 2}, {1}, GIVE_UP),
        ({1, 2}, {1, 2, 3}, None),
    ],
    ids=["as known", "given", "taken", "another member still has it"],
)
def test_a_member_joins_anew_when_the_coordinator_says_something_else_for_long_enough(
    given: set[int], kept: set[int], after: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(assignment_check.time, "monotonic", lambda: now[0])
    coordinator = Coordinator(given, kept, monkeypatch)
    check = AssignmentCheck(coordinator, "fans", GIVE_UP)  # type: ignore[arg-type]
    consumer = SimpleNamespace(memberid=lambda: "me")
    have = {("football", 1), ("football", 2)}
    for _ in range(2):  # an answer is lost, and then no other
        check._count(statistics(1))
    missed = None
    while missed is None and now[0] < 30:
        now[0] += 0.2
        missed = now[0] if check.missed(consumer, have) else None
    if after is None:
        assert missed is None
        assert coordinator.asked == 1
    else:
        assert missed is not None
        assert after - 0.5 <= missed <= after + 2 * ASK_EVERY


@pytest.mark.parametrize(
    ("reported", "asked"),
    [([0, 0], 0), ([1], 0), ([1, 1], 1), ([1, 1, 1], 1), ([0, 2, 2], 1), ([1, 2, 3], 0)],
    ids=["none lost", "just now", "one", "no other", "two", "again and again"],
)
def test_it_asks_when_an_answer_was_lost_and_none_since(
    reported: list[int], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = Coordinator({1}, {1}, monkeypatch)
    check = AssignmentCheck(coordinator, "fans", GIVE_UP)  # type: ignore[arg-type]
    consumer = SimpleNamespace(memberid=lambda: "me")
    for lost in reported:
        check._count(statistics(lost))
        check._next = 0.0
        for _ in range(3):
            assert not check.missed(consumer, {("football", 1)})
    assert coordinator.asked == asked


def test_it_does_not_ask_while_the_coordinator_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator({1}, {1}, monkeypatch)
    check = AssignmentCheck(coordinator, "fans", GIVE_UP)  # type: ignore[arg-type]
    check._count(statistics(1))
    check._count(statistics(1, "wait-coord"))
    assert not check.missed(None, set())
    assert coordinator.asked == 0
