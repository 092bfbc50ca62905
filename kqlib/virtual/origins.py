"""Web pages and a node: which requests of a browser are answered, and under which names a node answers.

In:  ASGI requests. Out: the same, or 403. A request from a web page of another origin is refused unless that origin is allowed. It
carries `Origin`, or `Sec-Fetch-Site` where it carries no origin (images, scripts); a link that a reader follows is answered. `Host`
is checked on loopback, and wherever `hosts=` is given. This stops DNS rebinding: an attacker's name that resolves to 127.0.0.1 would
look like the node's own page. Elsewhere a token is needed, and such a page has none.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from kqlib.errors import NotAllowed
from kqlib.virtual.request_limits import refuse


class OriginCheck:
    """Middleware: refuses the requests of foreign pages, and answers a browser that asks beforehand."""

    def __init__(self, app: ASGIApp, origins: Collection[str], hosts: Collection[str] | None) -> None:
        """hosts: the names under which the node answers, besides addresses of this machine; None: any name."""
        self._origins, self._hosts = origins, hosts
        self._app = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("authorization", "content-type", "idempotency-key"),
            expose_headers=("retry-after",),
            allow_private_network=True,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and (why := self._foreign(scope)):
            await refuse(scope, send, 403, "Foreign", f"{why}. Nothing was done")
        else:
            await self._app(scope, receive, send)

    def _foreign(self, scope: Scope) -> str:
        """Why this request is refused; '' if it is not."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if self._hosts is not None and host and (name := _name(host)) not in self._hosts and not loopback(name):
            return f"this node does not answer under the name {name[:200]!r}: allow that name with hosts=[…] or --allow-host"
        if origin is not None:
            if origin.partition("://")[2] == host or origin in self._origins:
                return ""
            return f"pages of {origin[:200]!r} may not ask this node: see origins=[…] or --allow-origin"
        foreign = headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin")
        if foreign and headers.get(b"sec-fetch-mode") != "navigate":  # a reader may follow a link to it
            return "a page of another origin sent this request, without an Origin header"
        return ""


def loopback(host: str) -> bool:
    """Is this an address of this machine alone?"""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """The name or address in a Host header, without its port."""
    return (host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]).lower()


def checked_origins(origins: Any) -> frozenset[str]:
    """Web pages that may ask, each as a browser names it."""
    for each in _listed("origins", origins):
        parts = urlsplit(each) if isinstance(each, str) else None
        if parts is None or parts.scheme not in ("http", "https") or f"{parts.scheme}://{parts.netloc.lower()}" != each:
            raise NotAllowed(f"an origin is like 'https://team.example', without a path, not {each!r}")
    return frozenset(origins)


def checked_hosts(hosts: Any) -> frozenset[str]:
    """Names under which a node answers."""
    for each in _listed("hosts", hosts):
        if not isinstance(each, str) or not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:]+:[0-9A-Fa-f:.]*", each):
            raise NotAllowed(f"a host is a name or an address without a port, not {each!r}")
    return frozenset(each.lower() for each in hosts)


def _listed(what: str, values: Any) -> Collection[Any]:
    if isinstance(values, str) or not isinstance(values, Collection):
        raise NotAllowed(f"{what} is a list of text, not {values!r}")
    return values
