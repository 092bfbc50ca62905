"""What is checked of every request before a route sees it: a token, the size, the time and the number of bodies.

In:  ASGI requests. Out: the same, or a refusal: no token (401), too few rights (403), too slow (408), too large (413), too many (503).
A body is refused by its announced length, before it is read. An unexpected exception is logged here and answered with a sentence,
never with a traceback. `origins` comes before it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
from collections import Counter
from collections.abc import Sequence
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from kqlib.virtual import tokens
from kqlib.virtual.errors import PROBLEM, problem
from kqlib.virtual.tokens import Token

log = logging.getLogger("kqlib.virtual")
BODY = 4_194_304  # bytes
BODIES = 268_435_456  # bytes of all bodies that are read or answered at once
VALUES = 12_000  # in one body: each takes a few µs to check, and all other requests wait for that
SLOW = 10.0  # seconds for a whole body
IDLE = 60.0  # seconds: a connection on which nothing happens is closed after once or twice that
OPEN = ("/health", "/ready")  # answered without a token
MOST = 10_000  # requests at once, long polls included
KAFKAS = 500  # open files that a node leaves to its Kafka clients


def most_at_once() -> int:
    """How many requests are answered at once: each is an open file of this process, as are its connections to Kafka."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, max(100, (files - KAFKAS) * 3 // 4))


class Connection(H11Protocol):
    """One client's connection. It is closed when nothing happens for too long: uvicorn waits for headers and readers for ever."""

    def connection_made(self, transport: Any) -> None:
        """Take it, unless there are far more than can be answered."""
        super().connection_made(transport)
        if len(self.connections) > most_at_once() * 4 // 3:
            transport.abort()
        self._next = self.loop.call_later(IDLE, self._check, self._progress())

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: there is nothing to check any more."""
        self._next.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP with an error like all others."""
        body = json.dumps(problem(400, "NotAllowed", "this is no request of HTTP")).encode()
        headers = [("content-type", PROBLEM), ("content-length", str(len(body))), ("connection", "close")]
        head = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        self.transport.write(
            b"".join(self.conn.send(e) or b"" for e in (head, h11.Data(data=body), h11.EndOfMessage()))
        )
        self.transport.close()

    def _progress(self) -> tuple[Any, int]:
        """What changes while something happens: the request, and how much of its answer is not fetched."""
        return self.cycle, self.transport.get_write_buffer_size()

    def _check(self, before: tuple[Any, int]) -> None:
        if self not in self.connections:
            return
        answering = self.cycle is not None and not self.cycle.response_complete
        now = self._progress()
        if now == before and (now[1] or not answering):
            self.transport.abort()
        self._next = self.loop.call_later(IDLE, self._check, now)


class _Refused(Exception):  # noqa: N818
    def __init__(self, status: int, name: str, why: str) -> None:
        super().__init__(why)
        self.status, self.name = status, name


class RequestLimits:
    """Middleware: token, size, time, number."""

    def __init__(self, app: ASGIApp, known: Sequence[Token], answered: Counter[int]) -> None:
        """known: the tokens of this node; none: it asks for none. answered: counts the answers by their status."""
        self.app, self._known, self._answered = app, known, answered
        self._at_once, self._most = 0, most_at_once()
        self._bytes = 0  # of bodies, as they were announced

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        begun, asked, taken, read = False, scope, 0, False
        if scope["method"] == "HEAD":  # GET, and the server keeps the body to itself
            asked = {**scope, "method": "GET"}

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._answered[message["status"]] += 1
            await send(message)

        self._at_once += 1
        try:
            # a route's pattern matches before it, and the rights of a token do not
            if scope["path"].endswith("\n"):
                raise _Refused(404, "NotFound", "there is no such route: see /docs")
            self._check_token(scope)
            taken = self._allowed(scope)
            self._bytes += taken
            body = await asyncio.wait_for(_whole(receive), SLOW)
            read = True
            self._bytes += len(body) - taken
            taken = len(body)
            if sum(map(body.count, (b",", b"[", b"{"))) > VALUES:
                raise _Refused(422, "NotAllowed", f"a body has at most {VALUES:,} values: put fewer records at once")
            await self.app(asked, _again(body, receive), sending)
        except _Refused as error:
            await refuse(scope, sending, error.status, error.name, str(error), read=read)
        except TimeoutError:
            await refuse(scope, sending, 408, "TooSlow", f"the body did not come within {SLOW:g} s")
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"], extra={"path": scope["path"]})
            if not begun:
                await refuse(scope, sending, 500, "Broken", "this node failed; see its log", read=read)
        finally:
            self._at_once -= 1
            self._bytes -= taken

    def _check_token(self, scope: Scope) -> None:
        if not self._known or scope["path"] in OPEN:
            return
        kind, _, sent = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        rights = tokens.known(self._known, sent.strip()) if kind.lower() == b"bearer" else []
        if not rights:
            raise _Refused(401, "NoToken", "this node asks for its token: send it as 'Authorization: Bearer …'")
        if why := tokens.refused(rights, scope["method"], scope["path"], scope.get("query_string", b"")):
            raise _Refused(403, "NoRight", f"{why}. Nothing was done")

    def _allowed(self, scope: Scope) -> int:
        """How many bytes its body may have, if that is not too much now."""
        length = _announced(scope)
        length = BODY if length is None else length
        if length > BODY:
            raise _too_large()
        if scope["path"] in OPEN:
            return 0  # without a token: it must not take space from others
        if self._at_once > self._most:
            raise _Refused(503, "Unavailable", f"this node answers {self._most:,} requests at once, and not one more")
        if self._bytes + length > BODIES:
            raise _Refused(503, "Unavailable", f"this node takes {BODIES:,} bytes of bodies at once; ask again soon")
        return length


def _too_large() -> _Refused:
    return _Refused(413, "PayloadTooLarge", f"a body has at most {BODY:,} bytes: put fewer records at once")


async def refuse(scope: Scope, send: Send, status: int, name: str, why: str, *, read: bool = False) -> None:
    """Answer with an error. read: the body was read, so the connection can go on; else it ends."""
    body = json.dumps(problem(status, name, why)).encode()
    headers = [(b"content-type", PROBLEM.encode()), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 503:
        headers.append((b"retry-after", b"1"))
    if not read and _announced(scope) != 0:  # else the server reads it to its end, and throws it away
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _announced(scope: Scope) -> int | None:
    """How many bytes of a body a request announces; None: it comes in pieces, without a length."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return None
    length = headers.get(b"content-length", b"0")
    return int(length[:20]) if length.isdigit() else 0


async def _whole(receive: Receive) -> bytes:
    """The body, unless it is larger than it may be."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(400, "Gone", "the request was not finished")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY:
            raise _too_large()
        if not message.get("more_body"):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever comes (the client hangs up)."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
