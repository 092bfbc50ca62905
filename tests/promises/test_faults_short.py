"""The cut of the fault runs that every `make test` makes: the same judge and the same processes, fewer items and faults."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from kqlib.virtual.client import Client
from kqlib.virtual.outbox import Outbox
from kqlib.workshop.cluster import Cluster
from tests.faults import accidents
from tests.faults.cases import BURY, PLAIN, SLOW, TRANSACTION, Case, on
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
]


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
