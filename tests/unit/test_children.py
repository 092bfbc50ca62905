"""Child processes: a command and a forked function can be frozen, stopped and killed, and none outlives this process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from kqlib.errors import NotAllowed, NotInTime
from kqlib.workshop.children import STOPS, ChildEnded, Children
from tests.patience import WAIT


def doubling():
    """Answer each number with its double, until the other end is closed. A function in a function travels with its code."""

    def double(line):
        while True:
            line.send(2 * line.recv())

    return double


@pytest.fixture(scope="module")
def children():
    with Children() as made:
        yield made


def test_many_threads_share_one_python_that_forks(children):
    with ThreadPoolExecutor(8) as pool:
        forks = list(pool.map(lambda _: children.fork(doubling()), range(8)))
    for number, fork in enumerate(forks):
        fork.send(number)
    assert [fork.receive(WAIT) for fork in forks] == [0, 2, 4, 6, 8, 10, 12, 14]


def test_a_fork_answers_is_frozen_and_is_killed(children):
    fork = children.fork(doubling())
    fork.send(2)
    assert fork.receive(WAIT) == 4
    fork.pause()
    assert psutil.Process(fork.pid).status() == psutil.STATUS_STOPPED
    fork.send(3)
    with pytest.raises(NotInTime):
        fork.receive(0.1)
    fork.resume()
    assert fork.receive(WAIT) == 6
    fork.pause()
    fork.kill()
    fork.kill()  # twice does no harm
    begin = time.monotonic()
    fork.pause()  # nor does a signal to one that is gone, and nobody waits for it to stand
    assert time.monotonic() - begin < STOPS
    for call in (lambda: fork.send(1), lambda: fork.receive(1)):
        with pytest.raises(ChildEnded):
            call()


def test_a_function_of_a_cell_runs_with_what_it_uses_and_its_error_comes_back(children):
    many = 3

    def fails(line, word):
        line.send(word * many)
        raise KeyError(word)

    fork = children.fork(fails, "ha")
    assert fork.receive(WAIT) == "hahaha"
    with pytest.raises(ChildEnded, match="KeyError: ha"):
        fork.receive(WAIT)
    with pytest.raises(ChildEnded) as ended:
        fork.receive(WAIT)
    assert ended.value.why == ""


def test_what_cannot_travel_is_refused_before_anything_starts():
    lock = threading.Lock()
    with Children() as none:
        with pytest.raises(NotAllowed, match=r"cannot travel to another process \(TypeError: .*lock"):
            none.fork(lambda line: lock)
        assert none._forking is None


def test_the_python_that_forks_has_what_forks_need_and_no_thread_or_connection_and_its_end_is_theirs(within):
    def loaded(line):
        line.send("kqlib.kafka" in sys.modules)
        line.recv()

    with Children(modules=["kqlib.kafka"]) as children:
        forks = [children.fork(loaded) for _ in range(2)]
        assert forks[0].receive(WAIT)
        forks[0].pause()
        process = psutil.Process(children._forking.pid)
        assert process.num_threads() == 1
        assert process.net_connections("inet") == []
        children._forking.kill()
        within(5, lambda: not any(psutil.pid_exists(fork.pid) for fork in forks), "a fork is still there")
    assert not children.home.exists()


def test_modules_that_cannot_be_imported_say_so():
    with Children(modules=["kqlib.nowhere"]) as children, pytest.raises(ChildEnded, match="No module named"):
        children.fork(doubling())


STUBBORN = ["sh", "-c", 'trap "" TERM; echo ready; while :; do sleep 0.05; done']


def test_a_command_is_stopped_by_sigterm_and_killed_if_it_minds_none(children, tmp_path, within):
    log = tmp_path / "log"
    sleeper = children.run("sleeper", ["sleep", "60"], log)
    sleeper.pause()
    assert (sleeper.alive, sleeper.paused) == (True, True)
    sleeper.stop(10)
    assert (sleeper.wait(0), sleeper.alive) == (-signal.SIGTERM, False)
    stubborn = children.run("stubborn", STUBBORN, log)
    within(10, lambda: log.exists() and "ready" in log.read_text())
    begin = time.monotonic()
    stubborn.stop(0.2)
    assert stubborn.wait(0) == -signal.SIGKILL
    assert time.monotonic() - begin >= 0.2
    assert stubborn.why == "exit code -9"


HOLDS = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from kqlib.workshop.children import Children

children = Children()
forks = [children.fork(lambda line: time.sleep(60)) for _ in range(2)]
forks[0].pause()
children.run("sleeper", ["sleep", "60"], children.home / "log").pause()
print(children.home, flush=True)
sys.stdin.read()
"""


def test_no_child_outlives_a_killed_parent_not_even_a_frozen_one(marked, within):
    command = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        home = Path(parent.stdout.readline().strip())
        assert home.is_dir()
        assert len(marked.alive()) == 6  # the parent, the reaper, the Python that forks, two forks and the command
        parent.send_signal(signal.SIGKILL)
    within(5, lambda: not marked.alive() and not home.exists(), "a child is still there")
