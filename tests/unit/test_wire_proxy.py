"""The proxy between clients and brokers, without Kafka: a broker of a few lines notes each request and answers it."""

from __future__ import annotations

import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from kqlib.errors import Closed, NotAllowed
from kqlib.workshop.children import Children
from kqlib.workshop.wire.control import Proxy, Wire
from kqlib.workshop.wire.messages import HEAD
from kqlib.workshop.wire.processes import process_state
from tests.patience import WAIT

PRODUCE, COMMIT, HEARTBEAT, UNKNOWN = 0, 8, 12, 30_000


class Broker(socketserver.ThreadingTCPServer):
    """It answers each frame with its correlation id and notes what came, byte by byte."""

    daemon_threads = True

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.answer = b"answer"
        super().__init__(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answers(socketserver.StreamRequestHandler):
    server: Broker

    def handle(self) -> None:
        with suppress(OSError):
            while head := self.rfile.read(4):
                frame = head + self.rfile.read(int.from_bytes(head, "big"))
                self.server.came.append(frame)
                answer = frame[8:12] + self.server.answer
                self.wfile.write(len(answer).to_bytes(4, "big") + answer)


class Client:
    """A connection through the wire."""

    def __init__(self, wire: Wire, name: str = "tester") -> None:
        self.name, self._number = name.encode(), 0
        self.socket = socket.create_connection(("127.0.0.1", int(wire.bootstrap.split(":")[1].split(",")[0])))
        self.socket.settimeout(WAIT)

    def frame(self, kind: int, body: bytes = b"", version: int = 3) -> bytes:
        self._number += 1
        rest = HEAD.pack(0, kind, version, self._number, len(self.name))[4:] + self.name + body
        return len(rest).to_bytes(4, "big") + rest

    def send(self, kind: int, body: bytes = b"", version: int = 3) -> bytes:
        frame = self.frame(kind, body, version)
        self.socket.sendall(frame)
        return frame

    def answer(self, seconds: float = WAIT) -> tuple[int, bytes] | None:
        """The next answer; None if the connection was closed or nothing comes."""
        self.socket.settimeout(seconds)
        try:
            data = self.take(4)
            data = self.take(int.from_bytes(data, "big"))
        except (OSError, EOFError):
            return None
        return int.from_bytes(data[:4], "big"), data[4:]

    def take(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            if not (more := self.socket.recv(size - len(found))):
                raise EOFError
            found += more
        return found

    def ask(self, kind: int, body: bytes = b"", version: int = 3) -> tuple[int, bytes] | None:
        self.send(kind, body, version)
        return self.answer()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made
        made.shutdown()


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with Children() as children:
        yield Proxy(children, ["WIRE"], 1, None)


@pytest.fixture
def wire(broker: Broker, proxy: Proxy) -> Iterator[Wire]:
    """The proxy leads to this test's broker. Nothing happens on the wire, and nothing was seen."""
    cluster: Any = SimpleNamespace(broker=lambda number: SimpleNamespace(id=number))
    proxy.call("targets", targets={("WIRE", 1): broker.server_address[1]})
    made = Wire(cluster, proxy, "WIRE")
    made.clear()
    yield made
    made.heal()


@pytest.fixture
def connect(wire: Wire) -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def begin(name: str = "tester") -> Client:
        made.append(Client(wire, name))
        return made[-1]

    yield begin
    for client in made:
        client.socket.close()


def in_pieces(client: Client, data: bytes, size: int) -> None:
    for at in range(0, len(data), size):
        client.socket.sendall(data[at : at + size])


def calls(wire: Wire) -> list[tuple[str, str, int, str]]:
    return [(each.client, each.api, each.nth, each.accident) for each in wire.seen()]


def test_bytes_pass_unchanged_however_they_are_cut_and_each_request_is_noted(wire, broker, connect):
    client, sent = connect(), []
    for size in (0, 1, 2000, 2048, 2049, 70_000, 3_000_000):
        sent.append(client.frame(PRODUCE, bytes([size % 251]) * size))
    for step, frames in ((7, sent[:3]), (1_000_003, sent)):
        broker.came.clear()
        with ThreadPoolExecutor() as pool:
            pool.submit(in_pieces, client, b"".join(frames), step)
            assert [client.answer()[0] for _ in frames] == list(range(1, len(frames) + 1))
        assert broker.came == frames
    assert calls(wire) == [("tester", "Produce", number, "") for number in range(1, 11)]
    assert [each.bytes for each in wire.seen()] == [len(frame) for frame in sent[:3] + sent]
    assert all(each.ms is not None and each.ms >= 0 for each in wire.seen())


def test_a_large_answer_passes_unchanged(wire, broker, connect):
    broker.answer = os.urandom(5_000_000)
    assert connect().ask(PRODUCE) == (1, broker.answer)


def test_what_is_unknown_passes_and_rubbish_harms_nobody(wire, broker, connect):
    client = connect()
    assert client.ask(UNKNOWN) == (1, b"answer")
    assert client.ask(PRODUCE, version=99) == (2, b"answer")
    assert calls(wire)[0][1] == "kind 30000"
    for rubbish in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 40,
        b"\0\0\0\4abcd",
        b"\0\0\0",
        b"\0\0\0\x0b" + b"\xff" * 11,
        os.urandom(5000),
    ):
        other = connect()
        other.socket.sendall(rubbish)
        other.socket.close()
    assert client.ask(PRODUCE) == (3, b"answer")


def test_a_delay_holds_each_request_and_keeps_their_order(wire, broker, connect):
    client = connect()
    wire.delay(200)
    begun = time.monotonic()
    for _ in range(3):
        client.send(PRODUCE)
    assert [client.answer()[0] for _ in range(3)] == [1, 2, 3]
    assert time.monotonic() - begun >= 0.2
    wire.heal()
    assert client.ask(PRODUCE)[0] == 4
    assert wire.seen()[0].ms >= 200


@pytest.mark.parametrize("way", ["to", "from", "both"])
def test_a_cut_lets_nothing_pass_this_way_until_it_is_healed_and_other_clients_are_not_cut(
    wire, broker, connect, way, within
):
    cut, other = connect("cut"), connect("other")
    assert (cut.ask(PRODUCE)[0], other.ask(PRODUCE)[0]) == (1, 1)
    wire.cut(way=way, client="cut")
    cut.send(COMMIT)
    assert other.ask(PRODUCE)[0] == 2
    assert cut.answer(0.3) is None
    assert len(broker.came) == (4 if way == "from" else 3)
    wire.heal()
    assert cut.answer()[0] == 2
    assert len(broker.came) == 4


def test_a_cut_holds_new_connections_too(wire, broker, connect):
    wire.cut(1)
    client = connect()
    client.send(PRODUCE)
    assert client.answer(0.3) is None
    assert broker.came == []
    wire.heal()
    assert client.answer()[0] == 1


def test_one_answer_is_lost_and_one_request(wire, broker, connect):
    client = connect()
    wire.drop("OffsetCommit", 2)
    for kind in (COMMIT, PRODUCE, COMMIT, PRODUCE):
        client.send(kind)
    assert [client.answer()[0] for _ in range(3)] == [1, 2, 4]
    assert len(broker.came) == 4
    wire.drop("Produce", what="request")
    client.send(PRODUCE)
    assert client.ask(COMMIT)[0] == 6
    assert len(broker.came) == 5
    assert [accident for *_, accident in calls(wire)] == ["", "", "answer lost", "", "request lost", ""]


def test_a_held_request_goes_on_when_it_is_released_and_other_connections_overtake_it(wire, broker, connect):
    slow, quick = connect(), connect()
    wire.hold("Produce")
    held = slow.send(PRODUCE, b"first")
    assert wire.wait(WAIT)
    assert quick.ask(PRODUCE, b"second")[0] == 1
    assert slow.answer(0.2) is None
    wire.release()
    assert slow.answer()[0] == 1
    assert broker.came[1] == held


def test_a_refused_request_never_reaches_the_broker_and_its_answer_keeps_its_turn(wire, broker, connect):
    wire.error("Heartbeat", "REBALANCE_IN_PROGRESS", 2, "before")
    wire.hold("Heartbeat", 1, "answer")
    client = connect()
    client.send(HEARTBEAT)
    client.send(HEARTBEAT)
    assert wire.wait(WAIT)
    assert client.answer(0.3) is None, "the first has no answer yet"
    wire.release()
    assert client.answer() == (1, b"answer")
    correlation, body = client.answer()
    assert correlation == 2
    assert int.from_bytes(body[4:6], "big") == 27, "after the throttle time"
    assert len(broker.came) == 1
    assert wire.seen()[1].error == "REBALANCE_IN_PROGRESS"


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_connection_is_closed_before_or_after_a_request(wire, broker, connect, when):
    client = connect()
    wire.disconnect("Produce", 2, when)
    assert client.ask(PRODUCE)[0] == 1
    assert client.ask(PRODUCE) is None
    assert len(broker.came) == (1 if when == "before" else 2)
    assert connect().ask(PRODUCE)[0] == 1


@pytest.mark.parametrize("action", ["disconnect", "drop"])
def test_of_requests_in_one_packet_those_behind_an_accident_go_on_only_if_the_connection_does(
    wire, broker, connect, action, within
):
    client = connect()
    if action == "disconnect":
        wire.disconnect("Produce", 2)
    else:
        wire.drop("Produce", 2, "request")
    client.socket.sendall(b"".join(client.frame(PRODUCE, b"x" * 3000) for _ in range(4)))
    answers = []
    while len(answers) < 3 and (answer := client.answer()):
        answers.append(answer[0])
    assert answers in ([[], [1]] if action == "disconnect" else [[1, 3, 4]])
    arrived = 1 if action == "disconnect" else 3
    within(5, lambda: len(broker.came) == arrived)
    time.sleep(0.1)
    assert len(broker.came) == arrived
    assert [each.nth for each in wire.seen()] == ([1, 2] if action == "disconnect" else [1, 2, 3, 4])


SENDER = """
import socket, struct, sys
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for number in range(1, 100):
    body = struct.pack(">hhih", 0, 3, number, 1) + b"x"
    line.sendall(struct.pack(">i", len(body)) + body)
    line.recv(1000)
    print(number, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def sender(wire: Wire) -> Iterator[subprocess.Popen[str]]:
    """A process that sends a Produce for each line, and prints its number when it has the answer."""
    port = wire.bootstrap.split(":")[1]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", SENDER, port]
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        yield process
        process.kill()


def more(process: subprocess.Popen[str]) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_is_stopped_and_its_request_or_answer_waits_until_it_goes_on(wire, broker, sender, when, within):
    assert sender.stdout.readline() == "1\n"
    wire.kill(sender.pid, "Produce", 2, when, "STOP")
    more(sender)
    assert wire.wait(WAIT)
    within(10, lambda: process_state(sender.pid) == "T")
    time.sleep(0.2)
    assert len(broker.came) == (1 if when == "before" else 2)
    os.kill(sender.pid, 18)
    assert sender.stdout.readline() == "2\n"
    assert len(broker.came) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is")
def test_a_group_is_killed_at_the_request_of_one_process_and_not_at_those_of_others(wire, connect, sender):
    assert sender.stdout.readline() == "1\n"
    wire.set_group(sender.pid)
    wire.kill_group("Produce", 2, pid=sender.pid)
    client = connect()
    assert client.ask(0) and client.ask(0) and not wire.wait(0)
    more(sender)
    assert sender.wait(WAIT) == -9


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is")
def test_a_request_that_a_process_has_sent_already_is_refused(wire, sender):
    assert sender.stdout.readline() == "1\n"
    with pytest.raises(
        NotAllowed, match=f"process {sender.pid} has already sent 1 Produce; nth must be more than that"
    ):
        wire.kill(sender.pid, "Produce", 1)


WRONG: list[tuple[Callable[[Wire], object], str]] = [
    (lambda wire: wire.drop("OfsetCommit"), "Kafka has no request 'OfsetCommit'; did you mean OffsetCommit?"),
    (lambda wire: wire.drop("Produce", 0), "nth is the number of a request, 1 for the next, not 0"),
    (lambda wire: wire.drop("Produce", what="both"), "what is 'request' or 'answer', not 'both'"),
    (lambda wire: wire.cut(way="up"), "way is 'to' or 'from' or 'both', not 'up'"),
    (lambda wire: wire.delay(-1), "a delay is a number of milliseconds from 0 to 600,000, not -1"),
    (lambda wire: wire.kill(1, "Produce", signal="TERM"), "signal is 'KILL' or 'STOP', not 'TERM'"),
    (lambda wire: wire.kill(1, "Produce", when="at"), "when is 'before' or 'after', not 'at'"),
    (
        lambda wire: wire.error("Produce", "NOT_LEADER"),
        "Kafka has no error 'NOT_LEADER'; did you mean NOT_LEADER_OR_FOLLOWER?",
    ),
    (lambda wire: wire.error("Produce", 0), "Kafka has no error 0"),
    (lambda wire: wire.brokers, 'only clients are on this wire; make the cluster with wire="all"'),
]


def test_what_cannot_be_is_named(wire):
    for call, sentence in WRONG:
        with pytest.raises(NotAllowed) as refused:
            call(wire)
        assert str(refused.value) == sentence


def test_many_threads_command_it_while_bytes_pass(wire, connect):
    client = connect()

    def command(number: int) -> None:
        wire.delay(1, client=f"nobody {number}")
        wire.seen()
        wire.state()

    with ThreadPoolExecutor(8) as pool:
        done = pool.map(command, range(40))
        for number in range(1, 200):
            assert client.ask(PRODUCE)[0] == number
        list(done)


def test_after_its_end_a_call_says_that_it_is_closed():
    with Children() as children:
        ended = Proxy(children, ["WIRE"], 1, None)
        ended._child.kill()
        with pytest.raises(Closed, match="This wire is closed"):
            ended.call("ports")
