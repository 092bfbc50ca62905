"""The door: what is checked of every request before any route sees it, and the page that lists the routes.

In:  ASGI requests. Out: the same, or a refusal: no token (401), too large (413), too slow (408), too many at once (503), requests or
bytes of their bodies. A body is refused by the length that it announces, before it is read. An exception that nobody expected is
logged here and answered with a sentence, never with a trace. `origin` comes before it.
"""

from __future__ import annotations

import asyncio
import html
import logging
import resource
import secrets
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from kqlib.virtual.refusal import announced, refuse

log = logging.getLogger("kqlib.virtual")
BODY = 4_194_304  # bytes
ROOM = 268_435_456  # bytes of all bodies that are read or answered at once
VALUES = 12_000  # in one body: each takes a few µs to check, and all other requests wait for that
SLOW = 10.0  # seconds for a whole body
IDLE = 60.0  # seconds after which, or twice that, a connection without a request is closed: also one that never finishes its headers
OPEN = ("/health", "/ready")  # asked by whoever watches, without a token
MOST = 10_000  # requests at once, long polls included
KAFKAS = 500  # open files that a node leaves to its Kafka clients


def places() -> int:
    """How many requests are answered at once: each is an open file of this process, as are its connections to Kafka."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, max(100, (files - KAFKAS) * 3 // 4))


class Connection(H11Protocol):
    """One client's connection: it ends when it has stood still for too long. uvicorn waits for headers, and for readers, for ever."""

    def connection_made(self, transport: Any) -> None:
        """It begins, unless there are more than the refused ones can be."""
        super().connection_made(transport)
        if len(self.connections) > places() * 4 // 3:
            transport.abort()
        self._next = self.loop.call_later(IDLE, self._look, self._seen())

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, and nothing of it waits for the next look."""
        self._next.cancel()
        super().connection_lost(exc)

    def _seen(self) -> tuple[Any, int]:
        """What changes while something happens: the request, and how much of its answer nobody has fetched."""
        return self.cycle, self.transport.get_write_buffer_size()

    def _look(self, before: tuple[Any, int]) -> None:
        if self not in self.connections:
            return
        at_work = self.cycle is not None and not self.cycle.response_complete
        now = self._seen()
        if now == before and (now[1] or not at_work):
            self.transport.abort()
        self._next = self.loop.call_later(IDLE, self._look, now)


class _Refused(Exception):  # noqa: N818
    def __init__(self, status: int, name: str, why: str) -> None:
        super().__init__(why)
        self.status, self.name = status, name


class Door:
    """Token, size, time, number."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self._token = app, token
        self._at_once, self._most = 0, places()
        self._bytes = 0  # of bodies, as they were announced

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        begun, asked, held, read = False, scope, 0, False
        if scope["method"] == "HEAD":  # GET, and the server keeps the body to itself
            asked = {**scope, "method": "GET"}

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        self._at_once += 1
        try:
            self._known(scope)
            held = self._room(scope)
            self._bytes += held
            body = await asyncio.wait_for(_whole(receive), SLOW)
            read = True
            self._bytes += len(body) - held
            held = len(body)
            if sum(map(body.count, (b",", b"[", b"{"))) > VALUES:
                raise _Refused(422, "NotAllowed", f"a body has at most {VALUES:,} values: put fewer records at once")
            await self.app(asked, _again(body, receive), sending)
        except _Refused as error:
            await refuse(scope, send, error.status, error.name, str(error), read=read)
        except TimeoutError:
            await refuse(scope, send, 408, "TooSlow", f"the body did not come within {SLOW:g} s")
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            if not begun:
                why = "something went wrong in this node; its log says what"
                await refuse(scope, send, 500, "Broken", why, read=read)
        finally:
            self._at_once -= 1
            self._bytes -= held

    def _room(self, scope: Scope) -> int:
        """How many bytes its body may have, if there is room for it."""
        length = announced(scope)
        length = BODY if length is None else length
        if length > BODY:
            raise _too_large()
        if scope["path"] in OPEN:
            return 0  # without a token: it takes no room from others
        if self._at_once > self._most:
            raise _Refused(503, "Unavailable", f"this node answers {self._most:,} requests at once, and not one more")
        if self._bytes + length > ROOM:
            raise _Refused(503, "Unavailable", f"this node takes {ROOM:,} bytes of bodies at once; ask again soon")
        return length

    def _known(self, scope: Scope) -> None:
        if self._token is None or scope["path"] in OPEN:
            return
        kind, _, said = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not secrets.compare_digest(said.strip(), self._token.encode()):
            raise _Refused(401, "NoToken", "this node asks for its token: send it as 'Authorization: Bearer …'")


def _too_large() -> _Refused:
    return _Refused(413, "PayloadTooLarge", f"a body has at most {BODY:,} bytes: put fewer records at once")


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


def page(openapi: dict[str, Any]) -> str:
    """The routes as one page, without a script from elsewhere."""
    rows = [
        f"<tr><td>{verb.upper()}</td><td><code>{html.escape(path)}</code></td><td>{html.escape(said.get('description', ''))}</td></tr>"
        for path, verbs in openapi["paths"].items()
        for verb, said in verbs.items()
    ]
    head = (
        f"<title>{openapi['info']['title']}</title><style>body{{font-family:sans-serif}}td{{padding:.2em .8em}}</style>"
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8>{head}<h1>{openapi['info']['title']}</h1>"
        f"<p>All of it for programs: <a href=openapi.json>openapi.json</a></p><table>{''.join(rows)}</table></html>"
    )
