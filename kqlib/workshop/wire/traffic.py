"""What crosses the proxy, and what shall happen to it: notes of requests, and rules.

In:  the head of each request, and rules from the commands. Out: a `Note` for each request, the rules that apply to it, and signals.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kqlib.workshop.wire.messages import Messages

MOST = 10_000  # notes that are kept of each listener
CLIENTS = "WIRE"  # the listener for clients; further ones are WIRE2, WIRE3


@dataclass
class Origin:
    """Whose connection it is: through which listener, to which broker, from which client and process."""

    listener: str
    broker: int
    client: str = ""
    pid: int | None = None


@dataclass
class Note:
    """A request that crossed, and its answer. Times are the loop's."""

    at: float
    broker: int
    owner: tuple[int | None, str]  # the process, if the system tells it, and the client id
    kind: int
    version: int
    nth: int  # of its kind, of its owner
    size: int
    request: bytes
    done: float | None = None
    answer: bytes = b""
    accident: str = ""
    reply: bytes = b""  # ours, instead of the broker's
    rule: Rule | None = None  # what happens to its answer


@dataclass
class Rule:
    """What shall happen at one request: the nth that fits."""

    action: str  # kill, drop, error, hold, close, delay
    listener: str
    kind: int
    nth: int = 1
    when: str = "before"  # it reaches the broker; or "after": the broker has answered
    broker: int | None = None
    client: str | None = None
    pid: int | None = None
    target: int = 0  # the process to kill or stop; 0: the listener's process group
    signal: int = signal.SIGKILL
    code: int = 0
    delay: float = 0
    words: str = ""
    count: int = 0  # of requests that fitted
    happened: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class ConnectionRule:
    """A cut or a delay: it holds for each connection that fits, until it is lifted."""

    listener: str
    broker: int | None = None
    client: str | None = None
    pid: int | None = None
    cut: tuple[str, ...] = ()  # these directions
    delay: float = 0


def fits(rule: Rule | ConnectionRule, origin: Origin) -> bool:
    """Is it about this connection?"""
    return (
        rule.listener == origin.listener
        and rule.broker in (None, origin.broker)
        and rule.client in (None, origin.client)
        and rule.pid in (None, origin.pid)
    )


class Traffic:
    """What crossed, how often, and the rules."""

    def __init__(self, messages: Messages) -> None:
        self.loop, self.messages = asyncio.get_running_loop(), messages
        self.targets: dict[tuple[str, int], int] = {}  # the broker's port, by listener and broker
        self.connections: set[Any] = set()
        self.rules: list[Rule] = []
        self.connection_rules: list[ConnectionRule] = []
        self.groups: dict[str, int] = {}  # by listener: the process group that a rule without a target kills
        self.notes: dict[str, deque[Note]] = defaultdict(partial(deque, maxlen=MOST))  # by listener
        self.counts: Counter[tuple[str, int | str, int]] = Counter()  # by listener, owner and kind
        self.totals: dict[str, Counter[int]] = defaultdict(Counter)  # by listener, then by kind

    def note(self, origin: Origin, kind: int, version: int, size: int, head: bytes) -> Note:
        """A request has come."""
        key = (origin.listener, origin.pid or origin.client, kind)
        self.counts[key] += 1
        self.totals[origin.listener][kind] += 1
        made = Note(
            at=self.loop.time(),
            broker=origin.broker,
            owner=(origin.pid, origin.client),
            kind=kind,
            version=version,
            nth=self.counts[key],
            size=size,
            request=head,
        )
        self.notes[origin.listener].append(made)
        return made

    def rule_for(self, note: Note, origin: Origin) -> Rule | None:
        """What happens to this request. A rule about its answer waits for that."""
        now = None
        for rule in list(self._due(note, origin)):
            if rule.when == "before":
                now = now or rule
            else:
                note.rule = note.rule or rule
        delay = sum(each.delay for each in self.connection_rules if fits(each, origin))
        return now or (Rule("delay", origin.listener, note.kind, delay=delay) if delay else None)

    def _due(self, note: Note, origin: Origin) -> Iterator[Rule]:
        """The rules that are about this request, after each has counted it."""
        for rule in self.rules:
            if rule.kind == note.kind and not rule.happened.is_set() and fits(rule, origin):
                rule.count += 1
                if rule.count == rule.nth:
                    yield rule

    def cut(self, origin: Origin) -> set[str]:
        """The directions of a connection in which nothing passes now."""
        return {way for each in self.connection_rules if fits(each, origin) for way in each.cut}

    def signal(self, rule: Rule) -> None:
        """Kill or stop a process, or the process group of this listener."""
        with suppress(ProcessLookupError):
            if rule.target:
                os.kill(rule.target, rule.signal)
            else:
                rule.target = self.groups.get(rule.listener, 0)
                os.killpg(rule.target, rule.signal)
