"""Puts: checked before anything is sent, durable when the call returns. An error says which items are stored.

In:  data, keys, headers, delays. Out: ids, which never change. This half of a queue needs no group.
The `with` block of a transaction or a step only collects. At its end one transaction writes everything, or nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, cast

from confluent_kafka import KafkaError

from kqlib.errors import Closed, KqError, NotAllowed, NotNow, PayloadTooLarge, QueueDeleted, Unreachable
from kqlib.kafka.cluster import Kafka, lacks
from kqlib.queue.answers import TOO_LARGE, granted, is_refused, refused
from kqlib.queue.broker_settings import record_limits, topic_settings
from kqlib.queue.connection import Connection, TopicFacts
from kqlib.queue.dead import REDRIVE_BYTES
from kqlib.queue.item import BY, ITEM, Headers, Item, Out, Put, put_of, size
from kqlib.queue.partition import Partition
from kqlib.queue.rights import WRITE_QUEUE, Right
from kqlib.queue.sender import Sender, Sent
from kqlib.queue.transactions import Ack, Ending

TWICE = "To put such an item again may store it twice."


class SinglePut:
    """`put`, for every queue that has `put_many`."""

    def put(
        self,
        data: bytes | None,
        key: bytes | None = None,
        headers: dict[str, bytes | None] | None = None,
        delay: float = 0,
    ) -> str:
        """Durable when it returns; the item's id. delay: seconds until it is due, at most 900."""
        return self.put_many([Put(data, key, headers or {}, delay)])[0]

    def put_many(self, items: Iterable[Put | tuple[bytes | None, bytes | None]]) -> list[str]:
        """Put them all; their ids."""
        raise NotImplementedError


class Putting(SinglePut):
    """The putting half of a queue."""

    reserve = REDRIVE_BYTES  # bytes of its topic's limit that a put leaves free

    def __init__(self, site: Connection, name: str, facts: TopicFacts) -> None:
        self.site = site
        self.name = name
        self.facts = facts

    @property
    def largest(self) -> int:
        """The bytes of a record that a put may have."""
        return max(0, self.facts.limit - self.reserve)

    def put_many(self, items: Iterable[Put | tuple[bytes | None, bytes | None]]) -> list[str]:
        """Put them all with one flush; their ids. The error has `.done` by place, and `.unknown` places."""
        puts = self._checked(items)
        self._usable()
        sent = self._send(self.site._sender(self.facts.limit), puts)
        if (refused := _too_large(sent)) and self._limit_changed():
            again = [puts[at] for at in refused]  # was only their batch larger than the new limit?
            if all(put.size <= self.facts.limit for put in again):
                sent.again(refused, self._send(self.site._sender(self.facts.limit), again))
        if rates := self.site._rates.get(self.name):  # `kq queue put` has opened no queue
            rates.note("puts", len(puts) - sent.ids.count(None), time.monotonic())
        return self._ids(sent, puts)

    def _checked(self, items: Iterable[Put | tuple[bytes | None, bytes | None]]) -> list[Put]:
        """Check them all: if one does not fit, none is sent."""
        puts = [item if isinstance(item, Put) else put_of(item) for item in items]
        self._check_size(max((put.size for put in puts), default=0))
        return puts

    def _check_size(self, taken: int) -> None:
        """Refuse a record that the topic does not take. The limit may have been raised since it was read."""
        if taken > self.largest and not (self._limit_changed() and taken <= self.largest):
            raise PayloadTooLarge(topic=self.name, size=taken, limit=self.largest, safe="Nothing was stored.")

    def _limit_changed(self) -> bool:
        """Ask for the topic's limit again. Is it another one now?"""
        before, now = self.facts.limit, record_limits(self.site.cluster, [self.name], 3.0)[self.name]
        self.facts = replace(self.facts, limit=now)
        return now != before

    def _send(self, sender: Sender, puts: list[Put]) -> Sent:
        """Send them. Records are made one by one and not kept: long-lived objects cause full garbage collections."""
        records = ((put.data, put.key, put.all_headers or None, -1) for put in puts)
        return sender.send(self.name, records, len(puts))

    def _out(self, put: Put, marks: Sequence[tuple[str, bytes | None]] = ()) -> Out:
        """The record that a transaction writes."""
        headers = [*put.all_headers, *marks]
        self._check_size(size(put.data, put.key, headers))
        return Out(self.name, put.data, put.key, headers or None)

    def _ids(self, sent: Sent, puts: list[Put]) -> list[str]:
        """The id of each; an error if not all of them are known to be stored."""
        if sent.errors or None in sent.ids:
            raise self._failure(sent, puts)
        return cast(list[str], sent.ids)

    def _failure(self, sent: Sent, puts: list[Put]) -> KqError:
        """The error, with `.done` (ids by place) and `.unknown` (places). The records of all other places were refused."""
        done = {at: id_ for at, id_ in enumerate(sent.ids) if id_}
        refused = {at for at, error in sent.errors.items() if is_refused(error)}
        unknown = [at for at, id_ in enumerate(sent.ids) if id_ is None and at not in refused]
        nothing = not done and not unknown
        safe = "Nothing was stored" if nothing else f"Of {len(puts)} items {len(done)} are stored"
        maybe = f"; the other {len(unknown)} may have been, or not. {TWICE}" if unknown else "."
        if large := _too_large(sent):
            ours = self._larger_than_known(max(puts[at].size for at in large), safe + maybe)
        else:
            safe += f", {len(refused)} refused and not stored" * bool(refused and not nothing)
            ours = self._not_stored(next(iter(sent.errors.values()), None), safe + maybe)
        ours.__dict__.update(done=done, unknown=unknown)
        return ours

    def _larger_than_known(self, taken: int, safe: str) -> KqError:
        """The error when a topic's limit is lower than the one that was known."""
        self._limit_changed()
        limit: int | str = self.largest
        if taken <= self.largest:  # the limit is not known: perhaps a right is missing
            see, cluster = Right("DESCRIBE_CONFIGS", "topic", self.name), self.site.cluster
            limit = "less"
            if granted(cluster, [see])[see] is False:
                limit += f" ({lacks(cluster, see)}, so its limit is not known)"
        return PayloadTooLarge(topic=self.name, size=taken, limit=limit, safe=safe)

    def _not_stored(self, error: KafkaError | None, safe: str) -> KqError:
        cluster, address = self.site.cluster, self.site.cluster.bootstrap
        if error is None:
            return Unreachable(address=address, why=f"no answer to a put. {safe}".rstrip("."))
        if not is_refused(error) and (few := too_few(cluster, self.name)):
            # the client retries that, and only says that time is up
            return NotNow(address=address, why=f"{few}. {safe}".rstrip("."))
        right = WRITE_QUEUE.of(self.name, "")
        return refused(error, cluster, f"put into '{self.name}'", right, safe, topic=self.name, site=self.site.name)

    def _usable(self) -> None:
        self.site._check_open()
        if self.site._notes.get(self.site.name, self.name, "status") == "deleted":
            raise QueueDeleted(queue=self.name)


# --- several puts at once ---


class Transaction:
    """Several puts, all or nothing: `with site.transaction() as tx: tx.put(queue, data)`."""

    def __init__(self, site: Connection, acks: Sequence[Ack] = ()) -> None:
        self._site = site
        self._acks = list(acks)
        self._outs: list[Out] = []
        self._into: dict[str, Putting] = {}
        self._marks: Headers = []
        self._over = False

    def put(
        self,
        queue: Putting,
        data: bytes | None,
        key: bytes | None = None,
        headers: dict[str, bytes | None] | None = None,
        delay: float = 0,
    ) -> None:
        """Written when the block ends, with all the others."""
        if self._over:
            raise Closed(thing="transaction")
        if not isinstance(queue, Putting) or queue.site is not self._site:
            raise NotAllowed("the first argument is a queue of this site: tx.put(queue, data)")
        out = queue._out(Put(data, key, headers or {}, delay), self._marks)
        queue._usable()
        self._outs.append(out)
        self._into[queue.name] = queue

    def __enter__(self) -> Self:
        self._site._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if kind is None and (self._outs or self._acks):
            self._site._check_here()
            for queue in self._into.values():  # one may have been deleted since its put
                queue._usable()
            with self._site._session.changed:
                self._site._end(Ending(self._outs, self._acks))


class Step(Transaction):
    """A transaction that also acks an item. Its puts have the item's id and the site in headers, for audits."""

    def __init__(self, site: Connection, partition: Partition, item: Item) -> None:
        super().__init__(site, [Ack(partition, item.offset, item.lease)])
        self._marks = [(ITEM, item.id.encode()), (BY, site.name.encode())]


def _too_large(sent: Sent) -> list[int]:
    """The places of the records that were refused as too large."""
    return [at for at, error in sent.errors.items() if error.code() in TOO_LARGE]


def too_few(cluster: Kafka, topic: str) -> str:
    """Kafka's NotEnoughReplicas in words; '' if enough replicas are in sync."""
    try:
        least = int(topic_settings(cluster, [topic], 3)[topic]["min.insync.replicas"])
        counts = [len(part.isrs) for part in cluster.partitions(topic).values()]
    except (KqError, KeyError):  # it cannot be asked now
        return ""
    few = sum(count < least for count in counts)
    what = f"{few} of {len(counts)} partitions have fewer than {least} replicas in sync"
    return f"NotEnoughReplicas: {what}" if few else ""
