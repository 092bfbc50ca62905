"""No child outlives its parent, however that ends. The children here are sleeps and shells; the JVMs' turn is in promises."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from kqlib.runtime import reaper
from kqlib.runtime.reaper import Reaper
from tests.patience import WAIT

SLEEP = ["sleep", "60"]
# A parent as a notebook's kernel is one: it starts two children, says that they run, and ends in some way.
PARENT = f"""
import os, signal, sys, time
sys.path.insert(0, {str(Path(reaper.__file__).parent)!r})
import reaper
from pathlib import Path
place = Path(sys.argv[1])
guard = reaper.Reaper(place)
for name in "ab":
    child = guard.start(name, ["sleep", "60"], place / name)
    child._started.wait()
print("up", flush=True)
"""


@pytest.fixture
def home(tmp_path):
    """A directory for a reaper to remove."""
    place = tmp_path / "home"
    place.mkdir()
    return place


@pytest.fixture
def begun(home, marked):
    """Start a parent whose last lines are these."""
    parents = []

    def begin(last: str) -> subprocess.Popen:
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT + last, home],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        parents.append(parent)
        assert parent.stdout.readline() == "up\n"
        assert len(marked.alive("sleep 60")) == 2
        return parent

    yield begin
    for parent in parents:
        parent.kill()
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()  # not read to its end: a forked child may hold it open


LINE = "sys.stdin.readline()\n"
ENDS = {
    "the last line": (LINE, None),
    "exec": (LINE + "os.execlp('true', 'true')", None),
    "SIGKILL": (LINE, signal.SIGKILL),
    "SIGKILL with a forked child that lives on": ("os.fork() or time.sleep(60)\n" + LINE, signal.SIGKILL),
    "its end with a forked child that lives on": ("os.fork() or time.sleep(60)\n" + LINE, None),
    "SIGKILL with a program started that lives on": (
        "import subprocess; subprocess.Popen(['sleep', '59'])\n" + LINE,
        signal.SIGKILL,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_after_the_parents_end_no_child_no_reaper_and_no_directory_is_left(begun, home, marked, within, end):
    last, number = ENDS[end]
    parent = begun(last)
    if number is None:
        parent.stdin.write("\n")
        parent.stdin.flush()
    else:
        parent.send_signal(number)
    parent.wait(WAIT)
    within(3, lambda: not marked.alive("sleep 60") and not marked.alive("reaper.py") and not home.exists(), end)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_to_the_parents_group_reaches_no_child(begun, home, marked, number):
    parent = begun(f"signal.signal({number:d}, signal.SIG_IGN)\nprint('ready', flush=True)\n" + LINE)
    parent.stdout.readline()
    os.killpg(parent.pid, number)  # as Ctrl-C and Jupyter's stop button do
    assert len(marked.alive("sleep 60")) == 2
    assert parent.poll() is None
    assert home.is_dir()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_reaper_that_is_ended_takes_its_children_along(tmp_path, home, within, number):
    if number == signal.SIGKILL and sys.platform != "linux":
        pytest.skip("only Linux ends a child with its parent")
    guard = Reaper(home)
    child = guard.start("a", SLEEP, home / "log")
    child._started.wait(WAIT)
    os.kill(guard._process.pid, number)
    within(3, lambda: not psutil.pid_exists(child.pid))
    assert child.wait(WAIT) == -signal.SIGKILL
    assert not child.alive
    guard._process.wait(WAIT)
    assert home.exists() == (number == signal.SIGKILL)
    late = guard.start("late", SLEEP, tmp_path / "log")
    assert (late.wait(WAIT), late.why) == (-signal.SIGKILL, "its reaper is gone")
    child.signal(signal.SIGTERM)  # to nobody: no error
    guard.close()


def test_a_second_sigterm_does_not_stop_a_reaper_from_tidying_up(home, within):
    guard = Reaper(home)
    child = guard.start("a", SLEEP, home / "log")
    child._started.wait(WAIT)
    for number in range(300):
        (home / f"file-{number}").touch()
    while guard._process.poll() is None:
        guard._process.terminate()
    assert child.wait(WAIT) == -signal.SIGKILL
    within(3, lambda: not home.exists())
    guard.close()


CANNOT = {
    "no such file": (["/no/such/program"], {}, "No such file"),
    "not executable": ([__file__], {}, "Permission denied"),
    "a NUL in its words": (["echo", "a\0b"], {}, "null byte"),
    "nothing at all": ([], {}, ""),
    "a log in no directory": (["true"], {"log": Path("/no/such/place/log")}, "No such file"),
}


def test_a_child_that_cannot_be_started_ends_with_127_and_says_why_and_the_reaper_goes_on(tmp_path):
    with Reaper() as guard:
        for name, (command, more, why) in CANNOT.items():
            child = guard.start(name, command, **{"log": tmp_path / "log", **more})
            assert child.wait(WAIT) == 127, name
            assert why in child.why, name
            child.signal(signal.SIGTERM)
        assert guard.start("well", ["true"], tmp_path / "log").wait(WAIT) == 0


def test_a_childs_exit_code_is_reported_also_if_its_name_was_used_before(tmp_path):
    with Reaper() as guard:
        scripts = ("exit 0", "exit 3", "kill -9 $$")
        codes = [guard.start("a", ["sh", "-c", script], tmp_path / "log").wait(WAIT) for script in scripts]
    assert codes == [0, 3, -9]


def test_everything_a_child_says_is_in_its_log_in_order_and_after_what_was_there(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    with Reaper() as guard:
        for _ in range(2):
            assert guard.start("a", ["sh", "-c", "seq 2000; echo wrong >&2"], log).wait(WAIT) == 0
    assert log.read_text().splitlines() == ["before", *[*map(str, range(1, 2001)), "wrong"] * 2]


def test_a_child_gets_its_environment_and_an_empty_stdin(tmp_path):
    log = tmp_path / "log"
    with Reaper() as guard:
        guard.start("a", ["sh", "-c", "echo $WORD; cat"], log, {"WORD": "x" * 100_000}).wait(WAIT)
    assert log.read_text().splitlines() == ["x" * 100_000]


def test_a_child_whose_name_another_one_took_ends_with_its_reaper_too(tmp_path):
    with Reaper() as guard:
        pids = []
        for _ in range(2):
            child = guard.start("a", SLEEP, tmp_path / "log")
            child._started.wait(WAIT)
            pids.append(child.pid)
    assert not any(map(psutil.pid_exists, pids))


def test_a_child_started_after_the_close_never_runs_and_nobody_waits_for_it(tmp_path):
    guard = Reaper()
    guard.close()
    child = guard.start("a", ["touch", str(tmp_path / "made")], tmp_path / "log")
    assert (child.wait(WAIT), child.why) == (-signal.SIGKILL, "its reaper is gone")
    assert not (tmp_path / "made").exists()
    guard.close()


def test_twenty_times_the_directory_goes_once_and_no_process_descriptor_or_thread_is_left(tmp_path, marked):
    me = psutil.Process()

    def held() -> set[object]:
        """The threads of this process, and what it has open; what was there before may go meanwhile."""
        found = set[object](threading.enumerate())
        for number in os.listdir("/dev/fd"):
            with suppress(OSError):  # the list's own
                file = os.fstat(int(number))
                found.add((number, file.st_dev, file.st_ino))
        return found

    writes = 'while :; do i=$((i+1)); echo x > "$0/$i"; done'

    def once(number: int) -> bool:
        home = tmp_path / f"home-{number}"
        home.mkdir()
        with Reaper(home) as guard:
            child = guard.start("a", ["sh", "-c", writes, str(home)], tmp_path / "log")
            child._started.wait(WAIT)
        return home.exists()

    assert once(0) is False
    before = held()
    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(once, range(1, 21)))
    assert held() <= before
    assert marked.alive() == []
    assert [child for child in me.children() if child.status() == psutil.STATUS_ZOMBIE] == []


def test_a_reaper_closed_by_its_own_listening_thread_does_not_wait_for_itself(tmp_path):
    guard = Reaper()
    child = guard.start("a", ["sh", "-c", "exit 5"], tmp_path / "log")
    wrong: list[BaseException] = []

    def close() -> None:  # as the garbage collector does, in whatever thread it happens to run
        try:
            guard.close()
        except BaseException as error:
            wrong.append(error)

    child.finished = lambda *_: close()  # type: ignore[method-assign]
    guard._reader.join(WAIT)
    assert not guard._reader.is_alive()
    assert wrong == []


FAMILY = "sleep 61 & sleep 62 & echo ready; wait"


def test_a_childs_own_children_are_frozen_woken_and_killed_with_it_and_none_outlives_it(tmp_path, marked, within):
    log = tmp_path / "log"

    def states():
        return {psutil.Process(each.pid).status() for each in marked.alive("sleep 6")}

    with Reaper() as guard:
        child = guard.start("family", ["sh", "-c", FAMILY], log)
        within(10, lambda: log.exists() and "ready" in log.read_text() and len(marked.alive("sleep 6")) == 3)
        child.signal(signal.SIGSTOP)
        within(10, lambda: states() == {psutil.STATUS_STOPPED})
        child.signal(signal.SIGCONT)
        within(10, lambda: states() == {psutil.STATUS_SLEEPING})
        child.signal(signal.SIGKILL)
        assert child.wait(WAIT) == -signal.SIGKILL
        within(10, lambda: not marked.alive("sleep 6"))
        assert guard.start("ends", ["sh", "-c", "sleep 63 & exit 4"], log).wait(WAIT) == 4
        within(10, lambda: not marked.alive("sleep 63"), "a child's child outlives it")
        guard.start("family", ["sh", "-c", FAMILY], log)
        within(10, lambda: len(marked.alive("sleep 6")) == 3)
    within(10, lambda: not marked.alive("sleep 6"), "a child's child outlives the reaper")


def test_other_signals_reach_the_child_alone(tmp_path, marked, within):
    log = tmp_path / "log"
    with Reaper() as guard:
        child = guard.start("a", ["sh", "-c", 'trap "echo asked; exit 0" TERM; sleep 61 & echo ready; wait'], log)
        within(10, lambda: log.exists() and "ready" in log.read_text())
        child.signal(signal.SIGTERM)
        assert child.wait(WAIT) == 0
    assert log.read_text() == "ready\nasked\n"
