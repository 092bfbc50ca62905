"""The jars: which ones (jars.lock), fetched once into the user's cache, checked before every use.

In:  `jars.lock`: for each set the coordinates asked for, and every jar they need with its sha256.
Out: `fetch("broker")`, `fetch("spark")`: paths in the cache, each checked against the lock in this process.

    python -m kqlib.workshop.cluster   fetch both sets, among other things
    python -m kqlib.runtime.jars    remake jars.lock from its coordinates
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kqlib.errors import JarMismatch, JarsMissing
from kqlib.runtime import ivy, places

LOCK = Path(__file__).with_name("jars.lock")
HEAD = """# The jars of the broker and its tools, and of Spark's connectors: what was asked for, and every file that came of it.
# Made by `make lock`; edit `ask` and run it again. Spark's connectors come alone: PySpark carries what they need.
"""


@dataclass(frozen=True, order=True)
class Jar:
    """One jar: its coordinates and the sha256 that it must have."""

    coordinates: str  # group:artifact:version
    sha256: str

    @property
    def file(self) -> str:
        """Its name in the cache."""
        return "{}-{}.jar".format(*self.coordinates.split(":")[1:])


def locked(kind: str, lock: Path = LOCK) -> list[Jar]:
    """The jars of one set as jars.lock names them."""
    return [Jar(*line.split()) for line in tomllib.loads(lock.read_text())[kind]["jars"]]


def fetch(kind: str, lock: Path = LOCK) -> list[Path]:
    """The paths of a set's jars, fetched if they are not in the cache; `JarMismatch` if one is not what the lock names."""
    return _checked(kind, lock, places.cache() / "jars")


@functools.cache
def _checked(kind: str, lock: Path, store: Path) -> list[Path]:
    jars = locked(kind, lock)
    store.mkdir(parents=True, exist_ok=True)
    if not all((store / jar.file).exists() for jar in jars):
        with _alone(store):  # the second of two processes finds the work done
            _complete(kind, [jar for jar in jars if not (store / jar.file).exists()], len(jars), store)
    for jar in jars:
        check(store / jar.file, jar)
    return [store / jar.file for jar in jars]


def check(file: Path, jar: Jar) -> None:
    """Is this file the jar that the lock names? `JarMismatch` if not."""
    found = sha256(file)
    if found != jar.sha256:
        raise JarMismatch(file=str(file), expected=jar.sha256, found=found)


def sha256(file: Path) -> str:
    """A file's sha256 in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _complete(kind: str, missing: list[Jar], total: int, store: Path) -> None:
    """Fetch what is missing beside the store, check it, and only then move it in: nothing half-done is ever visible."""
    if not missing:
        return
    work = store / "fetching"  # kept when interrupted: the next try goes on with Ivy's cache in it
    shutil.rmtree(work / "lib", ignore_errors=True)
    with _progress(f"{kind} jars", len(missing)) as fetched:
        said = ivy.retrieve((jar.coordinates for jar in missing), work, transitive=False, fetched=fetched)
    for jar in missing:
        got = work / "lib" / jar.file
        if got.exists():
            try:
                check(got, jar)
            except JarMismatch:
                shutil.rmtree(work)  # not even kept for the next try
                raise
            got.replace(store / jar.file)
    absent = sum(not (store / jar.file).exists() for jar in missing)
    if absent:
        raise JarsMissing(missing=absent, total=total, cache=str(store), why=_reason(said))
    shutil.rmtree(work)


def _reason(said: str) -> str:
    """Ivy's own words for why something did not come, without its tables."""
    lines = [line.strip(" \t:") for line in said.splitlines()]
    for telling in (
        r"exception|timed out|refused|unable|server access error",
        "not found",
    ):  # the cause, else the effect
        if found := next((line for line in lines if re.search(telling, line, re.IGNORECASE)), None):
            return found
    return "it was not in the repository, or there was no network"


@contextmanager
def _alone(store: Path) -> Iterator[None]:
    """One process at a time; the lock falls with the process that holds it."""
    with (store / "fetching.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _progress(what: str, total: int) -> Iterator[Any]:
    from tqdm import tqdm

    pace = 0.1 if sys.stderr.isatty() else 10  # a log file wants a line now and then, not a film
    with tqdm(total=total, desc=f"fetching {what}, once", unit="jar", mininterval=pace, dynamic_ncols=True) as bar:
        yield lambda count: bar.update(count - bar.n)


def remake(lock: Path = LOCK) -> None:
    """Resolve what each set asks for anew and write the lock."""
    sets = tomllib.loads(lock.read_text())
    text = HEAD
    for kind, table in sets.items():
        with tempfile.TemporaryDirectory() as work:
            said = ivy.retrieve(table["ask"], Path(work), transitive=table["transitive"])
            came = re.findall(r"\[SUCCESSFUL \] (\S+?)#(\S+?);(\S+?)!", said)
            jars = sorted({Jar(":".join(c), sha256(Path(work) / "lib" / f"{c[1]}-{c[2]}.jar")) for c in came})
        absent = set(table["ask"]) - {jar.coordinates for jar in jars}
        if absent:
            raise JarsMissing(missing=len(absent), total=len(table["ask"]), cache="the repository", why=_reason(said))
        text += f"\n[{kind}]\ntransitive = {str(table['transitive']).lower()}\nask = {_list(table['ask'])}"
        text += f"jars = {_list(f'{jar.coordinates} {jar.sha256}' for jar in jars)}"
    places.write_atomic(lock, text)


def _list(items: Iterable[str]) -> str:
    return "[\n" + "".join(f'    "{item}",\n' for item in items) + "]\n"


if __name__ == "__main__":
    remake()
