"""Does it work: a record through a real Kafka and back, and Spark started, asked and ended.

In:  the environment. Out: a `Finding` for each; whatever was started or made is gone again.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kqlib.errors import KqError, Unreachable
from kqlib.workshop.doctor.finding import Finding
from kqlib.workshop.doctor.machine import GONE

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

COUNT = Path(__file__).with_name("count.py")


def round_trip() -> Finding:
    """Does a record that goes into a real Kafka come out again?"""
    from confluent_kafka import KafkaException

    from kqlib import kafka

    name, own = "round trip", bool(os.environ.get("KQ_BOOTSTRAP") or os.environ.get("KQ_KAFKA_CONFIG"))
    remedy = "correct KQ_BOOTSTRAP and KQ_KAFKA_CONFIG, or unset them: labs then start a Kafka of their own"
    if not own:
        remedy = "the lines above come from the broker's log; a busy machine may only need another try"
    try:
        with kafka.connect() as cluster:
            return _tried(cluster)
    except Unreachable as error:
        return Finding(name, False, f"no Kafka answered at {error.facts['address']}: {error.facts['why']}", remedy)
    except (KqError, KafkaException) as error:
        return Finding(name, False, kafka.words(error), remedy)


def _tried(cluster: Kafka) -> Finding:
    from confluent_kafka import KafkaException

    from kqlib.queue.rights import Right
    from kqlib.queue.said import lacks

    name = "round trip"
    try:
        _there_and_back(cluster)
    except KafkaException as error:
        if not error.args[0].name().endswith("AUTHORIZATION_FAILED"):
            raise
        lacking = lacks(cluster, Right("CREATE or DELETE", "topic", "kq-doctor-", prefixed=True))
        more = "this check also needs READ and WRITE there, and READ on groups that begin so"
        return Finding(name, None, f"{lacking}; {more}")
    where = "one started for this" if cluster.embedded else cluster.bootstrap
    return Finding(name, True, f"a record went into a real Kafka and came out ({where})")


def _there_and_back(cluster: Kafka) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import NewTopic

    from kqlib.kafka.clients import Consumer, Producer

    topic, sent = f"kq-doctor-{secrets.token_hex(4)}", secrets.token_bytes(16)
    cluster.admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
    try:
        producer = Producer(cluster.client())
        producer.produce(topic, sent)
        if producer.flush(20):
            raise KqError("the record was not taken within 20 s")
        consumer = Consumer(cluster.client(group_id=topic))
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            got = consumer.poll(20)
        finally:
            consumer.close()
        if got is None or got.error() or got.value() != sent:
            raise KqError(f"another record came out than went in: {got and (got.error() or got.value())!r}")
    finally:
        cluster.admin.delete_topics([topic])[topic].result(20)


def spark(seconds: float = 120) -> Finding:
    """Does Spark start, count to ten and end, with no Java left?"""
    if find_spec("pyspark") is None:
        return Finding("Spark", None, "not installed, and only notebook 12 needs it", "make venv")
    with tempfile.TemporaryDirectory(prefix="kqlib-doctor-", ignore_cleanup_errors=True) as place:
        said = Path(place) / "said"
        with said.open("wb") as out:
            child = subprocess.Popen(
                [sys.executable, "-P", str(COUNT)],
                env=os.environ | {"KQ_SPARK_MASTER": "local[1]", "TMPDIR": place},
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            with suppress(subprocess.TimeoutExpired):
                child.wait(seconds)
            done, text = child.poll() == 0, said.read_text(errors="replace").strip()
            left = _left(child.pid, Path(place))
        finally:
            _end(child)
        _left(child.pid, Path(place))  # the reaper of what was ended just now ends its Java
    if done and text.endswith("counted 10") and not left:
        return Finding("Spark", True, "started, counted to ten, and its Java is gone")
    last = text.splitlines()[-1] if text else f"no answer within {seconds:g} s"
    if done and left:
        last = "its Java was left running (now it is ended)"
    return Finding("Spark", False, last, "make venv, if Spark is not what the lock names")


def _left(group: int, place: Path) -> bool:
    """Does a process of this group still run, or a Java whose directory is here, after the time that it may take to end?"""
    deadline = time.monotonic() + GONE
    while _runs(group) or any(place.glob("kqlib-*")):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


def _runs(group: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, 0)
        return True
    return False


def _end(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
