"""One transaction of a site: records are written and items acked, all or nothing.

In:  `Ending` values, and the partitions whose items they ack. Out: committed, aborted or not known; and why a further try would be
refused too. From `send_offsets` to the transaction's end its partitions are frozen: a plain commit in between would win over it, and
the item would come again.

A topic that took no record within the last seconds is doubted: then the partitions are frozen only when all records are written.
The group's metadata is taken by the session's thread while the partitions are ours. Taken here, it could be that of a later
membership, and the broker would accept a state for partitions that went to another process.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kqlib.errors import KqError, NotAllowed, PayloadTooLarge
from kqlib.kafka.clients import Producer
from kqlib.queue.answers import REFUSED, RIGHTS, TOO_LARGE, ending_lacks, first, not_allowed
from kqlib.queue.assigned import Assigned
from kqlib.queue.clients import RECONNECT_WITHIN, SETTINGS, judge
from kqlib.queue.item import Out, Place
from kqlib.queue.order import NOTHING
from kqlib.queue.partition import Partition

log = logging.getLogger("kqlib.queue")
client_log = logging.getLogger("kqlib.queue.librdkafka")  # of a producer that ended; by itself it prints to stderr
client_log.addHandler(logging.NullHandler())
client_log.propagate = False
TIMEOUT = 10.0  # seconds: the broker ends a transaction that its producer does not
STALL = 1.0  # seconds without a written record until the others go first
# Seconds for an abort, if no commit was asked for: the next producer need not wait for a silent coordinator.
ABORT = 2.0
GRACE = 1.0  # seconds beyond its time until a call is left behind
PATIENCE = 12.0  # seconds until an ending gives up
# Seconds of an ending's last try, which may begin when its patience ends: TIMEOUT to write, twice that to commit, five late calls.
LAST_TRY = 3 * TIMEOUT + 5 * GRACE
# Errors after which a producer is replaced, though its abort succeeded. REFUSED: it writes nothing more, and its next abort takes 10 s
# (seen with MSG_SIZE_TOO_LARGE). _DESTROY_BROKER: a broker left the cluster, and this producer still takes it for the coordinator.
SPOILED = REFUSED | {KafkaError._DESTROY_BROKER}
TRUSTED = 10.0  # seconds after its last record until a topic is doubted


class Ack(NamedTuple):
    """An item that a transaction acks."""

    partition: Partition
    offset: int
    lease: int = 0  # the number of its lease; 0: no worker has it, and its owner buries it


@dataclass(eq=False)
class Ending:
    """Records to write and items to ack, all or nothing."""

    outs: list[Out]
    acks: list[Ack] = field(default_factory=list)
    anew: Callable[[], list[Out]] | None = None  # makes its records for the topic as it is now, or raises why it cannot
    begun: bool = False  # its leases are set aside
    done: bool = False
    error: KqError | None = None
    written: dict[Place, int] = field(default_factory=dict)  # (topic, partition) -> the end of what it wrote
    open: Counter[str] = field(default_factory=Counter)  # topic -> records of this try that are not written
    refused: KafkaError | None = None  # why one of them never will be
    deadline: float = field(default_factory=lambda: time.monotonic() + PATIENCE)
    _try: int = 0  # counts the tries

    @property
    def over(self) -> bool:
        """Is its outcome known?"""
        return self.done or self.error is not None

    @property
    def by_owner(self) -> bool:
        """Does the owner bury items, with no verb that waits for it?"""
        return any(not ack.lease for ack in self.acks)

    @property
    def topics(self) -> set[str]:
        """The topics that it writes to."""
        return {out.topic for out in self.outs}

    def report(self) -> Callable[[Any, Any], None]:
        """Begin a new try. Returns the callback of its delivery reports; those of an earlier try do not count any more."""
        self._try += 1
        self.open = Counter(out.topic for out in self.outs)
        self.refused = None
        return partial(self._delivered, self._try)

    def _delivered(self, try_: int, error: Any, message: Any) -> None:
        if try_ != self._try:
            return
        if error is not None:
            self.refused = error
            return
        self.open[message.topic()] -= 1
        at = (message.topic(), message.partition())
        self.written[at] = max(self.written.get(at, 0), message.offset() + 1)

    def offsets(self) -> dict[Partition, list[int]]:
        """The offsets that it acks, by partition."""
        found: dict[Partition, list[int]] = {}
        for ack in self.acks:
            found.setdefault(ack.partition, []).append(ack.offset)
        return found


class Transactions:
    """The transactional producer of a site."""

    def __init__(self, assigned: Assigned) -> None:
        self.assigned = assigned
        self.closed = False  # the site closes: nothing is committed any more
        self.committing = False  # from here on only Kafka knows the outcome
        self.why: KqError | None = None  # why the last try would be refused again; None: perhaps it would not
        self._producer: Any = None
        self._fresh = False  # the producer is new: `init_transactions` has not succeeded yet
        self._took: dict[str, float] = {}  # topic -> when it last took a record

    def doubted(self, ending: Ending) -> bool:
        """Does it write to a topic that took no record lately?"""
        now = time.monotonic()
        return any(now - self._took.get(topic, -TRUSTED) > TRUSTED for topic in ending.topics)

    def _refusal(self, endings: list[Ending], error: KafkaError, doubted: bool) -> KqError | None:
        """The error with which a further try would fail too. None: it may succeed, or several endings may be the cause."""
        if len(endings) != 1 or error.code() not in RIGHTS | REFUSED or (endings[0].anew and not doubted):
            return None
        safe, topics = "Nothing of it happened.", " and ".join(map(repr, sorted(endings[0].topics)))
        if error.code() in TOO_LARGE:
            largest = max(endings[0].outs, key=lambda out: out.size)
            limit = "less (see its max.message.bytes)"
            return PayloadTooLarge(topic=largest.topic, size=largest.size, limit=limit, safe=safe)
        if error.code() in RIGHTS:
            cluster, site = self.assigned.cluster, self.assigned.site
            right = ending_lacks(cluster, site, endings[0].topics, error.code())
            queue = endings[0].acks[0].partition.terms.queue if endings[0].acks else min(endings[0].topics)
            return not_allowed(right, cluster, safe, queue, site)
        return NotAllowed(f"Kafka refused a record for {topics} ({error.str()}). {safe} See the topic's settings")

    def run(self, endings: list[Ending], offsets: dict[Partition, list[int]]) -> bool | None:
        """True: committed. False: aborted, nothing happened. None: not known."""
        deadline, doubted = time.monotonic() + TIMEOUT, any(map(self.doubted, endings))
        try:
            producer = self._ready(deadline)
            producer.begin_transaction()
            for ending in endings:
                self._produce(producer, ending)
            if doubted:
                self._written(producer, endings)
            if offsets:
                parts, group = self._freeze(offsets, deadline)
                # It never comes back if this producer takes a broker for the group's coordinator that has left the cluster
                # (librdkafka 2.16). Then half of the time is left for another producer.
                soon = min(deadline, time.monotonic() + TIMEOUT / 2)
                insist(lambda left: producer.send_offsets_to_transaction(parts, group, left), soon)
            self._written(producer, endings)
            with self.assigned.changed:
                if self.closed:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the site closes"))
                self.committing = True
        except KafkaException as error:
            for topic in {topic for ending in endings for topic in ending.topics}:
                self._took.pop(topic, None)
            self.why = self._refusal(endings, first(error), doubted)
            if self._abort(error) and first(error).code() in SPOILED:
                self.forget()
            return False  # its commit was never asked for, and this producer cannot ask for it any more
        except NoAnswer:  # it is never committed: the broker ends it when its time is up
            return self.leave("no answer to a transaction", False)
        try:
            # after TIMEOUT the broker has ended it itself
            insist(producer.commit_transaction, time.monotonic() + 2 * TIMEOUT)
            return True
        except KafkaException as error:
            if first(error).txn_requires_abort() and self._abort(error, TIMEOUT):
                return False
            self.forget()  # its commit was asked for: if its abort is refused too, it is perhaps committed
            return self.leave(first(error).str(), None)
        except NoAnswer:
            return self.leave("no answer to a transaction's end", None)

    def leave(self, trouble: str, outcome: bool | None) -> bool | None:
        """Use this producer no more; a call that still waits in it ends there."""
        self.assigned.trouble = trouble
        self._producer = None
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
        """Return when every record is written. It fails if none was for a second, if one is refused, or if the site closes."""
        left, moved = sum(ending.open.total() for ending in endings), time.monotonic()
        while left:
            producer.poll(0.05)
            before, left = left, sum(ending.open.total() for ending in endings)
            refused = next((ending.refused for ending in endings if ending.refused), None)
            if left < before:
                moved = time.monotonic()
            elif refused or self.closed or time.monotonic() - moved > STALL:
                topics = sorted({topic for ending in endings for topic, many in ending.open.items() if many})
                why = f"no record was written to {' or '.join(map(repr, topics))}"
                raise _cause(producer) or KafkaException(refused or KafkaError(KafkaError._TIMED_OUT, why))
        now = time.monotonic()
        self._took |= {topic: now for ending in endings for topic in ending.topics}

    def _freeze(self, offsets: dict[Partition, list[int]], deadline: float) -> tuple[list[TopicPartition], Any]:
        """Freeze these partitions: no other commit until the end. Their states after the acks, and the group's metadata."""
        assigned = self.assigned
        with assigned.changed:
            for partition in offsets:
                partition.frozen = partition.version
            assigned.committed.wait_for(
                lambda: self.closed or any(p.dropped for p in offsets) or self._may_commit(offsets),
                max(0.1, deadline - time.monotonic()),
            )
            if any(p.dropped for p in offsets) or not self._may_commit(offsets):
                raise KafkaException(
                    KafkaError(KafkaError._TIMED_OUT, "the group has not decided whose the partition is")
                )
            # A commit without an answer may still arrive, and would win over the transaction.
            if any(partition.unsure > partition.saved for partition in offsets):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a commit was not answered"))
            parts = []
            for partition, some in offsets.items():
                partition.frozen = partition.version
                ledger = partition.with_acked(some)
                text = ledger.text(partition.terms.write_version)
                partition.sent = (ledger.floor, text)
                partition.ahead.sent(NOTHING)
                parts.append(TopicPartition(*partition.at, ledger.floor, metadata=text))
            return parts, assigned.group

    def _may_commit(self, offsets: dict[Partition, list[int]]) -> bool:
        """Is the group's metadata known, and is no commit of these partitions under way?"""
        return self.assigned.group is not None and not self.assigned.under_way & offsets.keys()

    def _ready(self, deadline: float) -> Any:
        if self._producer is None:
            self._producer = Producer(
                self.assigned.cluster.client(
                    **{
                        "transactional.id": f"kq-{self.assigned.site}-{uuid.uuid4().hex[:12]}",
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

    def _abort(self, error: KafkaException, seconds: float = ABORT) -> bool:
        """True: Kafka confirmed the abort, or nothing was begun. A producer that cannot abort in time is replaced."""
        why = self.assigned.trouble = first(error).str()
        log.info("a transaction is aborted: %s", why, extra={"reason": why})
        if self._producer is None or (self._fresh and not first(error).fatal() and not self._dead()):
            return True
        try:
            if not first(error).fatal():
                insist(self._producer.abort_transaction, time.monotonic() + seconds)
                return True
        except KafkaException as worse:
            log.info("aborting: %s", worse, extra={"reason": first(worse).str()})
        except NoAnswer:
            return bool(self.leave("no answer to a transaction's abort", False))
        self.forget()
        return False

    def _dead(self) -> bool:
        return judge(self.assigned.cluster, self._producer, RECONNECT_WITHIN)

    def forget(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._producer = None


def _cause(producer: Any) -> KafkaException | None:
    """Why this transaction must be aborted; None if the client knows no reason.

    A record's report says only that it was purged. A second begin inside of a transaction raises the first one's error.
    """
    try:
        producer.begin_transaction()
    except KafkaException as error:
        return error if first(error).txn_requires_abort() or first(error).fatal() else None
    return None


class NoAnswer(Exception):  # noqa: N818 - nobody outside sees it
    """A call has not come back."""


def insist(call: Callable[[float], Any], deadline: float) -> None:
    """Call with the seconds that are left, again and again while Kafka answers "not now"."""
    while True:
        try:
            _bounded(call, max(0.1, deadline - time.monotonic()))
            return
        except KafkaException as error:
            kafka = first(error)
            if not kafka.retriable() or kafka.txn_requires_abort() or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _bounded(call: Callable[[float], Any], seconds: float) -> None:
    """On a thread of its own: librdkafka's calls do not all keep the time they are given (librdkafka 5456, 5511)."""
    came: SimpleQueue[BaseException | None] = SimpleQueue()

    def run() -> None:
        try:
            call(seconds)
            came.put(None)
        except BaseException as error:
            came.put(error)

    threading.Thread(target=run, name="kq-ending", daemon=True).start()
    try:
        error = came.get(timeout=seconds + GRACE)
    except Empty:
        raise NoAnswer from None
    if error is not None:
        raise error
