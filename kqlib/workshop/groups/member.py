"""One member of a group, in a process of its own: one thread owns a real Consumer, and does what its parent says.

In:  `Orders`, then words: pause, resume, leave. If the connection ends, it leaves.
Out: an event for each thing that happens: what, when (the machine's monotonic clock), with which partitions.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, TypedDict

from confluent_kafka import TopicPartition

from kqlib import text
from kqlib.kafka.clients import Consumer

BATCH = 500
TICK = 0.05  # seconds that a poll waits, and so how soon a word is noticed
LATE = "_MAX_POLL_EXCEEDED"
# Trying again does not help with these. With anything else the client tries again by itself.
HOPELESS = {
    *("INCONSISTENT_GROUP_PROTOCOL", "INVALID_SESSION_TIMEOUT", "GROUP_AUTHORIZATION_FAILED"),
    *("TOPIC_AUTHORIZATION_FAILED", "UNSUPPORTED_ASSIGNOR", "UNSUPPORTED_VERSION", "GROUP_MAX_SIZE_REACHED"),
    *("GROUP_ID_NOT_FOUND", "FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID", "INVALID_GROUP_ID", "INVALID_REQUEST"),
    *("INVALID_REGULAR_EXPRESSION", "_FATAL"),
}


class Orders(TypedDict):
    """What a member is to do. pace: records a second, None for as fast as it can."""

    settings: dict[str, Any]
    topics: list[str]
    commit: bool
    pace: float | None


def main(line: Connection, orders: Orders) -> None:
    """Live until the order "leave"."""
    words: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(line, words), daemon=True).start()
    try:
        Member(orders, words, line.send).live()
    except Exception as error:
        line.send({"what": "failed", "at": time.monotonic(), "why": text.words(error)})


def _listen(line: Connection, words: queue.SimpleQueue[str]) -> None:
    with suppress(EOFError, OSError):
        while True:
            words.put(line.recv())
    words.put("leave")


class Member:
    """The Consumer and its loop, all in one thread."""

    def __init__(self, orders: Orders, words: queue.SimpleQueue[str], send: Callable[[dict[str, Any]], None]) -> None:
        self.orders, self.words, self.send = orders, words, send
        self.busy = self.leaving = self.asked = False
        self.done: dict[tuple[str, int], int] = {}  # next offsets that are not committed yet
        self.consumer = Consumer({**orders["settings"], "on_commit": self.committed})

    def live(self) -> None:
        """Subscribe, then poll, work and commit until the order "leave"."""
        self.consumer.subscribe(
            self.orders["topics"],
            on_assign=lambda _, parts: self.tell("assigned", parts),
            on_revoke=lambda _, parts: self.drop("revoked", parts),
            on_lost=lambda _, parts: self.drop("lost", parts),
        )
        self.tell("joined")
        try:
            while not self.leaving:
                self.obey()
                self.consumer.assignment()  # wakes librdkafka's own thread, which looks at its clocks once a second
                if not self.busy and not self.leaving:
                    self.work(self.consumer.consume(self.batch, TICK))
                    self.commit()
        finally:
            self.consumer.close()
        self.tell("left")

    def tell(self, what: str, partitions: Iterable[Any] = (), **more: Any) -> None:
        """Send the parent an event."""
        held = [(part.topic, part.partition) for part in partitions]
        self.send({"what": what, "at": time.monotonic(), "partitions": held, **more})

    @property
    def batch(self) -> int:
        """How many records to take at once: so few that their work takes no longer than a tick."""
        pace = self.orders["pace"]
        return BATCH if pace is None else max(1, min(BATCH, int(pace * TICK)))

    def obey(self) -> None:
        """Do what the next word says. While busy (paused), wait for a word instead of polling."""
        try:
            word = self.words.get(timeout=TICK) if self.busy else self.words.get_nowait()
        except queue.Empty:
            return
        if word == "leave":
            self.leaving = True
        else:
            self.busy = word == "pause"
            self.tell("busy" if self.busy else "back")

    def work(self, records: list[Any]) -> None:
        """Work on records (take the time for it), and say which they were."""
        for error in (record.error() for record in records):
            if error is not None:
                self.report(error)
        done = [record for record in records if record.error() is None]
        if done and self.orders["pace"]:
            time.sleep(len(done) / self.orders["pace"])  # this is the work
        if runs := _runs(done):
            self.tell("worked", runs=runs)
            self.done |= {(topic, number): last + 1 for topic, number, _, last in runs}

    def commit(self) -> None:
        """Ask for a commit of what is done. One at a time, without waiting: in a rebalance the answer may take long."""
        if self.orders["commit"] and self.done and not self.asked:
            self.asked = True
            self.consumer.commit(offsets=[TopicPartition(*part, offset) for part, offset in self.done.items()])

    def committed(self, error: Any, parts: list[Any]) -> None:
        """The answer. What was refused is asked for again."""
        self.asked = False
        if error is not None:
            self.tell("refused", why=error.name())
        for part in parts if error is None else ():
            if self.done.get((part.topic, part.partition)) == part.offset:
                del self.done[part.topic, part.partition]

    def drop(self, what: str, parts: list[Any]) -> None:
        """Another member has these partitions now. What was done in them and not committed is forgotten."""
        self.tell(what, parts)
        for part in parts:
            self.done.pop((part.topic, part.partition), None)

    def report(self, error: Any) -> None:
        """An error that the client reports between records."""
        if error.name() == LATE:
            self.tell("late")
        elif error.name() in HOPELESS:
            raise RuntimeError(error.str())
        else:
            self.tell("trouble", why=error.str())


def _runs(records: list[Any]) -> list[list[Any]]:
    """Records as runs of offsets without a hole: [topic, partition, first, last]."""
    runs: list[list[Any]] = []
    for topic, number, offset in sorted((record.topic(), record.partition(), record.offset()) for record in records):
        if runs and runs[-1][:2] == [topic, number] and runs[-1][3] + 1 == offset:
            runs[-1][3] = offset
        else:
            runs.append([topic, number, offset, offset])
    return runs
