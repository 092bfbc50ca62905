"""The ladder: four queues on Kafka, each on one screen, each keeping a promise that the one before it breaks.

    kq.promises(ladder.LADDER)                           # all four, scored side by side
    kq.promises({**ladder.LADDER, "ledger": ladder.LEDGER})  # and the real one
    queue = ladder.LeasesInMemory(cluster, "football")

In:  a cluster and a topic. Out: some of the verbs put claim ack release extend depth; plain confluent-kafka, nothing hidden.
They are lessons, not tools. What each gives up is in its `costs`, and `kq.promises` shows it. The second and the third are
the mapping of Drupal's Queue API to Kafka to the letter (a low-level consumer, which is in no group), flaws included.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from kqlib.errors import LeaseLost, QueueDeleted, TopicMissing
from kqlib.kafka.clients import Consumer

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

__all__ = ["LADDER", "LEDGER", "AutoCommit", "DeletedList", "LeasesInMemory", "RungItem", "SaveOffset"]

TIMEOUT = 10.0  # seconds for one answer of Kafka
C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class RungItem:
    """A claimed item of a rung: where its record stands, and what was put."""

    partition: int
    offset: int
    data: bytes
    attempt: int | None = None


def rung(commits: str, gives_up: str) -> Callable[[C], C]:
    """Says what a rung costs; its lines are counted, those of the rung it stands on too."""

    def mark(cls: C) -> C:
        lines = sum(_lines(each) for each in cls.__mro__ if each.__module__ == cls.__module__)
        cls.costs = {"lines · commits an item": f"{lines} · {commits}", "gives up": gives_up}  # type: ignore[attr-defined]
        return cls

    return mark


def _lines(cls: type) -> int:
    """Lines of code of a class."""
    return _count(_classes(inspect.getfile(cls))[cls.__name__])


@cache
def _classes(file: str) -> dict[str, ast.ClassDef]:
    """The classes of a module, read once: each worker of a trial imports this module."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _count(code: ast.AST) -> int:
    """Lines of code, without empty lines, comments and docstrings."""
    return sum(bool(line.strip()) for line in ast.unparse(_Bare().visit(code)).splitlines())


def lines_of(package: str, *without: str) -> int:
    """Lines of code of a package's modules but these, rounded: a table shall not change with each line of kqlib."""
    files = [file for file in (Path(__file__).parents[1] / package).glob("*.py") if file.stem not in without]
    return round(sum(_count(ast.parse(file.read_text(encoding="utf-8"))) for file in files) / 500) * 500


class _Bare(ast.NodeTransformer):
    """Takes docstrings out."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


class Put:
    """What all rungs share: a producer, a consumer, and a put that returns when the record is durable."""

    def __init__(self, cluster: Kafka, name: str, **consumer: Any) -> None:
        self.topic, self.producer = name, Producer(cluster.client(enable_idempotence=True))
        self.partitions = self._known()
        self.consumer = Consumer(cluster.client(**consumer))

    def put(self, data: bytes, key: bytes | None = None) -> str:
        """Durable when it returns: 'football/0/41'."""
        message = self._produce(data, key)
        return f"{self.topic}/{message.partition()}/{message.offset()}"

    def close(self) -> None:
        """Leave."""
        self.consumer.close()

    def _known(self) -> list[int]:
        """The topic's partitions, out of the list of all: asking for one by name creates it where a broker allows that."""
        topics = self.producer.list_topics(timeout=TIMEOUT).topics
        if self.topic not in topics:
            raise TopicMissing(topic=self.topic)
        return sorted(topics[self.topic].partitions)

    def _produce(self, data: bytes, key: bytes | None) -> Message:
        answers: list[Any] = []
        self.producer.produce(
            self.topic, data, key, on_delivery=lambda error, message: answers.append(error or message)
        )
        self.producer.flush()
        if not isinstance(answers[0], Message):
            raise KafkaException(answers[0])
        return answers[0]

    def _record(self, wait: float) -> RungItem | None:
        """The next record, if one comes in time."""
        message = self.consumer.poll(wait)
        if message is None or message.error() is not None:
            return None
        return RungItem(message.partition(), message.offset(), message.value())


# --- first rung -----------------------------------------------------------------------------------------------------------


@rung(commits="0", gives_up="what is in hand")
class AutoCommit(Put):
    """Claim is a poll. What was polled counts as done: the client commits by itself, five times a second."""

    def __init__(self, cluster: Kafka, name: str) -> None:
        super().__init__(cluster, name, group_id=f"auto-{name}", enable_auto_commit=True, auto_commit_interval_ms=200)
        self.consumer.subscribe([name])

    def claim(self, wait: float = 1.0) -> RungItem | None:
        """The next record."""
        return self._record(wait)

    def ack(self, item: RungItem) -> None:
        """Nothing to do: it is committed already, or soon."""


# --- second rung ----------------------------------------------------------------------------------------------------------


@rung(commits="1", gives_up="who has what")
class SaveOffset(Put):
    """The mapping: claim saves the offset, consumes one record, stores the next; release rolls back. In no group: `assign`."""

    def __init__(self, cluster: Kafka, name: str) -> None:
        super().__init__(cluster, name, group_id=f"site-{name}")
        self.consumer.assign(self._stored())  # on from where the site stored it

    def claim(self, lease: float = 30, wait: float = 1.0) -> RungItem | None:
        """claimItem: its offset is saved in the item, the next one is stored. The lease is taken, and nobody looks at it."""
        item = self._record(wait)
        if item is not None:
            self._store(item.partition, item.offset + 1)
        return item

    def ack(self, item: RungItem) -> None:
        """deleteItem: nothing in Kafka; the stored offset is past it."""

    def release(self, item: RungItem) -> None:
        """releaseItem: back to the saved offset."""
        self.consumer.seek(TopicPartition(self.topic, item.partition, item.offset))
        self._store(item.partition, item.offset)

    def _store(self, partition: int, offset: int) -> None:
        self.consumer.commit(offsets=[TopicPartition(self.topic, partition, offset)], asynchronous=False)

    def _stored(self) -> list[TopicPartition]:
        """Where the site is in each partition. A new cluster takes a moment until it knows who keeps a group's offsets."""
        parts, end = [TopicPartition(self.topic, number) for number in self.partitions], time.monotonic() + TIMEOUT
        while True:
            try:
                return list(self.consumer.committed(parts, TIMEOUT))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_COORDINATOR or time.monotonic() > end:
                    raise
                time.sleep(0.05)


# --- third rung -----------------------------------------------------------------------------------------------------------


@rung(commits="1 + 5 SQL", gives_up="a bounded list")
class DeletedList(SaveOffset):
    """The mapping with its list: what is deleted stands in the site's database, and is skipped for ever after."""

    def __init__(self, cluster: Kafka, name: str, database: str | Path | None = None) -> None:
        super().__init__(cluster, name)
        at = hashlib.sha256(f"{cluster.bootstrap} {name}".encode()).hexdigest()[:12]
        file = database or Path(tempfile.gettempdir()) / f"kqlib-deleted-{at}.db"
        self.db, self.lock = sqlite3.connect(file, isolation_level=None, check_same_thread=False), threading.Lock()
        self._sql("CREATE TABLE IF NOT EXISTS deleted (part, offset, PRIMARY KEY (part, offset))")
        self._sql("CREATE TABLE IF NOT EXISTS gone (queue PRIMARY KEY)")

    def create(self) -> None:
        """createQueue: available if the topic exists; nothing happens in Kafka."""
        self._known()
        self._sql("DELETE FROM gone WHERE queue = ?", self.topic)

    def delete(self) -> None:
        """deleteQueue: marked in the database; topic and list stay."""
        self._sql("INSERT OR IGNORE INTO gone VALUES (?)", self.topic)

    def put(self, data: bytes, key: bytes | None = None) -> str:
        """createItem: produce, again and again until the record's offset is not in the deleted list."""
        self._check()
        while True:
            message = self._produce(data, key)
            if not self._deleted(message.partition(), message.offset()):
                return f"{self.topic}/{message.partition()}/{message.offset()}"

    def claim(self, lease: float = 30, wait: float = 1.0) -> RungItem | None:
        """claimItem: what the list has is passed over."""
        self._check()
        while (item := super().claim(lease, wait)) is not None and self._deleted(item.partition, item.offset):
            pass
        return item

    def ack(self, item: RungItem) -> None:
        """deleteItem: its offset joins the list."""
        self._sql("INSERT OR IGNORE INTO deleted VALUES (?, ?)", item.partition, item.offset)

    def close(self) -> None:
        """Leave; the list stays in its file."""
        super().close()
        self.db.close()

    def depth(self) -> None:
        """numberOfItems: not available, 'not meaningful'."""

    def garbage_collection(self) -> int:
        """Offsets that are no longer in the log leave the list; how many did. The framework calls it, it has no cron."""
        gone = 0
        for part in self.consumer.assignment():
            low, _ = self.consumer.get_watermark_offsets(part, TIMEOUT)
            rows = self._sql("DELETE FROM deleted WHERE part = ? AND offset < ? RETURNING offset", part.partition, low)
            gone += len(rows)
        return gone

    def _deleted(self, partition: int, offset: int) -> bool:
        return bool(self._sql("SELECT 1 FROM deleted WHERE part = ? AND offset = ?", partition, offset))

    def _check(self) -> None:
        if self._sql("SELECT 1 FROM gone WHERE queue = ?", self.topic):
            raise QueueDeleted(queue=self.topic)

    def _sql(self, words: str, *values: object) -> list[Any]:
        """One statement at a time: two threads in one connection get errors, or each other's rows."""
        with self.lock:
            return self.db.execute(words, values).fetchall()


# --- fourth rung ----------------------------------------------------------------------------------------------------------


@rung(commits="1", gives_up="acks on restart")
class LeasesInMemory(Put):
    """Members of a group. What is out or waits for a second try stands in memory; committed is the first offset not done."""

    def __init__(self, cluster: Kafka, name: str) -> None:
        super().__init__(cluster, name, group_id=f"leases-{name}")
        self.lock = threading.RLock()
        self.open: dict[tuple[int, int], tuple[RungItem, float]] = {}  # claimed, not acked -> free from when
        self.read: dict[int, int] = {}  # the next offset of each partition
        self.consumer.subscribe([name], on_revoke=self._forget, on_lost=self._forget)

    def claim(self, lease: float = 30, wait: float = 1.0) -> RungItem | None:
        """One whose lease is over or that was released, else the next record."""
        end = time.monotonic() + wait
        while True:
            with self.lock:
                item = self._free() or self._next(min(0.05, wait))
                if item is not None:
                    self.open[item.partition, item.offset] = item, time.monotonic() + lease
                    return item
            if time.monotonic() >= end:
                return None

    def ack(self, item: RungItem) -> None:
        """Done: the floor moves up to the first that is not."""
        with self.lock:
            self._mine(item)
            del self.open[item.partition, item.offset]
            floor = min((at for part, at in self.open if part == item.partition), default=self.read[item.partition])
            self.consumer.commit(offsets=[TopicPartition(self.topic, item.partition, floor)], asynchronous=False)

    def release(self, item: RungItem, delay: float = 0) -> None:
        """Back to the front, or due later."""
        self.extend(item, delay)

    def extend(self, item: RungItem, lease: float = 30) -> None:
        """The lease ends then, counted from now."""
        with self.lock:
            self._mine(item)
            self.open[item.partition, item.offset] = item, time.monotonic() + lease

    def depth(self) -> int:
        """What is out and what was not read yet: right in the process that reads."""
        with self.lock:
            parts = [TopicPartition(self.topic, number) for number in self.partitions]
            ends = {part.partition: self.consumer.get_watermark_offsets(part, TIMEOUT) for part in parts}
            return len(self.open) + sum(end - self.read.get(part, low) for part, (low, end) in ends.items())

    def _free(self) -> RungItem | None:
        """The first in memory that nobody has, as its next attempt."""
        free = [item for item, since in self.open.values() if since <= time.monotonic()]
        item = min(free, key=lambda each: each.offset, default=None)
        return item and RungItem(item.partition, item.offset, item.data, (item.attempt or 0) + 1)

    def _next(self, wait: float) -> RungItem | None:
        """The next record, as its first attempt."""
        item = self._record(wait)
        if item is None:
            return None
        self.read[item.partition] = item.offset + 1
        return RungItem(item.partition, item.offset, item.data, 1)

    def _mine(self, item: RungItem) -> None:
        """Refuse a claim that is over, or whose item was claimed again."""
        held, until = self.open.get((item.partition, item.offset), (None, 0.0))
        if held is None or held.attempt != item.attempt or until <= time.monotonic():
            raise LeaseLost("this lease is over; another worker may have the item by now. Claim again")

    def _forget(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        """What another member has now is no longer ours."""
        gone = {part.partition for part in parts}
        self.open = {place: held for place, held in self.open.items() if place[0] not in gone}


LADDER: dict[str, Callable[..., Any]] = {
    "auto-commit": AutoCommit,
    "save offset": SaveOffset,
    "deleted list": DeletedList,
    "leases": LeasesInMemory,
}


# --- the end of the ladder ------------------------------------------------------------------------------------------------


class Ledger:
    """kqlib's own queue, to be scored beside the rungs: what is open is in the group's commit."""

    def __call__(self, cluster: Kafka, name: str, order: str = "any") -> Any:
        """A queue of a site of its own."""
        from kqlib.queue.site import Site

        return Site(cluster, f"ledger-{name}").queue(name, order=order)

    @property
    def costs(self) -> dict[str, str]:
        """Its lines: all modules of the queue but Drupal's words, rounded."""
        lines = lines_of("queue", "drupal", "__init__")
        return {"lines · commits an item": f"≈ {lines:,} · ≤ 2", "gives up": "the small size"}


LEDGER = Ledger()
