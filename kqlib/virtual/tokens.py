"""Who may ask a node for what: each token has verbs, and a prefix of queues' names. Pure.

In:  a file. Out: its tokens, and `refused`, which says why a request is refused.

    [orders]                    # a name for people
    token = "…"
    prefix = "orders-"          # only queues that begin so; left out: all
    verbs = ["put", "claim"]    # left out: put, claim and admin

    put     put records
    claim   read, claim, ack, release, extend, bury; look at a queue and its consumers; delete a consumer
    admin   list queues, delete one, put dead letters back; without a prefix also: collect, numbers

A node's map and its documents need any token. A token is compared with all, each in constant time.
"""

from __future__ import annotations

import secrets
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.datastructures import QueryParams

from kqlib.errors import NotAllowed
from kqlib.virtual.names import DEAD, checked_token

VERBS = ("put", "claim", "admin")


@dataclass(frozen=True)
class Token:
    """A token and its rights."""

    token: str = field(repr=False)
    prefix: str = ""
    verbs: tuple[str, ...] = VERBS


def read(path: str) -> list[Token]:
    """The tokens of a file."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotAllowed(f"{path} cannot be read: {error}") from None
    if not found:  # a node without tokens asks for none
        raise NotAllowed(f"{path} has no token, and every request would be let in: write at least one")
    return [_token(path, name, value) for name, value in found.items()]


def _token(path: str, name: str, value: object) -> Token:
    if not isinstance(value, dict) or not {"token"} <= set(value) <= {"token", "prefix", "verbs"}:
        raise NotAllowed(f"{path}: [{name}] has a token, and it may have a prefix and verbs")
    verbs = value.get("verbs", list(VERBS))
    if (
        not isinstance(value.get("prefix", ""), str)
        or not isinstance(verbs, list)
        or not all(verb in VERBS for verb in verbs)
    ):
        raise NotAllowed(f"{path}: [{name}]: prefix is text, and verbs are some of {', '.join(VERBS)}")
    checked_token(value["token"] or "")
    return Token(value["token"], value.get("prefix", ""), tuple(verbs))


def known(tokens: Sequence[Token], sent: bytes) -> list[Token]:
    """The tokens that were sent; none if it is another one."""
    return [each for each in tokens if secrets.compare_digest(sent, each.token.encode())]


def refused(rights: Sequence[Token], method: str, path: str, query: bytes) -> str:
    """Why these rights are not enough for a request; '' if they are."""
    verb, queue = _needed(method, path.strip("/").split("/"), query)
    if not verb or any(verb in each.verbs and queue.startswith(each.prefix) for each in rights):
        return ""
    return f"this token may not {verb} " + (f"in '{queue[:200]}'" if queue else "in all queues")


def _needed(method: str, parts: list[str], query: bytes) -> tuple[str, str]:
    """The verb that a request needs, and in which queue, or in all that begin so. No verb: any token will do."""
    if parts[0] != "queues":
        return ("admin" if parts[0] in ("partitions", "metrics") else ""), ""
    if len(parts) == 1:
        return "admin", QueryParams(query).get("prefix", "")  # as the route reads it: of two the last one counts
    if parts[4:] == ["redrive"]:
        return "admin", parts[1].removesuffix(DEAD)  # where the letters go
    if len(parts) == 2 and method == "DELETE":
        return "admin", parts[1]
    return "put" if method == "POST" and parts[2:] == ["records"] else "claim", parts[1]
