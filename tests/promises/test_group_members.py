"""Who is in a group, asked while its coordinator goes and comes back: no answer ends the process that asks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaException

from kqlib.kafka import Kafka, reading
from kqlib.queue import Site
from tests.patience import PATIENCE, WAIT, until

PROGRAM = """
from kqlib import Cluster, Plan, QueueTopic, Site
from kqlib.kafka.reading import described

with Cluster() as cluster:
    Plan({"football": QueueTopic(partitions=1)}).apply(cluster, quiet=True)
    with Site(cluster, "fans") as site:
        queue = site.queue("football")
        for n in range(2):
            if n:
                cluster.broker(1).kill()
                cluster.broker(1).start()
            queue.put(b"goal")
            queue.ack(queue.claim(wait=30))
            print([member.assignment for member in described(cluster, "fans")], flush=True)
"""


@pytest.mark.nightly  # by day the child that asks is killed, below
def test_a_process_that_asks_before_and_after_its_coordinator_was_killed_lives_on() -> None:
    # librdkafka 4605, 5397: an AdminClient of this process would end it by an assertion
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=2 * WAIT, check=False)
    assert (ran.returncode, ran.stdout.splitlines()) == (0, ["[[('football', 0)]]"] * 2), ran.stderr[-2000:]


def test_a_group_is_described_with_its_members_and_what_this_user_may_do(
    kq_cluster: Kafka, here: Site, name: str
) -> None:
    queue = here.queue(name)
    queue.put(b"goal")
    assert queue.claim(wait=WAIT)
    found = kq_cluster.describe_group(here.name, WAIT, operations=True)
    assert (found.state, [member.client_id for member in found.members]) == ("STABLE", ["rdkafka"])
    assert {topic for member in found.members for topic, _ in member.assignment} == {name}
    assert found.operations is not None and "READ" in found.operations
    assert reading.described(kq_cluster, "nobody") == []


def test_the_process_that_asks_may_end_and_ends_with_its_cluster(kq_cluster: Kafka, marked: Any, within: Any) -> None:
    with Kafka(kq_cluster.bootstrap) as cluster:
        assert reading.described(cluster, "nobody") == []
        first = cluster._asks._child.pid  # type: ignore[union-attr]
        os.kill(first, signal.SIGKILL)
        assert reading.described(cluster, "nobody") == []
        assert cluster._asks._child.pid != first  # type: ignore[union-attr]
        assert marked.alive("kqlib.kafka.members")
    within(WAIT, lambda: not marked.alive("kqlib.kafka.members"))


def test_a_process_that_has_closed_its_pipes_and_is_not_gone_yet_is_asked_no_more(kq_cluster: Kafka) -> None:
    # what a killed process is for a moment: one question in three met it
    closed = "import os, time; os.close(0); os.close(1); os.close(2); time.sleep(600)"
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Kafka(kq_cluster.bootstrap) as cluster:
        assert reading.described(cluster, "nobody") == []
        cluster._asks._end()  # type: ignore[union-attr]
        ending = subprocess.Popen([sys.executable, "-c", closed], text=True, **pipes)
        assert ending.stderr is not None
        with ending.stderr:
            assert ending.stderr.read() == ""  # its pipes are closed
        cluster._asks._child = ending  # type: ignore[union-attr]
        assert cluster.describe_group("nobody", WAIT).members == []
        assert ending.poll() == -signal.SIGKILL


def test_no_answer_is_a_time_out_and_the_next_question_has_its_own_answer(
    kq_cluster: Kafka, deaf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kqlib.kafka.members.START", PATIENCE)
    with Kafka(kq_cluster.bootstrap) as cluster:
        assert reading.described(cluster, "nobody") == []
        deaf.pause()
        with pytest.raises(KafkaException):
            cluster.describe_group("players", 0.5)
        deaf.resume()
        assert reading.described(cluster, "nobody") == []


def test_a_cluster_that_is_closed_does_not_wait_for_an_answer(kq_cluster: Kafka, deaf: Any) -> None:
    cluster = Kafka(kq_cluster.bootstrap)
    assert reading.described(cluster, "nobody") == []
    deaf.pause()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(cluster.describe_group, "players", WAIT)
        until(cluster._asks._lock.locked)  # type: ignore[union-attr]
        begun = time.monotonic()
        cluster.close()
        assert time.monotonic() - begun < WAIT / 4
        assert isinstance(asked.exception(WAIT / 4), KafkaException)


def test_a_close_while_the_process_that_asks_is_started_ends_the_question(
    kq_cluster: Kafka, deaf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Kafka(kq_cluster.bootstrap) as cluster, ThreadPoolExecutor(1) as pool:
        assert reading.described(cluster, "nobody") == []
        asks: Any = cluster._asks
        start = asks._started

        def started() -> Any:
            pool.submit(asks.close)
            until(lambda: asks._closed)
            return start()

        monkeypatch.setattr(asks, "_started", started)
        asks._child.kill()
        asks._child.wait()
        deaf.pause()
        begun = time.monotonic()
        with pytest.raises(KafkaException):
            cluster.describe_group("players", WAIT)
        assert time.monotonic() - begun < WAIT / 4


def test_a_system_that_starts_no_process_costs_an_answer_and_no_more(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Kafka(kq_cluster.bootstrap) as cluster:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(KafkaException):
            cluster.describe_group("nobody")
