"""A batch of puts is over when each record was stored or refused, in whatever order two threads learn of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from kqlib.errors import Closed
from kqlib.kafka import Kafka
from kqlib.queue.sender import Sender, Sent
from tests.patience import WAIT, until

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


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Sender:
    """Nobody answers it."""
    monkeypatch.setattr("kqlib.queue.sender.SUSPECT_AFTER", 0.01)
    return Sender(Kafka("127.0.0.1:1"))


def test_a_put_whose_site_is_closed_while_the_buffer_is_full_ends(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, answers = Event(), list[Sent]()
    monkeypatch.setattr("kqlib.queue.sender.hears", bool)
    monkeypatch.setattr("kqlib.queue.sender.time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: full.set()))
    sender._settings["queue.buffering.max.messages"] = 2
    records = [(b"", None, None, -1)] * 9  # more than fit twice
    putting = Thread(target=lambda: answers.append(sender.send("football", records, 9)), daemon=True)
    putting.start()
    assert full.wait(WAIT)
    sender.close(0.01)
    putting.join(WAIT)
    assert answers and answers[0].ids == [None] * 9


def test_a_site_may_close_while_the_first_put_makes_its_producer(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kqlib.queue.sender.hears", lambda _: sender.close(0.01))
    for _ in range(2):
        with pytest.raises(Closed):
            sender.send("football", [(b"", None, None, -1)], 1)


def test_a_put_of_many_waits_for_the_last_answer_however_long_the_first_ones_took(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, answers = SimpleNamespace(now=0.0), list[Any]()
    monkeypatch.setattr("kqlib.queue.sender.time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(Sender, "_made", lambda self: self._producer)
    sender._producer = SimpleNamespace(produce=lambda *record: answers.append(record[4]))

    def records() -> Iterator[Any]:
        yield b"", None, None, -1
        clock.now += 1_000  # the buffer was full

    def answer() -> None:
        until(lambda: sender._suspected)  # it waits
        answers[0](None, Message(partition=2, offset=0))

    answering = Thread(target=answer)
    answering.start()
    ids = list(sender.send("football", records(), 1).ids)
    sender._suspected = True
    answering.join()
    assert ids == ["football/2/0"]


def _tell(sent: Sent, at: int, how: str, error: Any) -> None:
    if how == REFUSED:
        sent.refused(at, error)
    else:
        sent.delivered(at, error if how == FAILED else None, Message(partition=2, offset=at))
