"""A batch of puts is over when each record was stored or refused, in whatever order two threads learn of them."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from kqlib.queue.sender import Sent

STORED, FAILED, REFUSED = "stored", "failed", "refused"


@pytest.mark.parametrize("many", range(1, 4))
def test_it_is_over_when_the_last_one_is_known_and_not_before(many: int) -> None:
    error = KafkaError(KafkaError._MSG_TIMED_OUT)
    for order in permutations(range(many)):
        for ends in ((STORED, REFUSED, FAILED), (REFUSED, REFUSED, STORED), (REFUSED, REFUSED, REFUSED)):
            sent = Sent("football", many)
            for at in order:
                assert not sent.wait(0)
                _tell(sent, at, ends[at], error)
            assert sent.wait(0)
            assert sent.ids == [f"football/2/{at}" if ends[at] == STORED else None for at in range(many)]
            assert sorted(sent.errors) == [at for at in range(many) if ends[at] != STORED]


def test_who_does_not_wait_hears_of_each_that_is_not_stored() -> None:
    received: list[KafkaError] = []
    sent, error = Sent("football", 3, received.append), KafkaError(KafkaError._MSG_TIMED_OUT)
    for at, how in enumerate((STORED, FAILED, REFUSED)):
        _tell(sent, at, how, error)
    assert received == [error, error]


def test_nothing_to_send_is_over_at_once() -> None:
    assert Sent("football", 0).wait(0)


def _tell(sent: Sent, at: int, how: str, error: Any) -> None:
    if how == REFUSED:
        sent.refused(at, error)
    else:
        sent.delivered(at, error if how == FAILED else None, Message(partition=2, offset=at))
