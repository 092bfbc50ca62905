"""A refusal before any route: an error with its status, as JSON.

In:  the request, a status, an error's name, a sentence. Out: the answer; a connection whose body was not read ends with it.
"""

from __future__ import annotations

import json

from starlette.types import Scope, Send


async def refuse(scope: Scope, send: Send, status: int, name: str, why: str, *, read: bool = False) -> None:
    """Answer so. read: the body was read, so the connection can go on."""
    body = json.dumps({"error": name, "why": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 503:
        headers.append((b"retry-after", b"1"))
    if not read and announced(scope) != 0:  # else the server reads it to its end, and throws it away
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def announced(scope: Scope) -> int | None:
    """How many bytes of a body a request announces; None: it comes in pieces, and does not say."""
    said = dict(scope["headers"])
    if b"transfer-encoding" in said:
        return None
    length = said.get(b"content-length", b"0")
    return int(length[:20]) if length.isdigit() else 0
