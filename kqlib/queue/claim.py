"""Claiming: take under the lock, commit the attempts, hand out. Waits for records, due times and ended leases.

In:  claims from any thread. Out: items, each with a lease in this process; or none, after the log's end was seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from kqlib.errors import Closed, KqError, LeaseLost, LetterTooLarge, NotAllowed, NotClaimed, NotNow, Unreachable
from kqlib.queue import answers, arguments, dead, state
from kqlib.queue.assigned import ANEW
from kqlib.queue.connection import Connection, TopicFacts
from kqlib.queue.item import Item, Out, size
from kqlib.queue.partition import Claimed, Handled, Partition
from kqlib.queue.put import Putting
from kqlib.queue.terms import Terms
from kqlib.queue.transactions import Ending

if TYPE_CHECKING:
    from kqlib.queue.session import Session

FIRST = 10.0  # seconds that the first claim waits for its partitions
SEEN = 10.0  # seconds until a claim gives up reading to the end it saw: milliseconds as a rule, and no answer is not "nothing"
MOST = 5_000  # records that are taken from the client at once, for a claim of so many
ASKED = 0.5  # seconds for an answer about the topic, when the time of a claim is up
LOOK = 0.05  # seconds after which a waiting thread looks again, in any case: a clock of the caller's own may have moved

Taken = tuple[Partition, Claimed]  # of one partition


class Claiming(Putting):
    """The claiming half of a queue."""

    def __init__(
        self, site: Connection, terms: Terms, lease: float, facts: TopicFacts, dead_facts: TopicFacts | None
    ) -> None:
        super().__init__(site, terms.queue, facts)
        self.lease, self.terms, self.dead_facts = lease, terms, dead_facts
        self._turn = 0
        self._allowed_at = -1  # how often Kafka had complained when this user had every right

    @property
    def _member(self) -> Session:
        """The site's session. Every verb comes by here before it takes a lock: after a fork no thread would release that."""
        self.site._check_here()
        return self.site._member

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
        jobs: list[Handled] | None = None,
        stop: Callable[[], bool] = lambda: False,
        *,
        empty: Callable[[list[KqError]], None] | None = None,
    ) -> list[Item]:
        """jobs: filled with a job for each item, if `work` claims. stop: end the wait.

        empty: called if nothing is left in my partitions: nothing at hand, out, due later or unread. Items that cannot be buried are
        not waited for; `empty` gets the reasons.
        """
        until = time.monotonic() + wait
        self._member.fetch.many = min(MOST, max(self._member.fetch.many, n))
        ends: dict[Partition, int] = {}  # where my partitions ended when the wait was over
        with self._member.changed:
            self._allowed()
            self._member.load_again(self._broken())  # perhaps a right was granted meanwhile, or a state repaired
            while True:
                self._join(until)  # the group may have put this process out meanwhile
                self._usable_here()
                if items := self._take(n, seconds, jobs):
                    return items
                if stop():
                    return []
                if time.monotonic() < until:
                    self._wait(until)
                elif (since := self._member.loading(self.name)) is not None:
                    self._wait_for(since + FIRST)
                elif not self._member.settled(self.name):
                    continue  # the group put this process out while the claim was on its way
                elif not ends.keys() >= (mine := self._mine()):
                    ends, seen = self._ends(mine), time.monotonic() + SEEN
                elif self._behind(ends, mine):
                    self._wait_for(seen)
                else:
                    if empty is not None and not any(owner.in_hand() or owner.why_blocked() for owner in mine):
                        empty([why for owner in mine for why in owner.stuck().values()])
                    return []

    def _broken(self) -> list[tuple[str, int]]:
        """My partitions whose state could not be loaded or stored."""
        return [at for at in self._member.broken if at[0] == self.name]

    def _wait_for(self, limit: float) -> None:
        """Wait for what must be read before a claim may return nothing."""
        if time.monotonic() >= limit:
            why = self._member.why_unsettled(self.name) or "the log could not be read to its end in time"
            raise self._nothing_claimed(why)
        self._wait(limit)

    def _nothing_claimed(self, why: str) -> KqError:
        """The error to raise: the topic is gone, Kafka is there and not ready, or no broker answers."""
        self._member.doubted, kind, cluster = True, Unreachable, self.site.cluster
        with suppress(Unreachable):
            if not self._unlocked(lambda: state.topic_ids(cluster, [self.name], ASKED)):
                return self._unlocked(lambda: answers.not_there(cluster, self.name))
            kind = NotNow
        return kind(address=cluster.bootstrap, why=f"{why}. Nothing was claimed")

    def _join(self, until: float = 0.0) -> None:
        """Join the group. The first claim waits for its partitions, later ones until their own time is up. `changed` is held.

        Every claim waits while a state is read: that may happen again long after the first claim.
        """
        member, now = self._member, time.monotonic()
        member.terms[self.name] = self.terms
        member.subscriptions.claim(self.name, now)
        if member.settled(self.name):
            return
        member.active = now
        member.start()
        begun = member.begun.setdefault(self.name, now)
        if begun == now:
            member.trouble = ""
        while not member.settled(self.name):
            self._usable_here()
            member.wake.set()
            now = time.monotonic()
            if now > begun + member.decided_after and member.loading(self.name) is None and self._answers():
                member.joined.add(
                    self.name
                )  # a member without partitions gets no answer: one with some would be here by now
            elif now > max(until, (member.loading(self.name) or begun) + FIRST):
                raise self._nothing_claimed(member.why_unsettled(self.name) or "no answer from its group")
            else:
                member.changed.wait(LOOK)

    def _answers(self) -> bool:
        """Does the cluster answer? Its last error may long be over, and a member without partitions would not notice."""
        if self._member.trouble:
            with suppress(Unreachable):
                self._unlocked(lambda: state.topic_ids(self.site.cluster, [self.name], 1.0))
                self._member.trouble = ""
        return not self._member.trouble

    def _usable_here(self) -> None:
        self._usable()
        self._member.unstick()
        if self._member.closing is not None:
            raise Closed(thing=f"site '{self.site.name}'")
        self._allowed()
        for at in self._broken():  # a new error: the same one raised again would carry every traceback before
            raise copy(self._member.broken[at])

    def _allowed(self, safe: str = "Nothing was claimed.") -> None:
        """`NotAllowed` if a right is missing. Asked before the first claim, and after each error that may be about a right.

        Rights on the group are asked only after an error: joining shows them as soon, and a coordinator that is away must not be
        asked (librdkafka 4605). `changed` is held.
        """
        complaints, here = self._member.complaints, (self.name, self.site.name)
        if self._allowed_at != complaints:
            try:
                self._unlocked(lambda: answers.check(self.site.cluster, "claim", *here, safe, group=complaints > 0))
            except NotAllowed:
                self._member.subscriptions.refuse(self.name)
                self._member.begun.pop(self.name, None)  # the claim after it is granted waits as the first one does
                raise
            self._allowed_at = complaints

    def _take(self, n: int, seconds: float, jobs: list[Handled] | None = None) -> list[Item]:
        """Items that are at hand. If they cannot be handed out (Unreachable, Ctrl-C in a cell) they are taken back."""
        while True:
            try:
                taken = self._choose(n)
                if not taken:
                    return []
                if items := self._hand_out(taken, seconds, jobs):
                    return items
            except BaseException:
                for owner in self._member.owners_of(self.name):
                    owner.undo(threading.get_ident())
                raise

    def _choose(self, n: int) -> list[Taken]:
        """From the partitions in turn, what is at hand."""
        owners = self._member.owners_of(self.name)
        taken: list[Taken] = []
        self._turn += 1
        for place in range(len(owners)):
            owner = owners[(self._turn + place) % len(owners)]
            claimed = owner.claim(n)
            n -= len(claimed.offsets)
            if owner.used_up:
                self._bury_used_up(owner)
            if claimed.offsets:
                taken.append((owner, claimed))
            if not n:
                break
        return taken

    def _hand_out(self, taken: list[Taken], seconds: float, jobs: list[Handled] | None = None) -> list[Item]:
        """Commit the attempts, then make the items."""
        self._member.save([owner for owner, _ in taken])
        items: list[Item] = []
        for owner, claimed in taken:
            if owner.dropped:
                continue
            if owner.leaving:
                owner.undo(threading.get_ident())
                continue
            deadline, (lease, offsets, attempts) = owner.start(claimed, seconds), claimed
            name, partition, records, epoch = self.name, owner.partition, owner.records, owner.ledger.epoch
            site, topic_id = owner.terms.site, owner.ledger.topic
            leases, number, first = owner.leases, lease.number, len(items)
            new = tuple.__new__  # Item(…) takes twice as long
            items += [
                new(Item, (name, partition, records[offset], attempt, deadline, epoch, number, site, topic_id))
                for offset, attempt in zip(offsets, attempts, strict=True)
                if leases.get(offset) is lease  # a purge may have taken it meanwhile
            ]
            if jobs is not None:
                jobs += [owner.handle(item) for item in items[first:]]
        return items

    def _wait(self, until: float) -> None:
        """Until records come, something is due or a lease ends; `changed` is held."""
        member, owners = self._member, self._member.owners_of(self.name)
        clock = self.terms.clock
        change = min((owner.next_change() for owner in owners), default=float("inf")) - clock()
        own_clock = LOOK if clock is not time.monotonic else 1.0
        member.hungry[self.name] += 1
        member.subscriptions.claim(self.name, time.monotonic())
        member.wake.set()
        try:
            member.changed.wait(max(0.001, min(until - time.monotonic(), change, own_clock)))
        finally:
            member.hungry[self.name] -= 1

    def _mine(self) -> set[Partition]:
        """My partitions, but for those that are on their way to another process."""
        return {owner for owner in self._member.owners_of(self.name) if not owner.leaving}

    def _ends(self, mine: set[Partition]) -> dict[Partition, int]:
        """Where they end now, read-committed. Asked without the lock: other threads need not wait for it."""
        owned = {(self.name, owner.partition): owner for owner in mine}
        found = self._unlocked(lambda: state.ends(self.site.cluster, list(owned)))
        return {owned[at]: end for at, end in found.items()}

    def _unlocked(self, ask: Callable[[], Any]) -> Any:
        self._member.changed.release()
        try:
            return ask()
        finally:
            self._member.changed.acquire()

    def _behind(self, ends: dict[Partition, int], mine: set[Partition]) -> bool:
        """Is a part of my logs below these ends unread, and no limit in the way?"""
        self._member.fetch.full_ones()
        return any(owner.target() < ends[owner] and not owner.why_blocked() for owner in mine)

    def _bury_used_up(self, owner: Partition) -> None:
        """Bury items whose attempts are used up, by releases or by crashes."""
        offsets, owner.used_up = owner.used_up, []
        for offset in offsets:
            self._member.endings.ask(self._burial(owner, offset, "its attempts are used up"))

    def _burial(self, owner: Partition, offset: int, reason: str, lease: int = 0) -> Ending:
        """The dead letter of an item, and its ack. lease: its number, if a caller buries it; 0: its attempts are used up."""
        origin, attempts = f"{self.name}/{owner.partition}/{offset}", owner.ledger.attempts(offset) or 0
        story: dict[str, Any] = {"origin": origin, "site": self.site.name, "attempts": attempts, "reason": reason}
        letter = partial(dead.letter, owner.records[offset], **story)

        def anew() -> list[Out]:
            """The letter for the topic as it is now: it may be a new one, or have another limit."""
            facts, _ = self.site._facts(self.name + dead.DEAD)
            self.dead_facts, out = facts, letter(partitions=facts.partitions, limit=facts.limit)
            if (taken := size(out.value, out.key, out.headers or [])) > facts.limit:
                raise LetterTooLarge(topic=out.topic, size=taken, limit=facts.limit)
            return [out]

        facts = self.dead_facts
        assert facts is not None  # checked before
        return Ending([letter(partitions=facts.partitions, limit=facts.limit)], [(owner, offset, lease)], anew)

    # --- receipts ---

    def _held(self, item: Item) -> Partition:
        """The owner of a claimed item, if its lease holds; else the error that says why not: perhaps a right is missing."""
        try:
            return self._lease_of(item)
        except LeaseLost:
            self._allowed("Nothing was changed.")
            raise

    def _lease_of(self, item: Item) -> Partition:
        if not isinstance(item, Item):
            raise NotAllowed(f"this takes an Item that claim() gave, not {type(item).__name__}")
        if item.queue != self.name:
            raise NotAllowed(f"{item.id} is not an item of '{self.name}'")
        if not item.lease:
            raise NotClaimed(f"{item.id} was only looked at (peek). Claim it first")
        self.site._check_open()
        owner = self._member.owners.get((self.name, item.partition))
        if item.site != self.site.name:
            why = f"site '{item.site}' claimed it, and this is site '{self.site.name}'"
        elif owner is None:
            why = "this process does not have its partition (any more)"
        elif item.topic_id != owner.ledger.topic:
            why = ANEW
        else:
            why = owner.why_not(item.offset, item.epoch, item.lease)
        if why or owner is None:
            raise LeaseLost(f"{item.id}: {why}. Nothing was changed; leave it, it comes again if it was not done")
        return owner

    def _save(self, owners: list[Partition], wait: bool, safe: str) -> None:
        if not wait:
            return
        try:
            self._member.save(owners)
        except Unreachable as error:
            raise Unreachable(address=self.site.cluster.bootstrap, why=f"{error.facts['why']}. {safe}") from None
        for owner in sorted(filter(unsaved, owners), key=unsure, reverse=True):
            gone = f"'{self.name}': {owner.dropped}, while the ack was on its way"
            if not unsure(owner):
                self._allowed("What was acked was not stored.")
                raise LeaseLost(f"{gone}: it was not stored")
            why = f"{gone}, and a commit was not answered: it may have been stored, or not"
            raise Unreachable(why, address=self.site.cluster.bootstrap)

    def _unclaim(self, items: Sequence[Item]) -> None:
        """They were not worked on: ready again, and the attempt does not count. Items of lost partitions are skipped."""
        with self._member.changed:
            for item in items:
                with suppress(KqError):
                    self._held(item).unclaim(item.offset)
            self._member.changed.notify_all()

    @property
    def blocked(self) -> str:
        """Why nothing new is handed out although there is something; '' if nothing is in the way."""
        with self._member.changed:
            self._member.fetch.full_ones()
            owners = self._member.owners_of(self.name)
            return next(filter(None, (owner.why_blocked() or owner.why_aside() for owner in owners)), "")


def unsaved(owner: Partition) -> bool:
    """Was its partition taken away before what was done there was stored?"""
    return bool(owner.dropped) and owner.saved < owner.version


def unsure(owner: Partition) -> bool:
    """May a commit of it have been stored after the last one that was answered?"""
    return owner.unsure > owner.saved
