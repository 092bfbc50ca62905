"""A client's connection through the proxy: bytes pass on unchanged, request by request, unless a rule is about one of them.

In:  bytes from a client and from its broker. Out: the same bytes at the other end; notes of each request in `Traffic`.
Bytes that are no Kafka request are passed on as they are.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from typing import Any

from kqlib.workshop.wire.messages import ANSWER, HEAD
from kqlib.workshop.wire.processes import GONE, STOPPED, process_of, process_state
from kqlib.workshop.wire.traffic import Note, Origin, Rule, Traffic

HOST = "127.0.0.1"
KEPT = 2048  # bytes that are noted of each request and answer: enough for its fields, without most of the records
LARGEST = 2**30  # a request that says it is longer is none
FOREVER = float("inf")
LOOK = 0.02  # seconds between two looks at a stopped process


class Connection:
    """A client's connection, and the one to the broker that belongs to it."""

    def __init__(self, traffic: Traffic, listener: str, broker: int) -> None:
        self.traffic, self.origin = traffic, Origin(listener, broker)
        self.closed = False
        self.waiting: dict[int, Note] = {}  # requests without an answer, by correlation id, in their order
        self.requests, self.answers = Requests(self), Answers(self)
        self.directions: dict[str, Direction] = {"to": self.requests, "from": self.answers}

    def close(self) -> None:
        """Close both connections, after what is on its way. What is held is dropped."""
        self.closed = True
        self.traffic.connections.discard(self)
        for each in self.directions.values():
            if each.transport:
                each.transport.close()

    def apply_cuts(self) -> None:
        """Cut what is cut now."""
        cut = self.traffic.cut(self.origin)
        for name, each in self.directions.items():
            each.pause("cut", name in cut)


class Direction(asyncio.Protocol):
    """What one end sends goes to the other end, frame by frame."""

    other, smallest = "", 4

    def __init__(self, connection: Connection) -> None:
        self.connection, self.traffic = connection, connection.traffic
        self.transport: asyncio.Transport | None = None  # where it comes from
        self._rest = 0  # bytes of a frame that are passed on unseen
        self._kept = b""  # the beginning of a frame
        self._seen = False  # the frame that begins in _kept is noted
        self._due: tuple[Note, Rule] | None = None  # what happens to that frame
        self._raw = False
        self._queue: deque[list[Any]] = deque()  # when it is due, and bytes
        self._pauses: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._pauses:
            transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.connection.close()

    def pause_writing(self) -> None:
        self.connection.directions[self.other].pause("full", True)

    def resume_writing(self) -> None:
        self.connection.directions[self.other].pause("full", False)

    def pause(self, reason: str, on: bool) -> None:
        """Do not read for this reason, or read on. What was not read waits where it is, as behind a broken cable."""
        before = bool(self._pauses)
        (self._pauses.add if on else self._pauses.discard)(reason)
        if self.transport and bool(self._pauses) != before:
            (self.transport.pause_reading if self._pauses else self.transport.resume_reading)()

    def send(self, data: bytes, due: float = 0) -> None:
        """Pass bytes on, now or later, never before what was sent earlier."""
        if self._queue or due:
            self._queue.append([due, data])
            self.flush()
        elif data:
            self._sink.write(data)

    def flush(self) -> None:
        """Pass on what is due."""
        loop = self.traffic.loop
        while self._queue and self._queue[0][0] <= loop.time():
            self._sink.write(self._queue.popleft()[1])
        if self._queue and self._queue[0][0] < FOREVER:
            loop.call_at(self._queue[0][0], self.flush)

    def release(self) -> None:
        """Pass on what is held."""
        for each in self._queue:
            each[0] = min(each[0], self.traffic.loop.time())
        self.flush()

    @property
    def _sink(self) -> asyncio.Transport:
        transport = self.connection.directions[self.other].transport
        assert transport
        return transport

    def data_received(self, data: bytes) -> None:
        if self._raw or len(data) <= self._rest:
            self._rest -= 0 if self._raw else len(data)
            self.send(data)
            return
        data = self._kept + data
        first, at = 0, self._rest  # sent until here, looked at until here
        self._rest, self._kept = 0, b""
        while len(data) - at >= 4:
            size = 4 + int.from_bytes(data[at : at + 4], "big", signed=True)
            if not self.smallest <= size <= LARGEST:
                self._raw, at = True, len(data)
                break
            if len(data) - at < min(size, KEPT):
                break
            if not self._seen:
                self._seen, self._due = True, self.note(data[at : at + min(size, KEPT)], size)
            if self._due:
                if len(data) - at < size:
                    break
                self.send(data[first:at])
                self.apply(*self._due, data[at : at + size])
                if self.connection.closed:  # by the accident: what came with the frame does not go on either
                    return
                first = at + size
            self._seen = False
            at += size
        self._rest = max(0, at - len(data))
        self.send(data[first:at])
        self._kept = data[at:]

    def apply(self, note: Note, rule: Rule, frame: bytes) -> None:
        """Let it happen to this frame."""
        rule.happened.set()
        note.accident = rule.words
        if rule.action == "kill":
            self.traffic.signal(rule)
            if rule.signal == signal.SIGKILL:
                self.connection.close()
            else:
                self.send(frame, FOREVER)
                self.traffic.loop.call_later(LOOK, self._when_it_runs, rule)
        elif rule.action == "hold":
            self.send(frame, FOREVER)
        elif rule.action == "delay":
            self.send(frame, self.traffic.loop.time() + rule.delay)
        elif rule.action == "close":
            self.connection.close()
        elif rule.action == "error":
            self.error(note, rule, frame)

    def _when_it_runs(self, rule: Rule, stopped: bool = False) -> None:
        """Pass on what is held as soon as the stopped process goes on. It may take a moment until it is stopped."""
        state = process_state(rule.target)
        if state in GONE:
            self.connection.close()
        elif stopped and state not in STOPPED:
            self.release()
        else:
            self.traffic.loop.call_later(LOOK, self._when_it_runs, rule, state in STOPPED)

    def note(self, head: bytes, size: int) -> tuple[Note, Rule] | None:
        """Note the frame that begins with these bytes. What shall happen to it, if anything."""
        raise NotImplementedError

    def error(self, note: Note, rule: Rule, frame: bytes) -> None:
        """An error code instead of the answer."""
        raise NotImplementedError


class Requests(Direction):
    """From a client to its broker."""

    other, smallest = "from", 12

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected: connect to its broker."""
        self.pause("no broker yet", True)
        super().connection_made(transport)
        self.connection.origin.pid = self._process(transport)
        self.traffic.connections.add(self.connection)
        self.connection.apply_cuts()
        self.traffic.loop.create_task(self._to_broker())

    def _process(self, transport: asyncio.BaseTransport) -> int | None:
        """The process at the other end of a connection."""
        theirs, ours = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        likely = {owner for _, owner, _ in self.traffic.counts if isinstance(owner, int)}
        return process_of(theirs[1], ours[1], likely) if theirs and ours else None

    async def _to_broker(self) -> None:
        origin = self.connection.origin
        try:
            port = self.traffic.targets[origin.listener, origin.broker]
            await self.traffic.loop.create_connection(lambda: self.connection.answers, HOST, port)
        except (OSError, KeyError):
            self.connection.close()
        else:
            self.pause("no broker yet", False)

    def note(self, head: bytes, size: int) -> tuple[Note, Rule] | None:
        _, kind, version, correlation, length = HEAD.unpack_from(head.ljust(HEAD.size, b"\0"))
        origin = self.connection.origin
        client = head[HEAD.size : HEAD.size + max(0, length)].decode(errors="replace")
        if client != origin.client:
            origin.client = client
            self.connection.apply_cuts()
        note = self.traffic.note(origin, kind, version, size, head)
        self.connection.waiting[correlation] = note
        rule = self.traffic.rule_for(note, origin)
        return (note, rule) if rule else None

    def apply(self, note: Note, rule: Rule, frame: bytes) -> None:
        if rule.action in ("kill", "drop", "close") and rule.signal != signal.SIGSTOP:
            waiting = self.connection.waiting
            self.connection.waiting = {key: each for key, each in waiting.items() if each is not note}
        super().apply(note, rule, frame)

    def error(self, note: Note, rule: Rule, frame: bytes) -> None:
        messages = self.traffic.messages
        note.reply = messages.error_answer(messages.kinds[rule.kind], note.version, frame, rule.code)
        self.connection.answers.reply()


class Answers(Direction):
    """From a broker to its client."""

    other, smallest = "to", 8

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.connection.closed:  # the client is gone already
            transport.close()

    def note(self, head: bytes, size: int) -> tuple[Note, Rule] | None:
        correlation = ANSWER.unpack_from(head)[1]
        waiting = self.connection.waiting
        if correlation not in waiting:
            return None
        for key in list(waiting):  # an earlier one has no answer: it asked for none, or its answer was ours
            note = waiting.pop(key)
            if key == correlation:
                break
        note.done, note.answer = self.traffic.loop.time(), head
        if waiting:
            self.traffic.loop.call_soon(self.reply)
        return (note, note.rule) if note.rule else None

    def error(self, note: Note, rule: Rule, frame: bytes) -> None:
        messages = self.traffic.messages
        note.answer = messages.with_error(messages.kinds[rule.kind], note.version, frame, rule.code)
        self.send(note.answer)

    def reply(self) -> None:
        """Send the answers of our own whose turn it is: a client expects them in the order of its requests."""
        while self.connection.waiting:
            key, note = next(iter(self.connection.waiting.items()))
            if not note.reply:
                return
            del self.connection.waiting[key]
            note.done, note.answer = self.traffic.loop.time(), note.reply[:KEPT]
            self.send(note.reply)
