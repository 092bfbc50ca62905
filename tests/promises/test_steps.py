"""The steps of notebook 08 on a real broker: each turns one row of the table, and no crash loses an item."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kqlib as kq
from kqlib.kafka import Kafka
from kqlib.workshop import steps
from kqlib.workshop.crash import Report
from kqlib.workshop.promises.owners import LATE_ACK, LATE_COMMIT
from tests.notebooks.page import REPO

FOLDER = REPO / "notebooks" / "steps"
ROWS = ["acks in any order", "a crash is an attempt", "claimed is hidden", LATE_ACK, "lease expires", LATE_COMMIT]
FIRST = {  # the step from which on a promise is kept
    "acks in any order": 2,
    "a crash is an attempt": 2,
    "claimed is hidden": 3,
    LATE_ACK.name: 4,
    "lease expires": 5,
    LATE_COMMIT.name: 6,
}


def factory(number: int) -> Callable[[Kafka, str], object]:
    """How a worker makes the queue of a step."""
    queue = steps.take(f"08.{number}").Queue
    return lambda cluster, topic: queue(cluster.client(), topic, f"site-{topic}")


def queues(*numbers: int) -> dict[str, Callable[[Kafka, str], object]]:
    return {f"step {number}": factory(number) for number in numbers}


@pytest.mark.nightly  # the cut: notebook 08 scores its steps, and its table is compared
@pytest.mark.limit(180)
def test_a_step_turns_its_rows_and_the_later_steps_keep_them() -> None:
    scores = kq.promises(queues(*range(1, 7)), only=ROWS)
    kept = {row: [bool(scores[name, row].kept) for name in scores.queues] for row in FIRST}
    assert kept == {row: [number >= first for number in range(1, 7)] for row, first in FIRST.items()}


@pytest.mark.nightly
@pytest.mark.limit(600)
@pytest.mark.parametrize("number", range(1, 7))
def test_a_step_loses_nothing_at_any_request(number: int, kq_crash: Callable[..., Report]) -> None:
    report = kq_crash([sys.executable, str(Path(FOLDER, f"08_{number}.py"))], 3, allow=["doubled", "order"])
    assert (report.clean, report.lost) == (True, 0), str(report)
