"""The long runs of the broker room: killed at every moment, again and again. `make nightly PART=faults`; minutes, not seconds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from kqlib.workshop.cluster import Cluster
from kqlib.workshop.snapshot import records
from tests.patience import PATIENCE, WAIT, until

START = "from kqlib.workshop.cluster import Cluster; import time; Cluster(3); time.sleep(60)"


def marked(mark: str) -> list[psutil.Process]:
    """This user's processes that carry the mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("KQ_TEST_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("moment", [0.1 + 0.8 * n for n in range(12)], ids=lambda moment: f"{moment:.1f} s")
def test_a_process_killed_at_any_moment_of_a_start_leaves_nothing(moment: float, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    env = {**os.environ, "KQ_TEST_MARK": mark, "TMPDIR": str(tmp_path)}
    child = subprocess.Popen([sys.executable, "-c", START], env=env)
    time.sleep(moment)
    assert child.poll() is None, "it ended by itself"
    child.kill()
    child.wait()
    until(lambda: not [*marked(mark), *tmp_path.glob("kqlib-*")], seconds=3 * PATIENCE)


def test_nothing_acknowledged_is_lost_while_leaders_are_killed_in_turn() -> None:
    acked: set[bytes] = set()
    with Cluster(3) as cluster:
        topic = NewTopic("kept", 1, replica_assignment=[[1, 2, 3]], config={"min.insync.replicas": "2"})
        cluster.admin.create_topics([topic])["kept"].result(WAIT)
        cluster.wait_for_topic("kept", 1)
        producer = Producer(cluster.client(acks="all", enable_idempotence=True))
        for turn in range(9):
            for number in range(1000):
                value = f"{turn} {number}".encode()
                producer.produce("kept", value, on_delivery=lambda error, sent: error or acked.add(sent.value()))
                if number == 500:
                    leader = cluster.leader("kept", 0)
                    assert leader is not None
                    victim = cluster.broker(leader)
                    victim.kill()
            assert producer.flush(WAIT) == 0
            victim.start()
        stored = [message.value() for message in records(cluster, "kept")[0]]
    assert len(stored) == len(acked) == 9000
    assert set(stored) == acked
