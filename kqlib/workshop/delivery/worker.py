"""One life of a worker: real clients, a step of four verbs, and a death at one of them or at the end.

In:  a job: where to read, where results go, after which verb of which item to die; and the order of the verbs, a function.
Out: results and commits. The process is a fork that `kq.delivery` starts.

The worker reads with `assign`, in no group: one that is started again need not wait until its dead self is out of the group.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from functools import cached_property
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from kqlib.kafka.clients import Consumer
from kqlib.kafka.reading import patient

Client = TypeVar("Client", Consumer, Producer)
TIMEOUT = 20.0  # seconds for one answer of Kafka's
TRANSACTIONS = {  # librdkafka waits 100 ms before it asks again, and a transaction asks again often
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 5,
    "transaction.timeout.ms": 10_000,
}


def at_most_once(w: Worker) -> None:
    """Commit first: what is committed and not yet written is lost."""
    for item in w.items():
        w.commit(item)
        result = w.work(item)
        w.write(item, result)


def at_least_once(w: Worker) -> None:
    """Commit last: what is written and not yet committed is written again."""
    for item in w.items():
        result = w.work(item)
        w.write(item, result)
        w.commit(item)


def exactly_once(w: Worker) -> None:
    """Result and commit in one transaction: both, or neither."""
    producer = w.transactional()  # aborts what an earlier life has left open
    for item in w.items():
        producer.begin_transaction()
        result = w.work(item)
        w.write(item, result)
        producer.send_offsets_to_transaction(w.after(item), w.consumer.consumer_group_metadata())
        producer.commit_transaction()
        w.reached("commit")


def idempotent_sink(w: Worker) -> None:
    """Commit last, and write where a second time changes nothing: a database with a unique key."""
    for item in w.items():
        result = w.work(item)
        with w.database as database:  # one transaction of its own, durable at the end of this block
            database.execute("INSERT OR IGNORE INTO results VALUES (?, ?)", (w.address(item), result))
        w.reached("write")
        w.commit(item)


ORDERS: dict[str, Callable[[Worker], None]] = {
    "at-most-once": at_most_once,
    "at-least-once": at_least_once,
    "exactly-once": exactly_once,
    "idempotent-sink": idempotent_sink,
}
CRASHES = ("read", "work", "write", "commit")


class Worker:
    """One life of a worker: real clients, and the verbs of the step. The job says at the end of which verb it dies."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.nth = job, 0

    @cached_property
    def consumer(self) -> Consumer:
        """A consumer that joins no group."""
        quick = {"fetch.wait.max.ms": 10, "group.protocol": "classic", "enable.partition.eof": True}
        return met(Consumer({**self.job["client"], **quick, "group.id": self.job["group"]}))

    @cached_property
    def producer(self) -> Producer:
        """A careful producer: idempotent, and all replicas in sync acknowledge a record."""
        return met(Producer({**self.job["client"], "enable.idempotence": True, "acks": "all"}))

    @cached_property
    def database(self) -> sqlite3.Connection:
        """A database with a table `results`, in which each item has one row at most."""
        return open_database(self.job["database"])

    def transactional(self) -> Producer:
        """A producer of transactions. Its id is the same in every life, so that the next one ends what this one leaves open."""
        name = {"transactional.id": f"{self.job['group']}-{self.job['topic']}"}
        self.producer = met(Producer({**self.job["client"], **TRANSACTIONS, **name}))
        self.producer.init_transactions(TIMEOUT)
        return self.producer

    def items(self) -> Iterator[Message]:
        """Read: one item after the other, from what is committed to the ends seen now."""
        begin = self._committed()
        ends = {part.partition: self.consumer.get_watermark_offsets(part, TIMEOUT)[1] for part in begin}
        self.consumer.assign(begin)
        while ends:
            message = self.consumer.poll(TIMEOUT)
            if message is None:
                raise TimeoutError(f"nothing came from '{self.job['topic']}'")
            part, error = message.partition(), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is None and message.offset() < ends.get(part, 0):
                self.nth += 1
                self.reached("read")
                yield message
            if message.offset() + (error is None) >= ends.get(part, 0):  # the event of an end has that end's offset
                ends.pop(part, None)

    def _committed(self) -> list[TopicPartition]:
        """Where to begin; asked again while the group's coordinator is being made or moved."""
        parts = [TopicPartition(self.job["topic"], number) for number in range(self.job["partitions"])]
        return list(patient(lambda: self.consumer.committed(parts, timeout=TIMEOUT), TIMEOUT))

    def work(self, item: Message) -> bytes:
        """Work: capital letters. And a line in a diary, for what no commit takes back, such as a letter that was sent."""
        if "diary" in self.job:
            with open(self.job["diary"], "a") as diary:
                diary.write(f"{self.address(item)}\n")
        result = (item.value() or b"").upper()
        self.reached("work")
        return result

    def write(self, item: Message, result: bytes) -> None:
        """Write: the result goes to the topic `done`; return when Kafka has it."""
        refused: list[Any] = []
        self.producer.produce(self.job["done"], result, item.key(), on_delivery=lambda error, _: refused.append(error))
        left = self.producer.flush(TIMEOUT)
        if left or refused != [None]:
            raise KafkaException(*refused) if refused else TimeoutError(f"no answer from '{self.job['done']}'")
        self.reached("write")

    def commit(self, item: Message) -> None:
        """Commit: the next read begins after this item."""
        self.consumer.commit(item, asynchronous=False)
        self.reached("commit")

    def after(self, item: Message) -> list[TopicPartition]:
        """The offset to commit: the next one."""
        return [TopicPartition(item.topic(), item.partition(), item.offset() + 1)]

    def address(self, item: Message) -> str:
        """An item's id: 'football/0/41', the same at each delivery."""
        return f"{item.topic()}/{item.partition()}/{item.offset()}"

    def reached(self, point: str) -> None:
        """Die here if the job says so: SIGKILL, as in a power cut. Nothing is flushed, closed or sent."""
        if point == self.job["crash"] and self.nth == self.job["at"]:
            os.kill(os.getpid(), signal.SIGKILL)


def open_database(file: str) -> sqlite3.Connection:
    """A database that survives a killed process: what was not committed is not there."""
    database = sqlite3.connect(file, timeout=TIMEOUT)
    database.execute("CREATE TABLE IF NOT EXISTS results (item TEXT PRIMARY KEY, result BLOB)")
    return database


def met(client: Client) -> Client:
    """The client, when it knows the cluster. Asked sooner, it would look again only a second later."""
    client.list_topics(timeout=TIMEOUT)
    return client


def main(line: Connection, job: dict[str, Any], order: Callable[[Worker], None]) -> None:
    """A life: take the step until it is killed, or at the end."""
    order(Worker(job))
    line.send("at the end")
