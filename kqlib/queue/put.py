"""Putting: durable when the call returns, checked before anything is sent, and said item by item when it fails.

In:  data, keys, headers, delays. Out: ids, which never change. The half of a queue that needs no group.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from kqlib.errors import KqError, NotNow, PayloadTooLarge, QueueDeleted, Unreachable
from kqlib.queue.dead import ROOM
from kqlib.queue.item import Out, Put, put_of, size
from kqlib.queue.rights import WRITE_QUEUE
from kqlib.queue.said import TOO_LARGE, as_ours, is_refused, not_allowed
from kqlib.queue.sender import Sender, Sent

if TYPE_CHECKING:
    from kqlib.broker import Kafka
    from kqlib.queue.site import Site


@dataclass(frozen=True)
class TopicFacts:
    """What must be known of a queue's topic before anything is sent."""

    partitions: int
    limit: int  # bytes of a record


class One:
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


class Putting(One):
    """A queue as who puts sees it."""

    room = ROOM  # bytes that a put leaves free of what its topic takes

    def __init__(self, site: Site, name: str, facts: TopicFacts) -> None:
        self.site, self.name, self.facts = site, name, facts

    @property
    def largest(self) -> int:
        """The bytes of a record that a put may have."""
        return max(0, self.facts.limit - self.room)

    def put_many(self, items: Iterable[Put | tuple[bytes | None, bytes | None]]) -> list[str]:
        """Put them all with one flush; their ids. What failed is said in the error: `.done` by place, `.unknown` places."""
        puts = self._checked(items)
        self._usable()
        sent = self._send(self.site._sender(self.facts.limit), puts)
        if rates := self.site._rates.get(self.name):  # who only puts (`kq queue put`) has opened no queue
            rates.note("puts", len(puts) - sent.ids.count(None), time.monotonic())
        return self._ids(sent)

    def _checked(self, items: Iterable[Put | tuple[bytes | None, bytes | None]]) -> list[Put]:
        """All of them fit, or none is sent."""
        puts, most = [item if isinstance(item, Put) else put_of(item) for item in items], self.largest
        for put in puts:
            if put.size > most:
                raise PayloadTooLarge(topic=self.name, size=put.size, limit=most)
        return puts

    def _send(self, sender: Sender, puts: list[Put]) -> Sent:
        """Each record is made when it goes, and not kept: Python's collector has none of them to walk over."""
        records = ((put.data, put.key, put.all_headers or None, -1) for put in puts)
        return sender.send(self.name, records, len(puts))

    def _out(self, put: Put, marks: Sequence[tuple[str, bytes | None]] = ()) -> Out:
        """The record that a transaction writes."""
        headers = [*put.all_headers, *marks]
        if (taken := size(put.data, put.key, headers)) > self.largest:
            raise PayloadTooLarge(topic=self.name, size=taken, limit=self.largest)
        return Out(self.name, put.data, put.key, headers or None)

    def _ids(self, sent: Sent) -> list[str]:
        """Each one's id; what is not known to be stored is said in the error."""
        if sent.errors or None in sent.ids:
            raise self._not_all(sent)
        return cast(list[str], sent.ids)

    def _not_all(self, sent: Sent) -> KqError:
        done = {at: id_ for at, id_ in enumerate(sent.ids) if id_}
        refused = {at for at, error in sent.errors.items() if is_refused(error)}
        unknown = [at for at, id_ in enumerate(sent.ids) if id_ is None and at not in refused]
        safe = f"Of {len(sent.ids)} items {len(done)} are stored"
        safe += f", {len(refused)} refused and not stored" * bool(refused)
        safe += f"; the other {len(unknown)} may have been, or not." if unknown else "."
        error = next(iter(sent.errors.values()), None)
        if error is None:
            ours: KqError = Unreachable(
                address=self.site.cluster.bootstrap, why=f"no answer to a put. {safe}".rstrip(".")
            )
        elif error.code() in TOO_LARGE:
            ours = PayloadTooLarge(topic=self.name, size=error.str(), limit=f"{self.facts.limit} bytes in all")
        else:
            lacks = not_allowed(WRITE_QUEUE.of(self.name, ""), self.site.cluster, safe)
            address, few = (
                self.site.cluster.bootstrap,
                "" if is_refused(error) else too_few(self.site.cluster, self.name),
            )
            ours = as_ours(error, address, f"put into '{self.name}'", safe, self.name, lacks=lacks)
            if few:  # the client retries that, and only says that time is up
                ours = NotNow(address=address, why=f"{few}. {safe}".rstrip("."))
        ours.__dict__.update(done=done, unknown=unknown)
        return ours

    def _usable(self) -> None:
        self.site._check_open()
        if self.site._notes.get(self.site.name, self.name, "status") == "deleted":
            raise QueueDeleted(queue=self.name)


def too_few(cluster: Kafka, topic: str) -> str:
    """Kafka's NotEnoughReplicas in words; '' if enough are in sync."""
    admin, resource = cluster.admin, ConfigResource(ResourceType.TOPIC, topic)
    try:
        settings = admin.describe_configs([resource], request_timeout=3)[resource].result(4)
        wanted = int(settings["min.insync.replicas"].value)
        counts = [len(part.isrs) for part in cluster.partitions(topic).values()]
    except (KqError, KafkaException, KeyError, TimeoutError):  # who cannot be asked now
        return ""
    few = sum(count < wanted for count in counts)
    return (
        f"NotEnoughReplicas: {few} of {len(counts)} partitions have fewer than {wanted} replicas in sync" if few else ""
    )
