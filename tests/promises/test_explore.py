"""`kq.explore` on a real Kafka: sound queues are not blamed, and a broken rung is found with the shortest history that breaks it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.workshop.ladder import LADDER, LEDGER
from kqlib.workshop.promises.drupal import SqlQueue
from kqlib.workshop.promises.explore import explored
from kqlib.workshop.promises.virtual import VIRTUAL
from tests.promises.queues import MADE

RESTART = "Restart: the worker closes its queue and ends, and another one starts."


def test_a_sound_queue_is_not_blamed(kq_cluster: Kafka) -> None:
    def topics() -> Iterator[str]:
        while True:
            name = f"queue-{uuid.uuid4().hex[:8]}"
            MADE.append((kq_cluster, name))
            yield name

    found = explored(kq_cluster, LEDGER, topics(), histories=4, steps=10, seed=7)
    assert found.kept, found


@pytest.mark.nightly
@pytest.mark.limit(1_200)
@pytest.mark.parametrize("factory", [LEDGER, SqlQueue, VIRTUAL])
def test_a_sound_queue_is_not_blamed_in_a_hundred_histories(factory: Any) -> None:
    found = kq.explore(factory, histories=100)
    assert found.kept, found


@pytest.mark.nightly
@pytest.mark.limit(600)
@pytest.mark.parametrize(
    ("rung", "story", "expected"),
    [
        ("auto-commit", ["Put 1.", "Claim: it gives 1.", RESTART, "Claim: it gives nothing."], "1, which waits"),
        ("save offset", ["Put 1.", "Claim: it gives 1.", RESTART, "Claim: it gives nothing."], "1, which waits"),
        (
            "leases",
            [
                *("Put 1.", "Put 2.", "Claim: it gives 1.", "Claim: it gives 2.", "Ack 2.", RESTART),
                *("Claim: it gives 1.", "Claim: it gives 2."),
            ],
            "nothing. 2 is done",
        ),
    ],
)
def test_what_breaks_each_rung_is_found(rung: str, story: list[str], expected: str) -> None:
    found = kq.explore(LADDER[rung])
    assert (list(found.story), found.expected) == (story, expected)
    assert found == kq.explore(LADDER[rung]), "the same seed finds the same"
