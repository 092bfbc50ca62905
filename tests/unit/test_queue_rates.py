"""Rates over the last minute, and which queues a process stays joined to: numbers and times, no Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from kqlib.queue.subscriptions import IDLE, LONG, VISIT, Subscriptions
from kqlib.queue.terms import Rates

NOTED: dict[str, tuple[list[tuple[float, int]], float, float]] = {
    "nothing": ([], 100.0, 0.0),
    "just now": ([(100.2, 30), (100.9, 30)], 101.0, 1.0),
    "within the minute": ([(60.0, 60), (100.0, 60)], 110.0, 2.0),
    "long ago": ([(10.0, 60), (100.0, 60)], 110.0, 1.0),
    "all of it long ago": ([(10.0, 60)], 110.0, 0.0),
}


@pytest.mark.parametrize(("noted", "now", "rate"), NOTED.values(), ids=NOTED)
def test_rates_are_of_the_last_minute(noted: list[tuple[float, int]], now: float, rate: float) -> None:
    rates = Rates()
    for at, many in noted:
        rates.note("acks", many, at)
    assert rates.a_second(now) == {"puts": 0, "claims": 0, "acks": rate}


def test_of_many_seconds_only_the_last_minute_is_kept() -> None:
    rates = Rates()
    for second in range(300):
        rates.note("acks", 1, second)
    assert len(rates._counts["acks"]) == 60


def topics(expected: Subscriptions, now: float, held: bool = False, stored: bool = True) -> set[str]:
    return expected.topics(now, lambda topic: held, lambda topic: stored)


STAYS: dict[str, tuple[float, dict[str, Any], bool]] = {
    "claimed a moment ago": (IDLE - 1, {}, True),
    "idle": (IDLE + 1, {}, False),
    "idle, with a lease open": (IDLE + 1, {"held": True}, True),
}


@pytest.mark.parametrize(("later", "how", "stays"), STAYS.values(), ids=STAYS)
def test_a_queue_that_nobody_claims_from_is_left(later: float, how: dict[str, Any], stays: bool) -> None:
    expected = Subscriptions()
    expected.claim("football", 100.0)
    assert topics(expected, 100.0) == {"football"}
    assert topics(expected, 100.0 + later, **how) == ({"football"} if stays else set())


def test_a_queue_that_was_left_is_visited_daily_until_its_state_is_stored() -> None:
    expected = Subscriptions()
    expected.claim("football", 0.0)
    left = IDLE + 1
    assert topics(expected, left) == set() == topics(expected, left + LONG - 1)
    back = left + LONG + 1
    assert topics(expected, back, stored=False) == {"football"} == topics(expected, back + 5, stored=False)
    assert topics(expected, back + 6) == set()  # stored
    assert topics(expected, back + 6 + LONG - 1) == set()
    again = back + 6 + LONG + 1
    assert topics(expected, again, stored=False) == {"football"}
    assert topics(expected, again + VISIT + 1, stored=False) == set()  # others have its partitions: they store


def test_a_claim_makes_a_stay_of_a_visit() -> None:
    expected = Subscriptions()
    expected.claim("football", 0.0)
    topics(expected, IDLE + 1)
    back = IDLE + LONG + 2
    assert topics(expected, back, stored=False) == {"football"}
    expected.claim("football", back + 1)
    assert topics(expected, back + 2) == {"football"} == topics(expected, back + IDLE)
