"""Forms: what a request's body may say, and how records and items are written as JSON. Pure.

In:  JSON. Out: checked values in the house's words; wrong ones are refused by name before anything is asked of a partition.
Data, keys and the values of headers are bytes, so in JSON they are base64.
"""

from __future__ import annotations

import base64
import binascii
import time
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kqlib.errors import BadPayload
from kqlib.queue import arguments
from kqlib.queue.item import Put
from kqlib.virtual.cache import Kept
from kqlib.virtual.names import FORM
from kqlib.virtual.shelf import Given

WORDS = 20  # of one object
MOST = 1_000  # records, items or receipts of one request
LONGEST_WAIT = 60.0
Name = Annotated[str, Field(pattern=f"^{FORM}$", max_length=200, description="a queue's or a consumer's name")]
Base64 = Annotated[str, Field(description="bytes, as base64")]
Receipt = Annotated[str, Field(pattern=r"^[0-9]{1,19}\.[0-9]{1,19}\.[0-9]{1,19}$", max_length=60)]
Receipts = Annotated[list[Receipt], Field(min_length=1, max_length=MOST)]
Offset = Annotated[int, Field(ge=-1, le=2**62)]
Limit = Annotated[int, Field(ge=1, le=MOST)]
Wait = Annotated[float, Field(ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description="seconds to wait for something")]
Delay = Annotated[float, Field(ge=0, le=arguments.LONGEST_DELAY, allow_inf_nan=False)]
Lease = Annotated[float, Field(ge=0.001, le=arguments.LONGEST_LEASE, allow_inf_nan=False)]


class Form(BaseModel):
    """A body; a word that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, body: Any) -> Any:
        """Far too many words are one error: an error for each took 0.1 s, and all other requests waited for that."""
        if isinstance(body, dict) and len(body) > WORDS:
            raise ValueError(f"an object has at most {WORDS} names here, not {len(body):,}")
        return body


class Record(Form):
    """One record to put."""

    data: Base64 | None = None
    key: Base64 | None = None
    headers: dict[str, Base64 | None] = {}
    delay: Delay = 0.0


class Records(Form):
    """Records to put, all or none."""

    records: Annotated[list[Record], Field(min_length=1, max_length=MOST)]

    def puts(self) -> list[Put]:
        """The same as `Put` values, which check the rest."""
        return [_put(at, record) for at, record in enumerate(self.records)]


class Done(Form):
    """Up to which offset a reader has done."""

    offset: Offset
    allow_rewind: bool = False


class Claim(Form):
    """How many items, for how long."""

    n: Limit = 1
    lease: Lease = 30.0
    wait: Wait = 0.0
    order: Annotated[str, Field(pattern="^(any|key)$")] | None = None
    max_attempts: Annotated[int, Field(ge=0, le=arguments.MOST_ATTEMPTS)] | None = None


class Ack(Form):
    """Items that are done."""

    receipts: Receipts


class Release(Form):
    """Items to give back."""

    receipts: Receipts
    delay: Delay = 0.0


class Extend(Form):
    """Items to keep longer."""

    receipts: Receipts
    lease: Lease = 30.0


class Bury(Form):
    """Items to give up."""

    receipts: Receipts
    reason: Annotated[str, Field(max_length=10_000)] = ""


class Redrive(Form):
    """How many dead letters to put back."""

    n: Limit = 1


def _put(at: int, record: Record) -> Put:
    def bytes_of(what: str, text: str | None) -> bytes | None:
        try:
            return None if text is None else base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise BadPayload(f"record {at}: its {what} is not base64") from None

    headers = {name: bytes_of(f"header {name!r}", value) for name, value in record.headers.items()}
    return Put(bytes_of("data", record.data), bytes_of("key", record.key), headers, record.delay)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def record_of(record: Kept) -> dict[str, Any]:
    """A record as it is answered."""
    return {
        "offset": record.offset,
        "data": _text(record.data),
        "key": _text(record.key),
        "headers": {name: _text(value) for name, value in record.own.items()},
        "created": record.created / 1000,
    }


def item_of(given: Given) -> dict[str, Any]:
    """An item as it is answered; its lease in seconds from now."""
    left = max(0.0, given.deadline - time.monotonic())
    return {"receipt": given.receipt, "attempt": given.attempt, "lease": left, **record_of(given.kept)}
