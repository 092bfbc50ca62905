"""A Spark session that knows Kafka and Avro: `spark = kq.spark.session(cluster)`. One a process; the second call gives the same.

In:  nothing, or KQ_SPARK_MASTER (local[4], spark://host:7077, …); the jars of jars.lock. Out: a SparkSession, quiet and small.

What a cluster needs goes with each reader and writer, `.options(**kq.spark.source(cluster, "football"))`, so that one session
reads from as many clusters as it likes. What executors need travels along: the connectors' jars, this package, Python, Java.
`spark.stop()` (or `kq.spark.close()`) leaves no JVM and no file; so does a Python that is killed.
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

from kqlib.errors import Closed, NoSpark, NotAllowed, SparkDied
from kqlib.kafka import settings
from kqlib.runtime import jars, java
from kqlib.spark.jvm import Jvm, python, zipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kqlib.kafka import Kafka

MASTER = re.compile(
    r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://[^\s,]+(,[^\s,]+)*|yarn|k8s://\S+"
)
PATIENCE = 60.0  # seconds for a master and its first executor; on a busy machine they take ten times what they take on a quiet one
HEAP = "800m"
# Two to three times the rows: the defaults fetch 500 at a time (2 M small rows: 0.6 → 1.3 M rows/s).
READING = {
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",  # what a transaction took back was never there
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(8 * 2**20),
    "kafka.fetch.max.bytes": str(64 * 2**20),
    # At a log's end Spark asks for its bounds, on the connection on which the next fetch waits for records: half a second by default.
    "kafka.fetch.max.wait.ms": "10",
}
SMALL = {
    "spark.app.name": "kqlib",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",  # a picture must be the same on every machine
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    # an explained plan shows a reader's options, and a login is one of them
    "spark.sql.redaction.options.regex": "(?i)url|jaas|secret|password|token|keystore|truststore",
    "spark.sql.redaction.string.regex": r"(?s)DataSource\(.*?\), kafka, \[",  # a streaming plan shows them in a second place
    "spark.redaction.regex": "(?i)jaas|secret|password|token|keystore|access[.]?key",  # settings, logs
    "spark.executor.memory": "700m",
    "spark.sql.shuffle.partitions": "4",  # each costs a stream a state store a batch; a checkpoint keeps its number for ever
    "spark.sql.limit.initialNumPartitions": "1000",  # 'is there any?' is one job, and not one of 1, 4, 16 partitions after the other
    # a checkpoint's files without a second one each for its checksum: Hadoop runs some programs for every file
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # three calls for each column, to say where in Python it was made
}
# A broken row may say that a gigabyte of text follows, and Avro makes room before it looks: one such row ends a JVM that has no limit.
LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{what}={most}"
    for what, most in (
        ("bytes.maxLength", 32 * 2**20),
        ("string.maxLength", 32 * 2**20),
        ("collectionItems.maxLength", 4 * 2**20),
    )
)
# On an embedded cluster sessions are short: a second compiler for what runs long costs them more than all their rows
# (a notebook's queries: 24 s of processor time instead of 47). Whoever wants it says -XX:TieredStopAtLevel=4.
QUICK = "-XX:TieredStopAtLevel=1"
# For queries with much state: on disk, with a log of changes instead of whole snapshots. `session(config=kq.spark.ROCKSDB)`.
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass
class _Running:
    """The one session of this process, where it runs, and what it was asked for."""

    spark: Any
    jvm: Jvm
    asked: tuple[str, dict[str, str]]
    before: Any  # what Ctrl-C did

    @property
    def alive(self) -> bool:
        return self.jvm.alive and self.spark.sparkContext._jsc is not None


_now: _Running | None = None
_one = threading.RLock()


def session(cluster: Kafka | None = None, *, config: Mapping[str, Any] | None = None, ui: bool = False) -> SparkSession:
    """The Spark session of this process, wired to Kafka and Avro; the master is KQ_SPARK_MASTER's, else this machine.

    config: further settings of Spark, in its words; None takes one of ours away. ui: its web page, off by default.
    """
    global _now  # noqa: PLW0603 - PySpark has one context a process, and so have we
    _check(cluster)
    own = _words(config) | ({"spark.ui.enabled": "true"} if ui else {})
    with _one:
        master = os.environ.get("KQ_SPARK_MASTER") or _local()
        if _now and _now.alive:
            _same((master, own), _now.asked)
            return _now.spark
        close()
        _alone()
        _now = _started(master, own, quick=bool(getattr(cluster, "embedded", False)))
        return _now.spark


def close() -> None:
    """End the session of this process; its JVM and its files go with it. Nothing happens when there is none."""
    global _now
    with _one:
        gone, _now = _now, None
        if gone is None:
            return
        if gone.alive:
            with contextlib.suppress(Exception):  # a JVM that died is what we want
                type(gone.spark).stop(gone.spark)
        _forget()
        gone.jvm.close()
        sys.path[:] = [each for each in sys.path if not each.startswith(str(gone.jvm.home))]
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, gone.before)


def source(cluster: Kafka, *topics: str, **more: Any) -> dict[str, str]:
    """The options of Spark's Kafka reader for this cluster: its address, the client's settings, committed records only, what is fast.

    topics: what to read: `spark.read.format("kafka").options(**kq.spark.source(cluster, "football")).load()`. A client's setting
    that Spark's clients do not have is refused by name: `NotAllowed`.
    more: further options, in Spark's words: `source(cluster, "football", startingOffsets="earliest")`.
    """
    if wrong := [each for each in topics if not isinstance(each, str) or not each or "," in each]:
        raise NotAllowed(f"a topic is named by a text, not {wrong[0]!r}")
    named = {"subscribe": ",".join(topics)} if topics else {}
    return _options(READING, _reached(cluster, writes=False), named, more)


def sink(cluster: Kafka, topic: str | None = None, **more: Any) -> dict[str, str]:
    """The options of Spark's Kafka writer for this cluster; without a topic each row names its own, in its column `topic`."""
    named = {} if topic is None else {"topic": topic}
    return _options({"includeHeaders": "true"}, _reached(cluster, writes=True), named, more)


def _options(*parts: Mapping[str, Any]) -> dict[str, str]:
    """All of them as text, the later ones overrule; a repr of the dict does not show a password."""
    return settings.hidden({name: str(value) for part in parts for name, value in part.items()})


def _reached(cluster: Any, writes: bool) -> dict[str, str]:
    """How Java's clients reach this cluster, with the client's own settings."""
    if cluster is None:
        raise NotAllowed("which cluster? A lab's is lab.cluster, one's own kq.connect()")
    _check(cluster)
    carried, left = settings.for_spark(cluster._own, writes)
    if left:
        raise NotAllowed(
            f"Spark's Kafka clients cannot take over these settings of your client: {', '.join(left)}. Nothing was read or written. "
            "Give Spark a file without them (--config FILE or KQ_KAFKA_CONFIG)"
        )
    own = {f"kafka.{name}": value for name, value in _travelling(carried).items()}
    return {"kafka.bootstrap.servers": cluster.bootstrap, **own}


def _travelling(own: dict[str, str]) -> dict[str, str]:
    """A certificate's file becomes its text: executors on other machines do not have the file."""
    if file := own.pop("ssl.truststore.location", None):
        own["ssl.truststore.certificates"] = Path(file).read_text()
    return own


def _check(cluster: Any) -> None:
    if cluster is None:
        return
    if not hasattr(cluster, "bootstrap"):
        raise NotAllowed(f"cluster is a cluster, as in session(lab.cluster), not {type(cluster).__name__}")
    if cluster._closed:
        raise Closed(thing="cluster")


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


def _same(asked: tuple[str, dict[str, Any]], has: tuple[str, dict[str, Any]]) -> None:
    """One session a process: settings of a running one stay as they are."""
    differ = [name for name, value in asked[1].items() if has[1].get(name) != value]
    if asked[0] != has[0] and os.environ.get("KQ_SPARK_MASTER"):
        raise NotAllowed(
            f"a session runs on {has[0]} already, and KQ_SPARK_MASTER says {asked[0]}; spark.stop() it first"
        )
    if differ:
        raise NotAllowed(f"a session runs already, with another {differ[0]}; spark.stop() it first")


def _alone() -> None:
    """Spark that somebody else started here has its own JVM, without Kafka's jars."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        raise NotAllowed(
            "this process has a Spark session that kqlib did not start, without Kafka's jars; stop() it first"
        )
    _forget()


def _forget() -> None:
    """PySpark keeps its gateway for ever; the next session has a JVM of its own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _local() -> str:
    return f"local[{max(2, min(4, os.cpu_count() or 2))}]"


def _started(master: str, own: dict[str, Any], quick: bool) -> _Running:
    """A JVM, a context in it, and what executors need."""
    if not MASTER.fullmatch(master):
        raise NotAllowed(
            f"KQ_SPARK_MASTER is no master of Spark's: {master!r}. It may be local[4], spark://host:7077, yarn"
        )
    _listening(master)
    connectors = jars.fetch("spark")
    given = _settings(master, connectors, own)
    heap, said = given.get("spark.driver.memory", HEAP), given.pop("spark.driver.extraJavaOptions", "")
    opened = " ".join([LIMITS, QUICK if quick else "", said])
    before = signal.getsignal(signal.SIGINT)
    env = {"SPARK_LOCAL_IP": "127.0.0.1"} if _near(master) else {}
    jvm = Jvm(connectors, heap, shlex.split(opened), given, env)
    try:
        spark = _context(jvm, master, given)
    except BaseException:
        _forget()
        jvm.close()
        raise
    spark.stop = close  # PySpark's own leaves the JVM
    return _Running(spark, jvm, (master, own), before)


def _settings(master: str, connectors: Sequence[Path], own: dict[str, Any]) -> dict[str, str]:
    """Ours, what executors on this master need, and one's own on top."""
    wanted: dict[str, Any] = SMALL | {"spark.master": master, "spark.pyspark.python": python()}
    if _near(master):
        wanted |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if not re.match(r"local($|\[)", master):  # there the driver is the executor
        wanted["spark.jars"] = ",".join(map(str, connectors))
    if not master.startswith("local"):
        wanted["spark.executorEnv.JAVA_HOME"] = str(java.spark_home())
    given = {name: value for name, value in (wanted | own).items() if value is not None}
    given["spark.executor.extraJavaOptions"] = f"{LIMITS} {given.get('spark.executor.extraJavaOptions', '')}".strip()
    return given


def _context(jvm: Jvm, master: str, given: dict[str, str]) -> Any:
    """The session in a JVM that runs: a master that does not answer is given up in time, whatever Spark thinks of it."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized(gateway=jvm.gateway)
    home = {"spark.local.dir": str(jvm.home / "local"), "spark.sql.warehouse.dir": str(jvm.home / "warehouse")}
    late = threading.Timer(PATIENCE, jvm.kill)
    if not master.startswith("local"):  # here there is nobody to wait for
        late.start()
    try:
        spark = SparkSession.builder.config(conf=SparkConf().setAll([*given.items(), *home.items()])).getOrCreate()
    except Exception as error:
        if master.startswith("local"):
            raise SparkDied(why=_why(jvm, error), tail=jvm.tail()) from None
        raise NoSpark(address=master, why=_why(jvm, error)) from None
    finally:
        late.cancel()
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # they print what the error says anyway
        logging.getLogger(name).disabled = True
    spark.sparkContext.pythonExec = python()
    if not master.startswith("local"):
        spark.sparkContext.addPyFile(str(zipped(Path(__file__).parents[1], jvm.home / "kqlib")))
    if master.startswith("spark://"):
        _executors(spark, master)
    return spark


def _executors(spark: Any, master: str) -> None:
    """Without a worker that has room, the first query would wait for ever and say nothing."""
    deadline = time.monotonic() + PATIENCE
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver counts as one
        if time.monotonic() > deadline:
            memory = spark.conf.get("spark.executor.memory")
            why = f"it gave no executor of {memory} in {PATIENCE:g} s"
            raise NoSpark(address=master, why=why)
        time.sleep(0.1)


def _why(jvm: Jvm, error: Exception) -> str:
    if not jvm.alive:
        return f"no answer in {PATIENCE:g} s"
    said = str(getattr(error, "java_exception", None) or error).strip().splitlines()
    return said[0] if said else type(error).__name__


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


def _listening(master: str) -> None:
    """One of the masters answers at all: Spark itself would try for a minute."""
    complaints = []
    for host, port in _masters(master):
        try:
            socket.create_connection((host, port), 3).close()
            return
        except OSError as error:
            complaints.append(error.strerror or str(error) or "no answer in 3 s")
    if complaints:
        raise NoSpark(address=master, why=complaints[0])


def _near(master: str) -> bool:
    """Does everything run on this machine, so that nobody else needs to reach the driver?"""
    hosts = [host for host, _ in _masters(master)]
    return master.startswith("local") or (bool(hosts) and all(map(_loopback, hosts)))


def _loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
