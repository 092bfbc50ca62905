"""No child outlives its parent: a small process between Python and its JVMs that ends them when Python is gone.

A notebook's kernel is ended by SIGKILL, so nothing that runs at exit can be relied on. The reaper is a process of its own
session (Jupyter's stop button does not reach it). It starts each child in a process group of its own, passes signals on to them,
and reads its stdin. When that ends, or its parent has changed, it kills every child, waits for them, and removes the directory.
What a child has started dies with it, unless that has left the group.

In:  lines of JSON on stdin, `{"start": name, "command": […], "log": path, …}` and `{"signal": 9, "to": name}`.
Out: lines of JSON on stdout, `{"started": name, "pid": 1}`, `{"ended": name, "code": 0}`.
The lower half runs as `python -I -S reaper.py DIRECTORY`; it needs the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

NO_DIRECTORY = "-"
WHOLE_GROUP = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)  # these also reach a child's own children
_ENDING = threading.Lock()
C = TypeVar("C", bound="Child")


class Reaper:
    """The parent's end: start children that cannot outlive this process; `close` ends them and removes `directory`."""

    def __init__(self, directory: Path | None = None) -> None:
        command = [sys.executable, "-I", "-S", __file__, str(directory or NO_DIRECTORY), str(os.getpid())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._children: dict[str, Child] = {}
        self._gone = False
        self._children_lock, self._write_lock = threading.Lock(), threading.Lock()
        self._reader = threading.Thread(target=self._listen, name="kqlib-reaper", daemon=True)
        self._reader.start()

    def start(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a child whose output goes to the end of `log`."""
        return self.begin(Child(self, name), command, log, env)

    def begin(self, child: C, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> C:
        """The same for a child that is made already, of a class of its own."""
        with self._children_lock:
            self._children[child.name] = child
            if self._gone:
                child.finished(-signal.SIGKILL, "its reaper is gone")
        self.tell(start=child.name, command=list(command), log=str(log), env=dict(env) if env else None)
        return child

    def tell(self, **order: Any) -> None:
        """Send one order; a reaper that is gone has killed its children, so nothing is left to order."""
        line = json.dumps(order).encode() + b"\n"
        with self._write_lock, contextlib.suppress(BrokenPipeError, ValueError):
            assert self._process.stdin
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def close(self, timeout: float = 10) -> None:
        """End every child and remove the directory; returns when both are gone."""
        with self._write_lock, contextlib.suppress(BrokenPipeError):
            assert self._process.stdin
            self._process.stdin.close()
        # a large directory on a slow disk: the reaper goes on by itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        if threading.current_thread() is not self._reader:  # the garbage collector calls from any thread
            self._reader.join(timeout)

    def __enter__(self) -> Reaper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                if "started" in event:
                    self._children[event["started"]].began(event["pid"])
                else:
                    self._children[event["ended"]].finished(event["code"], event.get("why", ""))
        with self._children_lock:  # closed, or the reaper itself was killed: nothing runs any more
            self._gone = True
            for child in self._children.values():
                child.finished(-signal.SIGKILL, "its reaper is gone")


class Child:
    """One started command: its pid, whether it lives, and how it ended."""

    def __init__(self, reaper: Reaper, name: str) -> None:
        self.pid: int | None = None
        self.code: int | None = None
        self.why = ""
        self._reaper, self.name = reaper, name
        self._started, self._ended = threading.Event(), threading.Event()

    @property
    def alive(self) -> bool:
        """Does it run (a paused one does)?"""
        return not self._ended.is_set()

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code, or None when it still runs after `timeout` seconds."""
        return self.code if self._ended.wait(timeout) else None

    def started(self, timeout: float = 10) -> int:
        """Its pid, which is also the number of its process group, as soon as it has one. 0 if it did not start."""
        self._started.wait(timeout)
        return self.pid or 0

    def makes(self, file: Path, seconds: float) -> bool:
        """Return when this file is there, by which it shows that it is ready. False: it ended before, or took longer."""
        deadline = time.monotonic() + seconds
        while not file.exists():
            if not self.alive or time.monotonic() > deadline:
                return False
            time.sleep(0.005)  # not `wait_for`: this file needs the standard library only
        return True

    def signal(self, number: int) -> None:
        """Send it a signal. The reaper sends it: the pid is its child's, so no other process can be hit.

        SIGKILL, SIGSTOP and SIGCONT reach its own children as well, any other signal only itself.
        """
        self._started.wait(10)
        self._reaper.tell(signal=int(number), to=self.name)

    def began(self, pid: int) -> None:
        """The reaper reports that it runs."""
        self.pid = pid
        self._started.set()

    def finished(self, code: int, why: str) -> None:
        """The reaper reports that it ended; the first report counts."""
        if not self._ended.is_set():
            self.code, self.why = code, why
            self._ended.set()
            self._started.set()


def _serve(directory: str, parent: int) -> None:
    """The reaper's process: obey orders until stdin ends or the parent changes, then end every child."""
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    asked: list[int] = []  # only noted: an exception from a signal could land in the middle of the tidying up
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    children: dict[str, subprocess.Popen[bytes]] = {}  # the latest of each name
    waiters: list[tuple[subprocess.Popen[bytes], threading.Thread]] = []
    try:
        for order in _orders(parent, asked):
            if "start" in order:
                child = _start(order)
                if child:
                    children[order["start"]] = child
                    waiters.append((child, threading.Thread(target=_wait, args=(order["start"], child))))
                    waiters[-1][1].start()
            elif order["to"] in children:
                _signal(children[order["to"]], order["signal"])
    finally:
        for child, _ in waiters:
            _signal(child, signal.SIGKILL)
        for _, waiter in waiters:  # the directory goes when nobody writes into it any more
            waiter.join()
        if directory != NO_DIRECTORY:
            shutil.rmtree(directory, ignore_errors=True)


def _orders(parent: int, asked: list[int]) -> Any:
    """Orders from stdin until it ends or the parent is gone (a forked child of the parent may still hold the pipe open)."""
    rest = b""
    while os.getppid() == parent and not asked:
        if not select.select([0], [], [], 0.5)[0]:
            continue
        read = os.read(0, 65536)
        if not read:
            return
        *lines, rest = (rest + read).split(b"\n")
        yield from map(json.loads, lines)


def _start(order: dict[str, Any]) -> subprocess.Popen[bytes] | None:
    try:
        with open(order["log"], "ab") as log:
            child = subprocess.Popen(
                order["command"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=order["env"],
                preexec_fn=_die_with_reaper,
                process_group=0,  # its own children belong to it, and can be killed with it
            )
    except Exception as error:  # whatever is wrong with one order, the other children live on
        _say(ended=order["start"], code=127, why=str(error))
        return None
    _say(started=order["start"], pid=child.pid)
    return child


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    """Signal a child; what kills, freezes or wakes it does the same to its own children."""
    with _ENDING:  # a child that was waited for is gone: its number may be another's
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # only what has ended is left (macOS)
                (os.killpg if number in WHOLE_GROUP else os.kill)(child.pid, number)


def _wait(name: str, child: subprocess.Popen[bytes]) -> None:
    """Wait for a child, kill what it leaves behind, and report its end."""
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and its number is still its own
        _signal(child, signal.SIGKILL)
        with _ENDING:
            code = child.wait()
    else:  # macOS before Python 3.13; the number stays taken as long as a process of its group is left
        code = child.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    _say(ended=name, code=code)


def _say(**word: Any) -> None:
    with contextlib.suppress(OSError):  # the parent is gone
        os.write(1, json.dumps(word).encode() + b"\n")


def _die_with_reaper() -> None:
    """On Linux the kernel also kills the child when the reaper itself is killed."""
    for number in (signal.SIGINT, signal.SIGHUP):  # what the reaper ignores, its children would inherit
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        _LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    _LIBC = ctypes.CDLL(None)
    _serve(sys.argv[1], int(sys.argv[2]))
