"""Processes for workers, as many and as quickly as they are wanted: each one can be killed, and none outlives the scoring.

In:  a socket a worker, and signals. Out: processes that answer calls of `Hands` on that socket.

A Python that has everything imported and no client made yet waits for orders and forks a worker for each: 10 ms, where a fresh
start takes half a second. Only it knows its children, so no stranger is ever hit by a signal; when its parent is gone, however
that ended, it kills them. The lower half runs as `python -P -m kqlib.workshop.promises.nursery`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.promises.hands import Hands, known_clients
from kqlib.workshop.promises.values import Broken, NotOffered, Refused

ORDER = struct.Struct("ii")  # a signal, and to whom; signal 0 is a birth, and a socket comes along
LENGTH = struct.Struct("i")
ADDRESS = re.compile(r"[\w.-]+:\d{2,5}(,[\w.-]+:\d{2,5})*")  # no two runs have the same
ANSWER = 30.0 * PATIENCE  # seconds for one answer
LOOK = 0.5  # seconds between two looks whether the parent is still there
READS = 2**16


@dataclass(frozen=True)
class Job:
    """What a worker is: a queue by its factory on a cluster."""

    factory: bytes  # by cloudpickle: a class from a notebook's cell has no file
    bootstrap: str
    own: dict[str, Any]
    name: str
    wishes: dict[str, Any]
    home: str  # for its temporary files
    path: list[str]


# --- the parent's end ---------------------------------------------------------------------------------------------------


class Nursery:
    """Where workers come from; closing it ends them all, and removes the directory that they had for their files."""

    def __init__(self, modules: Iterable[str] = ()) -> None:
        """modules: what the workers need. They are imported once, before the first fork, and must start no thread."""
        known_clients()  # so that a class from a cell may name a Consumer
        self.home = Path(tempfile.mkdtemp(prefix="kqlib-promises-"))
        mine, its = socket.socketpair()
        root = str(Path(__file__).resolve().parents[3])
        command = [
            sys.executable,
            "-P",
            "-m",
            "kqlib.workshop.promises.nursery",
            str(os.getpid()),
            str(self.home),
            *modules,
        ]
        with its:
            self._process = subprocess.Popen(
                command,
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Jupyter's stop button is for the cell, which ends the workers in its own way
                env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
            )
        self._orders, self._lock = mine, threading.Lock()

    def worker(self, factory: bytes, cluster: Any, name: str, wishes: dict[str, Any]) -> Far:
        """A new process with a queue of its own."""
        mine, its = socket.socketpair()
        with its, self._lock:
            socket.send_fds(self._orders, [ORDER.pack(0, 0)], [its.fileno()])
        job = Job(factory, cluster.bootstrap, cluster._own, name, wishes, str(self.home), sys.path)
        return Far(self, mine, job)

    def signal(self, number: int, pid: int) -> None:
        """Send one of the children a signal."""
        with self._lock, contextlib.suppress(OSError):
            self._orders.sendall(ORDER.pack(number, pid))

    def close(self) -> None:
        """End every worker and wait until they are gone."""
        self._orders.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Far:
    """One worker's hands, in its process."""

    def __init__(self, nursery: Nursery, line: socket.socket, job: Job) -> None:
        self._nursery, self._line = nursery, line
        line.settimeout(ANSWER)
        _send(line, job)
        self._pid: int = self._answer("the worker's start")
        try:
            self._answer("the factory")
        except BaseException:  # a factory that refuses: nobody will ever call this worker
            self.kill()
            raise

    def call(self, verb: str, *args: Any, **how: Any) -> Any:
        """One call; raises what the queue did: `Refused`, `NotOffered`."""
        _send(self._line, (verb, args, how))
        return self._answer(verb)

    def kill(self) -> None:
        """End it as a power cut does; returns when it is gone."""
        self._nursery.signal(signal.SIGKILL, self._pid)
        with contextlib.suppress(OSError):
            while self._line.recv(READS):
                pass
        self._line.close()

    def pause(self) -> None:
        """Stop its time."""
        self._nursery.signal(signal.SIGSTOP, self._pid)

    def resume(self) -> None:
        """Let it go on."""
        self._nursery.signal(signal.SIGCONT, self._pid)

    def _answer(self, asked: str) -> Any:
        try:
            good, value = _receive(self._line)
        except TimeoutError:
            raise Broken(f"{asked} did not return within {ANSWER:g} s", answered=False) from None
        except OSError:
            raise Broken(f"the worker's process ended in {asked}", answered=False) from None
        if not good:
            raise value
        return value


def _send(line: socket.socket, value: Any) -> None:
    data = pickle.dumps(value)
    line.sendall(LENGTH.pack(len(data)) + data)


def _receive(line: socket.socket) -> Any:
    """The next value; EOFError (an OSError here, as all ends of the line) when there is no more."""
    (length,) = LENGTH.unpack(_exactly(line, LENGTH.size))
    return pickle.loads(_exactly(line, length))


def _exactly(line: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = line.recv(min(READS, length - len(data)))
        if not more:
            raise ConnectionResetError
        data += more
    return data


# --- the process that forks ---------------------------------------------------------------------------------------------


def main() -> None:
    """Fork a worker for each socket, pass signals on, until the parent is gone; then no worker is left."""
    import cloudpickle  # noqa: F401 - what factories are packed with

    for module in ("kqlib.kafka", *sys.argv[3:]):
        import_module(module)
    known_clients()
    parent, orders, children = int(sys.argv[1]), socket.socket(fileno=0), set()  # type: int, socket.socket, set[int]
    try:
        while os.getppid() == parent:
            ready = select.select([orders], [], [], LOOK)[0]
            children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
            if not ready:
                continue
            data, sockets, _, _ = socket.recv_fds(orders, ORDER.size, 1)
            if len(data) < ORDER.size:
                return
            number, pid = ORDER.unpack(data)
            if number and pid in children:
                os.kill(pid, number)
            for handle in sockets:
                children.add(_born(orders, handle))
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
        shutil.rmtree(sys.argv[2], ignore_errors=True)


def _born(orders: socket.socket, handle: int) -> int:
    """Fork one worker; it never returns from here."""
    if pid := os.fork():
        os.close(handle)
        return pid
    orders.close()
    try:
        _live(socket.socket(fileno=handle))
    finally:
        os._exit(0)  # without a goodbye: whoever wants one says close


def _live(line: socket.socket) -> None:
    """A worker's life: make the queue, then answer calls until nobody asks any more."""
    job: Job = _receive(line)
    _send(line, (True, os.getpid()))
    sys.path[:] = job.path
    tempfile.tempdir = job.home  # a queue that keeps a database keeps it where it is removed
    queue: list[Hands] = []

    def make() -> None:
        from kqlib.kafka import Kafka

        factory = pickle.loads(job.factory)
        queue.append(Hands(factory(Kafka(job.bootstrap, job.own), job.name, **job.wishes)))

    _send(line, _tried(make))
    while True:
        verb, args, how = _receive(line)
        _send(line, _tried(getattr(queue[0], verb), *args, **how))


def _tried(call: Any, *args: Any, **how: Any) -> tuple[bool, Any]:
    """Whether a call went well, and its answer or what it raised, as a value that travels."""
    try:
        return True, call(*args, **how)
    except NotOffered as missing:
        return False, missing
    except Exception as error:
        return False, refused(error)


def refused(error: Exception) -> Refused:
    """What a queue raised, as a value that any process can read: the error's name and its first sentence, without addresses."""
    words = ADDRESS.sub("…", str(error).strip().split("\n")[0])
    return Refused(type(error).__name__, words.partition(". ")[0])


if __name__ == "__main__":
    main()
