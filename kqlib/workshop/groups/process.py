"""A member's process, seen from its parent: started, told, listened to, killed.

In:  orders for `member.py` and a `Record` to write into. Out: `Process`: what the member holds and how it is.

A member is a process, because one that crashes must be silent for the broker: no poll, no heartbeat, no goodbye. A thread cannot
be killed, and librdkafka's own thread goes on with the heartbeats of a Consumer that nobody polls. SIGKILL on a process is what
a crash is.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqlib.runtime.patience import PATIENCE
from kqlib.workshop.groups.timeline import Event
from kqlib.workshop.groups.values import Part

if TYPE_CHECKING:
    from kqlib.kafka import Kafka

PROGRAM = Path(__file__).with_name("member.py")
LEAVE = 6.0 * PATIENCE  # seconds to leave in good order
GIVE_UP = 4.0 * PATIENCE  # seconds after which a member that cannot leave ends itself
LOOK = 0.5  # seconds between two looks whether the cluster was closed
END = {"left", "crashed", "failed"}


@dataclass
class Record:
    """What the members of a group did: written by the threads that listen to them."""

    events: list[Event] = field(default_factory=list)
    runs: dict[Part, list[tuple[int, int]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Process:
    """One member: what it holds, and how it is (starting, working, busy, left, crashed, failed)."""

    def __init__(self, name: str, orders: dict[str, Any], cluster: Kafka, record: Record) -> None:
        self.name, self.record = name, record
        self.held: set[Part] = set()
        self.state, self.trouble = "starting", ""
        self._cluster = cluster
        self._child = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Jupyter's stop button is for the cell, not for the members
        )
        self.tell(json.dumps(orders))
        self._ear = threading.Thread(target=self._listen, name=f"member {name}", daemon=True)
        self._ear.start()

    @property
    def over(self) -> bool:
        """Has it left, crashed or failed?"""
        return self.state in END

    def tell(self, line: str) -> None:
        """A line for the member; one that has just ended cannot hear it."""
        with suppress(BrokenPipeError, ValueError):
            assert self._child.stdin
            self._child.stdin.write(line.encode() + b"\n")
            self._child.stdin.flush()

    def kill(self) -> None:
        """End it as a power cut does."""
        self._child.kill()
        self._child.wait()
        self.hang_up()
        self._ear.join(LEAVE)  # what it said before its death is heard
        self._note({"what": "crashed", "at": time.monotonic()})

    def close(self, seconds: float = LEAVE) -> None:
        """Let it leave in good order, or end it; twice does no harm."""
        self.hang_up()
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if threading.current_thread() is not self._ear:
            self._ear.join(LEAVE)
        if not self.over:
            self._note({"what": "left", "at": time.monotonic()})

    def hang_up(self) -> None:
        """The end of its stdin tells it to leave; nobody waits for that."""
        with suppress(BrokenPipeError, ValueError):
            assert self._child.stdin
            self._child.stdin.close()

    def _listen(self) -> None:
        """What the member says, until it has ended; a closed cluster ends it."""
        out, rest = self._child.stdout, b""
        assert out
        with out:
            while True:
                while not select.select([out], [], [], LOOK)[0]:
                    if self._cluster._closed:
                        self.hang_up()
                said = os.read(out.fileno(), 65536)  # not readline: what that keeps in its buffer, select does not see
                if not said:
                    break
                *lines, rest = (rest + said).split(b"\n")  # a word that SIGKILL cut off stays in the rest
                for line in lines:
                    self._note(json.loads(line))
        self.hang_up()
        self._child.wait()  # so that no zombie is left where nobody calls close()

    def _note(self, said: dict[str, Any]) -> None:
        """Remember what a member said."""
        what, parts = said["what"], tuple((topic, number) for topic, number in said.get("partitions", ()))
        with self.record.lock:
            for topic, number, first, last in said.get("runs", ()):
                self.record.runs.setdefault((topic, number), []).append((first, last))
            if what == "assigned":
                self.held |= {*parts}
            elif what in {"revoked", "lost"}:
                self.held -= {*parts}
            elif what in END:
                self.held, self.state = set(), what
            self.state = {"joined": "working", "busy": "busy", "back": "working"}.get(what, self.state)
            self.trouble = said.get("why", self.trouble)
            if what not in {"worked", "trouble", "refused"}:
                self.record.events.append(Event(said["at"], self.name, what, parts))
