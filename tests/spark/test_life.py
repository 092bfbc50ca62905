"""A driver in a process of its own: it runs a function of the test, it can be killed, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from kqlib.broker import Kafka
from kqlib.errors import NotAllowed
from kqlib.spark import life


def test_a_program_runs_in_a_process_of_its_own_until_it_ends_or_is_killed(kq_cluster: Kafka, tmp_path: Path) -> None:
    here, file = os.getpid(), tmp_path / "said"

    def program(spark: Any, cluster: Kafka, file: str, killed: bool) -> None:
        Path(file).write_text(f"{spark.range(10).count()} {os.getpid() != here} {len(cluster.brokers)}")
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)

    for killed, said in ((True, "killed"), (False, "ended")):
        file.unlink(missing_ok=True)
        assert life(kq_cluster, program, str(file), killed) == said
        assert file.read_text() == "10 True 1"


def test_what_a_program_failed_of_is_told(kq_cluster: Kafka) -> None:
    def program(spark: Any, cluster: Kafka) -> None:
        raise KeyError("no such league")

    with pytest.raises(NotAllowed, match="the driver failed: KeyError: 'no such league'"):
        life(kq_cluster, program)


def test_a_program_that_cannot_travel_is_refused_before_anything_starts(kq_cluster: Kafka) -> None:
    lock = threading.Lock()
    with pytest.raises(NotAllowed, match=r"cannot travel to another process \(.*lock.*\): give it names"):
        life(kq_cluster, lambda spark, cluster: lock.acquire())
    with pytest.raises(NotAllowed, match=r"is a function of \(spark, cluster\), not 'run'"):
        life(kq_cluster, "run")  # type: ignore[arg-type]
