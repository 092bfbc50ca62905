"""`kq.explore` on a real Kafka: sound queues are not blamed, and a broken one is found with the shortest history that breaks it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.workshop.ladder import LADDER, LEDGER
from kqlib.workshop.promises.drupal import SqlQueue
from kqlib.workshop.promises.explore import Explored, explored
from kqlib.workshop.promises.virtual import VIRTUAL
from tests.promises.explored_queues import GivesTwice, LastFirst, LosesWhatIsOut, Sound
from tests.promises.queues import MADE

RESTART = "Restart: the worker closes its queue and ends, and another one starts."
LAST_FIRST = ["Put 1.", "Put 2.", "Claim: it gives 2."]
BROKEN = [
    (LastFirst, LAST_FIRST, "1. 2 was put after 1"),
    (LosesWhatIsOut, ["Put 1.", "Claim: it gives 1.", RESTART, "Claim: it gives nothing."], "1, which waits"),
    (GivesTwice, ["Put 1.", "Claim: it gives 1.", "Claim: it gives 1."], "nothing. 1 is still out"),
]


def on(cluster: Kafka, factory: Any, histories: int, steps: int) -> Explored:
    """Random histories of a queue on the tests' cluster."""

    def topics() -> Iterator[str]:
        while True:
            name = f"queue-{uuid.uuid4().hex[:8]}"
            MADE.append((cluster, name))
            yield name

    return explored(cluster, factory, topics(), histories=histories, steps=steps, seed=7)


@pytest.mark.nightly  # by day notebook 09 finds and shortens one
@pytest.mark.parametrize(("factory", "story", "expected"), BROKEN)
def test_a_queue_with_a_mistake_is_found_with_the_shortest_history_that_breaks_it(
    kq_cluster: Kafka, factory: Any, story: list[str], expected: str
) -> None:
    found = on(kq_cluster, factory, histories=4, steps=6)
    assert (list(found.story), found.expected) == (story, expected)


@pytest.mark.parametrize("factory", [pytest.param(Sound, marks=pytest.mark.nightly), LEDGER])
def test_a_sound_queue_is_not_blamed(kq_cluster: Kafka, factory: Any) -> None:
    found = on(kq_cluster, factory, histories=4, steps=10)
    assert found.kept, found


@pytest.mark.nightly
@pytest.mark.limit(1_200)
@pytest.mark.parametrize("factory", [Sound, LEDGER, SqlQueue, VIRTUAL])
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


@pytest.mark.nightly
def test_a_class_that_is_made_in_a_cell_is_explored() -> None:
    class Mine(Sound):
        def chosen(self, free: Any) -> Any:
            return free[-1]

    assert list(kq.explore(Mine).story) == LAST_FIRST
