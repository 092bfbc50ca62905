"""Errors that only a node or its client raises. A node answers each with an HTTP status and a sentence, as RFC 9457 has it."""

# ruff: noqa: N818 - names say what is wrong, as in kqlib.errors

from __future__ import annotations

from typing import Any

from kqlib.errors import BadPayload, KqError, LeaseLost, NotAllowed, PayloadTooLarge, Unreachable


class NotFound(KqError):
    says = "{why}"


class NotMine(KqError):
    says = "{why}"


class Rewind(KqError):
    says = "{why}"


class Unavailable(KqError):
    says = "{why}"


class NoToken(KqError):
    says = "This node asks for its token: send it as `Authorization: Bearer …`."


class Foreign(KqError):
    says = "{why}"


class NoRight(KqError):
    says = "{why}"


class NoNode(Unreachable):
    says = "No node of the virtual queues answered at {address}: {why}."


class NodeDied(KqError):
    says = "A node ended ({why}). The last lines that it wrote:\n{tail}"


STATUS: dict[type[KqError], int] = {
    NoToken: 401,
    Foreign: 403,
    NoRight: 403,
    NotFound: 404,
    NotMine: 409,
    LeaseLost: 410,
    Rewind: 412,
    PayloadTooLarge: 413,
    BadPayload: 422,
    NotAllowed: 422,
    Unavailable: 503,
}


PROBLEM = "application/problem+json"
MEMBERS = {"type": "string", "title": "string", "status": "integer", "detail": "string"}  # and facts, by their names


def problem(status: int, name: str, why: str, **facts: Any) -> dict[str, Any]:
    """The body of an answer that is an error."""
    return {"type": f"urn:kqlib:{name}", "title": name, "status": status, "detail": why, **facts}
