"""One process runs a stream: it holds the lock of a file in the stream's directory, and the file names it.

In:  the directory. Out: `alone`, which holds the lock; `runner`, the process that holds it; `stop`, which ends that process;
`note`, with which it tells others how far it is, and `noted`, which reads that.
The system unlocks the file when the process ends, however it ends. A directory on another file system has no such lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from kqlib.errors import NotAllowed
from kqlib.runtime import places
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.spark.plan import local

FILE = "running"
NOTE = "progress.json"
STARTS = "a process that starts"  # it has the lock, and has not written its number yet
END = 120.0  # seconds for it to end


@contextmanager
def alone(home: str) -> Iterator[None]:
    """Inside, no other process runs the stream of this directory; `NotAllowed` if one does."""
    if not local_home(home):
        yield
        return
    path = local(home)
    path.mkdir(parents=True, exist_ok=True)
    with (path / FILE).open("a+") as file:  # closing it unlocks
        while not _locked(file, fcntl.LOCK_EX):
            if now := runner(home):  # else a `runner` elsewhere had the lock for a moment, to look
                raise NotAllowed(
                    f"the stream of {home} runs already: {now}. Two would write each other's batches. "
                    "End it first (kq pipeline stop)"
                )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def runner(home: str) -> str | None:
    """The process that runs the stream, as in 'process 12 on host'; None if it does not run."""
    path = local(home) / FILE
    if not path.exists():
        return None
    with path.open() as file:
        return None if _locked(file, fcntl.LOCK_SH) else file.read() or STARTS


def _locked(file: IO[str], kind: int) -> bool:
    """Lock this file until it is closed. False if another one has its lock."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def stop(home: str) -> bool:
    """End the process that runs the stream, and wait for its end. False if none does."""
    now = runner(home)
    if now is None:
        return False
    if now == STARTS:
        raise NotAllowed(f"the stream of {home} is just starting. Run the command again")
    _, number, _, host = now.split(" ")
    if host != socket.gethostname():
        raise NotAllowed(f"the stream of {home} runs on another machine: {now}. Stop it there")
    os.kill(int(number), signal.SIGTERM)
    wait_for(lambda: runner(home) != now, END * PATIENCE, f"{now} to end")
    return True


def note(home: str, **values: Any) -> None:
    """Tell others what the stream of this directory does now: `noted` returns it, also when the process has ended."""
    if local_home(home):
        places.write_atomic(local(home) / NOTE, json.dumps(values))


def noted(home: str) -> dict[str, Any]:
    """What was noted last; {} if nothing was."""
    path = local(home) / NOTE
    return json.loads(path.read_text()) if path.exists() else {}


def local_home(home: str) -> bool:
    """Is it a directory of this machine? Only there are locks and notes."""
    return "://" not in home or home.startswith("file:")
