"""Tokens of a node: which request each may make. No broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kqlib.errors import NotAllowed
from kqlib.virtual import routes
from kqlib.virtual.request_limits import OPEN
from kqlib.virtual.tokens import Token, read
from tests.unit.test_virtual_limits import ask

TOKENS = """
[all]
token = "all-rights"
[writer]
token = "writes-orders"
prefix = "orders-"
verbs = ["put"]
[worker]
token = "works-on-orders"
prefix = "orders-"
verbs = ["claim"]
[team]
token = "keeps-orders"
prefix = "orders-"
"""
ALL, WRITER, WORKER, TEAM = "all-rights", "writes-orders", "works-on-orders", "keeps-orders"
MAY = {  # a request -> who may make it
    "GET /map": {ALL, WRITER, WORKER, TEAM},
    "GET /openapi.json": {ALL, WRITER, WORKER, TEAM},
    "POST /queues/orders-eu/records": {ALL, WRITER, TEAM},
    "POST /queues/other/records": {ALL},
    "POST /queues/orders/records": {ALL},
    "GET /queues/orders-eu/records": {ALL, WORKER, TEAM},
    "GET /queues/orders-eu": {ALL, WORKER, TEAM},
    "POST /queues/orders-eu/consumers/c/claim": {ALL, WORKER, TEAM},
    "POST /queues/orders-eu/consumers/records/ack": {ALL, WORKER, TEAM},
    "POST /queues/other/consumers/c/bury": {ALL},
    "GET /queues/orders-eu.dead/consumers/c/depth": {ALL, WORKER, TEAM},
    "DELETE /queues/orders-eu/consumers/c": {ALL, WORKER, TEAM},
    "DELETE /queues/orders-eu": {ALL, TEAM},
    "POST /queues/orders-eu.dead/consumers/c/redrive": {ALL, TEAM},
    "GET /queues?limit=3&prefix=orders-e": {ALL, TEAM},
    "GET /queues?prefix=order": {ALL},
    "GET /queues?prefix=orders-&prefix=other": {ALL},
    "GET /queues?prefix=orders-&prefix=": {ALL},
    "GET /queues?prefix=other&prefix=orders-": {ALL, TEAM},
    "GET /queues": {ALL},
    "GET /queues/orders-eu/consumers/redrive": {ALL, WORKER, TEAM},
    "POST /partitions/0/collect": {ALL},
}


def status(tokens: list[Token], request: str, sent: str | None) -> int:
    """How a node with these tokens answers."""
    method, _, url = request.partition(" ")
    path, _, query = url.partition("?")
    headers = [(b"authorization", f"Bearer {sent}".encode())] if sent else []
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": headers}
    return ask(tokens, scope)[0]


@pytest.fixture
def tokens(tmp_path: Path) -> list[Token]:
    (tmp_path / "tokens.toml").write_text(TOKENS)
    return read(str(tmp_path / "tokens.toml"))


@pytest.mark.parametrize("request_", MAY)
def test_a_token_may_use_its_verbs_in_queues_that_begin_with_its_prefix(tokens: list[Token], request_: str) -> None:
    found = {sent: status(tokens, request_, sent) for sent in (ALL, WRITER, WORKER, TEAM, "another-token", None)}
    expected = {sent: 200 if sent in MAY[request_] else 403 for sent in (ALL, WRITER, WORKER, TEAM)}
    assert found == expected | {"another-token": 401, None: 401}
    assert status([], request_, None) == 200  # a node without tokens


@pytest.mark.parametrize("request_", [request for request in MAY if "?" not in request])
def test_a_line_break_after_a_path_gives_no_more_rights(tokens: list[Token], request_: str) -> None:
    """The pattern of a route matches before it: a token that may claim could put, and every token could list all queues."""
    assert {status(tokens, f"{request_}\n", sent) for sent in (ALL, WORKER, None)} == {404}


def test_who_puts_dead_letters_back_needs_the_right_in_the_queue_where_they_go() -> None:
    request = "POST /queues/orders.dead/consumers/c/redrive"
    asked = {prefix: status([Token("some-token", prefix)], request, "some-token") for prefix in ("orders", "orders.")}
    assert asked == {"orders": 200, "orders.": 403}


def test_every_route_needs_a_right_but_those_that_need_any_token_or_none(tokens: list[Token]) -> None:
    free = {"/map", "/docs", "/openapi.json", *OPEN}
    for route in routes.router.routes:
        path, methods = route.path, route.methods  # type: ignore[attr-defined]
        for method in methods - {"HEAD"}:
            asked = path.replace("{q}", "q").replace("{c}", "c").replace("{p}", "0")
            assert (status([Token("some-token", "no-such-", ())], f"{method} {asked}", "some-token") == 200) == (
                path in free
            ), path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[a", "cannot be read: "),
        ("# nobody yet", "has no token"),
        ("[a]\ntoken = 'long-enough-token'\nverbs = [['put']]", "verbs are some of"),
        ("[a]\ntoken = 5", "token"),
        ("token = 'abcdefgh'", r"\[token\] has a token, and it may have a prefix and verbs"),
        ("[a]\nprefix = 'x'", r"\[a\] has a token"),
        ("[a]\ntoken = 'abcdefgh'\nprefixes = 'x'", r"\[a\] has a token"),
        (
            "[a]\ntoken = 'abcdefgh'\nverbs = ['read']",
            r"\[a\]: prefix is text, and verbs are some of put, claim, admin",
        ),
        ("[a]\ntoken = ''", "a token is at least 8 ASCII characters"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(NotAllowed, match=says):
        read(str(tmp_path / "t.toml"))
    with pytest.raises(NotAllowed, match="cannot be read"):
        read(str(tmp_path / "none.toml"))


def test_no_token_is_shown() -> None:
    assert "secret-token" not in repr(Token("secret-token"))
