"""Putting: durable when the call returns, checked before anything is sent, and said item by item when it fails.

In:  data, keys, headers, delays. Out: ids, which never change. The half of a queue that needs no group.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from kqlib.errors import KqError, PayloadTooLarge, QueueDeleted, Unreachable
from kqlib.queue.item import Put, put_of, size
from kqlib.queue.said import TOO_LARGE, as_ours
from kqlib.queue.sender import Out, Sent

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

    def __init__(self, site: Site, name: str, facts: TopicFacts) -> None:
        self.site, self.name, self.facts = site, name, facts

    def put_many(self, items: Iterable[Put | tuple[bytes | None, bytes | None]]) -> list[str]:
        """Put them all with one flush; their ids. What failed is said in the error: `.done` by place, `.unknown` places."""
        outs = [self._out(put_of(item)) for item in items]
        self._usable()
        sent = self.site._sender(self.facts.limit).send(outs)
        if rates := self.site._rates.get(self.name):  # who only puts (`kq queue put`) has opened no queue
            rates.note("puts", len(outs) - sent.places.count(None), time.monotonic())
        if sent.errors or None in sent.places:
            raise self._not_all(sent, len(outs))
        return [f"{self.name}/{place[0]}/{place[1]}" for place in sent.places if place]

    def _out(self, put: Put, marks: Sequence[tuple[str, bytes | None]] = ()) -> Out:
        headers = [*put.all_headers, *marks] if marks else put.all_headers
        taken = size(put.data, put.key, headers)
        if taken > self.facts.limit:
            raise PayloadTooLarge(topic=self.name, size=taken, limit=self.facts.limit)
        return Out(self.name, put.data, put.key, headers or None)

    def _not_all(self, sent: Sent, many: int) -> KqError:
        done = {at: f"{self.name}/{place[0]}/{place[1]}" for at, place in enumerate(sent.places) if place}
        unknown = [at for at, place in enumerate(sent.places) if place is None]
        safe = f"Of {many} items {len(done)} are stored; the other {len(unknown)} may have been, or not."
        error = next(iter(sent.errors.values()), None)
        if error is None:
            ours: KqError = Unreachable(address=self.site.cluster.bootstrap, why=f"no answer to a put. {safe}")
        elif error.code() in TOO_LARGE:
            ours = PayloadTooLarge(topic=self.name, size=error.str(), limit=f"{self.facts.limit} bytes in all")
        else:
            safe = f"{too_few(self.site.cluster, self.name)}{safe}"
            ours = as_ours(error, self.site.cluster.bootstrap, f"put into '{self.name}'", safe, self.name)
        ours.__dict__.update(done=done, unknown=unknown)
        return ours

    def _usable(self) -> None:
        self.site._check_open()
        if self.site._notes.get(self.site.name, self.name, "status") == "deleted":
            raise QueueDeleted(queue=self.name)


def too_few(cluster: Kafka, topic: str) -> str:
    """Kafka's NotEnoughReplicas as a sentence, '' if enough are in sync: the client retries it and only says that time is up."""
    admin, resource = cluster.admin, ConfigResource(ResourceType.TOPIC, topic)
    try:
        settings = admin.describe_configs([resource], request_timeout=3)[resource].result(4)
        wanted = int(settings["min.insync.replicas"].value)
        counts = [len(part.isrs) for part in cluster.partitions(topic).values()]
    except (KqError, KafkaException, KeyError, TimeoutError):  # who cannot be asked now
        return ""
    few = sum(count < wanted for count in counts)
    return (
        f"NotEnoughReplicas: {few} of {len(counts)} partitions have fewer than {wanted} replicas in sync. "
        if few
        else ""
    )
