"""A member's process, seen from its parent: what it holds, and how it is.

In:  orders for `member.py`, and a `Record` to write into. Out: `MemberProcess`.

A member is a process, because one that crashes must be silent for the broker: no poll, no heartbeat, no LeaveGroup. A thread cannot be
killed, and librdkafka's own thread sends heartbeats for a Consumer that is not polled. SIGKILL on a process is a crash.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kqlib.errors import NotInTime
from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.children import ChildEnded, Children
from kqlib.workshop.groups import member
from kqlib.workshop.groups.timeline import Event
from kqlib.workshop.groups.values import Part

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

LEAVE = 6.0 * PATIENCE  # seconds to leave in good order
LOOK = 0.5  # seconds between two looks whether the cluster was closed
END = {"left", "crashed", "failed"}
STATES = {"joined": "working", "busy": "busy", "back": "working"}
NO_EVENT = {"worked", "trouble", "refused"}


@dataclass
class Record:
    """What the members of a group did. The threads that listen to them write it."""

    events: list[Event] = field(default_factory=list)
    runs: dict[Part, list[tuple[int, int]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemberProcess:
    """One member: what it holds, and how it is (starting, working, busy, left, crashed, failed)."""

    def __init__(self, children: Children, name: str, orders: member.Orders, cluster: Kafka, record: Record) -> None:
        self.name, self.record = name, record
        self.held: set[Part] = set()
        self.state, self.trouble = "starting", ""
        self._cluster = cluster
        self._fork = children.fork(member.main, orders)
        self._listener = threading.Thread(target=self._listen, name=f"member {name}", daemon=True)
        self._listener.start()

    @property
    def over(self) -> bool:
        """Has it left, crashed or failed?"""
        return self.state in END

    def tell(self, word: str) -> None:
        """Tell it to pause, resume or leave. Nothing happens if it has ended."""
        with suppress(ChildEnded):
            self._fork.send(word)

    def kill(self) -> None:
        """End it as a power cut does. What it sent before is still received."""
        self._fork.signal(signal.SIGKILL)
        self._join(LEAVE)
        self._fork.kill()
        self.note({"what": "crashed", "at": time.monotonic()})

    def wait_until_left(self, deadline: float) -> None:
        """Return when it has left, or end it."""
        self._join(max(0.0, deadline - time.monotonic()))
        self._fork.kill()
        if not self.over:
            self.note({"what": "left", "at": time.monotonic()})

    def _join(self, seconds: float) -> None:
        if threading.current_thread() is not self._listener:  # the garbage collector calls from any thread
            self._listener.join(seconds)

    def _listen(self) -> None:
        """Receive what it sends, until it has ended. If the cluster is closed, it leaves."""
        with suppress(ChildEnded):
            while True:
                with suppress(NotInTime):
                    self.note(self._fork.receive(LOOK))
                if self._cluster._closed:
                    self.tell("leave")

    def note(self, event: dict[str, Any]) -> None:
        """Remember what a member did."""
        what, parts = event["what"], tuple(event.get("partitions", ()))
        with self.record.lock:
            for topic, number, first, last in event.get("runs", ()):
                self.record.runs.setdefault((topic, number), []).append((first, last))
            if what == "assigned":
                self.held |= {*parts}
            elif what in {"revoked", "lost"}:
                self.held -= {*parts}
            elif what in END:
                self.held, self.state = set(), what
            self.state = STATES.get(what, self.state)
            self.trouble = event.get("why", self.trouble)
            if what not in NO_EVENT:
                self.record.events.append(Event(event["at"], self.name, what, parts))


def leave_all(members: list[MemberProcess]) -> None:
    """All of these leave. Return when they have left."""
    for each in members:
        each.tell("leave")
    deadline = time.monotonic() + LEAVE
    for each in members:
        each.wait_until_left(deadline)
