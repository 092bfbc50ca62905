"""A foreign web page and a node on this machine: a browser sends the page's requests, and the node refuses them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from kqlib.errors import KqError
from kqlib.kafka import Kafka
from kqlib.virtual.node import Node
from kqlib.virtual.record_json import to_text
from tests.patience import WAIT
from tests.promises.test_virtual_limits import plain
from tests.promises.virtual_nodes import serving

PAGE = "https://team.example"  # a page that may
PORT = 4711
FOREIGN = (
    {"Origin": "https://elsewhere.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},  # this machine, another server
    {"Host": "elsewhere.example"},  # an attacker's name that resolves to 127.0.0.1
    {"Host": "elsewhere.example", "Origin": "http://elsewhere.example"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},  # an image or a script
)
PUT = {"records": [{"data": to_text(b"theirs")}]}
REQUESTS = (
    ("GET", "/queues", None),
    ("GET", "/queues/q/records", None),
    ("POST", "/queues/q/records", PUT),
    ("POST", "/queues/q/consumers/c/claim", {}),
    ("POST", "/queues/q/consumers/c/offset", {"offset": 0}),
    ("POST", "/partitions/0/collect", None),
    ("DELETE", "/queues/q", None),
)


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    HTTP.close()


@pytest.fixture(scope="module")
def node(kq_cluster: Kafka) -> Iterator[Node]:
    with serving(kq_cluster, origins=[PAGE], hosts=["queues.test"]) as node:
        yield node


HTTP = httpx.Client(timeout=WAIT, trust_env=False)


def ask(node: Node, verb: str, path: str, body: object = None, **headers: str) -> httpx.Response:
    asked = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTP.request(verb, node.url + path, json=body, headers=asked)


def test_no_request_of_a_foreign_page_is_let_in_and_nothing_is_changed_by_it(node: Node) -> None:
    assert ask(node, "POST", "/queues/q/records", {"records": [{"data": to_text(b"ours")}]}).status_code == 201
    before = ask(node, "GET", "/queues/q").json()
    refused, let_in = [], []
    for headers in FOREIGN:
        for verb, path, body in REQUESTS:
            response = ask(node, verb, path, body, **headers)
            (refused if response.status_code == 403 else let_in).append((verb, path, headers))
    assert let_in == [], f"{len(let_in)} of {len(let_in) + len(refused)} were let in"
    assert response.json()["title"] == "Foreign" and "Nothing was done" in response.json()["detail"]
    assert ask(node, "GET", "/queues/q").json() == before


OURS = (
    {},
    {"Host": "localhost"},
    {"Host": f"localhost:{PORT}"},
    {"Host": f"127.0.0.1:{PORT}"},  # a tunnel has a port of its own
    {"Host": "[::1]:80"},
    {"Host": "LOCALHOST"},
    {"Host": "queues.test"},
    {"Origin": PAGE},
    {"Origin": PAGE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
    {"Host": "localhost:80", "Origin": "http://localhost:80"},  # a page of the node itself
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},  # a link to it
)


@pytest.mark.parametrize("headers", OURS, ids=str)
def test_what_is_not_of_a_foreign_page_is_let_in(node: Node, headers: dict[str, str]) -> None:
    response = ask(node, "GET", "/queues", **headers)
    assert response.status_code == 200
    assert response.headers.get("access-control-allow-origin") == (PAGE if headers.get("Origin") == PAGE else None)


def test_a_browser_that_asks_beforehand_is_answered(node: Node) -> None:
    asks = {"Access-Control-Request-Method": "DELETE", "Access-Control-Request-Headers": "authorization,content-type"}
    response = ask(node, "OPTIONS", "/queues/q", Origin=PAGE, **asks, Access_Control_Request_Private_Network="true")
    assert response.status_code == 200 and response.headers["access-control-allow-origin"] == PAGE
    assert "DELETE" in response.headers["access-control-allow-methods"]
    assert "authorization" in response.headers["access-control-allow-headers"].lower()
    assert response.headers["access-control-allow-private-network"] == "true"
    response = ask(node, "OPTIONS", "/queues/q", Origin="https://elsewhere.example", **asks)
    assert response.status_code == 403 and "access-control-allow-origin" not in response.headers


def test_a_page_that_may_ask_can_read_a_refusal_too(node: Node) -> None:
    response = ask(node, "DELETE", "/queues/none", Origin=PAGE)
    assert response.status_code == 404 and response.headers["access-control-allow-origin"] == PAGE


WRONG = (
    ({"origins": ["team.example"]}, "an origin is like 'https://team.example', without a path, not 'team.example'"),
    ({"origins": ["https://team.example/"]}, "an origin is like"),
    ({"origins": ["*"]}, "an origin is like"),
    ({"origins": "https://team.example"}, "origins is a list"),
    ({"hosts": ["queues.test:80"]}, "a host is a name or an address without a port, not 'queues.test:80'"),
    ({"hosts": "queues.test"}, "hosts is a list"),
)


@pytest.mark.parametrize(("how", "sentence"), WRONG)
def test_a_page_or_a_name_that_cannot_be_is_refused(
    kq_cluster: Kafka, node: Node, how: dict[str, list[str]], sentence: str
) -> None:
    with pytest.raises(KqError) as error:
        Node(kq_cluster, node.topic, **how)  # type: ignore[arg-type]
    assert str(error.value).startswith(sentence)


# --- bodies ---


def test_a_body_that_is_refused_is_not_read(node: Node) -> None:
    """The connection ends instead: who sends a gigabyte after a refusal would be listened to for as long as it takes."""
    for headers in ("host: elsewhere.example", f"host: x\r\norigin: {PAGE}x", "host: localhost"):
        head = f"POST /queues/q/records HTTP/1.1\r\n{headers}\r\ncontent-length: 1000000000\r\n\r\n"
        with plain(node, head) as connection, pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(1_000):
                connection.sendall(bytes(1_000_000))


def test_bodies_that_come_at_once_are_let_in_only_as_far_as_there_is_space(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kqlib.virtual.request_limits.BODIES", 10_000_000)
    monkeypatch.setattr("kqlib.virtual.request_limits.SLOW", WAIT)  # here a body may be late
    body = json.dumps(PUT | {"more": " " * 3_000_000}).encode()
    head = f"POST /queues/q/records HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    open_ = [plain(node, head) for _ in range(6)]
    try:
        answers = []
        for connection in open_[3:]:  # the first three have not sent their bodies yet
            answers.append(connection.recv(12))
        assert answers == [b"HTTP/1.1 503"] * 3
        for connection in open_[:3]:
            connection.sendall(body)
            assert connection.recv(12) == b"HTTP/1.1 422"  # read, and looked into
        with plain(node, head + body) as connection:
            assert connection.recv(12) == b"HTTP/1.1 422"
    finally:
        for connection in open_:
            connection.close()
