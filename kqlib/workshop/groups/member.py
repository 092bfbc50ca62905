"""One member of a group, as a program of its own: one thread owns a real Consumer; its parent tells it what to do.

In:  on stdin a line of JSON (`Orders` below), then a word a line: pause, resume, leave. The end of stdin means: leave.
Out: on stdout a line of JSON for each thing that happened: what, when (the machine's monotonic clock), with which partitions.

It imports nothing of kqlib, so that it starts in a tenth of a second. `group.py` starts it, and kills it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, TypedDict

BATCH = 500
TICK = 0.05  # seconds that a poll waits, and so how soon a command is heard
LATE = "_MAX_POLL_EXCEEDED"
# No second try makes these better; anything else is the client's own business, and it tries again.
HOPELESS = {
    *(
        "INCONSISTENT_GROUP_PROTOCOL",
        "INVALID_SESSION_TIMEOUT",
        "GROUP_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
    ),
    *("UNSUPPORTED_ASSIGNOR", "UNSUPPORTED_VERSION", "GROUP_MAX_SIZE_REACHED", "GROUP_ID_NOT_FOUND", "_FATAL"),
    *(
        "FENCED_INSTANCE_ID",
        "UNRELEASED_INSTANCE_ID",
        "INVALID_GROUP_ID",
        "INVALID_REQUEST",
        "INVALID_REGULAR_EXPRESSION",
    ),
}


class Orders(TypedDict):
    """What a member is told at its start. pace: records a second, None for as fast as it can. give_up: seconds to leave."""

    settings: dict[str, Any]
    topics: list[str]
    commit: bool
    pace: float | None
    give_up: float


def main() -> None:
    """Live until told to leave."""
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    orders: Orders = json.loads(sys.stdin.readline())
    threading.Thread(target=_listen, args=(said, orders["give_up"]), daemon=True).start()
    try:
        Member(orders, said, os.getppid()).live()
    except Exception as error:  # whatever it is, the parent has to hear of it
        inner = error.args[0] if error.args else error
        tell("failed", why=inner.str() if hasattr(inner, "str") else str(inner))


def tell(what: str, partitions: Iterable[Any] = (), **more: Any) -> None:
    """A line for the parent."""
    held = [[part.topic, part.partition] for part in partitions]
    print(json.dumps({"what": what, "at": time.monotonic(), "partitions": held, **more}), flush=True)


def _listen(said: queue.SimpleQueue[str], give_up: float) -> None:
    """Commands, as they come; when the parent is gone, however it ended, this process goes too."""
    for line in sys.stdin:
        said.put(line.strip())
    said.put("leave")
    time.sleep(give_up)  # here time is the point: a broker that is gone too must not keep us
    os._exit(1)


class Member:
    """The Consumer and its loop; all of it in one thread."""

    def __init__(self, orders: Orders, said: queue.SimpleQueue[str], parent: int) -> None:
        from confluent_kafka import Consumer

        self.orders, self.said, self.parent = orders, said, parent
        self.busy = self.leaving = self.asked = False
        self.done: dict[tuple[str, int], int] = {}  # next offsets that no commit has taken yet
        self.consumer = Consumer({**orders["settings"], "on_commit": self.committed})

    def live(self) -> None:
        """Subscribe, then poll, work and commit until told to leave."""
        self.consumer.subscribe(
            self.orders["topics"],
            on_assign=lambda _, parts: tell("assigned", parts),
            on_revoke=lambda _, parts: self.drop("revoked", parts),
            on_lost=lambda _, parts: self.drop("lost", parts),
        )
        tell("joined")
        try:
            while not self.leaving:
                self.hear()
                self.consumer.assignment()  # wakes librdkafka's own thread, which looks at its clocks once a second
                if not self.busy and not self.leaving:
                    self.work(self.consumer.consume(self.batch, TICK))
                    self.commit()
        finally:
            self.consumer.close()
        tell("left")

    @property
    def batch(self) -> int:
        """How many records to take at once: so few that their work takes no longer than a tick."""
        pace = self.orders["pace"]
        return BATCH if pace is None else max(1, min(BATCH, int(pace * TICK)))

    def hear(self) -> None:
        """Do what we were told; while busy with one record (paused), wait for the next word instead of polling."""
        if os.getppid() != self.parent:  # somebody else holds our stdin open, but the parent is gone
            self.leaving = True
        try:
            word = self.said.get(timeout=TICK) if self.busy else self.said.get_nowait()
        except queue.Empty:
            return
        if word == "leave":
            self.leaving = True
        else:
            self.busy = word == "pause"
            tell("busy" if self.busy else "back")

    def work(self, records: list[Any]) -> None:
        """Work on records (that is: take the time), and say which they were."""
        for trouble in (record.error() for record in records):
            if trouble is not None:
                self.hear_trouble(trouble)
        done = [record for record in records if record.error() is None]
        if done and self.orders["pace"]:
            time.sleep(len(done) / self.orders["pace"])  # this is the work
        if runs := _runs(done):
            tell("worked", runs=runs)
            self.done |= {(topic, number): last + 1 for topic, number, _, last in runs}

    def commit(self) -> None:
        """Ask for a commit of what is done; one at a time, and not waiting: in a rebalance the answer may take long."""
        from confluent_kafka import TopicPartition

        if self.orders["commit"] and self.done and not self.asked:
            self.asked = True
            self.consumer.commit(offsets=[TopicPartition(*part, offset) for part, offset in self.done.items()])

    def committed(self, error: Any, parts: list[Any]) -> None:
        """The answer: what was taken is off the list, what was refused is asked for again."""
        self.asked = False
        if error is not None:
            tell("refused", why=error.name())
        for part in parts if error is None else ():
            if self.done.get((part.topic, part.partition)) == part.offset:
                del self.done[part.topic, part.partition]

    def drop(self, what: str, parts: list[Any]) -> None:
        """These partitions are somebody else's now, and so is what was done in them and not committed."""
        tell(what, parts)
        for part in parts:
            self.done.pop((part.topic, part.partition), None)

    def hear_trouble(self, error: Any) -> None:
        """Errors that the client reports between records."""
        if error.name() == LATE:
            tell("late")
        elif error.name() in HOPELESS:
            raise RuntimeError(error.str())
        else:
            tell("trouble", why=error.str())


def _runs(records: list[Any]) -> list[list[Any]]:
    """Records as runs of offsets without a hole: [topic, partition, first, last]."""
    runs: list[list[Any]] = []
    for topic, number, offset in sorted((record.topic(), record.partition(), record.offset()) for record in records):
        if runs and runs[-1][:2] == [topic, number] and runs[-1][3] + 1 == offset:
            runs[-1][3] = offset
        else:
            runs.append([topic, number, offset, offset])
    return runs


if __name__ == "__main__":
    main()
