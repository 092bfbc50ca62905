"""Claiming: choose items under the lock, commit their attempts, hand them out. Waits for records, due times and ended leases.

In:  claims from any thread. Out: items, each with a lease in this process; or none, after reading to the log's end.
Downwards: `_choose` asks `Partition.claim`, which asks its order and its ledger. `_hand_out` waits in `Session.save` until the
attempts are committed; then `Partition.start` begins the leases.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from kqlib.errors import Closed, KqError, LeaseLost, LetterTooLarge, NotAllowed, NotNow, Unreachable
from kqlib.queue import answers, arguments, dead, state
from kqlib.queue.assigned import RECREATED
from kqlib.queue.connection import Connection, TopicFacts
from kqlib.queue.item import Item, Job, Out, Place, check_claimed, lease_lost
from kqlib.queue.partition import Claimed, Partition
from kqlib.queue.put import Putting
from kqlib.queue.terms import Terms
from kqlib.queue.transactions import Ack, Ending

if TYPE_CHECKING:
    from kqlib.queue.session import Session

ASSIGNED_WITHIN = 10.0  # seconds that the first claim waits for its partitions, and every claim for their states
READ_WITHIN = 10.0  # seconds until a claim gives up reading to the log's end; as a rule that takes milliseconds
MOST_AT_ONCE = 5_000  # records that are taken from the client at once, if a claim asks for so many
TOPIC_WITHIN = 0.5  # seconds for an answer about the topic, when the time of a claim is up
LOOK_EVERY = 0.05  # seconds between two looks of a waiting thread: a clock of the caller's own may have moved


class Claiming(Putting):
    """The claiming half of a queue."""

    def __init__(
        self, site: Connection, terms: Terms, lease: float, facts: TopicFacts, dead_facts: TopicFacts | None
    ) -> None:
        super().__init__(site, terms.queue, facts)
        self.lease = lease
        self.terms = terms
        self.dead_facts = dead_facts
        self._first_partition = 0  # from which the next claim takes first
        self._allowed_at = -1  # how often Kafka had complained when this user had every right

    @property
    def _session(self) -> Session:
        """The site's session. In a forked process this raises before a verb waits for a lock that no thread would release."""
        self.site._check_here()
        return self.site._session

    def claim(self, lease: float | None = None, wait: float = 0) -> Item | None:
        """The next item, yours until its lease ends; None if there is none after `wait` seconds."""
        found = self.claim_many(1, lease, wait)
        return found[0] if found else None

    def claim_many(self, n: int, lease: float | None = None, wait: float = 0) -> list[Item]:
        """Up to n items, as soon as there is one; [] if there is none after `wait` seconds."""
        arguments.count("n", n)
        seconds = self.lease if lease is None else arguments.lease(lease)
        return self._claim(n, seconds, arguments.wait(wait))

    def _claim(
        self,
        n: int,
        seconds: float,
        wait: float,
        jobs: list[Job] | None = None,
        stop: Callable[[], bool] = lambda: False,
        *,
        empty: Callable[[list[KqError]], None] | None = None,
    ) -> list[Item]:
        """jobs: gets a job for each item, if `work` claims. stop, empty: as `_claim_jobs` has them.

        Nothing is left if no item of my partitions is ready, claimed, due later or unread. What cannot be buried does not count.
        """
        until = time.monotonic() + wait
        self._session.fetch.many = min(MOST_AT_ONCE, max(self._session.fetch.many, n))
        ends: dict[Partition, int] = {}  # where my partitions ended when the wait was over
        with self._session.changed:
            self._allowed()
            self._session.load_again(self._broken())  # perhaps a right was granted meanwhile, or a state repaired
            while True:
                self._join(until)  # the group may have put this process out meanwhile
                self._usable_here()
                if items := self._take(n, seconds, jobs):
                    return items
                if stop():
                    return []
                if time.monotonic() < until:
                    self._wait(until)
                elif (since := self._session.loading(self.name)) is not None:
                    self._wait_for(since + ASSIGNED_WITHIN)
                elif not self._session.settled(self.name):
                    continue  # the group put this process out while the claim was on its way
                elif not ends.keys() >= (mine := self._mine()):
                    ends = self._ends(mine)
                    read_by = time.monotonic() + READ_WITHIN
                elif self._behind(ends, mine):
                    self._wait_for(read_by)
                else:
                    if empty is not None and not any(each.in_hand() or each.why_blocked() for each in mine):
                        empty([why for partition in mine for why in partition.order.stuck().values()])
                    return []

    def _broken(self) -> list[Place]:
        """My partitions whose state could not be loaded or stored."""
        return [at for at in self._session.broken if at[0] == self.name]

    def _wait_for(self, limit: float) -> None:
        """Wait for more of what must be read before a claim may return nothing; an error after this time."""
        if time.monotonic() >= limit:
            why = self._session.why_unsettled(self.name) or "the log could not be read to its end in time"
            raise self._nothing_claimed(why)
        self._wait(limit)

    def _nothing_claimed(self, why: str) -> KqError:
        """The error to raise: the topic is gone, Kafka is there and not ready, or no broker answers."""
        self._session.suspected = True
        cluster = self.site.cluster
        kind = Unreachable
        with suppress(Unreachable):
            if not self._unlocked(lambda: state.topic_ids(cluster, [self.name], TOPIC_WITHIN)):
                return self._unlocked(lambda: answers.not_there(cluster, self.name))
            kind = NotNow
        return kind(address=cluster.bootstrap, why=f"{why}. Nothing was claimed")

    def _join(self, until: float = 0.0) -> None:
        """Join the group. The first claim waits for its partitions, later claims wait until `until`. `changed` is held.

        Every claim waits while a state is read. That can happen long after the first claim.
        """
        session, now = self._session, time.monotonic()
        session.terms[self.name] = self.terms
        session.subscriptions.claim(self.name, now)
        if session.settled(self.name):
            return
        session.active = now
        session.start()
        begun = session.begun.setdefault(self.name, now)
        if begun == now:
            session.trouble = ""
        while not session.settled(self.name):
            self._usable_here()
            session.wake.set()
            now = time.monotonic()
            if now > begun + session.decided_after and session.loading(self.name) is None and self._answers():
                # the group tells a member without partitions nothing; one with some would have them by now
                session.joined.add(self.name)
            elif now > max(until, (session.loading(self.name) or begun) + ASSIGNED_WITHIN):
                raise self._nothing_claimed(session.why_unsettled(self.name) or "no answer from its group")
            else:
                session.changed.wait(LOOK_EVERY)

    def _answers(self) -> bool:
        """Does the cluster answer? Its last error may be over, and a member without partitions would not notice that."""
        if self._session.trouble:
            with suppress(Unreachable):
                self._unlocked(lambda: state.topic_ids(self.site.cluster, [self.name], 1.0))
                self._session.trouble = ""
        return not self._session.trouble

    def _usable_here(self) -> None:
        self._usable()
        self._session.unstick()
        if self._session.closing is not None:
            raise Closed(thing=f"site '{self.site.name}'")
        self._allowed()
        for at in self._broken():  # a copy: an error that is raised again keeps all its older tracebacks
            raise copy(self._session.broken[at])

    def _allowed(self, safe: str = "Nothing was claimed.") -> None:
        """`NotAllowed` if a right is missing. Asked before the first claim, and after each error that may be about a right.

        Rights on the group are asked only after an error: joining shows them as soon. `changed` is held.
        """
        complaints, here = self._session.complaints, (self.name, self.site.name)
        if self._allowed_at != complaints:
            try:
                self._unlocked(lambda: answers.check(self.site.cluster, "claim", *here, safe, group=complaints > 0))
            except NotAllowed:
                self._session.subscriptions.refuse(self.name)
                self._session.begun.pop(self.name, None)  # the claim after it is granted waits as the first one does
                raise
            self._allowed_at = complaints

    def _take(self, n: int, seconds: float, jobs: list[Job] | None = None) -> list[Item]:
        """Items that are at hand. If they cannot be handed out (Unreachable, Ctrl-C in a cell), their claim is undone."""
        while True:
            try:
                taken = self._choose(n)
                if not taken:
                    return []
                if items := self._hand_out(taken, seconds, jobs):
                    return items
            except BaseException:
                for partition in self._session.partitions_of(self.name):
                    partition.undo(threading.get_ident())
                raise

    def _choose(self, n: int) -> list[tuple[Partition, Claimed]]:
        """What is at hand, from the partitions in turn."""
        partitions = self._session.partitions_of(self.name)
        taken: list[tuple[Partition, Claimed]] = []
        self._first_partition += 1
        for place in range(len(partitions)):
            partition = partitions[(self._first_partition + place) % len(partitions)]
            claimed = partition.claim(n)
            n -= len(claimed.offsets)
            used_up, partition.used_up = partition.used_up, []
            for offset in used_up:  # by releases or by crashes
                self._session.endings.ask(self._burial(partition, offset, "its attempts are used up"))
            if claimed.offsets:
                taken.append((partition, claimed))
            if not n:
                break
        return taken

    def _hand_out(
        self, taken: list[tuple[Partition, Claimed]], seconds: float, jobs: list[Job] | None = None
    ) -> list[Item]:
        """Commit the attempts that are not stored yet, then make the items."""
        now = time.monotonic()
        self._session.save([partition for partition, claimed in taken if not partition.ahead.covers(claimed, now)])
        items: list[Item] = []
        for partition, claimed in taken:
            if partition.dropped:
                continue
            if partition.leaving:
                partition.undo(threading.get_ident())
                continue
            handed_out = self._items(partition, claimed, partition.start(claimed, seconds))
            items += handed_out
            if jobs is not None:
                jobs += [partition.handle(item) for item in handed_out]
        return items

    def _items(self, partition: Partition, claimed: Claimed, deadline: float) -> list[Item]:
        """The claimed items, without those that a purge has taken meanwhile."""
        lease = claimed.lease
        leases = partition.leases
        records = partition.window.records
        name = self.name
        number = partition.number
        lease_number = lease.number
        epoch = partition.ledger.epoch
        site, topic_id = partition.terms.site, partition.ledger.topic
        new = tuple.__new__  # Item(…) takes twice as long
        return [
            new(Item, (name, number, records[offset], attempt, deadline, epoch, lease_number, site, topic_id))
            for offset, attempt in zip(claimed.offsets, claimed.attempts, strict=True)
            if leases.get(offset) is lease
        ]

    def _wait(self, until: float) -> None:
        """Wait until records come, an item is due or a lease ends; `changed` is held."""
        session, partitions = self._session, self._session.partitions_of(self.name)
        clock = self.terms.clock
        change = min((partition.next_change() for partition in partitions), default=float("inf")) - clock()
        own_clock = LOOK_EVERY if clock is not time.monotonic else 1.0
        session.hungry[self.name] += 1
        session.subscriptions.claim(self.name, time.monotonic())
        session.wake.set()
        try:
            session.changed.wait(max(0.001, min(until - time.monotonic(), change, own_clock)))
        finally:
            session.hungry[self.name] -= 1

    def _mine(self) -> set[Partition]:
        """My partitions, without those that are being given up."""
        return {partition for partition in self._session.partitions_of(self.name) if not partition.leaving}

    def _ends(self, mine: set[Partition]) -> dict[Partition, int]:
        """Their ends now, read-committed. Other threads do not wait for this answer: the lock is released."""
        owned = {partition.at: partition for partition in mine}
        found = self._unlocked(lambda: state.ends(self.site.cluster, list(owned)))
        return {owned[at]: end for at, end in found.items()}

    def _unlocked(self, ask: Callable[[], Any]) -> Any:
        self._session.changed.release()
        try:
            return ask()
        finally:
            self._session.changed.acquire()

    def _behind(self, ends: dict[Partition, int], mine: set[Partition]) -> bool:
        """Is a record below these ends unread, and does no limit stop the reading?"""
        self._session.fetch.full_ones()
        return any(partition.window.target() < ends[partition] and not partition.why_blocked() for partition in mine)

    def _burial(self, partition: Partition, offset: int, reason: str, lease: int = 0) -> Ending:
        """The dead letter of an item and its ack, in one transaction. lease: its number; 0: no worker has it."""
        story: dict[str, Any] = {
            "origin": partition.id_of(offset),
            "site": self.site.name,
            "attempts": partition.ledger.attempts(offset) or 0,
            "reason": reason,
        }
        letter = partial(dead.letter, partition.window.records[offset], **story)

        def anew() -> list[Out]:
            """The letter for the topic as it is now: it may be a new one, or have another limit."""
            facts, _ = self.site._facts(self.name + dead.DEAD)
            self.dead_facts = facts
            out = letter(partitions=facts.partitions, limit=facts.limit)
            if out.size > facts.limit:
                raise LetterTooLarge(topic=out.topic, size=out.size, limit=facts.limit)
            return [out]

        facts = self.dead_facts
        assert facts is not None  # checked before
        return Ending([letter(partitions=facts.partitions, limit=facts.limit)], [Ack(partition, offset, lease)], anew)

    # --- receipts ---

    def _held(self, item: Item) -> Partition:
        """The partition of a claimed item, if its lease holds; else the error that says why not: perhaps a right is missing."""
        try:
            return self._partition_of(item)
        except LeaseLost:
            self._allowed("Nothing was changed.")
            raise

    def _partition_of(self, item: Item) -> Partition:
        check_claimed(item, self.name)
        self.site._check_open()
        partition = self._session.partitions.get((self.name, item.partition))
        if item.site != self.site.name:
            why = f"site '{item.site}' claimed it, and this is site '{self.site.name}'"
        elif partition is None:
            why = "this process does not have its partition (any more)"
        elif item.topic_id != partition.ledger.topic:
            why = RECREATED
        else:
            why = partition.why_not(item.offset, item.epoch, item.lease)
        if why or partition is None:
            raise lease_lost(item.id, why)
        return partition

    def _save(self, partitions: list[Partition], safe: str) -> list[Partition]:
        """Return when what was done in these partitions is stored. Returns those that were lost before that."""
        try:
            return self._session.save(partitions)
        except Unreachable as error:
            raise Unreachable(address=self.site.cluster.bootstrap, why=f"{error.facts['why']}. {safe}") from None

    def _not_stored_in(self, lost: list[Partition]) -> KqError:
        """The error for what was done in these partitions, which were lost before it was stored."""
        partition = max(lost, key=unsure)
        gone = f"'{self.name}': {partition.dropped}, while the ack was on its way"
        if unsure(partition):
            why = f"{gone}, and a commit was not answered: it may have been stored, or not"
            return Unreachable(why, address=self.site.cluster.bootstrap)
        self._allowed("What was acked was not stored.")
        return LeaseLost(f"{gone}: it was not stored")

    def _unclaim(self, items: Sequence[Item]) -> None:
        """Make items ready again that no handler began with; the attempt does not count. Items of lost partitions are skipped."""
        with self._session.changed:
            for item in items:
                with suppress(KqError):
                    self._held(item).unclaim(item.offset)
            self._session.changed.notify_all()

    @property
    def blocked(self) -> str:
        """Why nothing new is handed out although there is something; '' if nothing is in the way."""
        with self._session.changed:
            self._session.fetch.full_ones()
            partitions = self._session.partitions_of(self.name)
            return next(
                filter(None, (partition.why_blocked() or partition.order.why_aside() for partition in partitions)), ""
            )


def unsure(partition: Partition) -> bool:
    """May a commit of it have been stored after the last one that was answered?"""
    return partition.unsure > partition.saved
