"""The cut of the fault runs that every `make test` makes: the same judge and the same processes, fewer items and faults."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kqlib.virtual.client import Client
from kqlib.virtual.outbox import Outbox
from kqlib.workshop.cluster import Cluster
from tests.faults import accidents
from tests.faults.broker_accidents import COORDINATOR, killed
from tests.faults.cases import BROKEN, BURY, PLAIN, SLOW, TRANSACTION, Case, on, run
from tests.faults.wire_accidents import answers_lost
from tests.faults.world import SESSION, World
from tests.patience import WAIT
from tests.promises.queues import MADE
from tests.promises.virtual_nodes import serving


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


@pytest.fixture(scope="module")
def wired() -> Iterator[Cluster]:
    """A cluster whose answers can be lost."""
    with Cluster(wire=True) as cluster:
        yield cluster


def test_workers_and_producers_that_end_or_die_lose_nothing_and_double_nothing(
    kq_cluster: Cluster, tmp_path: Path
) -> None:
    outcome = on(kq_cluster, SMALL[0], 1_500, tmp_path)
    assert outcome.wrong == {}, outcome
    assert outcome.verdict.put >= 1_500 and outcome.verdict.doubled > 0 and outcome.verdict.dead > 0, outcome


def test_answers_that_are_lost_lose_nothing_and_double_nothing(wired: Cluster, tmp_path: Path) -> None:
    outcome = on(wired, SMALL[1], 600, tmp_path)
    assert outcome.wrong == {} and outcome.verdict.put >= 600 and outcome.verdict.dead > 0, outcome


def test_jobs_of_an_outbox_are_done_once_when_a_node_loses_the_answers_to_its_transactions(wired: Cluster) -> None:
    """The cut of tests/faults/outbox_world.py and of tests/faults/virtual_world.py."""
    wire = wired.wire
    with serving(wire.cluster) as node, Client(node.url) as client, closing(sqlite3.connect(":memory:")) as db:
        outbox, queue = Outbox(db), client.queue("orders")

        def lost(kind: str, verb: Callable[[], Any]) -> Any:
            wire.disconnect(kind, when="after")
            done = verb()
            assert wire.wait(WAIT), kind
            return done

        for number in range(3):
            outbox.add("orders", b"%d" % number)
        db.commit()
        assert lost("Produce", lambda: outbox.move(client.queue)) == 3
        items = lost("EndTxn", lambda: queue.claim_many(5, wait=WAIT))
        assert [item.data for item in items if outbox.first(item)] == [b"0", b"1", b"2"]
        lost("EndTxn", lambda: queue.ack_many(items))
        assert (len(items), queue.depth(), outbox.waiting()) == (3, 0, 0)


@pytest.mark.nightly  # the cut: the promise "leader dies" of tests/promises/test_promises.py
def test_a_killed_coordinator_costs_nothing_while_items_are_buried(tmp_path: Path) -> None:
    outcome = run(SMALL[2], 3_000, tmp_path)
    assert outcome.wrong == {} and outcome.verdict.put >= 3_000 and outcome.verdict.dead > 0, outcome


@pytest.mark.nightly  # the cut: tests/unit/test_faults_history.py
def test_the_judge_finds_out_a_queue_that_counts_as_done_what_was_polled(tmp_path: Path) -> None:
    outcome = run(replace(BROKEN, fault=partial(accidents.killed_late, times=1), workers=2, seconds=3), 600, tmp_path)
    assert outcome.verdict.lost > 0, outcome
