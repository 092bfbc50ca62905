"""The limits of a node: what is hardly HTTP, bodies that are not JSON, clients that are slow, silent or too many."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest

from kqlib.kafka import Kafka
from kqlib.virtual import request_limits
from kqlib.virtual.client import Client
from kqlib.virtual.node import Node
from kqlib.virtual.record_json import to_text
from tests.patience import PATIENCE, WAIT
from tests.promises.virtual_nodes import serving

TOKEN = "a-token-of-this-test"
HEAD = f"host: localhost\r\nauthorization: Bearer {TOKEN}\r\n"


@pytest.fixture(scope="module")
def node(kq_cluster: Kafka) -> Iterator[Node]:
    with serving(kq_cluster, token=TOKEN) as node:
        yield node


def plain(node: Node, text: str | bytes = "") -> socket.socket:
    """A connection that has sent this."""
    host, port = node.url.removeprefix("http://").split(":")
    made = socket.create_connection((host, int(port)), WAIT)
    with suppress(ConnectionResetError, BrokenPipeError):  # a refusal, which can be read, may come before all is sent
        made.sendall(text if isinstance(text, bytes) else text.encode())
    return made


def ask(node: Node, verb: str, path: str, **how: object) -> httpx.Response:
    return httpx.request(
        verb,
        node.url + path,
        timeout=WAIT,
        trust_env=False,
        **{"headers": {"Authorization": f"Bearer {TOKEN}"}, **how},  # type: ignore[arg-type]
    )


RAW = (
    (f"POST /queues/q/records HTTP/1.1\r\n{HEAD}content-length: 9\r\n\r\n{{not json", 422),
    ("POST /queues/q/records HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}", 401),
    (f"POST /queues/q/records HTTP/1.1\r\n{HEAD}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}", 400),
    (f"POST /queues/q/records HTTP/1.1\r\n{HEAD}content-length: -2\r\n\r\n{{}}", 400),
    (f"POST /queues/q/records HTTP/1.1\r\n{HEAD}content-length: 99999999\r\n\r\n{{}}", 413),
    ("GET /queues HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\n\r\n", 401),
    ("GET /queues HTTP/1.1\r\nhost: localhost\r\nauthorization: bearer {TOKEN}\r\n\r\n".replace("{TOKEN}", TOKEN), 200),
    ("GET /queues HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer \u00e4\r\n\r\n", 401),
    ("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", 200),
    ("GET /health HTTP/1.0\r\n\r\n", 200),
    ("GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", 200),
    ("HEAD /health HTTP/1.1\r\nhost: localhost\r\n\r\n", 200),
    (f"HEAD /queues/none HTTP/1.1\r\n{HEAD}\r\n", 404),
    ("GET /map HTTP/1.1\r\nhost: localhost\r\n\r\n", 401),
    ("GET /health HTTP/1.1\r\n\r\n", 400),
    ("nonsense\r\n\r\n", 400),
    ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", 400),
    ("GET /health HTTP/1.1\r\nhost: localhost\r\nlong: " + "x" * 200_000 + "\r\n\r\n", 400),
)


@pytest.mark.parametrize(("raw", "status"), RAW)
def test_what_is_hardly_http_is_answered_as_well(node: Node, raw: str, status: int) -> None:
    with plain(node, raw.encode("latin-1")) as connection:
        answer = connection.recv(1_000)
        assert answer.split(b" ")[1] == str(status).encode()
        assert status == 200 or b"\r\ncontent-type: application/problem+json\r\n" in answer


JSON = "application/json"
BODIES = {
    "too deep": (JSON, b'{"records":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a number without end": (JSON, b'{"n":' + b"9" * 100_000 + b"}"),
    "a number of 4,000 digits": (JSON, b'{"n":' + b"9" * 4_000 + b"}"),
    "more than there is": (JSON, b'{"lease":1e400}'),
    "no number": (JSON, b'{"lease":NaN}'),
    "for ever": (JSON, b'{"wait":Infinity}'),
    "no text": (JSON, b'{"order":"\xff"}'),
    "half a character": (JSON, rb'{"order":"\ud800"}'),
    "words twice": (JSON, b'{"n":1,"n":0}'),
    "nothing": (JSON, b""),
    "packed": (JSON, b"\x1f\x8b\x08"),
    "a form": ("application/x-www-form-urlencoded", b"n=1"),
    "no kind": ("", b'{"n":1}'),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_body_that_is_not_what_it_should_be_is_refused_with_a_sentence(node: Node, what: str) -> None:
    kind, body = BODIES[what]
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
    response = ask(node, "POST", "/queues/q/consumers/c/claim", content=body, headers=headers)
    assert response.status_code in (400, 422) and response.json()["detail"], response.text
    assert (
        kind == JSON
        or "it is JSON, and has to say so, as in 'Content-Type: application/json'" in response.json()["detail"]
    )


def test_a_connection_that_never_finishes_its_request_is_closed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "IDLE", 0.3 * PATIENCE)
    monkeypatch.setattr(request_limits, "SLOW", 0.5)
    post = "POST /queues/q/records HTTP/1.1\r\n"
    for raw in ("", "GET /health HTTP/1.1\r\nhost:", post + "host: localhost\r\ncontent-length: 9\r\n"):
        # a reset: it was closed before the words were sent, because they were late
        with plain(node, raw) as connection, suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    monkeypatch.setattr(
        request_limits, "IDLE", WAIT
    )  # else a connection whose words come late is closed before they are read
    with plain(node, f"{post}{HEAD}content-length: 9\r\n\r\n{{") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_who_never_reads_its_answers_is_cut_off(
    node: Node, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float]
) -> None:
    """Else each of them holds an answer, and a place, for ever."""
    ended: list[Any] = []
    lost = request_limits.Connection.connection_lost

    def noted(connection: Any, error: Exception | None) -> None:
        ended.append(connection.client)
        lost(connection, error)

    monkeypatch.setattr(request_limits.Connection, "connection_lost", noted)
    record = {"data": to_text(b"x" * 900_000)}
    for _ in range(4):
        assert ask(node, "POST", "/queues/large/records", json={"records": [record]}).status_code == 201
    monkeypatch.setattr(request_limits, "IDLE", 0.3 * PATIENCE)
    with plain(node, f"GET /queues/large/records HTTP/1.1\r\n{HEAD}\r\n" * 8) as silent:
        within(30, lambda: silent.getsockname() in ended, "the connection is there")


def test_more_requests_at_once_than_there_are_places_are_refused_for_now(
    kq_cluster: Kafka, monkeypatch: pytest.MonkeyPatch, within: Callable[..., float]
) -> None:
    monkeypatch.setattr(request_limits, "MOST", 20)
    poll = json.dumps({"wait": 60})
    raw = f"POST /queues/q/consumers/c/claim HTTP/1.1\r\n{HEAD}content-type: {JSON}\r\ncontent-length: {len(poll)}\r\n\r\n{poll}"
    with serving(kq_cluster, token=TOKEN) as node, Client(node.url, token=TOKEN) as client, ExitStack() as waiting:
        for _ in range(20):
            waiting.enter_context(plain(node, raw))
        within(30, lambda: len(node.server(0)._parked.get("q", ())) == 20, "20 claims do not wait")
        assert (response := ask(node, "GET", "/queues")).status_code == 503
        assert response.headers["retry-after"] == "1" and response.json()["detail"].startswith(
            "this node answers 20 requests at once"
        )
        assert ask(node, "GET", "/health").json() == {"status": "ok"}
        put = threading.Thread(target=client.queue("q").put, args=(b"goal",))  # goes on when there is a place
        put.start()
        within(30, lambda: client._trouble, "the put was not refused")
        waiting.close()
        put.join(WAIT)
        assert client.queue("q").depth() == 1


def test_the_places_leave_open_files_to_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, places in ((1_024, 393), (256, 100), (100_000, request_limits.MOST), (-1, request_limits.MOST)):
        monkeypatch.setattr("resource.getrlimit", lambda _, files=files: (files, files))
        assert request_limits.most_at_once() == places
