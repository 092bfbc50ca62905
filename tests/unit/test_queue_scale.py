"""Twice as much costs twice as much: 1,500 open runs (a state holds few more), 1,000 partitions. Operations are counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.queue import fetch
from kqlib.queue.ledger import Ledger
from kqlib.queue.partition import Partition
from kqlib.queue.terms import Terms
from kqlib.queue.window import Window
from tests.unit.records import Rec
from tests.unit.test_queue_partition import arrive, opened, owner

RUNS, PARTITIONS = 1_500, 1_000


class Looks(set[int]):
    """A set that counts how many of its members are looked at."""

    def __init__(self, members: Any) -> None:
        super().__init__(members)
        self.many = 0

    def __iter__(self) -> Iterator[int]:
        for each in super().__iter__():
            self.many += 1
            yield each

    def __contains__(self, member: object) -> bool:
        self.many += 1
        return super().__contains__(member)


def open_runs(runs: int) -> tuple[Partition, Looks]:
    """An owner that has to read so many open records again; every second offset is done."""
    ledger = Ledger()
    ledger.claim(range(2 * runs))
    ledger.ack(range(1, 2 * runs, 2))
    some = owner(ledger)
    assert len(opened(ledger)) == runs
    some.window.missing = looks = Looks(some.window.missing)
    return some, looks


def found_with_gaps(runs: int) -> int:
    """All of them are found, with a gap behind each."""
    some, looks = open_runs(runs)
    arrive(some, *(Rec(offset) for offset in range(0, 2 * runs, 2)))
    assert len(some.window.records) == runs
    return looks.many


def gone(runs: int) -> int:
    """None of them is there any more, which is believed at the second look."""
    some, looks = open_runs(runs)
    for _ in range(2):
        some.window.position = 0
        arrive(some, *(Rec(offset) for offset in range(1, 2 * runs, 2)))
    assert some.losses.items == runs
    return looks.many


class Weighed(Window):
    """A window that counts how often someone asks what its records weigh, and drops some of them."""

    asked = 0

    def __getattribute__(self, name: str) -> Any:
        Weighed.asked += name in ("bytes", "forget")
        return super().__getattribute__(name)


def memory(partitions: int, each: int = 0) -> int:
    """One look at which partitions have enough in memory, each with records of so many bytes."""
    owners = {
        ("football", number): Partition(Terms("football", "here"), number, Ledger()) for number in range(partitions)
    }
    for one in owners.values():
        one.window = Weighed(0, [])
        one.window.bytes = each
    assigned: Any = SimpleNamespace(changed=threading.Condition(), partitions=owners, paused=set())
    Weighed.asked = 0
    full = fetch.Fetch(assigned, print).full_ones()
    assert len(full) == (partitions if each else 0)
    return Weighed.asked


COSTS: dict[str, tuple[Callable[[int], int], int]] = {
    "open runs that are read again": (found_with_gaps, RUNS),
    "open runs that are gone": (gone, RUNS),
    "partitions that have little in memory": (memory, PARTITIONS),
    "partitions that have too much in memory": (
        lambda partitions: memory(partitions, fetch.MOST_BYTES + 1),
        PARTITIONS,
    ),
}


@pytest.mark.parametrize(("cost", "many"), COSTS.values(), ids=COSTS)
def test_twice_as_much_costs_twice_as_much(cost: Callable[[int], int], many: int) -> None:
    half, whole = cost(many // 2), cost(many)
    assert 0 < whole <= 2.1 * half, f"{many // 2:,} cost {half:,} looks, and {many:,} cost {whole:,}"
