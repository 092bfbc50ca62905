"""The JVM of Spark's driver. It cannot outlive this Python, and its directory is removed with it.

PySpark starts its JVM as a plain child: after a SIGKILL of Python it lives on for seconds, and its files stay. Here a reaper
(`runtime/reaper.py`) starts it, without Spark's launcher. That saves a JVM, and the module that a Java from PyPI lacks.

In:  a class path and options. Out: `Jvm`: the gateway for PySpark; `close()` leaves no process and no file.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kqlib.errors import SparkDied
from kqlib.runtime import archive, java
from kqlib.runtime.reaper import Child, Reaper

START = 60.0  # seconds for a start; it takes two
# The packages of Java that Spark's launcher opens (org.apache.spark.launcher.JavaModuleOptions; a test compares them).
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
# Hadoop runs chmod, stat and readlink for each file of a checkpoint. VFORK starts them directly (Linux only).
FORK = ("-Djdk.lang.Process.launchMechanism=VFORK",) if sys.platform == "linux" else ()
# The log goes to a file, log4j's own messages nowhere: a notebook's stderr stays empty.
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
    """A JVM for Spark's driver, its directory, and the gateway to it."""

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
        written = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([line for line in written if not line.startswith("\tat ")][-lines:])

    def close(self) -> None:
        """End it, wait for it, and remove its directory."""
        if self.gateway is not None:
            self.gateway.shutdown()
        self._reaper.close()

    def leave(self, seconds: float) -> None:
        """Let it end by itself, and wait: a JVM writes its class archive at its end."""
        with suppress(Exception):  # it no longer answers
            self.gateway.jvm.System.exit(0)
        self._child.wait(seconds)

    def kill(self) -> None:
        """End it now. A thread that waits for its answer gets an error."""
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
        # The gateway ends when its stdin does. So stdin is a pipe that the JVM itself holds open.
        opened = ["/bin/sh", "-c", 'exec "$@" <>"$0"', str(self.home / "stdin"), *command]
        return self._reaper.start("spark", opened, self.log, env=whole)

    def _answer(self) -> tuple[int, str]:
        """The gateway's port and secret, once it has written them (in PySpark's form: a number, a length, the text)."""
        file = self.home / "gateway"
        if not self._child.makes(file, START):
            why = f"exit {self._child.code}" if not self._child.alive else f"no answer in {START:g} s"
            raise SparkDied(why=why, tail=self.tail() or self._child.why or "(its log is empty)")
        data = file.read_bytes()  # whole: it was written under another name and renamed
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
    """The name of the class archive: it holds the classes of this PySpark."""
    import pyspark

    return f"{pyspark.__version__} {_paths(jars)[1]}", "spark"


def _submit(conf: Mapping[str, str]) -> list[str]:
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    return ["org.apache.spark.deploy.SparkSubmit", *words, "pyspark-shell"]


def _gateway(port: int, secret: str) -> Any:
    """PySpark's connection to a running JVM. PySpark reads the address from the environment."""
    from pyspark.java_gateway import launch_gateway

    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_no_command)
    address = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(address)
    try:
        return launch_gateway()
    finally:
        for name in address:
            os.environ.pop(name, None)


def _no_command(record: logging.LogRecord) -> bool:
    """Keep this line? At DEBUG Py4J logs each command that it sends, and a reader's options hold a password."""
    return not record.getMessage().startswith("Command to send")


def zipped(package: Path, target: Path) -> Path:
    """A package as a zip from which executors import it."""
    return Path(shutil.make_archive(str(target), "zip", package.parent, package.name))


def python() -> str:
    """The Python of the executors: PYSPARK_PYTHON, else this one."""
    return os.environ.get("PYSPARK_PYTHON") or sys.executable
