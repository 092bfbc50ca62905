"""One transaction of a site: records written, states committed, all or nothing.

In:  endings, and the owners whose items they ack. Out: committed, aborted or not known, and why a further try would be refused too.

A topic that took no record within the last seconds is doubted: then the partitions are frozen only when all records are written.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kqlib.errors import KqError, NotAllowed, PayloadTooLarge
from kqlib.kafka.clients import Producer
from kqlib.queue.bounded import NoAnswer, insist
from kqlib.queue.clients import HOLDS, SETTINGS, judge
from kqlib.queue.granted import ending_lacks
from kqlib.queue.item import Out, size
from kqlib.queue.partition import Partition
from kqlib.queue.said import REFUSED, RIGHTS, TOO_LARGE, first, not_allowed

if TYPE_CHECKING:
    from kqlib.queue.ending import Ending
    from kqlib.queue.member import Member

log = logging.getLogger("kqlib.queue")
client_log = logging.getLogger("kqlib.queue.librdkafka")  # of a producer that ended; by itself it prints to stderr
client_log.addHandler(logging.NullHandler())
client_log.propagate = False
TIMEOUT = 10.0  # seconds: the broker ends a transaction that its producer does not
STALL = 1.0  # seconds without a written record until the others go first
TRUSTED = 10.0  # seconds after its last record until a topic is doubted


class Transactions:
    """The transactional producer of a site."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._producer: Any = None
        self._fresh = False  # the producer has not been introduced to its coordinator yet
        self._took: dict[str, float] = {}  # topic -> when it last took a record
        self._why: KqError | None = None  # why the last try would be refused again; None: perhaps it would not
        self._closed = self._committing = False  # _committing: from here on only Kafka knows the outcome

    def _doubted(self, ending: Ending) -> bool:
        """Does it write to a topic that took no record lately?"""
        now = time.monotonic()
        return any(now - self._took.get(topic, -TRUSTED) > TRUSTED for topic in ending.topics)

    def _refusal(self, endings: list[Ending], error: KafkaError, doubted: bool) -> KqError | None:
        """The error that a further try would end with too; None: it may succeed, or it is not known which ending is to blame."""
        if len(endings) != 1 or error.code() not in RIGHTS | REFUSED or (endings[0].anew and not doubted):
            return None
        safe, topics = "Nothing of it happened.", " and ".join(map(repr, sorted(endings[0].topics)))
        if error.code() in TOO_LARGE:
            largest = max(endings[0].outs, key=_size)
            return PayloadTooLarge(
                topic=largest.topic, size=_size(largest), limit="less (see its max.message.bytes)", safe=safe
            )
        if error.code() in RIGHTS:
            cluster, site = self.member.cluster, self.member.site
            right = ending_lacks(cluster, site, endings[0].topics, error.code())
            queue = endings[0].acks[0][0].terms.queue if endings[0].acks else min(endings[0].topics)
            return not_allowed(right, cluster, safe, queue, site)
        return NotAllowed(f"Kafka refused a record for {topics} ({error.str()}). {safe} See the topic's settings")

    def _transaction(self, endings: list[Ending], offsets: dict[Partition, list[int]]) -> bool | None:
        """True: committed. False: aborted, nothing happened. None: not known."""
        deadline, doubted = time.monotonic() + TIMEOUT, any(map(self._doubted, endings))
        try:
            producer = self._ready(deadline)
            producer.begin_transaction()
            for ending in endings:
                self._produce(producer, ending)
            if doubted:
                self._written(producer, endings)
            if offsets:
                parts, group = self._freeze(offsets, deadline)
                insist(lambda left: producer.send_offsets_to_transaction(parts, group, left), deadline)
            self._written(producer, endings)
            with self.member.changed:
                if self._closed:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the site closes"))
                self._committing = True
        except KafkaException as error:
            for topic in {topic for ending in endings for topic in ending.topics}:
                self._took.pop(topic, None)
            self._why = self._refusal(endings, first(error), doubted)
            if self._abort(error) and first(error).code() in REFUSED:
                self._forget()  # it writes nothing more, and its next abort takes 10 s (seen with MSG_SIZE_TOO_LARGE)
            return False  # its end was never asked for, and whoever could ask for it has aborted or is gone
        except NoAnswer:  # it is never committed: the broker ends it when its time is up
            return self._leave("no answer to a transaction", False)
        try:
            insist(
                producer.commit_transaction, time.monotonic() + 2 * TIMEOUT
            )  # by then the broker has ended it itself
            return True
        except KafkaException as error:
            if first(error).txn_requires_abort() and self._abort(error):
                return False
            self._forget()  # its end was asked for: one whose abort is refused too has perhaps been committed
            return self._leave(first(error).str(), None)
        except NoAnswer:
            return self._leave("no answer to a transaction's end", None)

    def _leave(self, trouble: str, outcome: bool | None) -> bool | None:
        """With this producer nothing more is begun; a call that still stands in it ends there."""
        self.member.trouble, self._producer = trouble, None
        return outcome

    def _produce(self, producer: Any, ending: Ending) -> None:
        report = ending.report()
        for out in ending.outs:
            while True:
                try:
                    producer.produce(out.topic, out.value, out.key, out.partition, report, headers=out.headers)
                    producer.poll(0)
                    break
                except BufferError:
                    producer.poll(0.01)

    def _written(self, producer: Any, endings: list[Ending]) -> None:
        """Return when every record is written; an error when none was for a second, one is refused or the site closes."""
        left, moved = sum(ending.open.total() for ending in endings), time.monotonic()
        while left:
            producer.poll(0.05)
            before, left = left, sum(ending.open.total() for ending in endings)
            refused = next((ending.refused for ending in endings if ending.refused), None)
            if left < before:
                moved = time.monotonic()
            elif refused or self._closed or time.monotonic() - moved > STALL:
                topics = sorted({topic for ending in endings for topic, many in ending.open.items() if many})
                why = f"no record was written to {' or '.join(map(repr, topics))}"
                raise _cause(producer) or KafkaException(refused or KafkaError(KafkaError._TIMED_OUT, why))
        now = time.monotonic()
        self._took |= {topic: now for ending in endings for topic in ending.topics}

    def _freeze(self, offsets: dict[Partition, list[int]], deadline: float) -> tuple[list[TopicPartition], Any]:
        """The states as they will be, and the group's metadata. Until the end no other commit is made for these partitions."""
        member = self.member
        with member.changed:
            for owner in offsets:
                owner.frozen = owner.version
            member.committed.wait_for(
                lambda: self._closed or any(o.dropped for o in offsets) or self._may_commit(offsets),
                max(0.1, deadline - time.monotonic()),
            )
            if any(o.dropped for o in offsets) or not self._may_commit(offsets):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the group has not said whose the partition is"))
            parts = []
            for owner, some in offsets.items():
                owner.frozen, ledger = owner.version, owner.with_acked(some)
                at, text = (owner.terms.queue, owner.partition), ledger.text(owner.terms.write_version)
                owner.sent = (ledger.floor, text)
                parts.append(TopicPartition(*at, ledger.floor, metadata=text))
            return parts, member.group

    def _may_commit(self, offsets: dict[Partition, list[int]]) -> bool:
        """Is it known who we are, and no other commit of these partitions under way?"""
        return self.member.group is not None and not self.member.commits.under_way & offsets.keys()

    def _ready(self, deadline: float) -> Any:
        if self._producer is None:
            self._producer = Producer(
                self.member.cluster.client(
                    **{
                        "transactional.id": f"kq-{self.member.site}-{uuid.uuid4().hex[:12]}",
                        "transaction.timeout.ms": int(TIMEOUT * 1000),
                        "retry.backoff.ms": 1,  # a transaction with offsets takes 107 ms without these two, 4 with them
                        "retry.backoff.max.ms": 5,
                        "linger.ms": 0,
                        **SETTINGS,
                        "message.max.bytes": 1_000_000_000,
                        "logger": client_log,
                    }
                )
            )
            self._fresh = True
        if self._fresh:  # the coordinator may be in the making: the next one who asks goes on with this producer
            insist(self._producer.init_transactions, deadline)
            self._fresh = False
        return self._producer

    def _abort(self, error: KafkaException) -> bool:
        """True: Kafka says that it is aborted, or it was never begun. A producer that cannot even abort is replaced."""
        self.member.trouble = first(error).str()
        log.info("a transaction is aborted: %s", self.member.trouble)
        if self._producer is None or (self._fresh and not first(error).fatal() and not self._dead()):
            return True
        try:
            if not first(error).fatal():
                insist(self._producer.abort_transaction, time.monotonic() + TIMEOUT)
                return True
        except KafkaException as worse:
            log.info("aborting: %s", worse)
        except NoAnswer:
            return bool(self._leave("no answer to a transaction's abort", False))
        self._forget()
        return False

    def _dead(self) -> bool:
        return judge(self.member.cluster, self._producer, HOLDS)

    def _forget(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._producer = None


def _cause(producer: Any) -> KafkaException | None:
    """Why this transaction must be aborted; None if the client knows no reason.

    A record's report says only that it was purged. Who asks for a second transaction inside of one is told the first one's error.
    """
    try:
        producer.begin_transaction()
    except KafkaException as error:
        return error if first(error).txn_requires_abort() or first(error).fatal() else None
    return None


def _size(out: Out) -> int:
    return size(out.value, out.key, out.headers or [])
