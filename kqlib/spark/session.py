"""A Spark session with Kafka and Avro: `spark = kq.spark.session(cluster)`. A process has one; a second call returns the same.

In:  nothing, or KQ_SPARK_MASTER (local[4], spark://host:7077, …); the jars of jars.lock. Out: a SparkSession, quiet and small.

The session belongs to no cluster. Each reader and writer names its own: `.options(**kq.spark.source(cluster, "football"))`.
Executors get what they need from the driver: the jars of the connectors, this package, the paths of Python and Java.
`spark.stop()` (or `kq.spark.close()`) leaves no JVM and no file; neither does a Python that is killed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import re
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib.errors import NoSpark, NotAllowed, SparkDied
from kqlib.runtime import jars, java
from kqlib.spark.frames import check_cluster
from kqlib.spark.jvm import Jvm, python, zipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kqlib.kafka import Kafka

MASTER = re.compile(
    r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://[^\s,]+(,[^\s,]+)*|yarn|k8s://\S+"
)
PATIENCE = 60.0  # seconds for a master and its first executor
HEAP = "800m"
SMALL = {
    "spark.app.name": "kqlib",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",  # the same times on every machine
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    # a driver that is killed while it writes its first offsets leaves a temporary file; with this check it could never start again
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # a plan shows the options of a reader, with the login
    "spark.sql.redaction.options.regex": "(?i)url|jaas|secret|password|token|keystore|truststore",
    "spark.sql.redaction.string.regex": r"(?s)DataSource\(.*?\), kafka, \[",  # a streaming plan shows them twice
    "spark.redaction.regex": "(?i)jaas|secret|password|token|keystore|access[.]?key",  # settings, logs
    "spark.executor.memory": "700m",
    "spark.sql.shuffle.partitions": "4",  # a stream with state has a store for each; its checkpoint keeps their number
    "spark.sql.limit.initialNumPartitions": "1000",  # isEmpty() is one job, not jobs of 1, 4, 16 … partitions
    # no file with a checksum beside each file of a checkpoint: Hadoop runs programs for every file
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # three calls for each column, only for debugging
}
# A broken row may say that a gigabyte of text follows. Avro allocates it first, which ends a JVM without these limits.
LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{what}={most}"
    for what, most in (
        ("bytes.maxLength", 32 * 2**20),
        ("string.maxLength", 32 * 2**20),
        ("collectionItems.maxLength", 4 * 2**20),
    )
)
# On an embedded cluster sessions are short. Without Java's second compiler a notebook's queries take half of the CPU (24 s, not 47 s).
# -XX:TieredStopAtLevel=4 in spark.driver.extraJavaOptions brings it back. Without it Java also reserves less memory for compiled
# code: 48 MB. A session of some hundred queries filled that, and the query that met it failed. So it has Java's usual 240 MB here.
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
# For queries with much state: it is on disk, and a checkpoint has changes only. `session(config=kq.spark.ROCKSDB)`.
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass
class _Running:
    """The session of this process, its JVM, and what was asked for."""

    spark: Any
    jvm: Jvm
    asked: tuple[str, dict[str, str]]
    interrupt: Any  # the handler of Ctrl-C before

    @property
    def alive(self) -> bool:
        return self.jvm.alive and self.spark.sparkContext._jsc is not None


_now: _Running | None = None
_lock = threading.RLock()


def session(cluster: Kafka | None = None, *, config: Mapping[str, Any] | None = None) -> SparkSession:
    """The Spark session of this process, with Kafka and Avro. KQ_SPARK_MASTER names a master; by default it is this machine.

    cluster: an embedded one makes the session start with Java's quick compiler only. config: settings of Spark in its own words, as in
    {"spark.ui.enabled": True}; None takes one of kqlib's away.
    """
    global _now  # noqa: PLW0603 - PySpark has one context in a process
    if cluster is not None:
        check_cluster(cluster)
    own = _words(config)
    with _lock:
        master = os.environ.get("KQ_SPARK_MASTER") or _local()
        if _now and _now.alive:
            _check_same((master, own), _now.asked)
            return _now.spark
        close()
        _check_alone()
        _now = _start(master, own, quick=bool(getattr(cluster, "embedded", False)))
        return _now.spark


def close() -> None:
    """End the session of this process, with its JVM and its files. Without a session nothing happens."""
    global _now
    with _lock:
        gone, _now = _now, None
        if gone is None:
            return
        if gone.alive:
            with contextlib.suppress(Exception):  # the JVM may die meanwhile
                type(gone.spark).stop(gone.spark)
        _forget()
        gone.jvm.close()
        sys.path[:] = [each for each in sys.path if not each.startswith(str(gone.jvm.home))]
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, gone.interrupt)


def _words(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping) or not all(
        isinstance(name, str) and name.startswith("spark.") for name in config
    ):
        raise NotAllowed("config is a dict of Spark's settings, as in {'spark.driver.memory': '2g'}")
    return {
        name: value if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in config.items()
    }


def _check_same(asked: tuple[str, dict[str, Any]], has: tuple[str, dict[str, Any]]) -> None:
    """The settings of a running session cannot change."""
    differ = [name for name, value in asked[1].items() if has[1].get(name) != value]
    if asked[0] != has[0] and os.environ.get("KQ_SPARK_MASTER"):
        raise NotAllowed(
            f"a session runs on {has[0]} already, and KQ_SPARK_MASTER says {asked[0]}; spark.stop() it first"
        )
    if differ:
        raise NotAllowed(f"a session runs already, with another {differ[0]}; spark.stop() it first")


def _check_alone() -> None:
    """A session that kqlib did not start has a JVM without Kafka's jars."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        raise NotAllowed(
            "this process has a Spark session that kqlib did not start, without Kafka's jars; stop() it first"
        )
    _forget()


def _forget() -> None:
    """Remove the gateway that PySpark keeps, so that the next session starts a new JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _local() -> str:
    return f"local[{max(2, min(4, os.cpu_count() or 2))}]"


def _start(master: str, own: dict[str, Any], quick: bool) -> _Running:
    """Start a JVM and a context in it."""
    if not MASTER.fullmatch(master):
        raise NotAllowed(
            f"KQ_SPARK_MASTER is no master of Spark's: {master!r}. It may be local[4], spark://host:7077, yarn"
        )
    _check_answer(master)
    connectors = jars.fetch("spark")
    conf = _settings(master, connectors, own)
    heap, extra = conf.get("spark.driver.memory", HEAP), conf.pop("spark.driver.extraJavaOptions", "")
    options = shlex.split(" ".join([LIMITS, QUICK if quick else "", extra]))
    interrupt = signal.getsignal(signal.SIGINT)
    jvm = Jvm(connectors, heap, options, conf, {"SPARK_LOCAL_IP": "127.0.0.1"} if _on_this_machine(master) else {})
    try:
        spark = _context(jvm, master, conf)
    except BaseException:
        _forget()
        jvm.close()
        raise
    spark.stop = close  # PySpark's own leaves the JVM
    return _Running(spark, jvm, (master, own), interrupt)


def _settings(master: str, connectors: Sequence[Path], own: dict[str, Any]) -> dict[str, str]:
    """kqlib's settings, what executors of this master need, and the user's settings."""
    all_: dict[str, Any] = SMALL | {"spark.master": master, "spark.pyspark.python": python()}
    if _on_this_machine(master):
        all_ |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if not re.match(r"local($|\[)", master):  # else the driver is the executor
        all_["spark.jars"] = ",".join(map(str, connectors))
    if not master.startswith("local"):
        all_["spark.executorEnv.JAVA_HOME"] = str(java.spark_home())
    conf = {name: value for name, value in (all_ | own).items() if value is not None}
    conf["spark.executor.extraJavaOptions"] = f"{LIMITS} {conf.get('spark.executor.extraJavaOptions', '')}".strip()
    return conf


def _context(jvm: Jvm, master: str, conf: dict[str, str]) -> Any:
    """The session in a running JVM. If the master does not answer in time, the JVM is killed."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized(gateway=jvm.gateway)
    home = {"spark.local.dir": str(jvm.home / "local"), "spark.sql.warehouse.dir": str(jvm.home / "warehouse")}
    late = threading.Timer(PATIENCE, jvm.kill)
    if not master.startswith("local"):
        late.start()
    try:
        spark = SparkSession.builder.config(conf=SparkConf().setAll([*conf.items(), *home.items()])).getOrCreate()
    except Exception as error:
        if master.startswith("local"):
            raise SparkDied(why=_why(jvm, error), tail=jvm.tail()) from None
        raise NoSpark(address=master, why=_why(jvm, error)) from None
    finally:
        late.cancel()
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # they print what the exception says too
        logging.getLogger(name).disabled = True
    spark.sparkContext.pythonExec = python()
    if not master.startswith("local"):
        spark.sparkContext.addPyFile(str(zipped(Path(__file__).parents[1], jvm.home / "kqlib")))
    if master.startswith("spark://"):
        _wait_for_executor(spark, master)
    return spark


def _wait_for_executor(spark: Any, master: str) -> None:
    """Without an executor the first query would wait for ever."""
    deadline = time.monotonic() + PATIENCE
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver counts as one
        if time.monotonic() > deadline:
            memory = spark.conf.get("spark.executor.memory")
            raise NoSpark(address=master, why=f"it gave no executor of {memory} in {PATIENCE:g} s")
        time.sleep(0.1)


def _why(jvm: Jvm, error: Exception) -> str:
    if not jvm.alive:
        return f"no answer in {PATIENCE:g} s"
    lines = str(getattr(error, "java_exception", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _masters(master: str) -> list[tuple[str, int]]:
    """The addresses in spark://one:7077,two:7077."""
    if not master.startswith("spark://"):
        return []
    found = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise NotAllowed(f"KQ_SPARK_MASTER names no port: {master!r}. It is of the form spark://host:7077")
        found.append((host.strip("[]"), int(port)))
    return found


def _check_answer(master: str) -> None:
    """`NoSpark` unless one of the masters accepts a connection; Spark itself would try for a minute."""
    reasons = []
    for address in _masters(master):
        try:
            socket.create_connection(address, 3).close()
            return
        except OSError as error:
            reasons.append(error.strerror or str(error) or "no answer in 3 s")
    if reasons:
        raise NoSpark(address=master, why=reasons[0])


def _on_this_machine(master: str) -> bool:
    """Is every process of Spark on this machine?"""
    hosts = [host for host, _ in _masters(master)]
    return master.startswith("local") or (bool(hosts) and all(map(_loopback, hosts)))


def _loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
