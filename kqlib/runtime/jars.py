"""The jars: which ones (jars.lock), fetched once into the user's cache by jgo, checked before every use.

In:  `jars.lock`: for each set the coordinates asked for, and every jar they need with its sha256.
Out: `fetch("broker")`, `fetch("spark")`: paths in the cache, each checked against the lock in this process.

    python -m kqlib.workshop.cluster         fetch those of the broker, among other things
    python -m kqlib.workshop.spark_classes   fetch those of Spark, among other things
    python -m kqlib.runtime.jars             remake jars.lock from its coordinates
"""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
import shutil
import ssl
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kqlib.errors import JarMismatch, JarsMissing
from kqlib.extras import check as check_extra
from kqlib.runtime import places

LOCK = Path(__file__).with_name("jars.lock")
REPOSITORIES: dict[str, str] | None = None  # None: the default repository, which jgo knows
THREADS = 8
SETTLED = 2.0  # seconds: a file that was just written may be written again in the same tick of its clock
CA_BUNDLE = "REQUESTS_CA_BUNDLE"
HEAD = """# The jars of the broker and its tools, of Spark's connectors and of the Kafka Streams example: what was asked for and came.
# Made by `make lock`; edit `ask` and run it again. Spark's connectors come alone: PySpark carries what they need.
# `streams` has a compiler too (ecj), since Java from PyPI has none. Only examples/crash and examples/standings fetch it.
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
        with places.locked(store / "fetching.lock"):  # the second of two processes finds the work done
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
    """A file's sha256 in hexadecimal. With KQ_HASHES, a directory of one test run, a file that stays the same is read once."""
    stat, kept = file.stat(), os.environ.get("KQ_HASHES")
    same = f"{file} {stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
    note = Path(kept or os.devnull, hashlib.sha256(same.encode()).hexdigest())
    if kept and note.exists():
        return note.read_text(encoding="utf-8")
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if kept and time.time() - stat.st_ctime > SETTLED:
        with suppress(OSError):  # the run is over, and its directory is gone
            places.write_atomic(note, found)
    return found


def _complete(kind: str, missing: list[Jar], total: int, store: Path) -> None:
    """Download what is missing beside the store, check each jar and only then move it in: the store never holds half a jar."""
    if not missing:
        return
    check_extra("lab", "an embedded Kafka", "jgo", "tqdm")
    by_coordinates = {jar.coordinates: jar for jar in missing}

    def keep(coordinates: str, file: Path) -> None:
        jar = by_coordinates[coordinates]
        check(file, jar)
        file.replace(store / jar.file)

    work = store / "fetching"
    shutil.rmtree(work, ignore_errors=True)  # an interrupted fetch may have left half a jar there
    try:
        with _progress(f"{kind} jars", len(missing)) as count:
            # A place of its own: the threads of a fetch that Ctrl-C ended in this process may still write for a moment.
            errors = _download(by_coordinates, work / secrets.token_hex(4), keep, count)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if mismatch := next((error for error in errors if isinstance(error, JarMismatch)), None):
        raise mismatch
    if errors:
        raise JarsMissing(missing=len(errors), total=total, cache=str(store), why=_reason(errors))


def _download(
    jars: Iterable[str], work: Path, keep: Callable[[str, Path], None], count: Callable[[], object] = lambda: None
) -> list[BaseException]:
    """Download jars with a few threads, call `keep(coordinates, file)` for each and `count()` after it; returns the errors."""
    stop, errors = threading.Event(), []

    @contextmanager
    def until_stopped(name: str, size: int) -> Iterator[Callable[[int], None]]:
        def more(_: int) -> None:
            if stop.is_set():
                raise InterruptedError(name)

        yield more

    context = _repository(work, progress_callback=until_stopped)

    def one(coordinates: str) -> None:
        group, name, version = coordinates.split(":")
        keep(coordinates, context.project(group, name).at_version(version).artifact().resolve())

    with _trusted(work), ThreadPoolExecutor(THREADS) as pool:
        try:
            for future in as_completed([pool.submit(one, coordinates) for coordinates in jars]):
                if error := future.exception():
                    errors.append(error)
                else:
                    count()
        except BaseException:  # Ctrl-C: do not wait for the rest of a large jar
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return errors


def _repository(work: Path, **options: Any) -> Any:
    """jgo's view of the repository; what it downloads goes into `work`."""
    from jgo.maven import MavenContext, PythonResolver

    return MavenContext(PythonResolver(**options), repo_cache=work, remote_repos=REPOSITORIES)


@contextmanager
def _trusted(work: Path) -> Iterator[None]:
    """Let requests, which jgo uses, trust what Python's ssl trusts: a company's TLS proxy must not stop the fetch."""
    work.mkdir(parents=True, exist_ok=True)
    certificates = ssl.create_default_context().get_ca_certs(True)
    if not certificates or os.environ.get(CA_BUNDLE):
        yield
        return
    bundle = work / "trusted.pem"
    bundle.write_text("".join(map(ssl.DER_cert_to_PEM_cert, certificates)))
    os.environ[CA_BUNDLE] = str(bundle)
    try:
        yield
    finally:
        del os.environ[CA_BUNDLE]


def _reason(errors: Sequence[BaseException]) -> str:
    """Why jars did not come, in words without a host: the network's reason, if there is one."""
    import requests

    reasons = {
        requests.exceptions.SSLError: "the repository's TLS certificate is not trusted",
        requests.exceptions.ProxyError: "the proxy did not let the request through",
        requests.exceptions.Timeout: "the repository did not answer in time",
        requests.exceptions.RequestException: "there is no connection to the repository, or it broke",
        RuntimeError: "the repository does not have them, or refused",
    }
    for kind, reason in reasons.items():
        if any(isinstance(error, kind) for error in errors):
            return reason
    return getattr(errors[0], "strerror", None) or type(errors[0]).__name__


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[], object]]:
    from tqdm import tqdm

    pace = 0.1 if sys.stderr.isatty() else 10  # a log file needs a line now and then only
    with tqdm(total=total, desc=f"fetching {what}, once", unit="jar", mininterval=pace, dynamic_ncols=True) as bar:
        yield bar.update


def remake(lock: Path = LOCK) -> None:
    """Resolve what each set asks for anew and write the lock."""
    sets = tomllib.loads(lock.read_text())
    text = HEAD
    for kind, table in sets.items():
        came: dict[str, str] = {}
        with tempfile.TemporaryDirectory() as work:
            keep = functools.partial(_note, came)
            try:
                needed = _needed(table["ask"], Path(work)) if table["transitive"] else table["ask"]
                errors = _download(needed, Path(work), keep)
            except (OSError, RuntimeError) as error:  # a description of a jar did not come
                needed, errors = table["ask"], [error]
        if errors:
            raise JarsMissing(missing=len(errors), total=len(needed), cache="the repository", why=_reason(errors))
        text += f"\n[{kind}]\ntransitive = {str(table['transitive']).lower()}\nask = {_list(table['ask'])}"
        text += (
            f"jars = {_list(f'{jar.coordinates} {jar.sha256}' for jar in sorted(Jar(*each) for each in came.items()))}"
        )
    places.write_atomic(lock, text)


def _note(came: dict[str, str], coordinates: str, file: Path) -> None:
    came[coordinates] = sha256(file)


def _needed(asked: Iterable[str], work: Path) -> list[str]:
    """The coordinates that these jars need, themselves among them."""
    context = _repository(work)
    dependencies = [context.create_dependency(coordinates) for coordinates in asked]
    for each in dependencies:
        each.raw = True  # else jgo takes each one's managed versions for all of them
    with _trusted(work):
        _, nodes = context.resolver.get_dependency_list(dependencies)
    found = (node.dep for node in nodes)
    return sorted({*asked, *(f"{dep.groupId}:{dep.artifactId}:{dep.version}" for dep in found)})


def _list(items: Iterable[str]) -> str:
    return "[\n" + "".join(f'    "{item}",\n' for item in items) + "]\n"


if __name__ == "__main__":
    remake()
