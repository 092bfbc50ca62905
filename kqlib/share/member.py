"""One member of a share group: a ShareConsumer and the only thread that calls it, with at most one polled batch.

In:  orders (accept, release, reject) from any thread, leave to poll. Out: records, and the outcome of each order.
The queue's condition `changed` guards everything but the client. Each change notifies it.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Message

from kqlib.errors import KqError, LeaseLost
from kqlib.kafka.clients import ShareConsumer
from kqlib.queue.answers import as_ours, first
from kqlib.queue.rights import READ_GROUP, READ_QUEUE
from kqlib.runtime.patience import PATIENCE
from kqlib.share.group import ASK, CANNOT, not_allowed

if TYPE_CHECKING:
    from kqlib.kafka.cluster import Kafka

QUANTUM = 0.2  # seconds of one poll, after which a member notices that it is to close; records end it at once
ANSWER = 4.0  # seconds for one answer of the broker; closing waits as long
# Seconds without a claim until a member with nothing claimed leaves: its waiting fetch would lock records.
LINGER = 1.5
RENEW = 60.0  # seconds of empty polls until a member is replaced: its client may know no broker (librdkafka 5301)
LOOK = 0.25  # seconds after which a waiting thread looks at the clock
SETTLED = 0.3 * PATIENCE  # seconds of polling that show that there is nothing: the client cannot ask where the log ends
MAYBE = {KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}

Place = tuple[int, int]  # partition, offset
NUMBERS = itertools.count(1)  # of all members in this process, so that no receipt fits two


@dataclass(eq=False)
class Order:
    """An answer for one record. It is over when the broker has confirmed it, or did not reply."""

    place: Place
    kind: AcknowledgeType
    over: bool = False
    error: KqError | None = None


@dataclass(eq=False)
class Member:
    """One consumer, its thread, and the batch it has out."""

    cluster: Kafka
    group: str
    topic: str
    size: int  # how many records a poll asks for
    lease: float
    changed: threading.Condition
    idle: Callable[[], float]  # seconds since the last claim from this queue
    number: int = field(default_factory=lambda: next(NUMBERS))
    batch: int = 0
    waiting: deque[Message] = field(default_factory=deque)  # polled, not claimed
    claimed: set[Place] = field(default_factory=set)
    orders: list[Order] = field(default_factory=list)
    deadline: float = 0.0  # of its batch
    touched: bool = False  # was an item of its batch claimed? A batch without a claim is given back soon
    polling: float | None = None  # since when
    began: float = 0.0  # when the last poll began, if it returned nothing
    assigned: float | None = None  # since when it has a partition
    closing: bool = False
    ended: bool = False
    trouble: KqError | None = None

    def start(self) -> None:
        """Begin; the thread ends by itself, see `_done`."""
        self.thread = threading.Thread(target=self._run, name=f"kq-share-{self.number}", daemon=True)
        self.thread.start()

    @property
    def free(self) -> bool:
        """May it poll?"""
        return not (self.busy or self.stale or self.closing or self.ended)

    @property
    def busy(self) -> bool:
        """Is a record of its batch out, or an answer on its way?"""
        return bool(self.waiting or self.claimed or self.orders)

    @property
    def stale(self) -> bool:
        """Is half of its batch's lease over? What its waiting fetch has locked may have no time left."""
        return self.polling is None and self.batch > 0 and time.monotonic() > self.deadline - self.lease / 2

    @property
    def settled(self) -> bool:
        """Has it polled long enough to say that there is nothing?"""
        if self.polling is None or self.assigned is None:
            return False
        return time.monotonic() - max(self.polling, self.assigned) >= SETTLED

    def order(self, place: Place, kind: AcknowledgeType) -> Order:
        """Have a claimed record answered; `changed` is held."""
        order = Order(place, kind)
        self.claimed.discard(place)
        self.orders.append(order)
        self.changed.notify_all()
        return order

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        client = None
        try:
            client = ShareConsumer(self._settings())
            client.subscribe([self.topic])
            while self._step(client):
                pass
            self._await_assignment(client)
        except KafkaException as error:
            self.trouble = self._trouble(first(error))
        except Exception as error:  # a fault of ours must not leave callers waiting
            self.trouble = KqError(f"a member of share group '{self.group}' ended: {type(error).__name__}: {error}")
        finally:
            with self.changed:
                self.ended, self.polling = True, None
                self.waiting.clear()
                self.claimed.clear()
                for order in self.orders:
                    order.over, order.error = True, LeaseLost("the member that had it is gone: it comes again")
                self.changed.notify_all()
            if client is not None:
                with suppress(KafkaException):
                    client.close()  # what is out is given back

    def _await_assignment(self, client: ShareConsumer) -> None:
        """Wait for the first assignment. If it comes during the client's close(), that never returns (librdkafka 2.16)."""
        deadline = time.monotonic() + ANSWER / 2
        while self.assigned is None and time.monotonic() < deadline:
            client.poll(QUANTUM)

    def _step(self, client: ShareConsumer) -> bool:
        """Answer, or poll, or wait for either; False: leave."""
        with self.changed:
            orders, self.orders = self.orders, []
            if not orders:
                if self._done():
                    self.closing = True  # set under the lock: nothing of it is claimed or answered any more
                    return False
                if self.polling is None:
                    self.changed.wait(LOOK)
                    return True
        if orders:
            self._answer(client, orders)
        else:
            self._poll(client)
        return True

    def _done(self) -> bool:
        """Time to leave: the queue closes, the lock is over, or no claim comes any more."""
        if self.closing or (self.stale and not self.busy):
            return True
        if not self.waiting and not self.claimed:
            since = time.monotonic() if self.polling is None else self.polling
            return self.idle() > LINGER or time.monotonic() - since > RENEW
        left = self.deadline - time.monotonic()
        return left <= 0 or (not self.touched and self.lease - left > LINGER)

    def _poll(self, client: ShareConsumer) -> None:
        now = time.monotonic()
        # After a stop, an empty poll ends first; the next one returns records locked before it. So count from the empty one.
        began, self.began = self.began or now, now
        found = list(client.poll(QUANTUM))
        for message in found:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        if not found:
            return
        with self.changed:
            self.batch += 1
            self.waiting.extend(found)
            self.deadline, self.touched = began + self.lease, False
            self.polling, self.began = None, 0.0
            self.assigned = self.assigned or now
            self.changed.notify_all()

    def _answer(self, client: ShareConsumer, orders: list[Order]) -> None:
        """Send these answers and note their outcome."""
        errors: dict[int, Any] = {}
        try:
            for order in orders:
                client.acknowledge_offset(self.topic, *order.place, order.kind)  # noted here, sent with the commit
            errors = {part.partition: error for part, error in client.commit_sync(ANSWER).items()}
        except (KafkaException, RuntimeError) as error:  # RuntimeError: the client does not have that record out
            errors = {order.place[0]: error for order in orders}
        with self.changed:
            for order in orders:
                order.over, order.error = True, self._refusal(errors.get(order.place[0]))
            self.changed.notify_all()

    def _trouble(self, error: KafkaError) -> KqError:
        """Why this member cannot go on."""
        of_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        right = (READ_GROUP if of_group else READ_QUEUE).of(self.topic, self.group)
        lacks = not_allowed(self.cluster, right, f"Nothing was claimed. {ASK}")
        return as_ours(error, self.cluster.bootstrap, "claim", "Nothing was claimed.", self.topic, lacks=lacks)

    def _refusal(self, error: Exception | None) -> KqError | None:
        """The broker's answer as ours: not acquired (any more), or not known."""
        if error is None:
            return None
        if not isinstance(error, KafkaException):
            return LeaseLost(f"the client says: {error}. It comes again if it was not done")
        cause = first(error)
        if cause.code() in MAYBE:
            safe = "The answer may have been stored, or not; if not, the item comes again."
            return as_ours(cause, self.cluster.bootstrap, "answer for an item", safe)
        return LeaseLost(
            f"the broker says: {cause.str()}. The lock is over or moved; leave it, it comes again if it was not done"
        )

    def _settings(self) -> dict[str, Any]:
        settings = self.cluster.client(
            group_id=self.group,
            share_acknowledgement_mode="explicit",
            max_poll_records=self.size,
            socket_timeout_ms=int(ANSWER * 1000),  # closing waits so long for a broker that is away
            statistics_interval_ms=100,
            stats_cb=self._stats,
        )
        return {name: value for name, value in settings.items() if name not in CANNOT}

    def _stats(self, text: str) -> None:
        """The only place where a share consumer says that it has partitions."""
        if self.assigned is None and json.loads(text).get("cgrp", {}).get("assignment_size"):
            self.assigned = time.monotonic()
