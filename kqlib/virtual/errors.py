"""What a node answers that only a node can: each is an error of the house with an HTTP status.

In:  what is in the way. Out: a status, a name and a sentence. Errors of other rooms get their status in `ANSWERS`.
"""

# ruff: noqa: N818 - names say what is wrong, as in kqlib.errors

from __future__ import annotations

from kqlib.errors import BadPayload, KqError, LeaseLost, NotAllowed, PayloadTooLarge, Unreachable


class NotFound(KqError):
    says = "{why}"


class NotMine(KqError):
    says = "{why}"

    def __init__(self, why: str = "", unknown: bool = False) -> None:
        super().__init__(why, unknown=unknown)


class Rewind(KqError):
    says = "{why}"

    def __init__(self, why: str = "", tracked: int = 0) -> None:
        super().__init__(why, tracked=tracked)


class Unavailable(KqError):
    says = "{why}"

    def __init__(self, why: str = "", retry_after: float = 0.2, unknown: bool = False) -> None:
        super().__init__(why, retry_after=retry_after, unknown=unknown)


class NoToken(KqError):
    says = "This node asks for its token: send it as `Authorization: Bearer …`."


class Foreign(KqError):
    says = "{why}"


class NoNode(Unreachable):
    says = "No node of the virtual queues answered at {address}: {why}."


class NodeDied(KqError):
    says = "A node ended ({why}). The last that it said:\n{tail}"


class Missing(Exception):
    """Records must be fetched first; nobody outside of this room sees it."""

    def __init__(self, offsets: list[int]) -> None:
        super().__init__(f"{len(offsets)} records")
        self.offsets = offsets


ANSWERS: dict[type[KqError], int] = {
    NoToken: 401,
    Foreign: 403,
    NotFound: 404,
    NotMine: 409,
    LeaseLost: 410,
    Rewind: 412,
    PayloadTooLarge: 413,
    BadPayload: 422,
    NotAllowed: 422,
    Unavailable: 503,
}
