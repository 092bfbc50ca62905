"""However a Python process ends, within three seconds no JVM of its cluster runs, and its directory is gone.

Every other end, with sleeping children in place of JVMs: tests/unit/test_reaper.py.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.patience import WAIT, until

SOON = 3  # seconds: the promise

Begin = Callable[..., subprocess.Popen[str]]
Gone = Callable[[str], float]


@pytest.fixture
def begin(python: Begin) -> Begin:
    """A Python that can start clusters."""
    return partial(python, "import os, sys, time", "from kqlib.workshop.cluster import Cluster")


@pytest.fixture
def gone(within: Callable[..., float], marked: Any, tmp_path: Path) -> Gone:
    """Within the three seconds: processes and directory, whichever goes last. How many seconds it took."""

    def nothing_left() -> bool:
        return not (marked.alive("java") or marked.alive("reaper.py") or list(tmp_path.glob("kqlib-*")))

    return lambda end: within(SOON, nothing_left, f"something outlived {end}")


def test_no_jvm_outlives_its_killed_python_although_a_forked_child_of_it_lives_on(
    begin: Begin, gone: Gone, tmp_path: Path, marked: Any
) -> None:
    process = begin(
        "cluster = Cluster()",
        "os.fork() or (time.sleep(60), os._exit(0))",  # it still holds everything that its parent had open
        "print(cluster.brokers, flush=True)",
        "time.sleep(60)",
    )
    assert process.stdout and process.stdout.readline() == "[1]\n"
    assert len(marked.alive("kafka.Kafka")) == 1
    assert len(list(tmp_path.glob("kqlib-*"))) == 1
    process.kill()
    process.wait(WAIT)
    gone("a SIGKILL")


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=[pytest.mark.nightly, pytest.mark.limit(300)])])
def test_a_python_killed_at_any_moment_of_a_start_leaves_nothing(
    begin: Begin, gone: Gone, marked: Any, kills: int, record_property: Any
) -> None:
    brokers, took = 1 if kills == 2 else 3, list[float]()
    for number in range(kills):
        # a cluster that nobody holds would end
        process = begin("print('now', flush=True)", f"cluster = Cluster({brokers})", "time.sleep(60)")
        assert process.stdout and process.stdout.readline() == "now\n"
        moment = random.uniform(number, number + 1)
        time.sleep(moment)
        if number == kills - 1:  # the last one has brokers when it is killed, also on a slow machine
            until(lambda: marked.alive("java"), lambda: "no broker was started")
        assert process.poll() is None, "it ended by itself"
        process.kill()
        process.wait(WAIT)
        took.append(gone(f"a SIGKILL {moment:.3f} s after the start began"))
    where = f"{kills} moments of the first {kills} s of a cluster of {brokers}"
    record_property("figure", f"killed at {where}: nothing was left after {max(took):.1f} s ({SOON} s)")


@pytest.mark.nightly
def test_what_outlives_a_python_whose_reaper_is_stopped_is_found(
    begin: Begin, gone: Gone, marked: Any, record_property: Any
) -> None:
    process = begin("cluster = Cluster()", "print(cluster.brokers, flush=True)", "time.sleep(60)")
    assert process.stdout and process.stdout.readline() == "[1]\n"
    (reaper,) = marked.alive("reaper.py")
    reaper.suspend()
    process.kill()
    process.wait(WAIT)
    with pytest.raises(AssertionError, match="something outlived a SIGKILL"):
        gone("a SIGKILL")
    record_property("figure", f"brokers that were left, and found: {len(marked.alive('java'))}")
    reaper.resume()
    gone("a SIGKILL")


def test_ctrl_c_stops_a_cell_and_no_broker_and_uncaught_it_ends_both(begin: Begin, gone: Gone, marked: Any) -> None:
    wait = "while True: time.sleep(0.01)"  # Python does not see a signal just before a system call until that call has ended
    process = begin(
        "cluster = Cluster()",
        "try:",
        "    print(cluster.brokers, flush=True)",
        f"    {wait}",
        "except KeyboardInterrupt:",
        "    state = cluster.broker(1).state",
        "print(cluster.brokers, state, flush=True)",
        wait,
    )
    assert process.stdout and process.stdout.readline() == "[1]\n"
    (broker,) = marked.alive("kafka.Kafka")
    assert os.getpgid(broker.pid) != process.pid  # a broker that ends in good order is "running" for a while
    os.killpg(process.pid, signal.SIGINT)  # Jupyter's stop button signals the whole group
    assert process.stdout.readline() == "[1] running\n"
    os.killpg(process.pid, signal.SIGINT)
    process.wait(WAIT)
    gone("SIGINT")
