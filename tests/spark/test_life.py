"""A driver in a process of its own: what it reports. Notebook 12 has one that is killed, and its run fails if something is left."""

from __future__ import annotations

import threading

import pytest

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.workshop.driver import life


def test_the_error_of_a_driver_is_raised(kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KQ_SPARK_MASTER", "chess")  # it fails before it has a JVM
    with pytest.raises(NotAllowed, match=r"the driver failed: .*KQ_SPARK_MASTER is no master of Spark's"):
        life(kq_cluster, lambda spark, cluster: None)


def test_a_program_that_cannot_travel_is_refused_before_anything_starts(kq_cluster: Kafka) -> None:
    lock = threading.Lock()
    with pytest.raises(NotAllowed, match=r"cannot travel to another process \(.*lock.*\)\. Give it names"):
        life(kq_cluster, lambda spark, cluster: lock.acquire())
    with pytest.raises(NotAllowed, match=r"is a function of \(spark, cluster\), not 'run'"):
        life(kq_cluster, "run")  # type: ignore[arg-type]
