"""A driver in a process of its own: it runs a function of the test, and a killed one leaves nothing."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka
from kqlib.workshop.driver import life


@pytest.mark.nightly  # by day notebook 12 has a driver that is killed, and its run fails if something is left
def test_a_program_runs_in_a_process_of_its_own_and_one_that_is_killed_leaves_nothing(
    kq_cluster: Kafka, tmp_path: Path, marked: Any, within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, file = os.getpid(), tmp_path / "result"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it looks for a directory anew

    def program(spark: Any, cluster: Kafka, file: str) -> None:
        Path(file).write_text(f"{spark.range(10).count()} {os.getpid() != here} {len(cluster.brokers)}")
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGKILL]).start()
        spark.range(10**12).selectExpr("sum(id % 7)").collect()  # minutes of work, and no number that is too large

    assert life(kq_cluster, program, str(file)) == "killed"
    assert file.read_text() == "10 True 1"
    within(60, lambda: not (marked.alive("java") or marked.alive("reaper.py") or list(tmp_path.glob("kqlib-*"))))


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
