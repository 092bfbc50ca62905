"""Redis and PostgreSQL for the bench, each on a port of its own and gone with this process.

In:  how Redis stores what it has. Out: the address; None where Debian's package is not installed (`.ci/redis.sh` installs Redis).
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kqlib.runtime.reaper import Reaper

AS_POSTGRES = ["runuser", "-u", "postgres", "--"]  # PostgreSQL does not run as root


@functools.cache
def redis(fsync: str) -> str | None:
    """A Redis. fsync: everysec or always, of its append-only file."""
    if (program := shutil.which("redis-server")) is None:
        return None
    port = _port()
    home = Path(tempfile.mkdtemp(prefix="kqlib-bench-"))
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(home)]
    options += ["--appendonly", "yes", "--appendfsync", fsync]
    _start(home, [program, *options], port)
    return f"redis://127.0.0.1:{port}/0"


@functools.cache
def postgres() -> str | None:
    """A PostgreSQL as `initdb` makes it: each commit is on the disk before it is answered."""
    programs = [shutil.which(name) for name in ("initdb", "postgres")]
    if None in programs:
        return None
    port = _port()
    before = AS_POSTGRES if os.getuid() == 0 else []
    home = Path(tempfile.mkdtemp(prefix="kqlib-bench-"))
    if before:
        shutil.chown(home, "postgres")
    data = str(home / "data")
    subprocess.run(
        [*before, str(programs[0]), "-D", data, "-A", "trust", "-U", "bench"], check=True, capture_output=True
    )
    options = ["-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", str(home)]
    _start(home, [*before, str(programs[1]), *options], port)
    return f"postgresql://bench@127.0.0.1:{port}/postgres"


@functools.cache
def _reaper(home: Path) -> Reaper:
    """Ends the server when this process is gone."""
    return Reaper(home)


def _start(home: Path, command: list[str], port: int) -> None:
    child = _reaper(home).start("server", command, home / "server.log")
    _until(lambda: child.pid and _answers(port), f"{command[0]} to answer")


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until(condition: Callable[[], object], why: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited 20 s for {why}")
        time.sleep(0.02)
