"""Long runs of brokers: killed again and again, or one replaced for good. `make nightly PART=faults`; minutes, not seconds."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from kqlib.workshop.cluster import Cluster
from kqlib.workshop.snapshot import records
from tests.faults.broker_accidents import replaced
from tests.faults.cases import THREE, Case, run
from tests.patience import WAIT


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


def test_a_broker_is_drained_and_replaced_while_a_queue_works(tmp_path: Path, figures: list[str]) -> None:
    outcome = run(Case("broker replaced", replaced, seconds=40, **THREE), 10_000, tmp_path)
    figures.append(str(outcome))
    assert outcome.wrong == {}, outcome
