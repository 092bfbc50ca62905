"""One process runs a stream; another one sees and stops it. No broker, no Spark."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kqlib.errors import NotAllowed
from kqlib.spark import running
from kqlib.spark.running import FILE, alone, runner, stop

PROGRAM = """
import signal, sys
from kqlib.spark.running import alone
with alone(sys.argv[1]):
    print("runs", flush=True)
    signal.pause()
"""


def test_a_stream_runs_once_and_ends_when_it_is_stopped_or_killed(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    assert runner(home) is None and not stop(home)
    for end in (stop, lambda _: None):
        with subprocess.Popen([sys.executable, "-c", PROGRAM, home], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout and child.stdout.readline() == "runs\n"
            assert runner(f"file://{home}") == f"process {child.pid} on {socket.gethostname()}"
            with (
                pytest.raises(NotAllowed, match=f"runs already: process {child.pid} on .*kq pipeline stop"),
                alone(home),
            ):
                pass
            if not end(home):
                child.kill()
        assert child.returncode == -(signal.SIGTERM if end is stop else signal.SIGKILL)
        assert runner(home) is None
    with alone(home):  # the file is there still, and nobody holds it
        assert runner(home) == f"process {os.getpid()} on {socket.gethostname()}"


def test_a_stream_on_another_machine_is_not_stopped_from_here(tmp_path: Path) -> None:
    with alone(str(tmp_path)):
        (tmp_path / FILE).write_text("process 1 on elsewhere")
        with pytest.raises(NotAllowed, match="runs on another machine: process 1 on elsewhere"):
            stop(str(tmp_path))


def test_a_stream_that_is_just_starting_is_not_stopped_yet(tmp_path: Path) -> None:
    with alone(str(tmp_path)):
        (tmp_path / FILE).write_text("")
        with pytest.raises(NotAllowed, match="is just starting"):
            stop(str(tmp_path))


def test_a_look_at_the_lock_does_not_refuse_a_stream_that_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE).touch()
    look = (tmp_path / FILE).open()
    fcntl.flock(look, fcntl.LOCK_SH)  # a `status` has it in this moment

    def looked(home: str) -> str | None:
        look.close()
        return runner(home)

    monkeypatch.setattr(running, "runner", looked)
    with alone(str(tmp_path)):
        assert look.closed and runner(str(tmp_path)) == f"process {os.getpid()} on {socket.gethostname()}"


def test_a_directory_on_another_file_system_has_no_lock() -> None:
    with alone("hdfs://host/home"), alone("hdfs://host/home"):
        pass
    with pytest.raises(NotAllowed, match="hdfs://host/home is not a directory of this machine"):
        runner("hdfs://host/home")
