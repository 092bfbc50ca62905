"""A topic is read to the end that it has when the reading begins: however many records it holds, and while others write."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from kqlib.errors import NotAllowed
from kqlib.kafka import Kafka, reading
from kqlib.queue import Site, state
from kqlib.runtime import places
from kqlib.spark import queue_state
from kqlib.workshop import delivery, lab_notes, snapshot
from kqlib.workshop.doctor import queues
from tests.patience import PATIENCE, WAIT
from tests.promises.desk import Desk
from tests.promises.play import put

WRITE = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 0})
topic, partitions = sys.argv[2], int(sys.argv[3])
while True:
    for number in range(50 * partitions):
        producer.produce(topic, b"new", partition=number % partitions)
    producer.flush()
"""
COMMIT = """
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "enable.auto.commit": False})
while True:
    for number in range(100):
        consumer.commit(offsets=[TopicPartition(sys.argv[3], 0, number)], asynchronous=True)
    consumer.commit(offsets=[TopicPartition(sys.argv[3], 0, 100)], asynchronous=False)
"""
Busy = Callable[..., None]


@pytest.fixture
def busy(kq_cluster: Kafka) -> Iterator[Busy]:
    """Start a process that writes, or commits, without a pause until the test ends."""
    children = []

    def start(code: str, *words: object) -> None:
        children.append(subprocess.Popen([sys.executable, "-c", code, kq_cluster.bootstrap, *map(str, words)]))

    yield start
    ended = [child for child in children if child.poll() is not None]
    for child in children:
        child.kill()
        child.wait()
    assert not ended, "it stopped writing"


def end(cluster: Kafka, topic: str, partition: int = 0) -> int:
    """Where the partition ends now."""
    return state.ends(cluster, [(topic, partition)])[topic, partition]


def test_beyond_the_limit_of_a_picture_a_lab_starts_and_an_audit_runs_and_only_a_picture_is_refused(
    kq_cluster: Kafka, kq_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MOST", 10)
    monkeypatch.setattr(lab_notes, "TOPIC", kq_topic)
    monkeypatch.setattr(queue_state, "QUEUES", kq_topic)
    name, mark = f"95-many.{lab_notes.user()}.{places.machine()}.football", {"topic": "id", "offset": 7}
    notes: list[tuple[list[Any], Any]] = [(["topic", name], 1)] * 10 + [(["a-site", "football", "purge", 0], mark)]
    put(kq_cluster, kq_topic, *({"key": json.dumps(key), "value": json.dumps(value)} for key, value in notes))
    lab = lab_notes.LabNotes(kq_cluster, "95-many")
    assert lab.known("topic") == [name]
    lab.close()
    assert queue_state.purge_marks(kq_cluster, "football", "a-site") == {0: mark}
    with pytest.raises(NotAllowed, match="holds up to 13 records; a picture is for 10 at most"):
        snapshot.lanes(kq_cluster, kq_topic)


def test_the_story_of_an_item_comes_to_its_end_while_others_write_without_a_pause(
    desk: Desk, busy: Busy, within: Callable
) -> None:
    desk("put", "first")
    busy(WRITE, desk.name, 1)
    within(10, lambda: end(desk.cluster, desk.name) > 500, "nobody writes")
    began = time.monotonic()
    found = desk("story", f"{desk.name}/0/0")
    assert time.monotonic() - began < 15 * PATIENCE
    assert (found.code, found.err) == (0, "") and "put" in found.out and "waiting" in found.out


def test_the_doctors_check_of_queues_comes_to_its_end_while_others_commit_without_a_pause(
    desk: Desk, busy: Busy, within: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's log of commits is read only where commits are forgotten; here they never are, so the check gets another answer."""
    monkeypatch.setattr(queues, "retention", lambda cluster: 7 * queues.DAY)
    with Site(desk.cluster, desk.site) as site:
        site.queue(desk.name).put(b"x")
        assert site.queue(desk.name).claim(wait=WAIT)  # the owner has committed its state
    parts = len(desk.cluster.partitions(queues.OFFSETS))
    names = (f"{desk.site}-{number}" for number in count())
    other = next(name for name in names if queues.place(name, parts) == queues.place(desk.site, parts))
    log = queues.OFFSETS, queues.place(other, parts)
    before = end(desk.cluster, *log)
    busy(COMMIT, other, desk.name)
    within(10, lambda: end(desk.cluster, *log) > before + 500, "nobody commits")
    began = time.monotonic()
    found = {each.name: each for each in queues.findings()}
    assert time.monotonic() - began < 15 * PATIENCE
    assert {"offsets", "ledgers", "expiry"} <= found.keys()
    assert None not in {each.ok for each in found.values()}, found
    assert desk.site not in found["ledgers"].what  # sites of other tests may be in trouble
    assert found["expiry"].what.endswith("each committed lately")
    assert end(desk.cluster, *log) > before + 500


def test_a_worker_that_writes_into_the_topic_that_it_reads_takes_what_was_there_when_it_began(
    kq_cluster: Kafka, kq_topic: str
) -> None:
    put(kq_cluster, kq_topic, *[{"key": b"k", "value": b"a"}] * 5)
    life = delivery.life(kq_cluster, kq_topic, kq_topic, "at-least-once", group=kq_topic)
    assert repr(life) == "read to the end"
    assert [record.value() for record in snapshot.records(kq_cluster, kq_topic)[0]] == [b"a"] * 5 + [b"A"] * 5


@dataclass
class Slow:
    """A consumer to which partition 1 sends nothing until the end of partition 0 has moved twice."""

    real: Consumer
    grow: Callable[[], None]
    ends: int = 0

    def assign(self, parts: list[TopicPartition]) -> None:
        self.real.assign(parts)
        self.real.pause([part for part in parts if part.partition == 1])

    def poll(self, timeout: float) -> Message | None:
        message = self.real.poll(timeout)
        if message is not None and message.error() is not None and message.partition() == 0:
            self.ends += 1
            self.grow()
            if self.ends == 2:
                self.real.resume([TopicPartition(message.topic(), 1)])
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.mark.kq_partitions(2)
def test_a_worker_reads_every_partition_although_the_end_of_one_comes_twice(kq_cluster: Kafka, kq_topic: str) -> None:
    producer = Producer(kq_cluster.client())
    for number in (0, 1, 1):
        producer.produce(kq_topic, b"old", partition=number)
    assert producer.flush(WAIT) == 0

    def grow() -> None:
        producer.produce(kq_topic, b"new", partition=0)
        producer.flush(WAIT)

    job = {"client": kq_cluster.client(), "group": kq_topic, "topic": kq_topic, "partitions": 2, "crash": None}
    worker = delivery.Worker(job)
    with closing(worker.consumer) as real:
        worker.consumer = Slow(real, grow)  # type: ignore[assignment]
        assert [(item.partition(), item.value()) for item in worker.items()] == [(0, b"old"), (1, b"old"), (1, b"old")]


@pytest.mark.kq_partitions(2)
def test_the_end_of_one_partition_seen_twice_is_not_the_end_of_two(kq_cluster: Kafka, kq_topic: str) -> None:
    """Of partition 1 there is more than one fetch brings; partition 0 has an end again and again."""
    producer = Producer(kq_cluster.client())
    producer.produce(kq_topic, b"old", partition=0)
    for _ in range(400):
        producer.produce(kq_topic, bytes(20_000), partition=1)
    assert producer.flush(WAIT) == 0
    read = []
    for record in reading.read(kq_cluster, {(kq_topic, 0): 0, (kq_topic, 1): 0}):
        read.append((record.partition(), record.offset()))
        producer.produce(kq_topic, b"new", partition=0)
        producer.flush(WAIT)
    assert sorted(read) == [(0, 0), *((1, offset) for offset in range(400))]


def test_what_a_transaction_took_back_is_not_read_and_its_marks_are_no_end(kq_cluster: Kafka, kq_topic: str) -> None:
    producer = Producer(kq_cluster.client(transactional_id=kq_topic))
    producer.init_transactions(WAIT)
    for value, good in ((b"a", True), (b"b", False), (b"c", True), (b"d", False)):
        producer.begin_transaction()
        producer.produce(kq_topic, value)
        assert producer.flush(WAIT) == 0  # an abort takes back what was not sent yet
        (producer.commit_transaction if good else producer.abort_transaction)(WAIT)
    careless = Kafka(kq_cluster.bootstrap, {"isolation.level": "read_uncommitted"})  # as a settings file may say
    for cluster in (kq_cluster, careless):
        assert [record.value() for record in snapshot.records(cluster, kq_topic)[0]] == [b"a", b"c"]
    careless.close()


def test_what_retention_removes_meanwhile_holds_nobody_up(kq_cluster: Kafka, kq_topic: str) -> None:
    put(kq_cluster, kq_topic, *[{"key": b"k", "value": b"v"}] * 5)
    part = TopicPartition(kq_topic, 0, 5)
    kq_cluster.admin.delete_records([part])[part].result(WAIT)
    assert list(reading.read(kq_cluster, {(kq_topic, 0): 0}, {(kq_topic, 0): 5})) == []
