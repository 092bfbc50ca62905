"""The process between clients and brokers. It passes bytes on, notes the head of each request and answer, and applies rules.

In:  connections of clients, one port for each broker in each lane; commands over a Unix socket. Out: the same bytes at the broker,
and what crossed. A lane is a listener that the brokers have for the wire: clients use one, brokers may use others among themselves.
It is a process of its own, so that no other Python thread delays it. Bytes that are no Kafka request are passed on as they are.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import signal
import ssl
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from kqlib.workshop.wire.messages import ANSWER, HEAD, Messages

HOST = "127.0.0.1"
KEPT = 2048  # bytes that are noted of each request and answer: enough for its fields, without most of the records
LARGEST = 2**30  # a request that says it is longer is none
MOST = 10_000  # crossings that a lane remembers
FOREVER = float("inf")
LOOK = 0.02  # seconds between two looks at a stopped process
STOPPED, GONE = ("T", "t"), ("X", "Z", "x")  # states of a process


@dataclass
class Crossed:
    """A request that crossed, and its answer. Times are the loop's."""

    number: int
    at: float
    lane: str
    broker: int
    owner: tuple[int | None, str]  # the process, if the system tells it, and the client id
    kind: int
    version: int
    nth: int  # of its kind, of its owner
    size: int
    request: bytes
    done: float | None = None
    answer: bytes = b""
    answer_size: int = 0
    accident: str = ""
    reply: bytes = b""  # ours, instead of the broker's


@dataclass
class Rule:
    """What shall happen at one request: the nth that fits."""

    action: str  # kill, drop, error, hold, close
    lane: str
    kind: int
    nth: int = 1
    when: str = "before"  # it reaches the broker; or "after": the broker has answered
    broker: int | None = None
    client: str | None = None
    pid: int | None = None
    target: int = 0  # the process to kill or stop; 0: the lane's process group
    signal: int = signal.SIGKILL
    code: int = 0
    delay: float = 0
    words: str = ""
    met: int = 0
    fired: asyncio.Event = field(default_factory=asyncio.Event)

    def fits(self, link: Link, kind: int) -> bool:
        """Is it about such a request?"""
        return self.kind == kind and not self.fired.is_set() and _about(self, link)


@dataclass
class Standing:
    """A cut or a delay: it holds for each connection that fits, until it is lifted."""

    lane: str
    broker: int | None = None
    client: str | None = None
    pid: int | None = None
    ways: tuple[str, ...] = ()  # cut these
    delay: float = 0


def _about(rule: Rule | Standing, link: Link) -> bool:
    """Is it about this connection?"""
    return (
        rule.lane == link.lane
        and rule.broker in (None, link.broker)
        and rule.client in (None, link.client)
        and rule.pid in (None, link.pid)
    )


class Link:
    """A client's connection, and the one to the broker that belongs to it."""

    def __init__(self, proxy: Proxy, lane: str, broker: int) -> None:
        self.proxy, self.lane, self.broker = proxy, lane, broker
        self.client, self.pid = "", None  # type: tuple[str, int | None]
        self.closed = False
        self.waiting: dict[int, Crossed] = {}  # by correlation id, in their order
        self.answers = ToClient(self)
        self.ways: dict[str, Way] = {"to": ToBroker(self), "from": self.answers}

    def close(self) -> None:
        """Close both connections, after what is on its way. What is held is dropped."""
        self.closed = True
        self.proxy.links.discard(self)
        for way in self.ways.values():
            if way.transport:
                way.transport.close()

    def heed(self) -> None:
        """Cut what is cut now."""
        cut = {way for each in self.proxy.standing if _about(each, self) for way in each.ways}
        for name, way in self.ways.items():
            way.pause("cut", name in cut)


class Way(asyncio.Protocol):
    """One direction: what its source sends goes to the other end, frame by frame."""

    name, other = "", ""
    smallest = 4

    def __init__(self, link: Link) -> None:
        self.link = link
        self.transport: asyncio.Transport | None = None  # where it comes from
        self._rest = 0  # bytes of a frame that are passed on unseen
        self._kept = b""  # the beginning of a frame
        self._looked = False  # at the frame that begins in _kept
        self._due: tuple[Crossed, Rule] | None = None  # what happens to that frame
        self._raw = False
        self._queue: deque[list[Any]] = deque()  # when it is due, and bytes
        self._pauses: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._pauses:
            transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.link.close()

    def pause_writing(self) -> None:
        self.link.ways[self.other].pause("full", True)

    def resume_writing(self) -> None:
        self.link.ways[self.other].pause("full", False)

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
        loop = self.link.proxy.loop
        while self._queue and self._queue[0][0] <= loop.time():
            self._sink.write(self._queue.popleft()[1])
        if self._queue and self._queue[0][0] < FOREVER:
            loop.call_at(self._queue[0][0], self.flush)

    def release(self) -> None:
        """Pass on what is held."""
        for each in self._queue:
            each[0] = min(each[0], self.link.proxy.loop.time())
        self.flush()

    @property
    def _sink(self) -> asyncio.Transport:
        transport = self.link.ways[self.other].transport
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
            if not self._looked:
                self._looked, self._due = True, self.look(data[at : at + min(size, KEPT)], size)
            if self._due:
                if len(data) - at < size:
                    break
                self.send(data[first:at])
                self.apply(*self._due, data[at : at + size])
                if self.link.closed:  # by the accident: what came with the frame does not go on either
                    return
                first = at + size
            self._looked = False
            at += size
        self._rest = max(0, at - len(data))
        self.send(data[first:at])
        self._kept = data[at:]

    def apply(self, crossed: Crossed, rule: Rule, frame: bytes) -> None:
        """Let it happen to this frame."""
        rule.fired.set()
        crossed.accident = rule.words
        if rule.action == "kill":
            self.link.proxy.signal(rule)
            if rule.signal == signal.SIGKILL:
                self.link.close()
            else:
                self.send(frame, FOREVER)
                self.link.proxy.loop.call_later(LOOK, self._when_it_runs, rule)
        elif rule.action == "hold":
            self.send(frame, FOREVER)
        elif rule.action == "delay":
            self.send(frame, self.link.proxy.loop.time() + rule.delay)
        elif rule.action == "close":
            self.link.close()
        elif rule.action == "error":
            self.error(crossed, rule, frame)

    def _when_it_runs(self, rule: Rule, stopped: bool = False) -> None:
        """Pass on what is held as soon as the stopped process goes on. It may take a moment until it stands."""
        state = process_state(rule.target)
        if state in GONE:
            self.link.close()
        elif stopped and state not in STOPPED:
            self.release()
        else:
            self.link.proxy.loop.call_later(LOOK, self._when_it_runs, rule, state in STOPPED)

    def look(self, head: bytes, size: int) -> tuple[Crossed, Rule] | None:
        """Note the frame that begins with these bytes. What shall happen to it, if anything."""
        raise NotImplementedError

    def error(self, crossed: Crossed, rule: Rule, frame: bytes) -> None:
        """An error code instead of the answer."""
        raise NotImplementedError


class ToBroker(Way):
    """Requests."""

    name, other, smallest = "to", "from", 12

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here: go to its broker."""
        self.pause("no broker yet", True)
        super().connection_made(transport)
        link, proxy = self.link, self.link.proxy
        link.pid = proxy.owner(transport)
        proxy.links.add(link)
        link.heed()
        proxy.loop.create_task(self._to_broker())

    async def _to_broker(self) -> None:
        link = self.link
        try:
            port = link.proxy.targets[link.lane, link.broker]
            await link.proxy.loop.create_connection(lambda: link.ways["from"], HOST, port)
        except (OSError, KeyError):
            link.close()
        else:
            self.pause("no broker yet", False)

    def look(self, head: bytes, size: int) -> tuple[Crossed, Rule] | None:
        _, kind, version, correlation, length = HEAD.unpack_from(head.ljust(HEAD.size, b"\0"))
        link, proxy = self.link, self.link.proxy
        client = head[HEAD.size : HEAD.size + max(0, length)].decode(errors="replace")
        if client != link.client:
            link.client = client
            link.heed()
        crossed = proxy.note(link, kind, version, size, head)
        link.waiting[correlation] = crossed
        now = None
        for rule in [rule for rule in proxy.rules if rule.fits(link, kind) and proxy.turn(rule)]:
            if rule.when == "before":
                now = now or (crossed, rule)
            else:
                proxy.later.setdefault(crossed.number, rule)
        delay = sum(each.delay for each in proxy.standing if _about(each, link))
        return now or ((crossed, Rule("delay", link.lane, kind, delay=delay)) if delay else None)

    def apply(self, crossed: Crossed, rule: Rule, frame: bytes) -> None:
        if rule.action in ("kill", "drop", "close") and rule.signal != signal.SIGSTOP:
            self.link.waiting = {key: each for key, each in self.link.waiting.items() if each is not crossed}
        super().apply(crossed, rule, frame)

    def error(self, crossed: Crossed, rule: Rule, frame: bytes) -> None:
        proxy = self.link.proxy
        crossed.reply = proxy.messages.refused(proxy.messages.kinds[rule.kind], crossed.version, frame, rule.code)
        self.link.answers.reply()


class ToClient(Way):
    """Answers."""

    name, other, smallest = "from", "to", 8

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.link.closed:  # the client is gone already
            transport.close()

    def look(self, head: bytes, size: int) -> tuple[Crossed, Rule] | None:
        correlation = ANSWER.unpack_from(head)[1]
        link = self.link
        if correlation not in link.waiting:
            return None
        for key in list(link.waiting):  # an earlier one has no answer: it asked for none, or its answer was ours
            crossed = link.waiting.pop(key)
            if key == correlation:
                break
        crossed.done, crossed.answer, crossed.answer_size = link.proxy.loop.time(), head, size
        if link.waiting:
            link.proxy.loop.call_soon(self.reply)
        rule = link.proxy.later.pop(crossed.number, None)
        return (crossed, rule) if rule else None

    def error(self, crossed: Crossed, rule: Rule, frame: bytes) -> None:
        messages = self.link.proxy.messages
        crossed.answer = messages.spoilt(messages.kinds[rule.kind], crossed.version, frame, rule.code)
        self.send(crossed.answer)

    def reply(self) -> None:
        """Send the answers of our own whose turn it is: a client expects them in the order of its requests."""
        while self.link.waiting:
            key, crossed = next(iter(self.link.waiting.items()))
            if not crossed.reply:
                return
            del self.link.waiting[key]
            crossed.done, crossed.answer, crossed.answer_size = (
                self.link.proxy.loop.time(),
                crossed.reply[:KEPT],
                len(crossed.reply),
            )
            self.send(crossed.reply)


class Proxy:
    """The lanes, the rules, and what crossed."""

    def __init__(self, jar: Path) -> None:
        self.loop = asyncio.get_running_loop()
        self.messages = Messages(jar)
        self.ports: dict[tuple[str, int], int] = {}
        self.targets: dict[tuple[str, int], int] = {}
        self.links: set[Link] = set()
        self.rules: list[Rule] = []
        self.standing: list[Standing] = []
        self.later: dict[int, Rule] = {}  # by a crossing's number: what happens to its answer
        self._numbers, self._begun = count(1), self.loop.time()
        self._crossed: dict[str, deque[Crossed]] = {}
        self._counts: Counter[tuple[str, int | str, int]] = Counter()
        self._totals: dict[str, Counter[int]] = {}
        self.victims: dict[str, int] = {}  # the process group that a lane's rule without a target kills
        self._known: set[int] = set()

    async def listen(self, lane: str, brokers: int, tls: ssl.SSLContext | None) -> None:
        """A port for each broker."""
        self._crossed[lane] = deque(maxlen=MOST)
        self._totals[lane] = Counter()
        for broker in range(1, brokers + 1):
            server = await self.loop.create_server(
                lambda broker=broker: Link(self, lane, broker).ways["to"],
                HOST,
                0,
                ssl=tls,
                backlog=512,
            )
            self.ports[lane, broker] = server.sockets[0].getsockname()[1]

    def note(self, link: Link, kind: int, version: int, size: int, head: bytes) -> Crossed:
        """A request is here."""
        key = (link.lane, link.pid or link.client, kind)
        self._counts[key] += 1
        self._totals[link.lane][kind] += 1
        owner = (link.pid, link.client)
        made = Crossed(
            next(self._numbers),
            self.loop.time(),
            link.lane,
            link.broker,
            owner,
            kind,
            version,
            self._counts[key],
            size,
            head,
        )
        self._crossed[link.lane].append(made)
        return made

    def turn(self, rule: Rule) -> bool:
        """A request fits this rule: is it the nth?"""
        rule.met += 1
        return rule.met == rule.nth

    def signal(self, rule: Rule) -> None:
        """Kill or stop a process, or the process group of this lane."""
        with suppress(ProcessLookupError):
            if rule.target:
                os.kill(rule.target, rule.signal)
            else:
                rule.target = self.victims.get(rule.lane, 0)
                os.killpg(rule.target, rule.signal)

    def owner(self, transport: asyncio.BaseTransport) -> int | None:
        """The process at the other end of a connection."""
        theirs, ours = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        found = process_of(theirs[1], ours[1], self._known) if theirs and ours else None
        if found:
            self._known.add(found)
        return found

    # --- commands: each returns what can be pickled ---------------------------------------------------------------------

    async def do_ports(self) -> dict[tuple[str, int], int]:
        """Where it listens."""
        return self.ports

    async def do_targets(self, targets: dict[tuple[str, int], int]) -> None:
        """Where the brokers are."""
        self.targets = targets

    async def do_rule(self, **how: Any) -> int:
        """A rule for one request. How many the process has sent already, and then there is no rule if that is too late."""
        rule = Rule(**how)
        rule.met = self._counts[rule.lane, rule.pid, rule.kind] if rule.pid else 0
        if rule.met >= rule.nth:
            return rule.met
        self.rules.append(rule)
        return 0

    async def do_wait(self, lane: str, seconds: float) -> bool:
        """Wait until every rule of the lane has met its request."""
        end = self.loop.time() + seconds
        while waits := [each.fired for each in self.rules if each.lane == lane and not each.fired.is_set()]:
            try:
                await asyncio.wait_for(waits[0].wait(), end - self.loop.time())
            except TimeoutError:
                return False
        return True

    async def do_stand(self, **how: Any) -> None:
        """Cut or delay from now on."""
        self.standing.append(Standing(**how))
        self._heed()

    async def do_heal(self, lane: str) -> None:
        """Lift every cut, delay and rule of a lane, and pass on what was held."""
        self.standing = [each for each in self.standing if each.lane != lane]
        self.rules = [each for each in self.rules if each.lane != lane]
        self._heed()
        await self.do_release(lane)

    async def do_release(self, lane: str) -> None:
        """Pass on what was held."""
        for link in self.links:
            for way in link.ways.values() if link.lane == lane else ():
                way.release()

    async def do_seen(self, lane: str, after: int = 0) -> list[dict[str, Any]]:
        """What crossed."""
        begun = self._begun
        return [
            {**vars(each), "at": each.at - begun, "done": each.done and each.done - begun, "reply": b""}
            for each in self._crossed[lane]
            if each.number > after
        ]

    async def do_state(self, lane: str) -> tuple[dict[int, int], int]:
        """How many requests of each kind have crossed since the lane was cleared, and how many rules have met theirs."""
        return dict(self._totals[lane]), sum(each.fired.is_set() for each in self.rules if each.lane == lane)

    async def do_victim(self, lane: str, pid: int) -> None:
        """From now on this process group is the one to kill."""
        self.victims[lane] = pid

    async def do_clear(self, lane: str) -> None:
        """Forget what has crossed, and begin to count anew."""
        self._crossed[lane].clear()
        self._totals[lane].clear()
        for key in [key for key in self._counts if key[0] == lane]:
            del self._counts[key]

    def _heed(self) -> None:
        for link in self.links:
            link.heed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One command, and its answer."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            size = int.from_bytes(await reader.readexactly(8), "big")
            name, how = pickle.loads(await reader.readexactly(size))
            try:
                answer = (True, await getattr(self, f"do_{name}")(**how))
            except Exception as error:
                answer = (False, f"{type(error).__name__}: {error}")
            data = pickle.dumps(answer)
            writer.write(len(data).to_bytes(8, "big") + data)
            await writer.drain()
        writer.close()


# --- processes ---------------------------------------------------------------------------------------------------------


def process_of(port: int, ours: int, likely: set[int]) -> int | None:
    """The process that has the other end of a connection, where the system tells it (Linux). likely: look there first."""
    ends = re.compile(rf":{port:04X} [0-9A-F]+:{ours:04X} (.+)")
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # Java's connections are in the second
        with suppress(OSError):
            if found := ends.search(Path(table).read_text()):
                name = f"socket:[{found[1].split()[6]}]"
                return next((pid for pid in _processes(likely) if name in _files(pid)), None)
    return None


def _processes(likely: set[int]) -> Iterator[int]:
    """The processes of this machine, the newest first."""
    yield from likely
    with suppress(OSError):
        yield from sorted((int(each) for each in os.listdir("/proc") if each.isdigit()), reverse=True)


def _files(pid: int) -> Iterator[str]:
    """What a process has open."""
    with suppress(OSError):
        for each in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(each.path)


def process_state(pid: int) -> str:
    """A process's state, where the system tells it; else it counts as stopped, and `release` lets it go on."""
    if sys.platform != "linux":
        return STOPPED[0]
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return GONE[0]


async def main(address: str, jar: str, lanes: str, brokers: str, certificate: str) -> None:
    """Listen until the reaper ends this process."""
    proxy = Proxy(Path(jar))
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    for lane in lanes.split(","):
        await proxy.listen(lane, int(brokers), tls)
    await asyncio.start_unix_server(proxy.serve, f"{address}.new")
    os.rename(f"{address}.new", address)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
