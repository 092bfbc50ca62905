"""Nodes come, go in good order and die while work goes on: nothing acknowledged is lost, no stale answer is given."""

from __future__ import annotations

import signal
import uuid

import pytest

from kqlib.kafka import Kafka
from tests.patience import PATIENCE
from tests.promises.virtual_load import Load, converged
from tests.promises.virtual_nodes import Nodes

QUEUES = [f"queue-{n}" for n in range(12)]


@pytest.mark.nightly  # the cuts: a node that dies in `test_virtual_client`, a short storm in `test_liveness`
def test_partitions_move_under_load_and_nothing_acknowledged_is_lost(kq_cluster: Kafka) -> None:
    with Nodes(kq_cluster, f"moves-{uuid.uuid4().hex[:8]}", 6, session=2) as nodes:
        nodes.start(2)
        nodes.settled()
        with Load(nodes, QUEUES) as load:
            load.until(10)
            nodes.start(1)  # some move to it
            assert converged(nodes) < 2 * PATIENCE
            load.until(10)
            nodes.all[0].leave()  # they move away, in good order
            nodes.end(nodes.all[0])
            assert converged(nodes) < 2 * PATIENCE
            load.until(10)
            nodes.all[0].signal(signal.SIGKILL)  # and the rest, after a session
            nodes.end(nodes.all[0])
            assert converged(nodes) < 2 * PATIENCE
            load.until(10)
            load.check()
        assert load.reads > 0 and len(nodes.settled()) == 6
