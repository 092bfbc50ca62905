"""Processes that are started to be stopped, frozen or killed: brokers, workers, members of groups, nodes, drivers.

    with Children() as children:
        broker = children.run("broker-1", command, log)      # any command
        worker = children.fork(function, *arguments)         # a Python function; it gets a connection as its first argument
        worker.send("claim")
        worker.receive(10)
        worker.pause()
        worker.resume()
        worker.kill()

No child outlives this process, however this process ends: a `Reaper` starts the children and ends them.

`fork` uses a second Python, which has imported everything and has made no client. It forks once for each connection: 10 ms instead of
half a second. It never waits for its forks. So a fork that has ended stays a zombie, and the system gives its pid to no other process.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, Self

from kqlib.errors import NotAllowed, NotInTime
from kqlib.kafka import words
from kqlib.runtime import reaper
from kqlib.runtime.patience import PATIENCE

START = 30.0 * PATIENCE  # seconds until the Python that forks answers
STOPS = 10.0 * PATIENCE  # seconds until a signal has arrived
LOOK = 0.005
_NOTHING = object()
FORKS = f"import sys; from {__name__} import serve; serve(sys.argv[1], sys.argv[2:])"
ROOT = str(Path(__file__).resolve().parents[2])


class ChildEnded(Exception):  # noqa: N818 - not always an error
    """The child's process is gone. `why` is the error that ended it, or empty."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why or "the process ended")
        self.why = why


class Children:
    """Child processes that end with this one. `close()` ends them and removes `home`, their directory.

    home: None makes a temporary one. modules: what forks need; they must not start a thread.
    """

    def __init__(self, home: Path | None = None, *, modules: Iterable[str] = ()) -> None:
        self.home = home or Path(tempfile.mkdtemp(prefix="kqlib-"))
        self._reaper = reaper.Reaper(self.home)
        self._modules, self._forking = list(modules), None  # type: tuple[list[str], Command | None]
        self._lock = threading.Lock()

    def run(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Command:
        """Start a command. Its output is added to the file `log`."""
        return self._reaper.begin(Command(self._reaper, name), command, log, env)

    def fork(self, function: Callable[..., object], *arguments: Any) -> Fork:
        """Run `function(connection, *arguments)` in a process of its own. `NotAllowed` if they cannot be pickled."""
        job = packed((function, arguments))
        line = self._connect()
        line.send((sys.path, job))
        return Fork(line)

    def close(self) -> None:
        """End every child. Return when all are gone."""
        if self._forking:
            self._forking.stop(STOPS)
        self._reaper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> Connection:
        """A connection to a new fork."""
        address = self.home / "forks"
        with self._lock:
            if self._forking is None:
                command = [sys.executable, "-P", "-c", FORKS, str(address), *self._modules]
                path = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
                env = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(self.home)}
                self._forking = self.run("forks", command, self.home / "forks.log", env)
        with socket.socket(socket.AF_UNIX) as line, suppress(ConnectionRefusedError):
            if self._forking.makes(address, START):
                line.connect(str(address))
                return Connection(line.detach())
        raise ChildEnded((self.home / "forks.log").read_text(errors="replace").strip() or "it did not start")


class Child:
    """One process, to be paused, resumed and killed."""

    paused = False
    pid: int | None  # as soon as it has one

    def signal(self, number: int) -> None:
        """Send it a signal. Nothing happens if it is gone."""
        raise NotImplementedError

    def pause(self) -> None:
        """Freeze it (SIGSTOP). Return when it stands."""
        self.signal(signal.SIGSTOP)
        self.paused = True
        deadline = time.monotonic() + STOPS
        while not _stands(self.pid) and time.monotonic() < deadline:
            time.sleep(LOOK)

    def resume(self) -> None:
        """Let a paused one go on."""
        self.signal(signal.SIGCONT)
        self.paused = False


class Command(reaper.Child, Child):
    """A command that was started."""

    def finished(self, code: int, why: str) -> None:
        """It has ended: `why` says how, in words."""
        super().finished(code, why or f"exit code {code}")

    def stop(self, seconds: float) -> None:
        """End it by SIGTERM, and by SIGKILL if it still runs after so many seconds."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a paused process takes SIGTERM only when it runs
        if self.wait(seconds) is None:
            self.kill()

    def kill(self) -> None:
        """End it as a power cut does (SIGKILL)."""
        self.signal(signal.SIGKILL)
        self.wait(STOPS)


class Fork(Child):
    """A Python function in a process of its own, and a connection to it."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self.pid: int = line.recv()

    def signal(self, number: int) -> None:
        """Send it a signal. Its pid is its own until the `Children` are closed."""
        if not self._line.closed:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def send(self, value: Any) -> None:
        """Send it a value. `ChildEnded` if it is gone."""
        try:
            self._line.send(value)
        except OSError:
            raise ChildEnded from None

    def receive(self, seconds: float) -> Any:
        """The next value that it sends. `ChildEnded` if it is gone, `NotInTime` if nothing comes."""
        try:
            value = self._line.recv() if self._line.poll(seconds) else _NOTHING
        except (EOFError, OSError, TypeError):  # TypeError: another thread closes the connection just now
            raise ChildEnded from None
        if value is _NOTHING:
            raise NotInTime(seconds=seconds, why="an answer of a child process", last="nothing")
        if isinstance(value, ChildEnded):
            raise value
        return value

    def kill(self) -> None:
        """End it as a power cut does (SIGKILL). Return when it is gone. Another thread may be waiting in `receive`."""
        if self._line.closed:
            return
        self.signal(signal.SIGKILL)
        ends = select.poll()
        ends.register(self._line, 0)  # for nothing but the event of its end, which poll always reports
        ends.poll(STOPS * 1000)
        self._line.close()


def packed(value: Any) -> bytes:
    """A value as it travels to another process. Functions and classes of a notebook's cell travel with their code."""
    import cloudpickle

    _name_client_classes()
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # whatever pickle raises for a lock, a client or an open file
        why = f"{type(error).__name__}: {error}"
        raise NotAllowed(
            f"this cannot travel to another process ({why}). Give it names and paths, and let it make what it needs"
        ) from None


def _name_client_classes() -> None:
    """Kafka's client classes name a module 'cimpl', which cannot be imported. Without this they could not be unpickled."""
    import confluent_kafka

    sys.modules.setdefault("cimpl", confluent_kafka.cimpl)


def _stands(pid: int | None) -> bool:
    """Has SIGSTOP reached it, or is it dead? Without a /proc (macOS) it counts as reached."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TtZX"
    except OSError:
        return True


# --- the Python that forks --------------------------------------------------------------------------------------------


def serve(address: str, modules: Iterable[str]) -> None:
    """Fork for each connection, until the reaper ends this process."""
    import cloudpickle  # noqa: F401 - forks unpickle with it

    for module in modules:
        import_module(module)
    _name_client_classes()
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{address}.new")
    server.listen(64)
    os.rename(f"{address}.new", address)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    forks: list[int] = []
    try:
        while True:
            line, _ = server.accept()
            forks.append(os.fork() or _begin(server, line))
            line.close()
    finally:
        for pid in forks:
            os.kill(pid, signal.SIGKILL)
        for pid in forks:
            os.waitpid(pid, 0)


def _begin(server: socket.socket, line: socket.socket) -> NoReturn:
    """The life of one fork."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        server.close()
        _die_with_parent()
        _run(Connection(line.detach()))
    finally:
        os._exit(0)  # clients are not closed: what has to be closed, the function closes


def _run(line: Connection) -> None:
    """Run the function that comes over the connection."""
    sys.path[:], job = line.recv()
    line.send(os.getpid())
    try:
        function, arguments = pickle.loads(job)
        function(line, *arguments)
    except Exception as error:
        with suppress(OSError):
            line.send(ChildEnded(f"{type(error).__name__}: {words(error)}"))


def _die_with_parent() -> None:
    """Linux ends this fork, even a stopped one, when the Python that forks is killed."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
