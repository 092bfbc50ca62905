"""The space for bodies: how much of it a request takes, and for how long."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from kqlib.virtual import request_limits
from kqlib.virtual.request_limits import BODY, RequestLimits
from kqlib.virtual.tokens import Token

TOKEN = "a-token-of-this-test"
KNOWN = [(b"authorization", f"Bearer {TOKEN}".encode())]
PIECES = (b"transfer-encoding", b"chunked")  # a body whose length is not announced


def scope(path: str = "/queues", headers: list[tuple[bytes, bytes]] = KNOWN) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": path, "headers": headers}


def ask(tokens: list[Token], asked: dict[str, Any]) -> tuple[int, RequestLimits]:
    """The status of the answer to a request, and the limits after it."""
    statuses: list[int] = []

    async def app(*_: Any) -> None:
        statuses.append(200)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    limits = RequestLimits(app, tokens, Counter())
    asyncio.run(limits(asked, receive, send))
    [status] = statuses
    return status, limits


def long_poll(asked: dict[str, Any], body: bytes) -> tuple[int, int, int]:
    """What one request holds before its body came, while it is answered, and after that."""
    held: list[int] = []

    async def run() -> None:
        async def app(*_: Any) -> None:
            held.append(made._bytes)

        async def receive() -> dict[str, Any]:
            held.append(made._bytes)
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            raise AssertionError(message)

        made = RequestLimits(app, [Token(TOKEN)], Counter())
        await made(asked, receive, send)
        held.append(made._bytes)

    asyncio.run(run())
    before, during, after = held
    return before, during, after


def test_a_request_that_announces_no_length_gives_back_what_its_body_does_not_take() -> None:
    assert long_poll(scope(headers=[*KNOWN, PIECES]), b"{}") == (
        BODY,
        2,
        0,
    )  # a long poll held 4 MB while it waited: 64 of them filled all space


def test_a_request_holds_what_it_announces() -> None:
    assert long_poll(scope(headers=[*KNOWN, (b"content-length", b"100")]), b"x" * 100) == (100, 100, 0)


def test_who_needs_no_token_takes_no_space_from_others() -> None:
    assert long_poll(scope("/health", []), b"")[0] == 0


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/queues", [*KNOWN, PIECES], 503), ("/health", [PIECES], 200), ("/queues", [PIECES], 401)],
)
def test_when_no_space_is_left_only_who_needs_some_is_refused(
    monkeypatch: pytest.MonkeyPatch, path: str, headers: list[tuple[bytes, bytes]], status: int
) -> None:
    monkeypatch.setattr(request_limits, "BODIES", BODY - 1)
    found, limits = ask([Token(TOKEN)], scope(path, headers))
    assert (found, limits._bytes, limits._at_once) == (status, 0, 0)
