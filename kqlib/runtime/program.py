"""One of Kafka's Java programs as a command, and the properties files that it reads.

In:  a main class and its arguments, or settings. Out: the words of the command; a file that only its owner can read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kqlib.runtime import archive, jars, java

NOT_PLAIN = re.compile(r"[^ -~]+")


def classpath() -> str:
    """The broker's and its tools' jars; Spark never sees them."""
    return os.pathsep.join(str(path) for path in jars.fetch("broker"))


def jvm(main: str, *args: str, options: Sequence[str] = (), logging: Path) -> list[str]:
    """The command of one of Kafka's programs: the quick compiler only, a small heap; for labs and tests, not for benchmarks."""
    path = classpath()
    quick = [
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={logging.as_uri()}",
    ]
    return [java.find().command, *archive.options(path), *quick, *options, "-cp", path, main, *args]


def write_properties(path: Path, values: Mapping[str, str]) -> None:
    """A Java properties file that only its owner can read: it may hold passwords."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(properties_text(values))


def properties_text(values: Mapping[str, str]) -> str:
    """The text of a Java properties file: Latin-1 to Java, so that what is not ASCII is written as \\uXXXX."""
    escaped = {key: value.replace("\\", "\\\\") for key, value in values.items()}
    return "".join(f"{key}={NOT_PLAIN.sub(_escape, value)}\n" for key, value in escaped.items())


def _escape(found: re.Match[str]) -> str:
    return re.sub("....", r"\\u\g<0>", found[0].encode("utf-16-be").hex())
