"""The values of a queue: an item that was handed out, a put, a record of a transaction; and headers and sizes.

In:  a record of the log, a lease. Out: frozen values. An `Item` is made when it is handed out, never before. Pure.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple, Protocol

from kqlib.errors import BadPayload, LeaseLost, NotAllowed, NotClaimed, Unreachable
from kqlib.queue import arguments
from kqlib.queue.arguments import LONGEST_DELAY

DUE = "kq-due"  # header: it is not due before this moment, in milliseconds since 1970, by the producer's clock
DELAY = "kq-delay"  # header: it is due so many seconds after an owner read it at the latest, by the owner's clock
SITE = "kq-site"  # header: only for this site; the others count it as done
ITEM = "kq-item"  # header of what a step has put: the id of the step's item
BY = "kq-by"  # header of what a step has put: the site that worked on that item
AGAIN = "kq-again"  # header of a redriven item: the id that it had when it was buried
DEATHS = "kq-deaths"  # header of a dead letter and of a redriven item: how often it was buried, if more than once
OURS = {DUE, DELAY, SITE, ITEM, BY, AGAIN, DEATHS}  # not shown as an item's own
LAST_SECOND = 253_402_300_799  # of the year 9999: a datetime goes no further
Headers = list[tuple[str, bytes | None]]
Place = tuple[str, int]  # a topic and the number of a partition


class Record(Protocol):
    """What is used of a confluent_kafka.Message."""

    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]: ...


class Item(NamedTuple):  # not a frozen dataclass: that takes ten times as long to make
    """One piece of work that was handed out: its data, the number of this attempt, and until when it is yours."""

    queue: str
    partition: int
    record: Record
    attempt: int
    deadline: float  # on the site's clock: monotonic
    epoch: int
    lease: int  # its number; 0: it was only looked at
    site: str = ""  # whose lease it is
    topic_id: str = ""  # a topic that is made anew under the same name has another id

    @property
    def id(self) -> str:
        """topic/partition/offset: never changes."""
        return f"{self.queue}/{self.partition}/{self.record.offset()}"

    @property
    def offset(self) -> int:
        """Its place in its partition."""
        return self.record.offset()

    @property
    def data(self) -> bytes | None:
        """What was put."""
        return self.record.value()

    @property
    def key(self) -> bytes | None:
        """The key it was put with."""
        return self.record.key()

    @property
    def headers(self) -> dict[str, bytes | None]:
        """The headers it was put with; a dead letter's story as well."""
        return {name: value for name, value in self.record.headers() or () if name not in OURS}

    @property
    def created(self) -> datetime:
        """When it was put, UTC; the last second of 9999 if another client wrote a later time."""
        return datetime.fromtimestamp(min(self.record.timestamp()[1] / 1000, LAST_SECOND), UTC)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Item) and self.receipt == other.receipt

    def __hash__(self) -> int:
        return hash(self.receipt)

    @property
    def receipt(self) -> tuple[str, str, str, int, int]:
        """What makes this hand-out different from every other; every verb checks it."""
        return self.site, self.topic_id, self.id, self.epoch, self.lease

    def __repr__(self) -> str:
        return f"Item({self.id}, attempt {self.attempt})" if self.lease else f"Item({self.id}, not claimed)"


class Outcome(Enum):
    """What became of an item that `work` had claimed."""

    DONE = "done"
    RELEASED = "released"  # it comes again
    BURIED = "buried"  # it is among the dead letters
    LOST = "lost"  # its lease ended before it was done
    GIVEN_BACK = "given back"  # no handler began with it, and its attempt does not count


@dataclass(slots=True, eq=False)
class Job:
    """An item that `work` has claimed, and its outcome."""

    item: Any
    partition: Any = None  # of a site's own queue: the `Partition` that has it
    outcome: Outcome | None = None  # None: its handler has not ended it (yet)
    begun: bool = False  # its handler was called


@dataclass(frozen=True)
class Put:
    """Something to put: `queue.put_many([Put(b"…", key=b"ARS-CHE"), …])`."""

    data: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes | None] = field(default_factory=dict, hash=False)
    delay: float = 0
    _checked: Headers = field(init=False, repr=False, compare=False)  # the headers as they were then
    size: int = field(init=False, repr=False, compare=False)  # bytes of its record, and of a batch around it

    def __post_init__(self) -> None:
        arguments.data(self.data)
        arguments.key(self.key)
        arguments.delay(self.delay)
        object.__setattr__(self, "_checked", arguments.headers(self.headers))
        object.__setattr__(self, "size", size(self.data, self.key, self.all_headers))

    @property
    def all_headers(self) -> Headers:
        """Its headers, and when it is due."""
        return self._checked + due(self.delay) if self.delay else self._checked


class Out(NamedTuple):  # as Item: quick to make
    """A record that a transaction writes."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    partition: int = -1  # chosen by the key

    @property
    def size(self) -> int:
        """How large a batch with this one record can become."""
        return size(self.value, self.key, self.headers or [])


def check_item(item: Any, queue: str, kind: type[Any]) -> None:
    """`NotAllowed`, unless it is an item of this queue. kind: the class of the queue's items."""
    if not isinstance(item, kind):
        raise NotAllowed(f"this takes an item that claim() gave, not {type(item).__name__}")
    if item.queue != queue:
        raise NotAllowed(f"{item.id} is not an item of '{queue}'")


def check_claimed(item: Any, queue: str) -> None:
    """The same, and `NotClaimed` for an item that `peek` gave."""
    check_item(item, queue, Item)
    if not item.lease:
        raise NotClaimed(f"{item.id} was only looked at (peek). Claim it first")


def lease_lost(id_: str, why: str) -> LeaseLost:
    """The error of a verb for an item that is not this worker's any more."""
    return LeaseLost(f"{id_}: {why}. Nothing was changed; leave it, it comes again if it was not done")


def not_acked(many: int, refused: Sequence[Any], why: str) -> LeaseLost:
    """The error of `ack_many` for the items that were not acked. why: what is wrong with the first."""
    what = f"{len(refused)} of {many} were not acked; the others are. The first: {why}"
    return LeaseLost(what, items=refused)


def maybe_acked(many: int, refused: Sequence[Any], unknown: Sequence[Any], why: str, address: str) -> Unreachable:
    """The error of `ack_many` when it is not known of some items (`unknown`) whether they were acked."""
    return Unreachable(f"{len(unknown)} of {many} acks: {why}", address=address, items=refused, unknown=unknown)


def due(delay: float) -> Headers:
    """The headers that hold an item back; none if it is due at once."""
    moment = str(round((time.time() + delay) * 1000))
    return [(DUE, moment.encode()), (DELAY, str(float(delay)).encode())] if delay else []


def held_back(headers: Headers) -> tuple[float, float] | None:
    """The moment when it is due, in seconds since 1970, and its delay in seconds; None: it is not held back."""
    found = dict(headers)
    moment, delay = found.get(DUE) or b"", found.get(DELAY) or b""
    if not moment.isdigit() or len(moment) > 15:
        return None
    try:
        longest = float(delay)
    except ValueError:  # a record of version 0.1, or of another client
        longest = LONGEST_DELAY
    return int(moment) / 1000, longest if 0 <= longest <= LONGEST_DELAY else LONGEST_DELAY


def for_site(headers: Headers | None, site: str) -> bool:
    """Is it an item of this site? Most are everybody's; an empty name is no site's, so that item is everybody's too."""
    return all(name != SITE or not value or value == site.encode() for name, value in headers or ())


def put_of(value: Any) -> Put:
    """A Put from what `put_many` takes: a Put, or (data, key)."""
    if isinstance(value, Put):
        return value
    if isinstance(value, tuple) and len(value) == 2:
        return Put(*value)
    raise BadPayload(f"put_many takes Put(…) values or (data, key) pairs, not {type(value).__name__}")


def batches(
    some: Iterable[Any], bytes_of: Callable[[Any], int], most: int, many: int = sys.maxsize
) -> Iterator[list[Any]]:
    """Parts of at most so many bytes and elements. An element that is larger is a part of its own."""
    batch = list[Any]()
    taken = 0
    for each in some:
        own = bytes_of(each)
        if batch and (taken + own > most or len(batch) == many):
            yield batch
            batch, taken = [], 0
        batch.append(each)
        taken += own
    if batch:
        yield batch


def size(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """How large a batch with this one record can become: Kafka's limit counts that. A few bytes too many, never too few."""
    taken = len(value or b"") + len(key or b"") + 61 + 40  # the batch's head, and the record's lengths at their longest
    for name, content in headers:
        taken += (len(name) if name.isascii() else len(name.encode())) + len(content or b"") + 10
    return taken
