"""A queue whose bookkeeping is Kafka's own: the verbs over the members of a share group.

In:  calls from any thread. Out: items; what share groups cannot do is `NotAllowed`, with the reason.

    queue = kq.ShareQueue(cluster, "football", group="scores", lease=30, max_attempts=5)
    item = queue.claim(wait=1); queue.ack(item)            # or release(item), reject(item)

One member polls at a time. A claim takes what it got; the member is busy until all of that is answered, and another one polls.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn, Self, cast

from confluent_kafka import AcknowledgeType

from kqlib.errors import Closed, KqError, NotAllowed, Unreachable
from kqlib.kafka import forks
from kqlib.kafka.cluster import Kafka
from kqlib.queue import arguments
from kqlib.queue.connection import topic_facts
from kqlib.queue.item import Item, Job, Outcome, Put, check_claimed, lease_lost, maybe_acked, not_acked
from kqlib.queue.put import Putting
from kqlib.queue.retry import Retry
from kqlib.queue.sender import Sender
from kqlib.queue.work import Until, Work, Worked, WorkMixin
from kqlib.share import group as settings
from kqlib.share.member import ANSWER, Member, Order

log = logging.getLogger("kqlib.share")
MOST = 64  # members of this process at a time: each is a client with threads and connections of its own
FIRST = 10.0  # seconds that a claim waits for its first partitions
REST = 0.2  # seconds after a member failed until the next one tries
CLOSE = 5.0
LOOK = 0.05  # seconds after which a waiting claim looks again
LARGEST = 2_000  # records of a poll: what a partition has locked at most, by default
_LIVE: weakref.WeakSet[ShareQueue] = weakref.WeakSet()


class ShareQueue(Putting, WorkMixin):
    """A queue on a share group: put, claim, ack, release, reject. Kafka locks, counts and forgets by itself."""

    reserve = 0  # nothing is buried, so nothing is put back

    def __init__(
        self,
        cluster: Kafka,
        name: str,
        group: str | None = None,
        *,
        lease: float | None = None,
        max_attempts: int | None = None,
        order: str = "any",
    ) -> None:
        """lease, max_attempts: settings of the whole group, kept by the broker; None leaves what it has (30 s, 5)."""
        self._process = os.getpid()
        self.cluster, self.group = cluster, arguments.site_name(f"share-{name}" if group is None else group)
        if lease is not None:
            arguments.lease(lease)
        if max_attempts is not None:
            arguments.count("max_attempts", max_attempts, 2)
        if arguments.one_of("order", order, "any", "key") == "key":
            _never("order='key'", "a partition's records go to all members alike, whatever their key")
        facts = topic_facts(cluster, name)[name]
        super().__init__(cast(Any, self), name, facts)  # what a site is to other queues this one is to itself
        terms = settings.agree(cluster, self.group, lease, max_attempts)
        self.lease, self.max_attempts = terms.lease, terms.max_attempts
        self.changed, self._members, self._sending = threading.Condition(), dict[int, Member](), threading.Lock()
        self._made: Sender | None = None
        self._closed, self._claimed_at, self._trouble = False, time.monotonic(), cast("KqError | None", None)
        self._rest = 0.0  # until when no new member is started
        _LIVE.add(self)

    # --- put ------------------------------------------------------------------------------------------------------------

    def put_many(self, items: Iterable[Put | tuple[bytes | None, bytes | None]]) -> list[str]:
        """Put them all; their ids. Each record is a batch of its own, so that a poll does not take them all."""
        puts = self._checked(items)
        if any(put.delay for put in puts):
            _never("a delay", "the broker gives out at once what is there")
        self._usable()
        with self._sending:
            if self._made is None:
                self._made = Sender(self.cluster, batch=1)
        return self._ids(self._send(self._made, puts), puts)

    def _usable(self) -> None:
        self._check_here()
        if self._closed:
            raise Closed(thing="share queue")

    # --- claim ----------------------------------------------------------------------------------------------------------

    def claim(self, lease: float | None = None, wait: float = 0) -> Item | None:
        """The next item, yours until the group's lock on it ends; None if there is none after `wait` seconds."""
        found = self.claim_many(1, lease, wait)
        return found[0] if found else None

    def claim_many(self, n: int, lease: float | None = None, wait: float = 0) -> list[Item]:
        """Up to n items, as soon as there is one; [] if there is none after `wait` seconds."""
        arguments.count("n", n)
        if lease is not None and round(arguments.lease(lease), 3) != self.lease:  # the group keeps milliseconds
            _never(
                f"lease={lease:g}", f"the lock is one setting of the group, {self.lease:g} s: say it to ShareQueue(…)"
            )
        began = time.monotonic()
        until = began + arguments.wait(wait)
        self._check_here()
        with self.changed:
            self._trouble = None
            while not (items := self._taken(n)):
                member, now = self._poller(n), time.monotonic()
                if isinstance(self._trouble, NotAllowed):  # waiting gives nobody a right
                    raise self._trouble
                settled = now >= self._rest if member is None else member.settled
                if now >= until and (settled or now >= began + FIRST):
                    if self._trouble is not None:
                        raise self._trouble
                    if member is not None and member.assigned is None:
                        raise self._nowhere()
                    return []
                self.changed.wait(LOOK)
            return items

    def _nowhere(self) -> KqError:
        why = f"share group '{self.group}' gave this process no partition within {FIRST:g} s. Nothing was claimed"
        return Unreachable(address=self.cluster.bootstrap, why=why)

    def _taken(self, n: int) -> list[Item]:
        """What members have at hand; `changed` is held."""
        self._usable()
        self._claimed_at = time.monotonic()
        items: list[Item] = []
        for member in self._members.values():
            live = not member.closing and not member.ended and time.monotonic() < member.deadline
            while live and member.waiting and len(items) < n:
                record = member.waiting.popleft()
                member.claimed.add((record.partition(), record.offset()))
                member.touched = True
                attempt, receipt = record.delivery_count(), (member.number, member.batch)
                items.append(Item(self.name, record.partition(), record, attempt, member.deadline, *receipt))
        return items

    def _poller(self, n: int) -> Member | None:
        """The member that polls for this claim: one that polls already, a free one or a new one.

        None: too many batches are out, or a member has just failed.
        """
        for number in [number for number, member in self._members.items() if member.ended]:
            if (trouble := self._members.pop(number).trouble) is not None:
                self._trouble, self._rest = trouble, time.monotonic() + REST
        size = min(n, LARGEST)
        members = list(self._members.values())
        polling = next((each for each in members if each.polling is not None and not each.closing), None)
        if polling is not None:
            return polling
        chosen = next((each for each in members if each.free and each.size == size), None)
        if chosen is None:
            if len(members) >= MOST or time.monotonic() < self._rest:
                return None
            chosen = Member(self.cluster, self.group, self.name, size, self.lease, self.changed, self._idle)
            self._members[chosen.number] = chosen
            chosen.start()
        chosen.polling = time.monotonic()
        self.changed.notify_all()
        return chosen

    def _idle(self) -> float:
        return time.monotonic() - self._claimed_at

    # --- answer ---------------------------------------------------------------------------------------------------------

    def ack(self, item: Item) -> None:
        """Done: it never comes again. Durable when it returns."""
        self._answer(item, AcknowledgeType.ACCEPT)

    def release(self, item: Item, delay: float = 0) -> None:
        """Not done: back to the front. The attempt counts; after the last one the item is gone."""
        if arguments.delay(delay):
            _never("release with a delay", "a released record is free at once")
        self._answer(item, AcknowledgeType.RELEASE)

    def reject(self, item: Item) -> None:
        """Never again for this group, done or not; there is no dead letter."""
        self._answer(item, AcknowledgeType.REJECT)

    def ack_many(self, items: Iterable[Item]) -> None:
        """All of them done. What cannot be acked is in the error's `.items`; the others are done.

        `Unreachable`: what is in its `.unknown` may have been acked, or not.
        """
        items, orders = list(items), list[tuple[Item, Order]]()
        refused, unknown = list[Item](), list[Item]()
        why = ""
        self._usable()
        with self.changed:
            for item in items:
                try:
                    orders.append((item, self._order(item, AcknowledgeType.ACCEPT)))
                except KqError as error:  # its lock is lost, or it is another queue's, or nobody claimed it
                    refused.append(item)
                    why = why or str(error)
            for item, order in orders:
                if (trouble := self._outcome(order)) is not None:
                    (unknown if isinstance(trouble, Unreachable) else refused).append(item)
                    why = why or str(trouble.facts["why"])
        if unknown:
            raise maybe_acked(len(items), refused, unknown, why, self.cluster.bootstrap)
        if refused:
            raise not_acked(len(items), refused, why)

    def _answer(self, item: Item, kind: AcknowledgeType) -> None:
        self._check_here()
        with self.changed:
            error = self._outcome(self._order(item, kind))
        if error is not None:
            raise error

    def _order(self, item: Item, kind: AcknowledgeType) -> Order:
        """Ask the member that has it for this answer; `changed` is held."""
        member = self._held(item)
        return member.order((item.partition, item.offset), kind)

    def _outcome(self, order: Order) -> KqError | None:
        """The error of this answer, or None; `changed` is held."""
        if not self.changed.wait_for(lambda: order.over, 2 * ANSWER + 2):
            why = "no answer. It may have been stored, or not; if not, the item comes again"
            return Unreachable(address=self.cluster.bootstrap, why=why)
        return order.error

    def _held(self, item: Item) -> Member:
        check_claimed(item, self.name)
        self._usable()
        member, why = self._members.get(item.epoch), ""
        if time.monotonic() >= item.deadline:
            why = f"its lock is over (the group's is {self.lease:g} s)"
        elif member is None or member.closing or member.ended or member.batch != item.lease:
            why = "its member is gone, or has another batch by now"
        elif (item.partition, item.offset) not in member.claimed:
            why = "it was acked, released or rejected already"
        if why or member is None:
            raise lease_lost(item.id, why)
        return member

    # --- what share groups cannot do ------------------------------------------------------------------------------------

    def extend(self, item: Item, lease: float | None = None) -> NoReturn:
        """Not with this client: Kafka 4.3 can renew a lock, confluent-kafka 2.16 cannot ask for it."""
        _never("extend", "the client cannot renew a lock. Set a longer lease for the group")

    def bury(self, item: Item, reason: str = "") -> NoReturn:
        """Not on Kafka 4.3: `reject` throws the item away."""
        _never("bury", "Kafka 4.3 keeps no dead letters. reject(item) throws it away; put it elsewhere first")

    @property
    def dead(self) -> NoReturn:
        """Not on Kafka 4.3."""
        _never("dead", "Kafka 4.3 keeps no dead letters: after the last attempt a record is archived, which is gone")

    def depth(self) -> NoReturn:
        """Not with this client; `kq kafka share-groups --describe` shows a lag."""
        _never(
            "depth",
            "the client cannot ask for what a share group has done. `kq kafka share-groups --describe` shows a lag",
        )

    def step(self, item: Item) -> NoReturn:
        """Not with share groups."""
        _never("step", "an acknowledgement cannot be part of a transaction")

    # --- work, and the end ----------------------------------------------------------------------------------------------

    def work(  # type: ignore[override]
        self,
        handler: Callable[[Item], object],
        threads: int = 1,
        retry: Retry | None = None,
        *,
        until: Until = None,
    ) -> Worked:
        """Claim, handle, ack in threads. until: as in `Queue.work`. What a `Retry` gives up is rejected."""
        if isinstance(retry, Retry) and retry.first:
            _never("a wait between attempts", "a released record is free at once: use Retry() without seconds")
        return Work(self, handler, threads, retry, until=until).run()

    def _claim_jobs(
        self, n: int, wait: float, stop: Callable[[], bool], empty: Callable[[list[KqError]], None] | None
    ) -> list[Job]:
        """One at a time: items that are claimed together share a member, which polls again when all of them are answered."""
        return super()._claim_jobs(1, wait, stop, empty)

    def _job_failed(self, job: Job, wait: float | None, story: str) -> None:
        """Tried again until the broker has counted enough; or thrown away, which only a line of the log remembers."""
        if wait is None:
            fields = {"queue": job.item.queue, "item": job.item.id, "attempt": job.item.attempt, "reason": story}
            log.warning("%s is given up and gone: %s", job.item.id, story, extra=fields)
            self.reject(job.item)
        else:
            self.release(job.item)
        job.outcome = Outcome.BURIED if wait is None else Outcome.RELEASED

    @property
    def blocked(self) -> str:
        """Why nothing new is handed out although there may be something; '' if nothing is in the way."""
        self._check_here()
        with self.changed:
            busy = sum(member.busy for member in self._members.values())
        return f"{busy} batches are out, and that is all: ack or release" if busy >= MOST else ""

    def _check_here(self) -> None:
        """Before each lock: after a fork nobody would release it."""
        forks.check(self._process, f"the share queue '{self.name}'")

    def close(self) -> None:
        """Give back what is out, and leave the group; at most 5 s. Calling it twice does no harm."""
        if self._process != os.getpid():
            return
        with self.changed:
            if self._closed:
                return
            self._closed, members = True, list(self._members.values())
            for member in members:
                member.closing = True
            self.changed.notify_all()
        deadline = time.monotonic() + CLOSE
        for member in members:
            member.thread.join(max(0.0, deadline - time.monotonic()))
        if self._made is not None:
            self._made.close(0.2)
        _LIVE.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ShareQueue('{self.name}', group '{self.group}'{', closed' * self._closed})"


def _never(what: str, why: str) -> NoReturn:
    raise NotAllowed(f"share groups do not offer {what}: {why}")


@atexit.register
def _close_all() -> None:
    for queue in list(_LIVE):
        with suppress(Exception):
            queue.close()
