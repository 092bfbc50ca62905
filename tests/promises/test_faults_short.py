"""The cut of the fault runs that every `make test` makes: the same judge and the same processes, fewer items and faults."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kqlib.workshop.cluster import Cluster
from tests.faults import accidents
from tests.faults.broker_accidents import COORDINATOR, killed
from tests.faults.cases import BROKEN, BURY, PLAIN, SLOW, TRANSACTION, Case, on, run
from tests.faults.wire_accidents import answers_lost
from tests.faults.world import SESSION, World
from tests.promises.queues import MADE


def in_turn(world: World) -> None:
    """What a worker or a producer can suffer, once. One that sleeps past its session is in `test_queue_crashes`."""
    MADE.append((world.cluster, world.topic))
    for fault in (accidents.sigterm, accidents.sigkill, accidents.producers_killed):
        fault(world, times=1)


LOST = (*PLAIN, *TRANSACTION)
SMALL = [
    Case("processes", in_turn, takeover=SESSION + 2, seconds=3, worker=BURY | SLOW),
    Case("answers", partial(answers_lost, kinds=LOST, times=1), wire=True, workers=2, seconds=2, worker=BURY),
    Case("brokers", partial(killed, what=[COORDINATOR]), brokers=3, workers=2, worker=BURY),
]


def test_workers_and_producers_that_end_or_die_lose_nothing_and_double_nothing(
    kq_cluster: Cluster, tmp_path: Path
) -> None:
    outcome = on(kq_cluster, SMALL[0], 1_500, tmp_path)
    assert outcome.wrong == {}, outcome
    assert outcome.verdict.put >= 1_500 and outcome.verdict.doubled > 0 and outcome.verdict.dead > 0, outcome


def test_answers_that_are_lost_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    outcome = run(SMALL[1], 600, tmp_path)
    assert outcome.wrong == {} and outcome.verdict.put >= 600 and outcome.verdict.dead > 0, outcome


@pytest.mark.nightly  # the cut: the promise "leader dies" of tests/promises/test_promises.py
def test_a_killed_coordinator_costs_nothing_while_items_are_buried(tmp_path: Path) -> None:
    outcome = run(SMALL[2], 3_000, tmp_path)
    assert outcome.wrong == {} and outcome.verdict.put >= 3_000 and outcome.verdict.dead > 0, outcome


@pytest.mark.nightly  # the cut: tests/unit/test_faults_history.py
def test_the_judge_finds_out_a_queue_that_counts_as_done_what_was_polled(tmp_path: Path) -> None:
    outcome = run(replace(BROKEN, fault=partial(accidents.killed_late, times=1), workers=2, seconds=3), 600, tmp_path)
    assert outcome.verdict.lost > 0, outcome
