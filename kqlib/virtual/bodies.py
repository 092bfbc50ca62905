"""The bodies of requests, which pydantic checks, and what answers hold. Pure.

Data, keys and the values of headers are bytes: base64 in JSON."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from kqlib.queue import arguments
from kqlib.virtual.record_json import to_bytes

NAMES = 20  # of one object
MOST = 1_000  # records, items or receipts of one request
LONGEST_WAIT = 60.0


def _decoded(value: Any) -> bytes | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"bytes are written as base64, not as {type(value).__name__}")
    try:
        return to_bytes(value)
    except ValueError:
        raise ValueError("it is not base64") from None


AS_TEXT = WithJsonSchema({"type": "string", "format": "byte", "description": "bytes, as base64"})
Base64 = Annotated[bytes, BeforeValidator(_decoded), AS_TEXT]
Receipt = Annotated[str, Field(pattern=r"^[0-9]{1,19}\.[0-9]{1,19}\.[0-9]{1,19}$", max_length=60)]
Count = Annotated[int, Field(ge=1, le=MOST)]
Wait = Annotated[float, Field(ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description="seconds to wait for something")]
Delay = Annotated[float, Field(ge=0, le=arguments.LONGEST_DELAY, allow_inf_nan=False)]
Lease = Annotated[float, Field(ge=0.001, le=arguments.LONGEST_LEASE, allow_inf_nan=False)]


class Body(BaseModel):
    """A body; an unknown name in it is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, body: Any) -> Any:
        """Far too many names are one error: an error for each took 0.1 s, and all other requests waited for that."""
        if isinstance(body, dict) and len(body) > NAMES:
            raise ValueError(f"an object has at most {NAMES} names here, not {len(body):,}")
        return body


class Record(Body):
    """One record to put."""

    data: Base64 | None = None
    key: Base64 | None = None
    headers: dict[str, Base64 | None] = Field(default_factory=dict)
    delay: Delay = 0.0


class Records(Body):
    """Records to put, all or none."""

    records: Annotated[list[Record], Field(min_length=1, max_length=MOST)]


class Done(Body):
    """Up to which offset a reader has done."""

    offset: Annotated[int, Field(ge=-1, le=2**62)]
    allow_rewind: bool = False


class Claim(Body):
    """How many items, for how long."""

    n: Count = 1
    lease: Lease = 30.0
    wait: Wait = 0.0
    order: Annotated[str, Field(pattern="^(any|key)$")] | None = None
    max_attempts: Annotated[int, Field(ge=0, le=arguments.MOST_ATTEMPTS)] | None = None


class Receipts(Body):
    """Items that were claimed."""

    receipts: Annotated[list[Receipt], Field(min_length=1, max_length=MOST)]


class Release(Receipts):
    """Items to give back."""

    delay: Delay = 0.0


class Extend(Receipts):
    """Items to keep longer."""

    lease: Lease = 30.0


class Bury(Receipts):
    """Items to give up."""

    reason: Annotated[str, Field(max_length=10_000)] = ""


class Redrive(Body):
    """How many dead letters to put back."""

    n: Count = 1


# --- answers: what they hold, for the contract ---

Members = dict[str, Any]
INTEGER, NUMBER, TEXT = ({"type": kind} for kind in ("integer", "number", "string"))
INTEGERS, TEXTS = ({"type": "array", "items": kind} for kind in (INTEGER, TEXT))
INTEGER_OR_NULL, TEXT_OR_NULL = ({"type": [kind, "null"]} for kind in ("integer", "string"))
BYTES = TEXT_OR_NULL | {"format": "byte"}
HEADERS = {"type": "object", "additionalProperties": BYTES}
STORED: Members = {"offset": INTEGER, "data": BYTES, "key": BYTES, "headers": HEADERS, "created": NUMBER}
ITEM = STORED | {"receipt": TEXT, "attempt": INTEGER, "lease": NUMBER}
QUEUE: Members = {"queue": TEXT, **dict.fromkeys(("partition", "records", "depth"), INTEGER)}
QUEUE |= dict.fromkeys(("first", "last"), INTEGER_OR_NULL)
CONSUMER: Members = {
    "consumer": TEXT,
    "kind": {"enum": ["cursor", "ledger"]},
    "tracked": INTEGER_OR_NULL,
    "idle": NUMBER,
}
CONSUMER |= dict.fromkeys(("depth", "claimed", "delayed"), INTEGER)
OWNER = {"type": ["object", "null"], "properties": {"node": TEXT, "url": TEXT, "epoch": INTEGER}}


def holds(members: Members) -> dict[str, Any]:
    """The schema of an object with these members."""
    return {"type": "object", "required": [*members], "properties": members}


def list_of(members: Members) -> dict[str, Any]:
    """The schema of a list of such objects."""
    return {"type": "array", "items": holds(members)}


def gives(members: Members, status: int = 200) -> dict[str, Any]:
    """What a route answers, for its `openapi_extra`."""
    return {"responses": {str(status): {"content": {"application/json": {"schema": holds(members)}}}}}


CONSUMERS: Members = {"consumers": list_of(CONSUMER), "after": TEXT_OR_NULL}
DONE = gives({"done": TEXTS, "refused": {"type": "object"}})
OWNERS = {"type": "object", "additionalProperties": OWNER}
MAP = gives({"topic": TEXT, "partitions": INTEGER, "version": INTEGER, "owners": OWNERS})
RECORDS = gives({"records": list_of(STORED), "next": INTEGER, "tracked": INTEGER_OR_NULL})
