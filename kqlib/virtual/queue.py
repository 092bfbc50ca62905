"""One virtual queue as one consumer sees it: the verbs of a queue, each a request to the node that has it.

In:  bytes, items. Out: ids, items, numbers. Made by `Client.queue(name)`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

from kqlib.errors import KqError, LeaseLost, NotAllowed, PayloadTooLarge
from kqlib.queue import arguments, dead
from kqlib.queue.item import Put, check_item, lease_lost, not_acked, put_of
from kqlib.queue.put import SinglePut
from kqlib.queue.redrive import broken_off
from kqlib.queue.work import WorkMixin
from kqlib.virtual.names import DEAD
from kqlib.virtual.record_json import headers_to_bytes, to_bytes, to_json

AT_ONCE = 1_000  # records, items or receipts of one request
BYTES = 4_000_000  # of records as JSON in one request: a node takes 4 MiB
VALUES = 10_000  # of records in one request: a node takes 12,000
LONGEST_WAIT = 20.0  # seconds of one request; a longer wait is several


@dataclass(frozen=True, repr=False)
class VirtualItem:
    """One piece of work that was handed out: its data, which attempt it is, and until when it is yours."""

    queue: str
    partition: int
    offset: int
    data: bytes | None = field(compare=False)
    key: bytes | None = field(compare=False)
    headers: Mapping[str, bytes | None] = field(compare=False)
    created: datetime = field(compare=False)
    attempt: int = field(compare=False)
    deadline: float = field(compare=False)  # monotonic; the node decides
    receipt: str  # what every verb sends

    @property
    def id(self) -> str:
        """queue/partition/offset: never changes."""
        return f"{self.queue}/{self.partition}/{self.offset}"

    def __repr__(self) -> str:
        return f"VirtualItem({self.id}, attempt {self.attempt})"


@dataclass(frozen=True)
class Read:
    """What was read of a queue's log: (offset, data) pairs, and where to go on."""

    records: tuple[tuple[int, bytes | None], ...]
    next: int


class Asks(Protocol):
    """What a queue needs of its client."""

    def queue(self, *words: Any, **how: Any) -> VirtualQueue: ...
    def _ask(self, *words: Any, **how: Any) -> Any: ...
    def _partition(self, queue: str) -> int: ...


class VirtualQueue(SinglePut, WorkMixin):
    """A queue among many in one topic: put, claim, ack."""

    def __init__(
        self, client: Asks, name: str, consumer: str, *, lease: float, max_attempts: int | None, order: str | None
    ) -> None:  # made by Client.queue, which checks
        self.client, self.name, self.consumer, self.lease = client, name, consumer, lease
        self.max_attempts, self.order = max_attempts, order

    # --- put ------------------------------------------------------------------------------------------------------------

    def put_many(self, items: Iterable[Put | tuple[bytes | None, bytes | None]]) -> list[str]:
        """Put them all; their ids. Up to a thousand, or 3 MB, are stored together or not at all; `.done`, `.unknown` as elsewhere."""
        records = [to_json(put_of(item)) for item in items]
        ids: list[str] = []
        for batch in list(_batches(self.name, records)):  # what is too large is refused before anything is sent
            try:
                answer = self.client._ask("POST", self.name, "/records", {"records": batch}, key=uuid.uuid4().hex)
            except KqError as error:
                error.__dict__.update(done=dict(enumerate(ids)), unknown=list(range(len(ids), len(records))))
                raise
            ids += [f"{self.name}/{answer['partition']}/{offset}" for offset in answer["offsets"]]
        return ids

    # --- claim ----------------------------------------------------------------------------------------------------------

    def claim(self, lease: float | None = None, wait: float = 0) -> VirtualItem | None:
        """The next item, yours until its lease ends; None if there is none after `wait` seconds."""
        found = self.claim_many(1, lease, wait)
        return found[0] if found else None

    def claim_many(self, n: int, lease: float | None = None, wait: float = 0) -> list[VirtualItem]:
        """Up to n items (1,000), as soon as there is one; [] if there is none after `wait` seconds."""
        arguments.count("n", n)
        seconds = self.lease if lease is None else arguments.lease(lease)
        until = time.monotonic() + arguments.wait(wait)
        terms = {"order": self.order, "max_attempts": self.max_attempts}
        while True:
            part, sent = max(0.0, min(LONGEST_WAIT, until - time.monotonic())), time.monotonic()
            body = {"n": min(n, AT_ONCE), "lease": seconds, "wait": part, **terms}
            items = self._on("claim", body, wait=part)["items"]
            if items or time.monotonic() >= until:
                since = time.monotonic() if part else sent  # a lease began at the earliest when it was asked for
                return [self._item(each, since) for each in items]

    def _item(self, item: dict[str, Any], since: float) -> VirtualItem:
        return VirtualItem(
            self.name,
            self.client._partition(self.name),
            item["offset"],
            to_bytes(item["data"]),
            to_bytes(item["key"]),
            headers_to_bytes(item["headers"]),
            datetime.fromtimestamp(item["created"], UTC),
            item["attempt"],
            since + item["lease"],
            item["receipt"],
        )

    # --- done, or not ---------------------------------------------------------------------------------------------------

    def ack(self, item: VirtualItem) -> None:
        """Done: it never comes again. Durable when it returns."""
        self._verb("ack", item)

    def ack_many(self, items: Iterable[VirtualItem]) -> None:
        """All of them done. What cannot be acked is in the error's `.items`; the others are done.

        Any other error: what is in its `.unknown` may have been acked, or not.
        """
        items, asked = list(items), dict[str, VirtualItem]()
        refused, why = list[VirtualItem](), ""
        for item in items:
            try:
                if (receipt := self._receipt(item)) in asked:
                    raise NotAllowed(f"{item.id}: it is twice in this call")
                asked[receipt] = item
            except NotAllowed as error:  # or another queue's, or no item
                refused.append(item)
                why = why or str(error)
        receipts = list(asked)
        for at in range(0, len(receipts), AT_ONCE):
            some = receipts[at : at + AT_ONCE]
            try:
                self._on("ack", {"receipts": some})
            except LeaseLost as error:
                lost = error.facts.get("refused") or {}
                refused += [asked[receipt] for receipt in some if receipt in lost]
                why = why or next((f"{asked[receipt].id}: {reason}" for receipt, reason in lost.items()), "")
            except KqError as error:
                error.__dict__.update(items=refused, unknown=[asked[receipt] for receipt in receipts[at:]])
                raise
        if refused:
            raise not_acked(len(items), refused, why)

    def release(self, item: VirtualItem, delay: float = 0) -> None:
        """Not done: back to the front, or due after `delay` seconds. The attempt counts."""
        self._verb("release", item, delay=arguments.delay(delay))

    def extend(self, item: VirtualItem, lease: float | None = None) -> VirtualItem:
        """Yours for longer: `lease` seconds from now. Both values ack."""
        seconds, now = self.lease if lease is None else arguments.lease(lease), time.monotonic()
        self._verb("extend", item, lease=seconds)
        return replace(item, deadline=now + seconds)

    def bury(self, item: VirtualItem, reason: str = "") -> None:
        """To the dead letters, with its whole story: written there and done here at once, or neither."""
        if not isinstance(reason, str):
            raise NotAllowed(f"a reason is text, not {type(reason).__name__}")
        self._verb("bury", item, reason=dead.writable(reason)[:10_000])

    @property
    def dead(self) -> VirtualQueue:
        """Its dead letters: a queue as well."""
        if self.name.endswith(DEAD):
            raise NotAllowed(f"'{self.name}' holds dead letters already: ack or redrive one")
        return self.client.queue(self.name + DEAD, self.consumer, lease=self.lease)

    def redrive(self, n: int = 1) -> int:
        """Put up to n dead items back, as new ones: last in line, attempt 1. How many."""
        arguments.count("n", n)
        path, moved = f"/consumers/{self.consumer}/redrive", 0
        while moved < n:
            body = {"n": min(AT_ONCE, n - moved)}
            try:
                now = self.client._ask("POST", self.dead.name, path, body, again=False)["moved"]
            except KqError as error:
                raise broken_off(error, moved) from None
            moved += now
            if not now:
                break
        return moved

    def step(self, item: VirtualItem) -> NoReturn:
        """Not over HTTP: queues lie with different nodes, and a transaction with one."""
        raise NotAllowed(
            "virtual queues do not offer step: outputs may belong to another node. Put with an id, then ack"
        )

    def _verb(self, verb: str, item: VirtualItem, **body: Any) -> None:
        try:
            self._on(verb, {"receipts": [self._receipt(item)], **body})
        except LeaseLost as error:
            why = next(iter((error.facts.get("refused") or {}).values()), error.facts["why"])
            raise lease_lost(item.id, why) from None

    def _receipt(self, item: VirtualItem) -> str:
        check_item(item, self.name, VirtualItem)
        return item.receipt

    def _on(self, verb: str, body: Any, wait: float = 0.0) -> Any:
        return self.client._ask("POST", self.name, f"/consumers/{self.consumer}/{verb}", body, wait=wait)

    # --- looking, the log, the end --------------------------------------------------------------------------------------

    def depth(self) -> int:
        """How many items this consumer has not acked, claimed ones included; from any process."""
        return int(self.client._ask("GET", self.name, f"/consumers/{self.consumer}/depth")["depth"])

    def read(self, start: int = 0, limit: int = 100, wait: float = 0) -> Read:
        """Its log from an offset on, for readers that keep their own place; `next` goes on. Nothing is claimed or done."""
        seconds = min(arguments.wait(wait), LONGEST_WAIT)
        params = {"from": start, "limit": arguments.count("limit", limit), "wait": seconds}
        answer = self.client._ask("GET", self.name, "/records", wait=seconds, params=params)
        return Read(tuple((each["offset"], to_bytes(each["data"])) for each in answer["records"]), answer["next"])

    def delete(self) -> None:
        """Delete it with all its consumers, for every reader at once; the next put begins it anew."""
        self.client._ask("DELETE", self.name, "")

    def _is_empty(self) -> bool:
        return self.depth() == 0

    def __repr__(self) -> str:
        return f"VirtualQueue('{self.name}', consumer '{self.consumer}')"


def _batches(queue: str, records: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """As many as fit into one request."""
    batch: list[dict[str, Any]] = []
    size = values = 0
    for record in records:
        text = json.dumps(record, ensure_ascii=False)
        own, many = len(text.encode()) + 2, 1 + sum(map(text.count, ",[{"))
        if own > BYTES:
            raise PayloadTooLarge(topic=queue, size=own, limit=BYTES, safe="Nothing was stored.")
        if many > VALUES:
            raise NotAllowed(f"an item has at most {VALUES:,} headers here, not {len(record['headers']):,}")
        if batch and (len(batch) >= AT_ONCE or size + own > BYTES or values + many > VALUES):
            yield batch
            batch, size, values = [], 0, 0
        batch.append(record)
        size += own
        values += many
    if batch:
        yield batch
