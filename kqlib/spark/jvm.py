"""Spark's driver JVM under the house's rule: it cannot outlive this Python, and its directory goes with it.

PySpark starts its JVM as a plain child, which a SIGKILL of Python survives by seconds and whose files by ever. Here a reaper starts it
(`runtime/reaper.py`), directly: without the launcher's own JVM, and so without the module that a Java from PyPI lacks.

In:  a class path, options. Out: `Jvm`: the gateway that PySpark talks through; `close()` leaves no process and no file.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kqlib.errors import SparkDied
from kqlib.runtime import archive, java
from kqlib.runtime.reaper import Child, Reaper

START = 60.0  # seconds until a start is given up; it takes two
# What Spark's own launcher would open of Java's inside (org.apache.spark.launcher.JavaModuleOptions; a test compares them).
OPEN = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
MODULES = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPEN),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
)
# For each file of a checkpoint Hadoop runs chmod, stat and readlink as programs: started without a program in between (Linux only).
FORK = ("-Djdk.lang.Process.launchMechanism=VFORK",) if sys.platform == "linux" else ()
# Everything to a file, and log4j's own complaints nowhere: not one line on a notebook's stderr.
LOG4J = """status = off
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss.SSS}} %-5p %m (%c{{1}})%n
"""


class Jvm:
    """A JVM that runs Spark's driver, its directory, and the gateway to it."""

    def __init__(
        self,
        jars: Sequence[Path],
        heap: str,
        options: Sequence[str],
        conf: Mapping[str, str],
        env: Mapping[str, str],
    ) -> None:
        found = java.find()  # JavaMissing before anything is made
        self.home = Path(tempfile.mkdtemp(prefix="kqlib-spark-"))
        self.log = self.home / "spark.log"
        self._reaper = Reaper(self.home)
        self.gateway: Any = None
        try:
            recorded = archive.options(*archived(jars))
            command = [*_java(found, heap, options, self.home), *recorded, *_paths(jars), *_submit(conf)]
            self._child = self._start(found, command, env)
            self.gateway = _gateway(*self._answer())
        except BaseException:
            self._reaper.close()
            raise

    @property
    def alive(self) -> bool:
        """Does it run?"""
        return self._child.alive

    def tail(self, lines: int = 12) -> str:
        """The end of its log."""
        said = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([line for line in said if not line.startswith("\tat ")][-lines:])

    def close(self) -> None:
        """End it, wait for it, and remove its directory."""
        if self.gateway is not None:
            self.gateway.shutdown()
        self._reaper.close()

    def leave(self, seconds: float) -> None:
        """Let it end by itself, and wait: what a JVM writes at its end is written then."""
        with suppress(Exception):  # it does not answer any more
            self.gateway.jvm.System.exit(0)
        self._child.wait(seconds)

    def kill(self) -> None:
        """End it now: whoever waits for an answer of it gets an error."""
        self._child.signal(9)

    def _start(self, found: java.Java, command: Sequence[str], env: Mapping[str, str]) -> Child:
        (self.home / "tmp").mkdir()
        (self.home / "log4j2.properties").write_text(LOG4J.format(log=self.log))
        os.mkfifo(self.home / "stdin")
        whole = {
            **os.environ,
            **env,
            "SPARK_HOME": str(_spark()),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_CONNECT_MODE": "0",
            "JAVA_HOME": str(java.spark_home(found)),
            "PYTHONHASHSEED": "0",  # hash() must be the same in every worker
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self.home / "gateway"),
        }
        # The gateway ends with its stdin, which the reaper gives to nobody: a pipe that the JVM itself holds open never ends.
        opened = ["/bin/sh", "-c", 'exec "$@" <>"$0"', str(self.home / "stdin"), *command]
        return self._reaper.start("spark", opened, self.log, env=whole)

    def _answer(self) -> tuple[int, str]:
        """The gateway's port and secret, once it has written them (PySpark's own form: a number, a length, the text)."""
        told, deadline = self.home / "gateway", time.monotonic() + START
        while not told.exists():
            if not self._child.alive or time.monotonic() > deadline:
                why = f"exit {self._child.code}" if not self._child.alive else f"no answer in {START:g} s"
                raise SparkDied(why=why, tail=self.tail() or self._child.why or "(it said nothing)")
            time.sleep(0.02)
        data = told.read_bytes()  # written beside and renamed: it is whole when it is there
        size = int.from_bytes(data[4:8], "big")
        return int.from_bytes(data[:4], "big"), data[8 : 8 + size].decode()


def _spark() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _java(found: java.Java, heap: str, options: Sequence[str], home: Path) -> list[str]:
    log4j = (home / "log4j2.properties").as_uri()
    own = (f"-Djava.io.tmpdir={home / 'tmp'}", f"-Dlog4j2.configurationFile={log4j}")
    return [found.command, f"-Xmx{heap}", "-XX:+UseSerialGC", *FORK, *MODULES, *own, *options]


def _paths(jars: Sequence[Path]) -> list[str]:
    return ["-cp", os.pathsep.join([*map(str, jars), f"{_spark() / 'jars'}{os.sep}*"])]


def archived(jars: Sequence[Path]) -> tuple[str, str]:
    """By what the archive of its classes is found: they are of this PySpark."""
    import pyspark

    return f"{pyspark.__version__} {_paths(jars)[1]}", "spark"


def _submit(conf: Mapping[str, str]) -> list[str]:
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    return ["org.apache.spark.deploy.SparkSubmit", *words, "pyspark-shell"]


def _gateway(port: int, secret: str) -> Any:
    """PySpark's connection to a JVM that runs already; it takes the address from the environment."""
    from pyspark.java_gateway import launch_gateway

    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_no_command)
    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(told)
    try:
        return launch_gateway()
    finally:
        for name in told:
            os.environ.pop(name, None)


def _no_command(record: logging.LogRecord) -> bool:
    """Is this a line for a log? At DEBUG Py4J logs each command as it is sent, and a reader's options hold a password."""
    return not record.getMessage().startswith("Command to send")


def zipped(package: Path, target: Path) -> Path:
    """A package as a zip that Python imports from: how the code travels to where executors run it."""
    return Path(shutil.make_archive(str(target), "zip", package.parent, package.name))


def python() -> str:
    """The Python of the workers: PYSPARK_PYTHON if somebody named one, else this one."""
    return os.environ.get("PYSPARK_PYTHON") or sys.executable
